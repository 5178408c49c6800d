//! The port of QEMU's agent in a guest, whose root may write to it what it likes, at any time.
//!
//! Each connection begins with a synchronisation, and what comes before the answer to it is skipped: somebody who has gone may have
//! left half an answer. How much a guest may have skipped is counted over all its connections, as each probe makes some.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::Instant;
use uuid::Uuid;

use super::Answer;
use super::intake::{Intake, MAX_ANSWER};

/// What comes before the answer to a synchronisation.
const MARK: u8 = 0xff;
/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;
/// Longest answer to a synchronisation.
const MAX_SYNCHRONISED: usize = 4096;
/// Bytes that a guest may have skipped.
const MAX_SKIPPED: usize = 1 << 20;
/// All of them are forgotten after this.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A connection that the agent answers on.
#[derive(Debug)]
pub(super) struct Port {
    qemu: UnixStream,
    heard: BytesMut,
    noise: Arc<Noise>,
}

/// What a guest has said that nobody had asked for.
#[derive(Debug, Default)]
pub(super) struct Noise(Mutex<Skipped>);

#[derive(Debug, Default)]
struct Skipped {
    /// What may still come of an answer that was asked for: nobody is to blame for it.
    owed: usize,
    bytes: usize,
    at: Option<Instant>,
}

impl Port {
    /// Connects, and waits for an answer.
    ///
    /// # Errors
    /// When nobody accepts, or the guest says too much else.
    pub(super) async fn open(socket: &Path, noise: Arc<Noise>) -> io::Result<Self> {
        noise.count(0)?;
        let mut port = Self { qemu: UnixStream::connect(socket).await?, heard: BytesMut::new(), noise };
        let id = Uuid::new_v4().as_u64_pair().0 >> 12;
        let request = json!({"execute": "guest-sync-delimited", "arguments": {"id": id}});
        // The mark ends what somebody else may have left half said, at both ends.
        port.qemu.write_all(&[&[MARK], request.to_string().as_bytes(), b"\n"].concat()).await?;
        let is_answer =
            |line: &[u8]| serde_json::from_slice::<Answer<u64>>(line).is_ok_and(|answer| answer.value == Some(id));
        loop {
            port.hear().await?;
            let (found, skipped) = find(&mut port.heard, is_answer);
            port.noise.count(skipped)?;
            if found {
                port.noise.owe(0);
                return Ok(port);
            }
        }
    }

    /// Asks, and takes the answer in.
    ///
    /// # Errors
    /// When the connection ends, or what comes is no answer.
    pub(super) async fn ask(&mut self, request: &Value, mut intake: Intake) -> io::Result<Intake> {
        // Nothing is an answer that comes before the question.
        self.heard.clear();
        // If nobody waits for the end of the answer, the rest of it comes before the next one.
        self.noise.owe(MAX_ANSWER);
        self.qemu.write_all(format!("{request}\n").as_bytes()).await?;
        loop {
            self.hear().await?;
            if intake.take(&self.heard)? {
                self.noise.owe(0);
                return Ok(intake);
            }
            self.heard.clear();
        }
    }

    async fn hear(&mut self) -> io::Result<()> {
        self.heard.reserve(BLOCK);
        match self.qemu.read_buf(&mut self.heard).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl Noise {
    /// So many bytes may come because they were asked for.
    fn owe(&self, bytes: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).owed = bytes;
    }

    fn count(&self, bytes: usize) -> io::Result<()> {
        let is_too_much = self.0.lock().unwrap_or_else(PoisonError::into_inner).add(bytes, Instant::now());
        if !is_too_much {
            return Ok(());
        }
        let what = "the guest sends what nobody asked for, and is not listened to for a while; end what writes to the port \
                    `org.qemu.guest_agent.0` there beside the agent";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

impl Skipped {
    /// Whether it is too much with these.
    fn add(&mut self, bytes: usize, now: Instant) -> bool {
        let of_answer = bytes.min(self.owed);
        self.owed -= of_answer;
        let bytes = bytes - of_answer;
        let passed = self.at.map_or(FORGOTTEN, |at| now.duration_since(at).min(FORGOTTEN));
        let forgotten = MAX_SKIPPED as u128 * passed.as_nanos() / FORGOTTEN.as_nanos();
        self.bytes = self.bytes.saturating_sub(usize::try_from(forgotten).unwrap_or(MAX_SKIPPED)).saturating_add(bytes);
        self.at = Some(now);
        self.bytes > MAX_SKIPPED
    }
}

/// Looks for the answer, and drops what is none; how much that was.
fn find(heard: &mut BytesMut, is_answer: impl Fn(&[u8]) -> bool) -> (bool, usize) {
    let mut skipped = 0;
    while !heard.is_empty() {
        let noise = match heard.split_first() {
            Some((&MARK, rest)) => {
                let end = rest.iter().position(|byte| matches!(*byte, MARK | b'\n')).unwrap_or(rest.len());
                let (line, rest) = rest.split_at(end);
                if rest.is_empty() && line.len() <= MAX_SYNCHRONISED {
                    break;
                }
                if rest.first() == Some(&b'\n') && is_answer(line) {
                    return (true, skipped);
                }
                1 + line.len()
            }
            _ => heard.iter().position(|byte| *byte == MARK).unwrap_or(heard.len()),
        };
        heard.advance(noise);
        skipped += noise;
    }
    (false, skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_behind_what_is_none_however_it_is_cut() {
        let noise: [&[u8]; 4] = [b"half an answer", b"\xff\xff\xffnone\n", b"\xffnone", &[b'x'; 100_000]];
        let noise = noise.concat();
        let heard = [&noise, &b"\xffanswer\nmore"[..]].concat();
        for block in [1, 7, 4096, heard.len()] {
            let (mut buffer, mut skipped, mut most) = (BytesMut::new(), 0, 0);
            let found = heard.chunks(block).any(|block| {
                buffer.extend_from_slice(block);
                let (found, noise) = find(&mut buffer, |line| line == b"answer");
                skipped += noise;
                most = most.max(buffer.len());
                found
            });
            assert!(found && skipped == noise.len(), "{block}: {skipped}");
            assert!(most <= MAX_SYNCHRONISED + block + 1, "{block}: {most}");
        }
    }

    #[test]
    fn what_is_skipped_is_forgotten_after_a_while() {
        let (mut skipped, now) = (Skipped::default(), Instant::now());
        assert!(!skipped.add(MAX_SKIPPED, now));
        assert!(skipped.add(1, now));
        assert!(skipped.add(MAX_SKIPPED / 2 + 1, now + FORGOTTEN / 2));
        assert!(!skipped.add(0, now + FORGOTTEN), "half of it is");
        assert!(!skipped.add(MAX_SKIPPED, now + 3 * FORGOTTEN));
    }

    #[test]
    fn the_rest_of_an_answer_is_no_noise() {
        let (mut skipped, now) = (Skipped { owed: MAX_ANSWER, ..Skipped::default() }, Instant::now());
        assert!(!skipped.add(MAX_ANSWER - 1, now));
        assert!(!skipped.add(1 + MAX_SKIPPED, now) && skipped.add(1, now), "what comes after it is");
    }
}
