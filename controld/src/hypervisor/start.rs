//! Starts of machines: the turn first, then the start. Libvirt takes a few at a time, and what a start is prepared with is good
//! for a short time only, so it is prepared when it has its turn.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::Chain;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};

use super::calls::{PEER, QUICK_DEADLINE, finished};
use super::ffi::{Connection, Domain, LibvirtError};
use super::link::{Lane, Lines, Turn};
use super::machines::existing;
use super::{Hypervisor, WrapperError, log, meaning, monitor};
use crate::trace;

const WHAT: &str = "start the machine";
/// Longer than other calls wait: after a restart of the node all pods come at once.
const TURN_DEADLINE: Duration = Duration::from_secs(600);
/// Between two tries to end a start that is not wanted any more.
const AGAIN: Duration = Duration::from_secs(1);

/// A disk that is to be larger than it is, by libvirt's name of it.
#[derive(Debug)]
pub struct Growth {
    pub target: String,
    pub bytes: u64,
}

/// How a guest begins.
#[derive(Debug)]
pub struct Beginning {
    pub growth: Option<Growth>,
    /// The NICs that have no carrier, each by its place among vmwrapper's.
    pub down: Vec<usize>,
    /// Whether it waits until a person lets it go on.
    pub paused: bool,
}

/// The right to start one machine. Others wait as long as it is held.
#[derive(Debug)]
pub struct StartTurn {
    lines: Arc<Lines>,
    turn: Turn,
}

impl Hypervisor {
    /// Waits for the turn to start a machine; `unwanted` gives it up.
    ///
    /// # Errors
    /// When it is given up, there is no connection, or too many starts take too long.
    pub async fn start_turn(&self, unwanted: &CancellationToken) -> Result<StartTurn> {
        self.turn_to_start(Lane::Starts, unwanted).await
    }

    /// Waits for the turn to start a machine on this lane; `unwanted` gives it up.
    pub(super) async fn turn_to_start(&self, lane: Lane, unwanted: &CancellationToken) -> Result<StartTurn> {
        let turn = unwanted.run_until_cancelled(self.turn(WHAT, lane, TURN_DEADLINE)).await;
        let (lines, turn) = turn.unwrap_or_else(|| {
            Err(Error::new(Kind::State, "the machine was stopped before it was its turn to start"))
        })?;
        Ok(StartTurn { lines, turn })
    }

