//! Writes a machine's logs where virtlogd does so no more.
//!
//! QEMU gives what a console prints to virtlogd by a pipe that both have had since the machine's start. A virtlogd that was killed has no
//! successor there (one that is upgraded hands its pipes on): for as long as it runs, QEMU drops what the pipe does not take. The console's
//! socket has all of it, too. So a [`Scribe`] joins the console there, as clients do that are attached, and writes the log in the form that
//! virtlogd gives it by default. What the guest prints between the end of virtlogd and that is lost.
//!
//! The follower of the log tells when a writer has closed it ([`StandIn`]). Whether another has it open is looked up: virtlogd also
//! closes a log that has grown, for a new one, and libvirt may have been told to let QEMU itself write (`stdio_handler` of qemu.conf). So
//! it is looked twice before a scribe writes, and again while it does: it never writes beside another for long.
//!
//! A machine that is for a command has ports without a socket for the command's output and end. There a scribe takes virtlogd's place at the
//! pipes themselves ([`Outlets`]), and nothing is lost that QEMU could not give away meanwhile.
//!
//! Nobody waits for a look ([`super::writers`]): it has a task of its own.

use std::fs::{self, File, OpenOptions};
use std::future;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::off_reactor;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument as _;
use uuid::Uuid;

use super::hub::Consoles;
use super::{COMMAND_END, COMMAND_LOG, SERIAL_LOG};
use crate::hypervisor::process::outlets::Outlets;
use crate::hypervisor::process::{Processes, STATUS_DIR};

/// By then virtlogd has opened the next log, if it has closed one that had grown.
const ROTATION: Duration = Duration::from_secs(1);
/// When it is looked again: after a look that failed, and where nothing tells that a log was closed.
const AGAIN: Duration = Duration::from_secs(60);
/// Size of a log, and predecessors of it that are kept: virtlogd's own by default (`max_size` and `max_backups` of virtlogd.conf).
const MAX: u64 = 2 << 20;
const KEPT: usize = 3;
/// Bytes of a pipe that are written at once: as many as a pipe holds.
const PIPE: usize = 64 << 10;

/// Writes the log of one machine's console, or those of its command.
#[derive(Debug, Clone)]
pub struct Scribe {
    consoles: Arc<Consoles>,
    machine: String,
    dir: PathBuf,
    /// Whose pipes have output and end of a command; a console has a socket.
    command: Option<Qemu>,
}

/// The QEMU of a machine that is for a command.
#[derive(Debug, Clone)]
pub struct Qemu {
    pub processes: Arc<Processes>,
    /// The machine's name in libvirt, and its id.
    pub domain: String,
    pub id: Uuid,
}

/// Has a scribe write where nobody else does.
#[derive(Debug)]
pub(super) struct StandIn {
    scribe: Option<Scribe>,
    /// Whether the last thing that happened to the log was that its writer closed it.
    is_closed: bool,
    /// When it is looked whether the log has a writer.
    look: Option<Instant>,
    /// At most one: it looks, and writes if nobody else does. Its end says whether to look again.
    task: JoinSet<bool>,
    is_writing: Arc<AtomicBool>,
}

/// A log in the form of virtlogd's.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    /// `None` if it could not be made anew.
    file: Option<File>,
    len: u64,
}

// === impl StandIn ===

impl StandIn {
    /// Nobody stands in without a scribe. With `is_running` it is looked at once: the machine may be older than this process, and
    /// its log without a writer.
    pub(super) fn new(scribe: Option<Scribe>, is_running: bool) -> Self {
        let look = (is_running && scribe.is_some()).then(Instant::now);
        Self { scribe, is_closed: false, look, task: JoinSet::new(), is_writing: Arc::default() }
    }

    /// Whether the last thing that happened to the log was that its writer closed it; `None` where nothing tells.
    pub(super) fn heed(&mut self, is_closed: Option<bool>) {
        if self.scribe.is_none() || !self.task.is_empty() {
            return;
        }
        match is_closed {
            None => drop(self.look.get_or_insert_with(|| Instant::now() + AGAIN)),
            Some(is_closed) if is_closed != self.is_closed => {
                self.is_closed = is_closed;
                self.look = is_closed.then(Instant::now);
            }
            Some(_) => {}
        }
    }

