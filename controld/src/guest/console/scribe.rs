//! Writes a console's log where virtlogd does so no more.
//!
//! QEMU gives what a console prints to virtlogd by a pipe that both have had since the machine's start. A virtlogd that was killed has no
//! successor there (one that is upgraded hands its pipes on): for as long as it runs, QEMU drops what the pipe does not take. The console's
//! socket has all of it, too. So a [`Scribe`] joins the console there, as clients do that are attached, and writes the log as virtlogd
//! would: who reads it sees no difference. What the guest prints between the end of virtlogd and that is lost.
//!
//! The follower of the log tells when a writer has closed it. Whether another has it open is looked up in `/proc`: virtlogd also
//! closes a log that has grown, for a new one, and libvirt may have been told to let QEMU itself write (`stdio_handler` of qemu.conf).

use std::fs::{self, File, OpenOptions};
use std::future;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::off_reactor;
use procfs::process::{FDPermissions, FDTarget, Process, all_processes};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use super::SERIAL_LOG;
use super::hub::Consoles;

/// By then virtlogd has opened the next log, if it has closed one that had grown.
const ROTATION: Duration = Duration::from_secs(1);
/// Size of a log, and predecessors of it that are kept: virtlogd's own (`max_size` and `max_backups` of virtlogd.conf).
const MAX: u64 = 2 << 20;
const KEPT: usize = 3;

/// Writes the log of one machine's console.
#[derive(Debug, Clone)]
pub struct Scribe {
    consoles: Arc<Consoles>,
    machine: String,
    dir: PathBuf,
}

/// Has a scribe write where nobody else does.
#[derive(Debug)]
pub(super) struct StandIn {
    scribe: Option<Scribe>,
    /// Whether the last thing that happened to the log was that its writer closed it.
    is_closed: bool,
    /// When it is looked whether the log has a writer.
    look: Option<Instant>,
    writing: JoinSet<()>,
}

/// A log in the form of virtlogd's.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    len: u64,
}

// === impl StandIn ===

impl StandIn {
    /// Nobody stands in without a scribe. With `is_running` it is looked at once: the machine may be older than this process, and
    /// its log without a writer.
    pub(super) fn new(scribe: Option<Scribe>, is_running: bool) -> Self {
        let look = (is_running && scribe.is_some()).then(Instant::now);
        Self { scribe, is_closed: false, look, writing: JoinSet::new() }
    }

    /// Whether the last thing that happened to the log was that its writer closed it.
    pub(super) fn heed(&mut self, is_closed: bool) {
        if is_closed == self.is_closed || self.scribe.is_none() || !self.writing.is_empty() {
            return;
        }
        self.is_closed = is_closed;
        self.look = is_closed.then(|| Instant::now() + ROTATION);
    }

    /// Ends when it is time to [`Self::look`].
    pub(super) async fn due(&self) {
        match self.look {
            Some(at) => sleep_until(at).await,
            None => future::pending().await,
        }
    }

    /// Has the scribe write if nobody else does.
    pub(super) async fn look(&mut self) {
        self.look = None;
        let Some(scribe) = self.scribe.clone() else { return };
        let log = scribe.dir.join(SERIAL_LOG);
        match off_reactor(move || has_writer(&log)).await {
            Ok(true) => {}
            Ok(false) => drop(self.writing.spawn(async move { scribe.write().await }.in_current_span())),
            Err(error) => tracing::debug!(%error, "not known whether a console's log has a writer"),
        }
    }

    /// Ends when all is written that the machine, which has ended, has printed.
    pub(super) async fn written(&mut self) {
        while self.writing.join_next().await.is_some() {}
    }
}

// === impl Scribe ===

impl Scribe {
    /// The scribe of the console of `machine`, whose log is in `dir`.
    #[must_use]
    pub fn new(consoles: Arc<Consoles>, machine: String, dir: PathBuf) -> Self {
        Self { consoles, machine, dir }
    }

    /// Writes until the machine ends.
    async fn write(self) {
        let Some(mut output) = self.consoles.listen(&self.machine).await else { return };
        tracing::warn!(machine = self.machine, "virtlogd does not write this console's log any more; controld does");
        let path = self.dir.join(SERIAL_LOG);
        let mut log = match off_reactor(move || Log::open(path)).await {
            Ok(log) => log,
            Err(error) => return tracing::warn!(machine = self.machine, %error, "log of a console not opened"),
        };
        loop {
            let printed = match output.recv().await {
                Ok(printed) => printed,
                Err(RecvError::Lagged(chunks)) => {
                    tracing::warn!(machine = self.machine, chunks, "output of a console was lost");
                    continue;
                }
                Err(RecvError::Closed) => return,
            };
            let written;
            (log, written) = off_reactor(move || {
                let written = log.append(&printed);
                (log, written)
            })
            .await;
            // As virtlogd does, it goes on with what comes next: a disk that is full gets room again.
            if let Err(error) = written {
                tracing::debug!(machine = self.machine, %error, "output of a console not written");
            }
        }
    }
}

