//! Tokens of the hand-off: who may fetch which pod's descriptors, once, and until when.
//!
//! Pure: clock and randomness are passed in. The service keeps one [`Tokens`] behind a mutex and never waits with it.
//!
//! - A pod has at most one live token: arming it again voids the earlier one, detaching it voids the last.
//! - A token works once. The first peer that may fetch at all consumes it, whatever comes of the fetch: a start that
//!   failed half way is armed anew.
//! - A peer that may not fetch at all (wrong uid, wrong executable) is turned away by the edge *before* its message is
//!   read ([`Tokens::turned_away`] counts it), so it learns nothing about the token and does not consume it. Otherwise
//!   anyone who reads the domain's XML over libvirt's read-only socket could void a start.
//! - Nothing survives a restart of the daemon: a token lives for the moments between `Arm` and the machine's start.
//!
//! Tokens are compared in constant time over all live ones, so that the time of an answer tells nothing about them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::tap::{PodId, Token};

/// Why a token buys nothing. One variant on purpose: which of them it was is the daemon's business alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("token is unknown, used or lapsed; arm the pod and start its machine again")]
pub(crate) struct Refused;

/// All live tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    ttl: Duration,
    armed: BTreeMap<PodId, Armed>,
    refused: u64,
}

#[derive(Debug)]
struct Armed {
    token: Token,
    lapses: Instant,
}

impl Tokens {
    /// No token yet; each is to lapse `ttl` after it was minted.
    pub(crate) const fn new(ttl: Duration) -> Self {
        Self { ttl, armed: BTreeMap::new(), refused: 0 }
    }

    /// Mints the pod's token out of `random`, and voids its earlier one.
    pub(crate) fn arm(&mut self, pod: PodId, random: [u8; 16], now: Instant) -> Token {
        self.drop_lapsed(now);
        let token = Token::from_random(random);
        self.armed.insert(pod, Armed { token: token.clone(), lapses: now + self.ttl });
        token
    }

    /// Voids the pod's token, if it has one.
    pub(crate) fn disarm(&mut self, pod: &PodId) {
        self.armed.remove(pod);
    }

    /// The pod that the token stands for. The token is spent.
    ///
    /// # Errors
    /// When no live token is like it; that is counted.
    pub(crate) fn redeem(&mut self, token: &Token, now: Instant) -> Result<PodId, Refused> {
        self.drop_lapsed(now);
        let mut found = None;
        for (pod, armed) in &self.armed {
            // No early end: the loop takes as long for a miss as for a hit.
            if same(&armed.token, token) {
                found = Some(pod.clone());
            }
        }
        if let Some(pod) = &found {
            self.armed.remove(pod);
        } else {
            self.refused += 1;
        }
        found.ok_or(Refused)
    }

    /// Counts a peer that was not let near the tokens.
    pub(crate) fn turned_away(&mut self) {
        self.refused += 1;
    }

    /// Tokens that bought nothing, and peers that were turned away.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }

    fn drop_lapsed(&mut self, now: Instant) {
        self.armed.retain(|_, armed| now < armed.lapses);
    }
}

/// Whether both are equal, in a time that does not depend on where they differ.
fn same(a: &Token, b: &Token) -> bool {
    let (a, b) = (a.as_str().as_bytes(), b.as_str().as_bytes());
    let differing = a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b));
    // Keeps the compiler from ending the fold early.
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests;
