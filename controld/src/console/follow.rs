//! Copies one machine's console log to its pod's log, each line once.
//!
//! Started by the container's actor with the machine, or when controld finds it running; ends after [`Follower::finish`],
//! when all is copied. All file work runs off the reactor. A pod's log that cannot be written (a full disk) is tried
//! again at the next output, and at the latest after [`RETRY`]; nothing is skipped.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::crilog;
use super::position::Position;
use super::watch::{Watch, Watcher};

/// When a log that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How long the end of a machine waits for virtlogd to hand over what is still in its pipe.
const WRITER_CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// Read at once. Longer than a piece, so that each read brings at least one line.
const CHUNK: usize = 256 * 1024;
/// Predecessors of the console log that virtlogd may keep.
const MAX_ROTATED: usize = 16;

/// A running copy.
#[derive(Debug)]
pub struct Follower {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Command {
    Reopen(oneshot::Sender<io::Result<()>>),
    Finish { wait_for_writer: bool },
}

impl Follower {
    /// Begins or resumes copying `<dir>/serial.log` to `log`. The log exists when this returns.
    ///
    /// # Errors
    /// When the log or the position cannot be opened.
    pub fn start(watcher: &Watcher, dir: &Path, log: PathBuf) -> io::Result<Self> {
        let watch = watcher.watch(dir)?;
        let copy = Copy::open(dir, log)?;
        let (commands, inbox) = mpsc::channel(4);
        Ok(Self { commands, task: tokio::spawn(run(copy, watch, inbox)) })
    }

    /// The log was renamed away: goes on in a new file of its name.
    ///
    /// # Errors
    /// When the new file cannot be made; the old one is written on.
    pub async fn reopen(&self) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        let ended = || io::Error::other("the machine's log has ended");
        self.commands.send(Command::Reopen(reply)).await.map_err(|_closed| ended())?;
        answer.await.map_err(|_dropped| ended())?
    }

    /// The machine has ended: copies the rest and stops. With `wait_for_writer` the writer is given time to write it.
    pub async fn finish(self, wait_for_writer: bool) {
        // Both fail only if the task has ended already.
        let _ = self.commands.send(Command::Finish { wait_for_writer }).await;
        let _ = self.task.await;
    }
}

async fn run(mut copy: Copy, watch: Watch, mut inbox: mpsc::Receiver<Command>) {
    let mut failing = false;
    loop {
        let copied;
        (copy, copied) = off_reactor(copy, |copy| copy.advance(false)).await;
        report(&copy.log_path, failing, &copied);
        failing = copied.is_err();
        let command = tokio::select! {
            // What is printed while nothing can be written is no reason to try.
            () = watch.changed(), if !failing => continue,
            () = tokio::time::sleep(RETRY), if failing => continue,
            command = inbox.recv() => command,
        };
        match command {
            Some(Command::Reopen(reply)) => {
                let reopened;
                (copy, reopened) = off_reactor(copy, Copy::reopen).await;
                // The caller may be gone.
                let _ = reply.send(reopened);
            }
            Some(Command::Finish { wait_for_writer }) => {
                if wait_for_writer {
                    // Past the deadline we copy what is there.
                    let _ = tokio::time::timeout(WRITER_CLOSE_DEADLINE, writer_closed(&watch)).await;
                }
                let (copy, copied) = off_reactor(copy, |copy| copy.advance(true)).await;
                report(&copy.log_path, failing, &copied);
                return;
            }
            // The actor is gone, so controld is going down: the next one resumes from the position.
            None => return,
        }
    }
}

async fn writer_closed(watch: &Watch) {
    while !watch.writer_closed() {
        watch.changed().await;
    }
}

/// Tells when copying begins to fail and when it works again, and nothing in between.
fn report(log: &Path, was_failing: bool, copied: &io::Result<()>) {
    match copied {
        Err(error) if !was_failing => {
            tracing::warn!(log = %log.display(), %error, "console not copied to the pod's log; trying again");
        }
        Ok(()) if was_failing => tracing::info!(log = %log.display(), "console copied to the pod's log again"),
        Err(_) | Ok(()) => {}
    }
}

