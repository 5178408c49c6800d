//! What the log has beyond the database when both are opened.

use super::change::{Change, Table};
use super::log::{Found, Line, UnreadLine, checksum};
use super::{Seen, StoreError, Unread};

/// What is to go from the log into the database.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) changes: Vec<Change>,
    /// Lines that cannot be read.
    pub(super) kept: Vec<Vec<u8>>,
    /// Number of the last line.
    pub(super) log_to: u64,
    /// Nothing is there to be emptied once it is written.
    pub(super) empty_log: bool,
}

/// Shows what the log has beyond its line `has_log_to`, which is the last one that the database has.
pub(super) fn replay(seen: &mut Seen, found: Found, has_log_to: u64) -> Result<Replay, StoreError> {
    if found.torn {
        tracing::warn!("last line of the database's log was cut off; it had been answered to nobody");
    }
    let empty_log = found == Found::default();
    let mut replay = Replay { log_to: has_log_to, empty_log, ..Replay::default() };
    for UnreadLine { bytes, sandbox, problem } in found.unread {
        // Whatever the database has of that sandbox is older.
        if let Some(id) = sandbox {
            seen.sandboxes.remove(&id);
            seen.unread.push(Unread { table: Table::Sandboxes.name(), key: id.to_string(), problem });
        } else {
            seen.unread.push(Unread { table: "log_kept", key: checksum(&bytes), problem });
        }
        replay.kept.push(bytes);
    }
    for Line { seq, sandbox, record } in found.lines {
        replay.log_to = replay.log_to.max(seq);
        let change = match record {
            Some(record) => Change::sandbox(record)?,
            None => Change::no_sandbox(sandbox),
        };
        if seq > has_log_to && seen.not_ours(&change.key).is_none() {
            seen.take(&change);
            replay.changes.push(change);
        }
    }
    Ok(replay)
}
