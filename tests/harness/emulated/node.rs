//! A running node, from without.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tempfile::TempDir;

use super::kind::Kind;
use super::machine::{complaints, console, emulator, socket};
use super::silent;
use super::wire::{Order, Outcome, READY, locked, send};
use crate::case::Case;
use crate::config::Config;
use crate::cost::Ran;
use crate::pace::{self, Deadline};
use crate::wait::wait_for;

/// 4 s on a quiet machine.
const BOOT_DEADLINE: Duration = Duration::from_secs(300);
/// A node's clock (see [`pace`]) goes at most so much slower than this machine's: it is busy with its own cases as well. By its
/// clock it kills a case that is at its deadline; here a node is found out that does nothing any more.
const SLOWER: u32 = 4;
/// What the node may take on top of that: to kill it, clean up, and say so.
const GRACE: Duration = Duration::from_secs(60);
/// Lines of the node's console that are shown when it ended.
const TAIL: usize = 40;

#[derive(Debug)]
pub(super) struct Node {
    emulator: Child,
    wire: Mutex<UnixStream>,
    waiting: Arc<Waiting>,
    reader: Option<JoinHandle<()>>,
    dir: TempDir,
    tier: &'static str,
}

/// Who waits for the outcome of which case; `None` once the node ended.
#[derive(Debug)]
struct Waiting(Mutex<Option<HashMap<String, Sender<Outcome>>>>);

impl Node {
    pub(super) fn boot(kind: &Kind, config: &Config) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("vt-node-").tempdir_in("/tmp")?;
        let socket = socket(dir.path());
        let mut emulator = emulator(kind, config, dir.path())?.spawn().context("failed to start QEMU")?;
        let wire = wait_for("socket of the node", BOOT_DEADLINE, || Ok(UnixStream::connect(&socket).ok()));
        let waiting = Arc::new(Waiting(Mutex::new(Some(HashMap::new()))));
        let wire = match wire {
            Ok(wire) => wire,
            Err(failed) => {
                emulator.kill()?;
                emulator.wait()?;
                return Err(failed);
            }
        };
        let (lines, all) = (BufReader::new(wire.try_clone()?), Arc::clone(&waiting));
        let (ready, up) = mpsc::channel();
        waiting.expect(READY, ready)?;
        let reader = std::thread::spawn(move || {
            // An error ends the node as its end does.
            let outcomes = lines.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            outcomes.for_each(|outcome| all.told(outcome));
            all.end();
        });
        let node = Self { emulator, wire: Mutex::new(wire), waiting, reader: Some(reader), dir, tier: kind.tier };
        match pace::receive(&up, Deadline::within(BOOT_DEADLINE)) {
            Ok(_) => Ok(node),
            Err(RecvTimeoutError::Disconnected) => bail!("it ended while it booted:\n{}", node.console()),
            Err(RecvTimeoutError::Timeout) => {
                bail!("not up within {} s:\n{}", BOOT_DEADLINE.as_secs(), node.console())
            }
        }
    }

    /// What its emulator has used so far; nothing once it has ended.
    pub(super) fn processor_s(&self) -> f64 {
        crate::cost::of_process(self.emulator.id()).unwrap_or_default()
    }

    /// How the case went.
    ///
    /// # Errors
    /// When the node does not say.
    pub(super) fn run(&self, case: &Case) -> Result<Ran> {
        let (sender, outcome) = mpsc::channel();
        self.waiting.expect(case.name, sender).with_context(|| self.console())?;
        send(&mut *locked(&self.wire), &Order { case: case.name.to_owned() })?;
        match pace::receive(&outcome, Deadline::within(case.deadline * SLOWER + GRACE)) {
            Ok(Outcome { ended, cost, .. }) => {
                Ok(Ran { outcome: ended.map_err(|failed| anyhow!("in the node: {failed}")), cost })
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the node ended:\n{}", self.console()),
            Err(RecvTimeoutError::Timeout) => {
                // The cases after this one would each wait for it as long.
                self.waiting.end();
                let kept = silent::keep(self.dir.path(), self.tier)?;
                bail!("the node is silent; all that it said is in `{}`, and last:\n{}", kept.display(), self.console())
            }
        }
    }

    fn console(&self) -> String {
        let files =
            [complaints(self.dir.path()), console(self.dir.path())].map(|path| fs::read(path).unwrap_or_default());
        let text = files.concat();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing in it is worth a farewell. Both fail only if it is gone.
        let _gone = self.emulator.kill();
        let _gone = self.emulator.wait();
        if let Some(reader) = self.reader.take() {
            let _panicked = reader.join();
        }
    }
}

impl Waiting {
    fn expect(&self, case: &str, sender: Sender<Outcome>) -> Result<()> {
        locked(&self.0).as_mut().context("the node ended")?.insert(case.to_owned(), sender);
        Ok(())
    }

    fn told(&self, outcome: Outcome) {
        let sender = locked(&self.0).as_mut().and_then(|waiting| waiting.remove(&outcome.case));
        // Nobody: whoever asked gave up.
        let _nobody = sender.map(|sender| sender.send(outcome));
    }

    /// Drops the senders, by which their receivers know.
    fn end(&self) {
        locked(&self.0).take();
    }
}
