//! Pods that are being made of checkpoints. Each says what its NICs are asked to be before it has a network, so that two at once do not ask for
//! the same; and a stop of the pod gives up the copies that it would wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use proto::tap::{MacAddr, PodId};
use tokio_util::sync::CancellationToken;

/// All of them. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Underway(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What gives up the copies of a pod's sandbox.
    copies: HashMap<PodId, CancellationToken>,
    asked: Vec<Asked>,
    /// How often was asked.
    times: u64,
}

/// Addresses that a pod's network is being asked for.
#[derive(Debug)]
pub(super) struct Asked {
    nth: u64,
    /// As people know it.
    pub(super) pod: String,
    pub(super) macs: Vec<MacAddr>,
}

/// Copies of a sandbox, until this is dropped.
#[derive(Debug)]
pub(super) struct Copying<'a> {
    of: &'a Underway,
    id: PodId,
}

/// Addresses that are asked for, until this is dropped.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    of: &'a Underway,
    nth: u64,
}

impl Underway {
    /// Notes that a sandbox's files are copied, which `token` gives up.
    pub(super) fn copying(&self, id: &PodId, token: CancellationToken) -> Copying<'_> {
        self.known(|known| known.copies.insert(id.clone(), token));
        Copying { of: self, id: id.clone() }
    }

    /// Gives up what is copied for a sandbox.
    pub(super) fn give_up(&self, id: &PodId) {
        self.known(|known| known.copies.get(id).map(CancellationToken::cancel));
    }

    /// Chooses which addresses a pod's network is asked for, with those that others are asking for in view, and notes them.
    ///
    /// # Errors
    /// That of the choice.
    pub(super) fn ask<L, E>(
        &self,
        pod: String,
        choose: impl FnOnce(&[Asked]) -> Result<Vec<(L, MacAddr)>, E>,
    ) -> Result<(Vec<(L, MacAddr)>, Asking<'_>), E> {
        self.known(|known| {
            let chosen = choose(&known.asked)?;
            known.times += 1;
            let nth = known.times;
            known.asked.push(Asked { nth, pod, macs: chosen.iter().map(|(_, mac)| *mac).collect() });
            Ok((chosen, Asking { of: self, nth }))
        })
    }

    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.of.known(|known| known.copies.remove(&self.id));
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.of.known(|known| known.asked.retain(|asked| asked.nth != self.nth));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_stop_gives_up_the_copies_of_its_own_pod() {
        let underway = Underway::default();
        let [one, two] = ["one", "two"].map(|id| id.parse::<PodId>().expect("an id"));
        let tokens = [CancellationToken::new(), CancellationToken::new()];
        let _one = underway.copying(&one, tokens[0].clone());
        let two_copies = underway.copying(&two, tokens[1].clone());
        underway.give_up(&one);
        assert!(tokens[0].is_cancelled() && !tokens[1].is_cancelled());
        drop(two_copies);
        underway.give_up(&two);
        assert!(!tokens[1].is_cancelled(), "its copies have ended");
    }

    #[test]
    fn an_address_that_one_is_asking_for_is_seen_by_the_next_until_it_has_its_network() {
        let underway = Underway::default();
        let mac: MacAddr = "02:00:00:00:00:01".parse().expect("a MAC address");
        let ask = |pod: &str| {
            let free = |asked: &[Asked]| {
                let taken = asked.iter().any(|asked| asked.macs.contains(&mac));
                Ok::<_, Infallible>(if taken { Vec::new() } else { vec![("eth0", mac)] })
            };
            underway.ask(pod.to_owned(), free).expect("it cannot fail")
        };
        let (first, asking) = ask("one");
        // Of another UID.
        let (second, _asking) = ask("one");
        assert_eq!((first.len(), second.len()), (1, 0));
        drop(asking);
        assert_eq!(ask("two").0.len(), 1);
    }
}
