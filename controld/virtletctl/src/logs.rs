//! `logs`: what a machine wrote to its console, from the file that controld keeps of it.
//!
//! controld marks a container as exited only when its log is whole, so that following ends with the last line. On a full
//! disk the rest comes later.

mod unwrap;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::watch::Watcher;
use proto::cri::ContainerState;
use tokio::time::{MissedTickBehavior, interval};
use tonic::Code;

use self::unwrap::Unwrap;
use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::logdir::LogDir;
use super::quantity::Lines;

/// How often a follower asks whether the machine still runs. The log itself tells when it grows.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// Read at once.
const CHUNK: u64 = 64 << 10;

pub(super) async fn run(client: &Client, wanted: &cli::Logs, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let node = Node::read(client).await?.within(&wanted.within);
    let pod = node.find_with(&wanted.pod, wanted.container.as_deref()).map_err(or_lines)?;
    let newest = pod.container()?;
    let (container, is_gone) = match pod.previous() {
        _ if !wanted.previous => (newest, false),
        Ok(previous) => (previous, false),
        // `start` and `restart` keep the log of the container that they replace, and no more of it.
        Err(none) if LogDir::of(&pod.sandbox).is_none() => return Err(none),
        Err(_) => (newest, true),
    };
    let id = &container.id;
    let mut path = PathBuf::from(client.container(id).await?.log_path);
    if path.as_os_str().is_empty() {
        return Err(CtlError::NoLog(pod.name()));
    }
    if is_gone {
        let attempt = newest.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        path = before(&path, attempt).ok_or_else(|| CtlError::NoPrevious(pod.name()))?;
    }
    // What is longer ago than time can tell is all.
    let since = wanted.since.and_then(|span| SystemTime::now().checked_sub(span));
    let mut log = Log::new(path, Unwrap::new(wanted.timestamps, since));
    if wanted.follow && !is_gone {
        return follow(client, id, log, wanted.tail, out).await;
    }
    log.open()?;
    log.skip_to(wanted.tail)?;
    log.print(out)?;
    log.end(out)
}

/// The log of the attempt before, if it is there.
fn before(log: &Path, attempt: u32) -> Option<PathBuf> {
    let log = log.with_file_name(format!("{}.log", attempt.checked_sub(1)?));
    log.is_file().then_some(log)
}

/// By `-n 5` or `-n all`, who knows docker means lines.
fn or_lines(error: CtlError) -> CtlError {
    match error {
        CtlError::NoPod { text, namespace: Some(lines) }
            if lines == "all" || lines.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            CtlError::NoPodButLines { text, lines }
        }
        error => error,
    }
}

async fn follow(
    client: &Client,
    id: &str,
    mut log: Log,
    tail: Lines,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let watcher = Watcher::start();
    // Before the first look, so that nothing is missed in between.
    let dir = log.path.parent().unwrap_or(Path::new("/"));
    let mut watch = watcher.watch(dir).map_err(log.failed("watch directory of"))?;
    if log.open_if_there()? {
        log.skip_to(tail)?;
    }
    let mut ticks = interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        log.print(out)?;
        tokio::select! {
            () = watch.changed() => continue,
            _ = ticks.tick() => {}
        }
        if has_ended(client, id).await? {
            log.print(out)?;
            return log.end(out);
        }
    }
}

async fn has_ended(client: &Client, id: &str) -> Result<bool, CtlError> {
    match client.container(id).await {
        Ok(status) => Ok(status.state() == ContainerState::ContainerExited),
        Err(error) => match error.code() {
            Some(Code::NotFound) => Ok(true),
            // controld restarts; the machine runs on, and so do we.
            Some(Code::Unavailable) => Ok(false),
            _ => Err(error),
        },
    }
}

/// A log that is being printed.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: Option<BufReader<File>>,
    unwrap: Unwrap,
}

impl Log {
    fn new(path: PathBuf, unwrap: Unwrap) -> Self {
        Self { path, file: None, unwrap }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> CtlError {
        let path = self.path.clone();
        move |cause| CtlError::File { action, path, cause }
    }

    fn open(&mut self) -> Result<(), CtlError> {
        self.file =
            Some(BufReader::with_capacity(CHUNK as usize, File::open(&self.path).map_err(self.failed("open"))?));
        Ok(())
    }

    fn open_if_there(&mut self) -> Result<bool, CtlError> {
        match self.open() {
            Ok(()) => Ok(true),
            Err(CtlError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Goes to where the last `tail` lines begin. A line is what the guest wrote as one, however many pieces it is in.
    fn skip_to(&mut self, tail: Lines) -> Result<(), CtlError> {
        let (Some(file), Lines(Some(tail))) = (&mut self.file, tail) else { return Ok(()) };
        let start = start_of_last(file, tail).and_then(|start| file.seek(SeekFrom::Start(start)));
        start.map(drop).map_err(self.failed("read"))
    }

    /// Prints what there is, also of a file that took the place of the one before.
    fn print(&mut self, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
        if self.file.is_none() {
            self.open_if_there()?;
        }
        loop {
            self.print_file(out)?;
            let Some(file) = &self.file else { return Ok(()) };
            let current = file.get_ref().metadata().map_err(self.failed("read"))?;
            match std::fs::metadata(&self.path) {
                Ok(found) if (found.dev(), found.ino()) != (current.dev(), current.ino()) => {}
                // While a log is rotated there may be none for a moment.
                _ => return Ok(()),
            }
            // What was written between our last read and the change of files.
            self.print_file(out)?;
            if !self.open_if_there()? {
                return Ok(());
            }
        }
    }

    fn print_file(&mut self, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
        let mut chunk = Vec::new();
        let mut content = Vec::new();
        loop {
            let Some(file) = &mut self.file else { return Ok(()) };
            chunk.clear();
            let read = file.by_ref().take(CHUNK).read_to_end(&mut chunk);
            if read.map_err(self.failed("read"))? == 0 {
                return Ok(out.flush()?);
            }
            content.clear();
            self.unwrap.feed(&chunk, &mut content);
            out.write_all(&content)?;
        }
    }

    /// Ends a line that was left unfinished.
    fn end(&mut self, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
        let mut rest = Vec::new();
        self.unwrap.end(&mut rest);
        out.write_all(&rest)?;
        Ok(out.flush()?)
    }
}

/// Offset at which the last `tail` lines of a file begin.
fn start_of_last(file: &mut BufReader<File>, tail: usize) -> io::Result<u64> {
    let mut unwrap = Unwrap::default();
    let mut starts = VecDeque::new();
    let mut offset = 0;
    let mut ignored = Vec::new();
    loop {
        let buffer = file.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let read = buffer.len();
        for line in buffer.split_inclusive(|byte| *byte == b'\n') {
            if unwrap.is_between_lines() {
                starts.push_back(offset);
                if starts.len() > tail {
                    starts.pop_front();
                }
            }
            ignored.clear();
            unwrap.feed(line, &mut ignored);
            offset += line.len() as u64;
        }
        file.consume(read);
    }
    Ok(starts.front().copied().unwrap_or(offset))
}

#[cfg(test)]
mod tests;