    /// Ends when there is something to [`Self::go_on`] with.
    pub(super) async fn due(&mut self) {
        let look = self.look;
        let time = async {
            match look {
                Some(at) => sleep_until(at).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            () = time => {}
            // An empty set says so at once.
            Some(ended) = self.task.join_next() => {
                self.look = ended.unwrap_or(true).then(|| Instant::now() + AGAIN);
            }
        }
    }

    /// Begins a look whose time has come. Never waits.
    pub(super) fn go_on(&mut self) {
        let Some(scribe) = self.scribe.clone().filter(|_| self.look.is_some_and(|at| at <= Instant::now())) else {
            return;
        };
        self.look = None;
        self.is_writing.store(false, Ordering::Relaxed);
        let is_writing = self.is_writing.clone();
        self.task.spawn(async move { scribe.stand_in(&is_writing).await }.in_current_span());
    }

    /// Ends when all is written that the machine, which has ended, has printed.
    pub(super) async fn written(&mut self) {
        if self.is_writing.load(Ordering::Relaxed) {
            while self.task.join_next().await.is_some() {}
        }
        self.task.abort_all();
    }
}

// === impl Scribe ===

impl Scribe {
    /// The scribe of the console of `machine`, whose log is in `dir`.
    #[must_use]
    pub fn new(consoles: Arc<Consoles>, machine: String, dir: PathBuf) -> Self {
        Self { consoles, machine, dir, command: None }
    }

    /// The same of the command that the machine is for.
    #[must_use]
    pub fn of_command(self, qemu: Qemu) -> Self {
        Self { command: Some(qemu), ..self }
    }

    /// Writes if nobody else does, until the machine ends or somebody does; whether to look again.
    async fn stand_in(self, is_writing: &AtomicBool) -> bool {
        match self.has_none().await {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                tracing::warn!(machine = self.machine, %error, "not known whether virtlogd writes this console's log");
                return true;
            }
        }
        match &self.command {
            Some(qemu) => self.stand_in_for_command(qemu.clone(), is_writing).await,
            None => self.stand_in_for_console(is_writing).await,
        }
        true
    }

    async fn stand_in_for_console(&self, is_writing: &AtomicBool) {
        // A machine that has just ended has no console either.
        let Some(output) = self.consoles.listen(&self.machine).await else { return };
        is_writing.store(true, Ordering::Relaxed);
        tracing::warn!(machine = self.machine, "virtlogd does not write this console's log any more; controld does");
        let path = self.dir.join(SERIAL_LOG);
        match off_reactor(move || Log::open(path)).await {
            Ok(log) => self.write(output, log).await,
            Err(error) => tracing::warn!(machine = self.machine, %error, "log of a console not opened"),
        }
    }

    async fn stand_in_for_command(&self, qemu: Qemu, is_writing: &AtomicBool) {
        let Qemu { processes, domain, id } = qemu;
        let Outlets { log, end } = match off_reactor(move || processes.outlets(Path::new(STATUS_DIR), &domain, id))
            .await
        {
            Ok(Some(outlets)) => outlets,
            // A machine that has just ended has none.
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(machine = self.machine, %error, "virtlogd does not write what this machine's command prints any more, nor does controld");
                return;
            }
        };
        is_writing.store(true, Ordering::Relaxed);
        tracing::warn!(
            machine = self.machine,
            "virtlogd does not write what this machine's command prints any more; controld does"
        );
        let [log, end] =
            [(log, COMMAND_LOG), (end, COMMAND_END)].map(|(pipe, name)| drained(pipe, self.dir.join(name)));
        let (log, end) = tokio::join!(log, end);
        if let Err(error) = log.and(end) {
            tracing::warn!(machine = self.machine, %error, "output of a machine's command was lost");
        }
    }

    /// Whether the log has no writer, and that is no moment of a rotation.
    async fn has_none(&self) -> io::Result<bool> {
        if self.has_writer().await? {
            return Ok(false);
        }
        sleep(ROTATION).await;
        Ok(!self.has_writer().await?)
    }

    async fn write(&self, mut output: broadcast::Receiver<Bytes>, mut log: Log) {
        let (mut lost, mut failed, mut look) = (0, None, Instant::now() + ROTATION);
        loop {
            let printed = tokio::select! {
                printed = output.recv() => printed,
                () = sleep_until(look) => {
                    if self.has_writer().await.unwrap_or_default() {
                        tracing::warn!(machine = self.machine, "another process writes this console's log; controld leaves it to that");
                        break;
                    }
                    look = Instant::now() + AGAIN;
                    continue;
                }
            };
            let printed = match printed {
                Ok(printed) => printed,
                // The guest prints faster than the disk takes it.
                Err(RecvError::Lagged(chunks)) => {
                    lost += chunks;
                    continue;
                }
                Err(RecvError::Closed) => break,
            };
            let written;
            (log, written) = off_reactor(move || {
                let written = log.append(&printed);
                (log, written)
            })
            .await;
            // As virtlogd does, it goes on with what comes next: a disk that is full gets room again.
            failed = failed.or(written.err());
        }
        if lost > 0 || failed.is_some() {
            let error = failed.map(|error| error.to_string());
            tracing::warn!(machine = self.machine, chunks = lost, error, "output of a console was lost");
        }
    }

    async fn has_writer(&self) -> io::Result<bool> {
        let written = self.consoles.writers().now().await?;
        Ok(self.dir.file_name().is_some_and(|name| written.contains(name)))
    }
}

