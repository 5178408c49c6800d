//! The work of one copy: from the console log and its predecessors to the pod's log, with the position after each batch.
//!
//! All of it blocks. What is copied, in which file it stands and how far it is survives a kill: [`Position`].

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::pod_log::PodLog;
use crate::guest::console::COMMAND_LOG;
use crate::guest::console::crilog::{self, Form};
use crate::guest::console::position::Position;

/// Read at once. Longer than a piece, so that each read brings at least one line.
pub(super) const CHUNK: usize = 256 * 1024;
/// Predecessors of the console log that virtlogd may keep.
const MAX_ROTATED: usize = 16;

/// The files of a copy, and how far it is.
#[derive(Debug)]
pub(super) struct Copy {
    dir: PathBuf,
    /// Of the console log.
    name: &'static str,
    form: Form,
    log: PodLog,
    pub(super) position_file: File,
    pub(super) position: Position,
    /// The file that is being read, with its identity.
    console: Option<(u64, File)>,
    /// Input from the position on: what makes no whole line yet, and, while the log cannot be written, a chunk at most.
    pub(super) pending: Vec<u8>,
    /// How much of `pending` is from the file before this one. At most a piece, which is far less than a file.
    carried: usize,
}

impl Copy {
    pub(super) fn open(dir: &Path, name: &'static str, log_path: PathBuf, log_limit: u64) -> io::Result<Self> {
        let path = dir.join("position");
        let position_file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let position = Position::read(&position_file)?;
        let form = if name == COMMAND_LOG { Form::Tagged } else { Form::Console };
        let log = PodLog::open(log_path, log_limit)?;
        let mut copy = Self {
            dir: dir.to_owned(),
            name,
            form,
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
            let (skipped, written) = crilog::input_behind(self.form, &self.pending, unaccounted);
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

    /// The pod's log.
    pub(super) fn log_path(&self) -> &Path {
        self.log.path()
    }

    /// Whether the machine has written anything.
    pub(super) fn has_heard(&self) -> bool {
        self.position.console_offset > 0 || !self.pending.is_empty()
    }

    /// Whether the console's directory has been removed.
    pub(super) fn is_removed(&self) -> bool {
        self.position_file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Copies all there is. Nothing more is read before what was read is written.
    pub(super) fn advance(&mut self, end: bool) -> io::Result<()> {
        loop {
            self.write_pending(false)?;
            if !self.read_more()? {
                break;
            }
        }
        // A machine that prints nothing takes no memory for it.
        self.pending.shrink_to_fit();
        if end { self.write_pending(true) } else { Ok(()) }
    }

    /// Writes the lines that `pending` makes, in batches: a disk with little room takes what it can.
    fn write_pending(&mut self, end: bool) -> io::Result<()> {
        loop {
            let mut lines = Vec::new();
            let consumed = crilog::format(self.form, &self.pending, end, SystemTime::now(), &mut lines);
            if consumed == 0 {
                return Ok(());
            }
            self.write(&lines)?;
            self.consume(consumed);
            self.position.write(&self.position_file)?;
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.log.make_room(lines.len(), self.position.log_len)? {
            self.note_log()?;
        }
        self.log.append(lines, self.position.log_len)?;
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
            let offset = offset + (start - self.carried) as u64;
            let there = usize::try_from(console.metadata()?.len().saturating_sub(offset)).unwrap_or(CHUNK);
            self.pending.resize(start + there.min(CHUNK), 0);
            let read = console.read_at(&mut self.pending[start..], offset);
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
        let name = self.name;
        let names = std::iter::once(name.to_owned()).chain((0..MAX_ROTATED).map(|n| format!("{name}.{n}")));
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

    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.log.reopen()?;
        self.note_log()
    }

    /// The log is another file than before.
    fn note_log(&mut self) -> io::Result<()> {
        let found = self.log.metadata()?;
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
