//! journald as the log of a daemon that systemd has started.
//!
//! Whoever logs waits for a journald that hangs once, and briefly. After that it is only asked whether it takes something again.
//! Until it does, entries are lost; how many is an entry of its own once it works. Nothing waits for stderr, either, which is
//! journald's as well: it has room for some lines while journald is away.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{SndBuf, SndBufForce};
use nix::sys::socket::{MsgFlags, UnixAddr, send, sendto, setsockopt};
use nix::sys::stat::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::entry::{Entry, priority};
use super::pod::Pod;

/// Where journald takes entries.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Longest that an entry waits for a journald that does not read, if the one before did not.
const SEND_DEADLINE: Duration = Duration::from_secs(1);
/// Bytes that may be on their way to journald. libsystemd has as many.
const ON_THE_WAY: usize = 8 << 20;

/// The way to journald.
#[derive(Debug)]
pub struct Journal {
    /// Not connected: journald may be started anew.
    socket: UnixDatagram,
    address: UnixAddr,
    stderr: OwnedFd,
    program: &'static str,
    /// It took nothing when it was last asked.
    hangs: AtomicBool,
    /// Entries that it has not taken, and stderr neither.
    lost: AtomicU64,
    /// Half a line is on stderr.
    torn: AtomicBool,
}

impl Journal {
    /// journald, if this process's stderr is its. `stream` is what the environment has as `JOURNAL_STREAM`.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn of_stderr(stream: Option<&OsStr>, program: &'static str) -> io::Result<Option<Self>> {
        let stderr = io::stderr();
        if !is_stream(stream, &stderr) {
            return Ok(None);
        }
        Self::at(Path::new(SOCKET), stderr.as_fd().try_clone_to_owned()?, program, SEND_DEADLINE).map(Some)
    }

    fn at(path: &Path, stderr: OwnedFd, program: &'static str, patience: Duration) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(patience))?;
        // Without CAP_NET_ADMIN as much as the node lets a socket have (`net.core.wmem_max`).
        setsockopt(&socket, SndBufForce, &ON_THE_WAY).or_else(|_| setsockopt(&socket, SndBuf, &ON_THE_WAY))?;
        Ok(Self {
            socket,
            address: UnixAddr::new(path)?,
            stderr,
            program,
            hangs: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            torn: AtomicBool::new(false),
        })
    }

    /// Sends an entry. What journald cannot be given, because it is away or the entry too large, becomes a line on stderr; what it
    /// does not take is lost.
    fn send(&self, level: Level, entry: Entry, line: &str) {
        let wait = if self.hangs.load(Ordering::Relaxed) { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() };
        match self.offer(entry, line, wait) {
            Ok(()) => self.tell_lost(),
            Err(Errno::EAGAIN) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
            Err(_) => self.write_line(level, line),
        }
    }

    fn offer(&self, entry: Entry, message: &str, wait: MsgFlags) -> nix::Result<()> {
        let entry = entry.with("SYSLOG_IDENTIFIER", self.program).with("MESSAGE", message);
        let flags = wait | MsgFlags::MSG_NOSIGNAL;
        let sent = sendto(self.socket.as_raw_fd(), entry.as_bytes(), &self.address, flags).map(drop);
        self.hangs.store(sent == Err(Errno::EAGAIN), Ordering::Relaxed);
        sent
    }

    /// Says how many entries were lost before the one that was taken.
    fn tell_lost(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost == 0 {
            return;
        }
        let entry = Entry::default().with("PRIORITY", priority(Level::WARN));
        let message = format!("{lost} entries of this log were lost: journald did not take them");
        if self.offer(entry, &message, MsgFlags::MSG_DONTWAIT).is_err() {
            self.lost.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// Writes to stderr, if there is room, what journald reads there later, with the level as it takes it from a line.
    fn write_line(&self, level: Level, line: &str) {
        let mut text = String::new();
        if self.torn.swap(false, Ordering::Relaxed) {
            text.push('\n');
        }
        for line in line.lines() {
            text.extend(["<", priority(level), ">", line, "\n"]);
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(self.stderr.as_raw_fd(), text.as_bytes(), flags) {
            Ok(written) if written == text.len() => {}
            outcome => {
                self.torn.store(outcome.is_ok() || text.starts_with('\n'), Ordering::Relaxed);
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Whether `file` is what `JOURNAL_STREAM` names, by device and inode. Whoever was given another stderr by a program that systemd
/// started has the variable as well.
fn is_stream(stream: Option<&OsStr>, file: impl AsFd) -> bool {
    let Some((device, inode)) = stream.and_then(OsStr::to_str).and_then(|stream| stream.split_once(':')) else {
        return false;
    };
    let (Ok(device), Ok(inode)) = (device.parse::<u64>(), inode.parse::<u64>()) else { return false };
    fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode))
}

/// Makes an entry of each event, whose message is the line that `inner` makes of it.
#[derive(Debug)]
pub(super) struct Entries<F> {
    journal: Journal,
    inner: F,
}

impl<F> Entries<F> {
    pub(super) fn new(journal: Journal, inner: F) -> Self {
        Self { journal, inner }
    }
}

impl<S, N, F> FormatEvent<S, N> for Entries<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, _to: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let level = *event.metadata().level();
        let entry = Entry::default().with("PRIORITY", priority(level));
        let pod = Pod::of(event, context.event_scope());
        let entry = pod.fields().fold(entry, |entry, (name, value)| entry.with(name, value));
        self.journal.send(level, entry, line.trim_end());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
