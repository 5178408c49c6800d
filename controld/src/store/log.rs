//! The log beside the database: changes of sandboxes that are not in it yet.
//!
//! One change is one line and one write(2), without a flush:
//!
//! ```text
//! 1 <16 hex digits of SHA-256 of the JSON> {"seq":7,"sandbox":"0f1e...","record":{...}}
//! ```
//!
//! The number in front is the version of the line. `seq` counts on for ever; the database knows up to which it has them
//! all, and then the log is emptied. A line without `record` is a removal. A last line that was cut off is what the end of
//! a daemon amid a write leaves, or the end of the node, and was answered to nobody; any other line that cannot be read is
//! kept in the database.

use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use proto::tap::PodId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::StoreError;
use super::change::{Change, Problem, parse_record};
use crate::model::Sandbox;

/// Version of a line.
pub const VERSION: u32 = 1;
/// From this length on, in bytes, changes go to the database itself until it has all of the log.
const MAX_LEN: u64 = 16 << 20;

/// The open log, locked against other processes.
#[derive(Debug)]
pub(super) struct Log {
    file: std::fs::File,
    len: u64,
    last_seq: u64,
    /// Half a line is at the end that could not be taken back: nothing may follow it.
    spoiled: bool,
}

/// What a log held when it was opened.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) lines: Vec<Line>,
    pub(super) unread: Vec<UnreadLine>,
    /// The last line was cut off.
    pub(super) torn: bool,
}

/// A line that was read.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) seq: u64,
    pub(super) sandbox: PodId,
    /// `None` is a removal.
    pub(super) record: Option<Arc<Sandbox>>,
}

/// A line that cannot be read.
#[derive(Debug, PartialEq)]
pub(super) struct UnreadLine {
    pub(super) bytes: Vec<u8>,
    /// The sandbox that it is about, if that much is known.
    pub(super) sandbox: Option<PodId>,
    pub(super) problem: Problem,
}

#[derive(Serialize)]
struct Outgoing<'a> {
    seq: u64,
    sandbox: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a Sandbox>,
}

#[derive(Deserialize)]
struct Incoming {
    seq: u64,
    sandbox: PodId,
    #[serde(default)]
    record: Option<Value>,
}

/// What a line is about, whatever else it says.
#[derive(Deserialize)]
struct Subject {
    sandbox: PodId,
}

// === impl Log ===

impl Log {
    /// Opens or makes the log at `path`, for root alone, and reads it.
    pub(super) fn open(path: &Path) -> Result<(Self, Found), StoreError> {
        let failed = |cause| StoreError::Log { path: path.to_owned(), cause };
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Held { path: path.to_owned() }),
            Err(TryLockError::Error(cause)) => return Err(failed(cause)),
        }
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let mut bytes = Vec::new();
        // What is there now: nobody else writes, and a device has no end.
        let len = file.metadata().map_err(failed)?.len();
        (&file).take(len).read_to_end(&mut bytes).map_err(failed)?;
        let found = parse(&bytes);
        let last_seq = found.lines.iter().map(|line| line.seq).max().unwrap_or(0);
        // Whatever it is that cannot be read: a line behind it would be taken for a part of it.
        let spoiled = bytes.last().is_some_and(|last| *last != b'\n');
        Ok((Self { file, len, last_seq, spoiled }, found))
    }

    /// Counts on from `seq`, if that is more than the log itself says.
    pub(super) fn go_on_from(&mut self, seq: u64) {
        self.last_seq = self.last_seq.max(seq);
    }

    /// Bytes that are in it.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Writes a change of a sandbox; gives its number.
    pub(super) fn append(&mut self, change: &Change) -> io::Result<u64> {
        if self.spoiled || self.len >= MAX_LEN {
            return Err(io::Error::other("the log waits for the database"));
        }
        let seq = self.last_seq + 1;
        let line = line(seq, &change.key.name, change.as_sandbox())?;
        match self.file.write(&line) {
            Ok(written) if written == line.len() => {}
            outcome => {
                self.spoiled = self.file.set_len(self.len).is_err();
                return Err(outcome.err().unwrap_or_else(|| io::ErrorKind::StorageFull.into()));
            }
        }
        self.len += line.len() as u64;
        self.last_seq = seq;
        Ok(seq)
    }

    /// Empties the log if the database has all of it; `false` if it is to be tried again.
    pub(super) fn committed(&mut self, seq: u64) -> bool {
        if seq < self.last_seq || (self.len == 0 && !self.spoiled) {
            return true;
        }
        match self.file.set_len(0) {
            Ok(()) => {
                (self.len, self.spoiled) = (0, false);
                true
            }
            // Its lines are passed over if they are read again.
            Err(error) => {
                tracing::warn!(%error, "log of the database not emptied");
                false
            }
        }
    }
}

fn line(seq: u64, sandbox: &str, record: Option<&Sandbox>) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(&Outgoing { seq, sandbox, record })?;
    let mut line = format!("{VERSION} {} ", checksum(&json)).into_bytes();
    line.extend(json);
    line.push(b'\n');
    Ok(line)
}

/// The first 16 hex digits of SHA-256: enough to tell damage, which nobody does on purpose here.
pub(super) fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn parse(bytes: &[u8]) -> Found {
    let mut found = Found::default();
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        let last = lines.peek().is_none();
        let whole = line.strip_suffix(b"\n");
        match parse_line(whole.unwrap_or(line)) {
            Ok(line) if whole.is_some() => found.lines.push(line),
            // Not even its end was written, or pages of it never were.
            _ if last && (whole.is_none() || line.contains(&0)) => found.torn = true,
            Ok(line) => found.lines.push(line),
            Err((sandbox, problem)) => {
                found.unread.push(UnreadLine { bytes: line.to_vec(), sandbox, problem });
            }
        }
    }
    found
}

/// A line that an earlier start could not read.
pub(super) fn parse_kept(bytes: Vec<u8>) -> Result<Line, UnreadLine> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    parse_line(line).map_err(|(sandbox, problem)| UnreadLine { bytes, sandbox, problem })
}

fn parse_line(line: &[u8]) -> Result<Line, (Option<PodId>, Problem)> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (Some(version), Some(sum), Some(json)) = (parts.next(), parts.next(), parts.next()) else {
        return Err((None, Problem::Other("not a line of the log".into())));
    };
    if checksum(json).as_bytes() != sum {
        return Err((None, Problem::Other("damaged: its checksum is another".into())));
    }
    if version != VERSION.to_string().as_bytes() {
        let found = format!("{} of its line", String::from_utf8_lossy(version));
        // If it still says there which sandbox it is about, what is known of that is older.
        let sandbox = serde_json::from_slice::<Subject>(json).ok().map(|subject| subject.sandbox);
        return Err((sandbox, Problem::Newer { found, known: VERSION.to_string() }));
    }
    let line: Incoming = serde_json::from_slice(json).map_err(|error| (None, Problem::Other(error.to_string())))?;
    let record = line.record.map(parse_record).transpose();
    match record {
        Ok(record) => Ok(Line { seq: line.seq, sandbox: line.sandbox, record: record.map(Arc::new) }),
        Err(problem) => Err((Some(line.sandbox), problem)),
    }
}

#[cfg(test)]
mod tests;
