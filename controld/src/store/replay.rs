//! What the log has beyond the database when both are opened.

use std::collections::BTreeMap;

use proto::tap::PodId;

use super::change::{Change, Problem, Table};
use super::log::{self, Found, Line, UnreadLine, checksum};
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

/// Shows what the log has beyond its line `has_log_to`, which is the last one that the database has, and what `kept`, lines that
/// earlier starts could not read, say to this one.
pub(super) fn replay(
    seen: &mut Seen,
    kept: BTreeMap<String, Vec<u8>>,
    found: Found,
    has_log_to: u64,
) -> Result<Replay, StoreError> {
    if found.torn {
        tracing::warn!("last line of the database's log was cut off; it had been answered to nobody");
    }
    let empty_log = found == Found::default() && kept.is_empty();
    let mut replay = Replay { log_to: has_log_to, empty_log, ..Replay::default() };
    let mut readable = Vec::new();
    for (name, bytes) in kept {
        match log::parse_kept(bytes) {
            Ok(line) => readable.push((name, line)),
            Err(UnreadLine { sandbox, problem, .. }) => hide(seen, sandbox, name, &problem),
        }
    }
    for UnreadLine { bytes, sandbox, problem } in found.unread {
        hide(seen, sandbox, checksum(&bytes), &problem);
        replay.kept.push(bytes);
    }
    readable.sort_by_key(|(_, line)| line.seq);
    for (name, line) in readable {
        replay.log_to = replay.log_to.max(line.seq);
        let change = line.into_change()?;
        if seen.not_ours(&change.key).is_some() {
            let problem = Problem::Other("a line of the log that is beside one that cannot be read".into());
            seen.unread.push(Unread::new(change.key.table, change.key.name, &problem, Some(name)));
            continue;
        }
        seen.take(&change);
        replay.changes.extend([change, Change::removal(Table::LogKept.key(name))]);
    }
    for line in found.lines {
        let seq = line.seq;
        replay.log_to = replay.log_to.max(seq);
        let change = line.into_change()?;
        if seq > has_log_to && seen.not_ours(&change.key).is_none() {
            seen.take(&change);
            replay.changes.push(change);
        }
    }
    Ok(replay)
}

/// Shows that the line of this name cannot be read. Whatever the database has of its sandbox is older, and not shown.
fn hide(seen: &mut Seen, sandbox: Option<PodId>, name: String, problem: &Problem) {
    let unread = match sandbox {
        Some(id) => {
            seen.sandboxes.remove(&id);
            Unread::new(Table::Sandboxes, id.to_string(), problem, Some(name))
        }
        None => Unread::new(Table::LogKept, name, problem, None),
    };
    seen.unread.push(unread);
}

impl Line {
    fn into_change(self) -> Result<Change, StoreError> {
        match self.record {
            Some(record) => Change::sandbox(record),
            None => Ok(Change::no_sandbox(self.sandbox)),
        }
    }
}
