//! journald as the log of a daemon that systemd has started.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::fstat;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::entry::{Entry, priority};
use super::pod::Pod;

/// Where journald takes entries.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Longest that an entry waits for a journald that does not read.
const SEND_DEADLINE: Duration = Duration::from_secs(1);

/// The way to journald.
#[derive(Debug)]
pub struct Journal {
    /// Not connected: journald may be started anew.
    socket: UnixDatagram,
    path: PathBuf,
    program: &'static str,
}

impl Journal {
    /// journald, if this process's stderr is its. `stream` is what the environment has as `JOURNAL_STREAM`.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn of_stderr(stream: Option<&OsStr>, program: &'static str) -> io::Result<Option<Self>> {
        if !is_stream(stream, io::stderr()) {
            return Ok(None);
        }
        Self::at(Path::new(SOCKET), program).map(Some)
    }

    fn at(path: &Path, program: &'static str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_DEADLINE))?;
        Ok(Self { socket, path: path.to_owned(), program })
    }

    /// Sends an entry. What journald does not take, because it is away or the entry too large, becomes a line on stderr.
    fn send(&self, entry: Entry, line: &str) {
        let entry = entry.with("SYSLOG_IDENTIFIER", self.program).with("MESSAGE", line);
        if self.socket.send_to(entry.as_bytes(), &self.path).is_err() {
            // Nobody is left to tell if this fails.
            let _ = writeln!(io::stderr(), "{line}");
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
        let entry = Entry::default().with("PRIORITY", priority(*event.metadata().level()));
        let pod = Pod::of(event, context.event_scope());
        let entry = pod.fields().fold(entry, |entry, (name, value)| entry.with(name, value));
        self.journal.send(entry, line.trim_end());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