// === impl Log ===

impl Log {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let len = file.metadata()?.len();
        Ok(Self { path, file, len })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.len >= MAX {
            self.rotate()?;
        }
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Every predecessor moves up, the oldest goes, and the log is a new file.
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |n: usize| PathBuf::from(format!("{}.{n}", self.path.display()));
        for n in (1..KEPT).rev() {
            match fs::rename(numbered(n - 1), numbered(n)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _moved_or_absent => {}
            }
        }
        fs::rename(&self.path, numbered(0))?;
        *self = Self::open(std::mem::take(&mut self.path))?;
        Ok(())
    }
}

/// Whether another process has a file open to write it.
fn has_writer(path: &Path) -> io::Result<bool> {
    let file = fs::metadata(path)?;
    let is_it = |process: &Process, fd: i32| {
        let found = fs::metadata(format!("/proc/{}/fd/{fd}", process.pid));
        found.is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
    };
    let own = i32::try_from(std::process::id()).ok();
    // One that ends meanwhile writes nothing.
    let mut others: Vec<_> = all_processes().map_err(io::Error::other)?.filter_map(Result::ok).collect();
    others.retain(|process| Some(process.pid) != own);
    // Mostly it is virtlogd, and then nobody else has to be looked at.
    others.sort_by_cached_key(|process| process.stat().map_or(true, |stat| stat.comm != "virtlogd"));
    Ok(others.iter().any(|process| {
        let open = process.fd().into_iter().flatten().filter_map(Result::ok);
        let mut written = open.filter(|fd| fd.mode().contains(FDPermissions::WRITE));
        written.any(|fd| matches!(fd.target, FDTarget::Path(_)) && is_it(process, fd.fd))
    }))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn a_log_grows_and_moves_up_as_virtlogds() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join(SERIAL_LOG);
        fs::write(&path, "by virtlogd\n").expect("written");
        let mut log = Log::open(path).expect("opens");
        let chunk = |n: u8| vec![b'0' + n; 1 << 20];
        for n in 0..9 {
            log.append(&chunk(n)).expect("appends");
        }
        let begins = |name: &str| fs::read(dir.path().join(name)).expect("there")[0];
        assert_eq!(["serial.log", "serial.log.0", "serial.log.1", "serial.log.2"].map(begins), *b"8642");
        assert!(!dir.path().join("serial.log.3").exists(), "a guest fills no disk");
    }

    #[test]
    fn who_writes_a_file_is_found_by_the_file() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("log");
        let file = File::create(&path).expect("made");
        assert!(!has_writer(&path).expect("looked"), "this process does not count");
        let mut writer = Command::new("cat").stdin(Stdio::piped()).stdout(file).spawn().expect("starts");
        assert!(has_writer(&path).expect("looked"));
        let moved = dir.path().join("log.0");
        fs::rename(&path, &moved).expect("moved");
        assert!(has_writer(&moved).expect("looked"), "by any name");
        writer.kill().expect("killed");
        writer.wait().expect("ended");
        assert!(!has_writer(&moved).expect("looked"));
    }

    #[tokio::test]
    async fn what_a_console_prints_is_written_until_its_machine_ends() {
        let dir = tempfile::tempdir().expect("tempdir");
        let qemu = UnixListener::bind(dir.path().join("vm.sock")).expect("binds");
        fs::write(dir.path().join(SERIAL_LOG), "by virtlogd\n").expect("written");
        let scribe = Scribe::new(Arc::new(Consoles::of(dir.path().to_owned())), "vm".into(), dir.path().to_owned());
        let mut stand_in = StandIn::new(Some(scribe), true);
        stand_in.heed(false);
        stand_in.due().await;
        stand_in.look().await;
        let (mut guest, _) = qemu.accept().await.expect("accepts");
        guest.write_all(b"by the guest\n").await.expect("prints");
        drop(guest);
        stand_in.written().await;
        let log = fs::read_to_string(dir.path().join(SERIAL_LOG)).expect("log");
        assert_eq!(log, "by virtlogd\nby the guest\n");
    }

    #[tokio::test]
    async fn a_log_that_is_rotated_is_left_to_its_writer() {
        let dir = tempfile::tempdir().expect("tempdir");
        let scribe = Scribe::new(Arc::new(Consoles::of(dir.path().to_owned())), "vm".into(), dir.path().to_owned());
        let mut stand_in = StandIn::new(Some(scribe), false);
        assert_eq!(stand_in.look, None);
        stand_in.heed(true);
        assert!(stand_in.look.is_some_and(|at| at > Instant::now()));
        stand_in.heed(false);
        assert_eq!(stand_in.look, None, "it is written to");
        let file = File::create(dir.path().join(SERIAL_LOG)).expect("made");
        let mut virtlogd = Command::new("cat").stdin(Stdio::piped()).stdout(file).spawn().expect("starts");
        stand_in.look().await;
        assert!(stand_in.writing.is_empty());
        virtlogd.kill().expect("killed");
        virtlogd.wait().expect("ended");
    }
}