    /// Gives libvirt the files of a machine's disks, by the names that its description has for them, for its next start on this
    /// connection. libvirt keeps them until the connection ends.
    ///
    /// # Errors
    /// When there is no such machine, or libvirt does not take them.
    pub async fn give_files(&self, id: Uuid, files: Vec<(String, File)>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let give = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            files.iter().try_for_each(|(name, file)| domain.associate(name, file.as_fd()))
        };
        self.call("give the files of the machine's disks", QUICK_DEADLINE, give).await
    }

    /// Does to a guest, which a start held and did not come back to, what that start would have done: again is fine.
    ///
    /// # Errors
    /// When it does not run, or libvirt does not answer.
    pub async fn let_run(&self, id: Uuid, beginning: Beginning) -> Result<()> {
        let run = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            prepare(&domain, &beginning)?;
            if beginning.paused { Ok(()) } else { domain.resume() }
        };
        self.call_in(Lane::Presses, "let the guest run", QUICK_DEADLINE, run).await
    }

    /// Starts a machine, of which libvirt logs at `log`, and has QEMU make a disk larger before its guest runs, if one is to be: firmware that
    /// looks for what to boot at that very moment takes a SCSI disk for one that is not ready. A guest may also be to wait, paused. If it is `unwanted` meanwhile, its process is killed, so that nobody
    /// has to wait for what that waits for.
    ///
    /// # Errors
    /// When it does not start, or is not known to; if vmwrapper said why, that is the cause.
    pub async fn start(
        &self,
        turn: StartTurn,
        id: Uuid,
        log: &Path,
        beginning: Beginning,
        unwanted: &CancellationToken,
    ) -> Result<()> {
        let log = log.to_owned();
        let start = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            let is_held = beginning.growth.is_some() || !beginning.down.is_empty();
            let started = if is_held || beginning.paused { domain.start_paused() } else { domain.start() };
            started.map_err(|error| with_wrappers_word(error, &log))?;
            prepare(&domain, &beginning)?;
            if is_held && !beginning.paused { domain.resume() } else { Ok(()) }
        };
        self.come_up(turn, id, (WHAT, self.shared.start_deadline), unwanted, start).await
    }

    /// Has a machine come up by a call, `what` it does and how long that may take. If it is `unwanted` meanwhile, its process is killed.
    pub(super) async fn come_up(
        &self,
        turn: StartTurn,
        id: Uuid,
        (what, deadline): (&'static str, Duration),
        unwanted: &CancellationToken,
        start: impl FnOnce(&Connection) -> Result<(), LibvirtError> + Send + 'static,
    ) -> Result<()> {
        // While it was being prepared.
        if unwanted.is_cancelled() {
            return Err(Error::new(Kind::State, "the machine was stopped before it was started"));
        }
        let StartTurn { lines, turn } = turn;
        let started = finished(what, deadline, lines.run(turn, start));
        let mut starting = std::pin::pin!(trace::step(PEER, what, started));
        if let Some(started) = unwanted.run_until_cancelled(&mut starting).await {
            self.shared.policy.hear_start(&started);
            return started;
        }
        loop {
            if let Err(error) = self.destroy(id).await {
                tracing::warn!(error = %Chain(&error), "unwanted start not ended; trying again");
            }
            // libvirt may not have come to the start yet: then there was nothing to destroy.
            if let Ok(started) = tokio::time::timeout(AGAIN, &mut starting).await {
                self.shared.policy.hear_start(&started);
                let what = "the machine was stopped while it was being started";
                return started.map_err(|cause| Error::because(Kind::State, what, cause));
            }
        }
    }
}

/// What vmwrapper has said, if libvirt's error does not have it.
pub(super) fn with_wrappers_word(error: LibvirtError, log: &Path) -> LibvirtError {
    let silent = meaning::wrapper_line_of(&error.message).is_none() && error.message.contains("monitor");
    match silent.then(|| log::wrapper_line(log)).flatten() {
        Some(WrapperError { line, .. }) => LibvirtError { message: line, ..error },
        None => error,
    }
}

/// Makes a guest that is held what it is to be before it runs.
fn prepare(domain: &Domain, Beginning { growth, down, paused: _ }: &Beginning) -> Result<(), LibvirtError> {
    growth.iter().for_each(|growth| grow(domain, growth));
    down.iter().try_for_each(|nic| set_carrier(domain, *nic, false))
}

/// Has QEMU tell a guest whether a NIC has a carrier, again as well: libvirt, which knows nothing of it, has no word for that.
pub(super) fn set_carrier(domain: &Domain, nic: usize, is_up: bool) -> Result<(), LibvirtError> {
    let command = format!(r#"{{"execute":"set_link","arguments":{{"name":"vwnet{nic}","up":{is_up}}}}}"#);
    match monitor::refusal(&domain.monitor(&command)?) {
        None => Ok(()),
        Some(why) => {
            let what = if is_up { "gives no carrier to" } else { "takes no carrier from" };
            Err(LibvirtError { code: 0, message: format!("QEMU {what} NIC {nic}: {why}") })
        }
    }
}

/// Makes a disk of a guest that is held larger.
fn grow(domain: &Domain, Growth { target, bytes }: &Growth) {
    // A disk that has not grown is no reason not to run.
    match domain.resize_disk(target, *bytes) {
        Ok(()) => tracing::info!(to = bytes, "root disk has grown"),
        Err(error) => tracing::warn!(%error, "root disk has not grown; the next start tries again"),
    }
}