/// Writes to the log what comes through the pipe, until there is nobody to write to that.
async fn drained(pipe: OwnedFd, log: PathBuf) -> io::Result<()> {
    let mut pipe = pipe::Receiver::from_owned_fd(pipe)?;
    let mut log = off_reactor(move || Log::open(log)).await?;
    let (mut buffer, mut lost) = (vec![0; PIPE], Ok(()));
    while let read @ 1.. = pipe.read(&mut buffer).await? {
        let printed = Bytes::copy_from_slice(buffer.get(..read).unwrap_or_default());
        let written;
        (log, written) = off_reactor(move || {
            let written = log.append(&printed);
            (log, written)
        })
        .await;
        // As virtlogd does, it goes on with what comes next.
        lost = lost.and(written);
    }
    lost
}

// === impl Log ===

impl Log {
    fn open(path: PathBuf) -> io::Result<Self> {
        let mut log = Self { path, file: None, len: 0 };
        log.reopen()?;
        Ok(log)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.len >= MAX {
            self.rotate()?;
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(bytes)?;
            self.len += bytes.len() as u64;
        }
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        self.len = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Every predecessor moves up, the oldest goes, and the log is to be a new file.
    fn rotate(&mut self) -> io::Result<()> {
        for n in (1..KEPT).rev() {
            match fs::rename(numbered(&self.path, n - 1), numbered(&self.path, n)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _moved_or_absent => {}
            }
        }
        fs::rename(&self.path, numbered(&self.path, 0))?;
        (self.file, self.len) = (None, 0);
        Ok(())
    }
}

fn numbered(log: &Path, n: usize) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixListener;

    use super::*;
    use crate::hypervisor::process::outlets::tests::{ID, machine};

