//! The gate early in a guest's boot: `virtlet-agent gate` starts the agent in the background, and ends when the boot may go on. Nothing has
//! read the pod's seed before that, so a guest that is saved here goes on as any pod that it is for.
//!
//! The agent has one end of a pipe, and whoever holds up the boot waits at the other: a byte says that the gate is open, and the end of
//! the pipe that the agent is gone. Either way the boot goes on.
#![expect(unsafe_code, reason = "fork")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeWriter, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::{self, ForkResult, dup2_stdin, setsid};
use proto::agent::{GATE, WARM_FAMILY};

/// What the machine's SMBIOS says.
const FAMILY: &str = "/sys/class/dmi/id/product_family";
/// Made by the first who comes to the gate in a boot.
const MARK: &str = "/run/virtlet/gate";

/// The gate as the agent has it, open unless it was made otherwise.
#[derive(Debug, Default)]
pub(crate) struct Gate(Option<Closed>);

#[derive(Debug)]
struct Closed {
    boot: PipeWriter,
    /// Opens by itself then.
    until: Instant,
}

/// Whether a node wants the boot to wait. It is asked once in each boot: an agent that is started again would say that nothing has read
/// the seed when all has.
pub(crate) fn is_wanted() -> io::Result<bool> {
    let family = fs::read_to_string(FAMILY).unwrap_or_default();
    Ok(family.trim() == WARM_FAMILY && is_first(Path::new(MARK))?)
}

fn is_first(mark: &Path) -> io::Result<bool> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("`{}` not made: {error}", mark.display()));
    mark.parent().map_or(Ok(()), fs::create_dir_all).map_err(named)?;
    match OpenOptions::new().write(true).create_new(true).open(mark) {
        Ok(_made) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(named(error)),
    }
}

/// Goes on as the agent in a process of its own, which gets its gate. The process that calls it gets `None`, once that gate is open.
pub(crate) fn fork(is_closed: bool) -> io::Result<Option<Gate>> {
    let (mut opened, boot) = io::pipe()?;
    // SAFETY: the agent has one thread, so nothing that the child needs is half done in another.
    match unsafe { unistd::fork() }? {
        ForkResult::Parent { .. } => {
            // Or the pipe would not end with the child.
            drop(boot);
            let ended = |_error| io::Error::other("the agent ended before it was told that the boot may go on");
            opened.read_exact(&mut [0]).map_err(ended)?;
            Ok(None)
        }
        ForkResult::Child => {
            setsid()?;
            dup2_stdin(File::open("/dev/null")?)?;
            let mut gate = Gate(Some(Closed { boot, until: Instant::now() + GATE }));
            if !is_closed {
                gate.open();
            }
            Ok(Some(gate))
        }
    }
}

impl Gate {
    /// Whether the boot waits, which it does for as long again: a node is there.
    pub(crate) fn holds(&mut self) -> bool {
        self.0.iter_mut().for_each(|closed| closed.until = Instant::now() + GATE);
        self.0.is_some()
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.0.is_some()
    }

    /// Lets the boot go on; again is fine.
    pub(crate) fn open(&mut self) {
        if let Some(Closed { mut boot, .. }) = self.0.take() {
            // Somebody may have killed who waits.
            let _ = boot.write_all(&[1]);
        }
    }

    /// How long it stays closed by itself.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.0.as_ref().map(|closed| closed.until.saturating_duration_since(Instant::now()))
    }

    /// Opens it if it is time.
    pub(crate) fn pump(&mut self) {
        if self.left().is_some_and(|left| left.is_zero()) {
            self.open();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_opens_by_itself_and_later_if_a_node_is_there() {
        let (mut opened, boot) = io::pipe().unwrap();
        let mut gate = Gate(Some(Closed { boot, until: Instant::now() }));
        assert!(gate.holds() && gate.left().unwrap() > GATE / 2);
        gate.pump();
        assert!(gate.holds());
        gate.0.as_mut().unwrap().until = Instant::now();
        gate.pump();
        assert!(!gate.holds() && gate.left().is_none());
        let mut said = Vec::new();
        opened.read_to_end(&mut said).unwrap();
        assert_eq!(said, [1]);
    }

    #[test]
    fn a_boot_waits_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let mark = dir.path().join("virtlet/gate");
        assert_eq!([is_first(&mark).unwrap(), is_first(&mark).unwrap()], [true, false]);
        // Nor is what cannot be made a mark that is there.
        let error = is_first(&mark.join("below")).unwrap_err().to_string();
        assert!(error.ends_with("/virtlet/gate/below` not made: File exists (os error 17)"), "{error}");
    }
}