async fn off_reactor<T: Send + 'static>(copy: Copy, work: impl FnOnce(&mut Copy) -> T + Send + 'static) -> (Copy, T) {
    let done = tokio::task::spawn_blocking(move || {
        let mut copy = copy;
        let result = work(&mut copy);
        (copy, result)
    });
    match done.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The files of a copy, and how far it is.
#[derive(Debug)]
struct Copy {
    dir: PathBuf,
    log_path: PathBuf,
    log: File,
    position_file: File,
    position: Position,
    /// The file that is being read, with its identity.
    console: Option<(u64, File)>,
    /// Input from the position on: what makes no whole line yet, and, while the log cannot be written, a chunk at most.
    pending: Vec<u8>,
    /// How much of `pending` is from the file before this one. At most a piece, which is far less than a file.
    carried: usize,
}

impl Copy {
    fn open(dir: &Path, log_path: PathBuf) -> io::Result<Self> {
        let path = dir.join("position");
        let position_file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let position = Position::read(&position_file)?;
        let log = open_log(&log_path)?;
        let mut copy = Self {
            dir: dir.to_owned(),
            log_path,
            log,
            position_file,
            position,
            console: None,
            pending: Vec::new(),
            carried: 0,
        };
        copy.catch_up()?;
        Ok(copy)
    }

    /// Counts what an earlier process wrote to the log after its last position.
    fn catch_up(&mut self) -> io::Result<()> {
        let log = self.log.metadata()?;
        let known = if identity(&log) == self.position.log_id { self.position.log_len } else { log.len() };
        let mut unaccounted = log.len().saturating_sub(known);
        while unaccounted > 0 && self.read_more()? {
            let (skipped, written) = crilog::input_behind(&self.pending, unaccounted);
            if skipped == 0 {
                break;
            }
            unaccounted = unaccounted.saturating_sub(written);
            self.consume(skipped);
        }
        self.position.log_id = identity(&log);
        self.position.log_len = log.len();
        self.position.write(&self.position_file)
    }

    /// Copies all there is. Nothing more is read before what was read is written.
    fn advance(&mut self, end: bool) -> io::Result<()> {
        loop {
            self.write_pending(false)?;
            if !self.read_more()? {
                break;
            }
        }
        if end { self.write_pending(true) } else { Ok(()) }
    }

    /// Writes the lines that `pending` makes, in batches: a disk with little room takes what it can.
    fn write_pending(&mut self, end: bool) -> io::Result<()> {
        loop {
            let mut lines = Vec::new();
            let consumed = crilog::format(&self.pending, end, SystemTime::now(), &mut lines);
            if consumed == 0 {
                return Ok(());
            }
            self.write(&lines)?;
            self.consume(consumed);
            self.position.write(&self.position_file)?;
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.log.write_all(lines) {
            // A part of it may be there: take it back, so that the next try does not write it twice.
            let _ = self.log.set_len(self.position.log_len);
            return Err(error);
        }
        self.position.log_len += lines.len() as u64;
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.pending.drain(..bytes);
        if bytes < self.carried || (self.carried == 0) {
            self.position.console_offset += bytes as u64;
            self.carried = self.carried.saturating_sub(bytes);
            return;
        }
        if let Some((id, _)) = &self.console {
            self.position.console_id = *id;
        }
        self.position.console_offset = (bytes - self.carried) as u64;
        self.carried = 0;
    }

    /// Reads the next chunk into `pending`; false at the end of what there is.
    fn read_more(&mut self) -> io::Result<bool> {
        if self.console.is_none() && !self.first_console()? {
            return Ok(false);
        }
        loop {
            let Some((_, console)) = &self.console else { return Ok(false) };
            let start = self.pending.len();
            let offset = if self.carried > 0 { 0 } else { self.position.console_offset };
            self.pending.resize(start + CHUNK, 0);
            let read = console.read_at(&mut self.pending[start..], offset + (start - self.carried) as u64);
            self.pending.truncate(start + *read.as_ref().unwrap_or(&0));
            if read? > 0 {
                return Ok(true);
            }
            if !self.next_console()? {
                return Ok(false);
            }
        }
    }

    /// Finds the file that the position speaks of.
    fn first_console(&mut self) -> io::Result<bool> {
        let mut files = self.consoles()?;
        if let Some(at) = files.iter().position(|(id, _)| *id == self.position.console_id) {
            self.console = Some(files.swap_remove(at));
            return Ok(true);
        }
        // Nothing was copied yet, or virtlogd has dropped the file: the oldest that is left is next.
        let Some((id, file)) = files.pop() else { return Ok(false) };
        self.position.console_id = id;
        self.position.console_offset = 0;
        self.console = Some((id, file));
        Ok(true)
    }

    /// Goes on to the file that follows a finished one; false if the current one is still the newest.
    fn next_console(&mut self) -> io::Result<bool> {
        let Some((id, current)) = &self.console else { return Ok(false) };
        let mut files = self.consoles()?;
        let newer = match files.iter().position(|(other, _)| other == id) {
            Some(0) => return Ok(false),
            Some(at) => at - 1,
            // Dropped by virtlogd while it was read: the oldest that is left comes next.
            None => match files.len().checked_sub(1) {
                Some(oldest) => oldest,
                None => return Ok(false),
            },
        };
        // The writer has left the current file. What it wrote last may have come after our read of it.
        let fresh = self.pending.len() - self.carried;
        let offset = if self.carried > 0 { 0 } else { self.position.console_offset };
        if current.metadata()?.len() > offset + fresh as u64 {
            return Ok(true);
        }
        let next = files.swap_remove(newer);
        // An unfinished line goes on in the next file; until it is whole, the position stays at its start in this one.
        self.carried = self.pending.len();
        if self.carried == 0 {
            self.position.console_id = next.0;
            self.position.console_offset = 0;
        }
        self.console = Some(next);
        Ok(true)
    }

    /// The console log and its predecessors, newest first.
    fn consoles(&self) -> io::Result<Vec<(u64, File)>> {
        let mut files = Vec::new();
        let names = std::iter::once("serial.log".to_owned()).chain((0..MAX_ROTATED).map(|n| format!("serial.log.{n}")));
        for name in names {
            match File::open(self.dir.join(name)) {
                Ok(file) => files.push((identity(&file.metadata()?), file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // While virtlogd rotates, the newest may be missing for a moment, never one in the middle.
                    if !files.is_empty() {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    fn reopen(&mut self) -> io::Result<()> {
        let log = open_log(&self.log_path)?;
        let found = log.metadata()?;
        self.log = log;
        self.position.log_id = identity(&found);
        self.position.log_len = found.len();
        self.position.write(&self.position_file)
    }
}

/// Tells a file from every other, also from a later one that was given its inode number again.
fn identity(file: &Metadata) -> u64 {
    let born = file.created().ok().and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    // Where the filesystem keeps no time of birth, the inode number alone has to do.
    let born = born.map_or(0, |age| age.as_secs() << 30 | u64::from(age.subsec_nanos()));
    file.ino().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ born
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests;