    /// A directory of a name that no other test's has, with a log.
    fn console() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::write(dir.path().join(SERIAL_LOG), "by virtlogd\n").expect("written");
        dir
    }

    fn scribe(dir: &Path) -> Scribe {
        Scribe::new(Arc::new(Consoles::of(dir.to_owned())), "vm".into(), dir.to_owned())
    }

    fn virtlogd(dir: &Path) -> Child {
        let log = OpenOptions::new().append(true).open(dir.join(SERIAL_LOG)).expect("opens");
        Command::new("cat").stdin(Stdio::piped()).stdout(log).spawn().expect("starts")
    }

    fn end(mut child: Child) {
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    #[test]
    fn a_log_grows_and_moves_up_as_virtlogds() {
        let dir = console();
        let mut log = Log::open(dir.path().join(SERIAL_LOG)).expect("opens");
        let chunk = |n: u8| vec![b'0' + n; 1 << 20];
        for n in 0..9 {
            log.append(&chunk(n)).expect("appends");
        }
        let begins = |name: &str| fs::read(dir.path().join(name)).expect("there")[0];
        assert_eq!(["serial.log", "serial.log.0", "serial.log.1", "serial.log.2"].map(begins), *b"8642");
        assert!(!dir.path().join("serial.log.3").exists(), "a guest fills no disk");
    }

    #[test]
    fn a_log_that_cannot_be_made_anew_is_made_later() {
        let dir = console();
        let path = dir.path().join(SERIAL_LOG);
        let mut log = Log::open(path.clone()).expect("opens");
        log.append(&vec![b'x'; 2 << 20]).expect("appends");
        log.rotate().expect("moved up");
        // In its place stands what cannot be opened to write.
        fs::create_dir(&path).expect("made");
        for _ in 0..2 {
            log.append(b"lost\n").expect_err("no file");
        }
        fs::remove_dir(&path).expect("removed");
        log.append(b"there again\n").expect("appends");
        assert_eq!(fs::read_to_string(&path).expect("log"), "there again\n");
        assert!(dir.path().join("serial.log.0").exists() && !dir.path().join("serial.log.1").exists());
    }

    #[tokio::test]
    async fn what_a_console_prints_is_written_until_its_machine_ends() {
        let dir = console();
        let qemu = UnixListener::bind(dir.path().join("vm.sock")).expect("binds");
        let mut stand_in = StandIn::new(Some(scribe(dir.path())), true);
        stand_in.heed(Some(false));
        stand_in.due().await;
        stand_in.go_on();
        let (mut guest, _) = qemu.accept().await.expect("accepts");
        guest.write_all(b"by the guest\n").await.expect("prints");
        drop((guest, qemu));
        assert!(stand_in.task.join_next().await.expect("a task").expect("no panic"), "to be looked at again");
        let log = fs::read_to_string(dir.path().join(SERIAL_LOG)).expect("log");
        assert_eq!(log, "by virtlogd\nby the guest\n");
    }

    #[tokio::test]
    async fn what_a_command_prints_and_how_it_ends_is_written_until_its_machine_ends() {
        let dir = console();
        let (mut child, processes) = machine();
        let qemu = Qemu { processes: Arc::new(processes), domain: "vm".into(), id: ID };
        let mut stand_in = StandIn::new(Some(scribe(dir.path()).of_command(qemu)), true);
        stand_in.due().await;
        stand_in.go_on();
        let mut guest = child.stdin.take().expect("piped");
        let began = Instant::now();
        while !stand_in.is_writing.load(Ordering::Relaxed) {
            assert!(began.elapsed() < AGAIN, "no scribe");
            sleep(Duration::from_millis(10)).await;
        }
        io::Write::write_all(&mut guest, b"oends\n5 why\n").expect("taken");
        drop(guest);
        stand_in.written().await;
        child.wait().expect("ended");
        let read = |name| fs::read_to_string(dir.path().join(name)).expect("log");
        assert!(read(COMMAND_LOG).ends_with("oends\n") && read(COMMAND_END).ends_with("5 why\n"));
        assert_eq!(read(SERIAL_LOG), "by virtlogd\n");
    }

    #[tokio::test]
    async fn a_log_with_a_writer_is_left_to_it() {
        let dir = console();
        let mut stand_in = StandIn::new(Some(scribe(dir.path())), false);
        assert_eq!(stand_in.look, None);
        stand_in.heed(Some(true));
        assert!(stand_in.look.is_some());
        stand_in.heed(Some(false));
        assert_eq!(stand_in.look, None, "it is written to");
        stand_in.heed(None);
        assert!(stand_in.look.is_some_and(|at| at > Instant::now()), "where nothing tells, it is looked now and then");
        let virtlogd = virtlogd(dir.path());
        assert!(!scribe(dir.path()).stand_in(&AtomicBool::default()).await, "not to be looked at again");
        end(virtlogd);
    }

    #[tokio::test]
    async fn a_scribe_leaves_the_log_to_another_writer() {
        let dir = console();
        let (printed, output) = broadcast::channel(8);
        let virtlogd = virtlogd(dir.path());
        let log = Log::open(dir.path().join(SERIAL_LOG)).expect("opens");
        scribe(dir.path()).write(output, log).await;
        drop(printed);
        end(virtlogd);
    }

    #[tokio::test]
    async fn the_end_of_a_machine_does_not_wait_for_a_look() {
        let dir = console();
        let mut stand_in = StandIn::new(Some(scribe(dir.path())), true);
        stand_in.go_on();
        let began = Instant::now();
        stand_in.written().await;
        assert!(began.elapsed() < ROTATION, "{:?}", began.elapsed());
    }
}
