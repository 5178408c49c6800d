//! A machine's memory, written to a file while the machine stays: it is paused before, and somebody lets it go on afterwards.
//!
//! libvirt's own save ends the machine. What does not is a snapshot of the memory alone, into a file of the same form. QEMU has given
//! up its disks once that is written, until the guest goes on: nothing is left in its caches, and whoever copies a disk meanwhile
//! has what the memory knows of.

use std::path::Path;
use std::time::Duration;

use common::Chain;
use quick_xml::escape::escape;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};

use super::calls::{PEER, QUICK_DEADLINE, finished};
use super::ffi::{Connection, LibvirtError, NO_DOMAIN, OPERATION_INVALID};
use super::link::Lane;
use super::machines::existing;
use super::{Hypervisor, meaning};
use crate::trace;

const WHAT: &str = "write the machine's memory";
/// Of the largest machines, to a slow disk.
const DEADLINE: Duration = Duration::from_secs(1800);
/// How long it waits behind others.
const TURN_DEADLINE: Duration = Duration::from_secs(60);
/// Between two tries to end one that is not wanted any more.
const AGAIN: Duration = Duration::from_secs(1);

impl Hypervisor {
    /// Writes memory and devices of a machine that is paused to a file, in libvirt's form of saved machines. It stays paused. Where it is
    /// `unwanted` meanwhile, libvirt is told to end it.
    ///
    /// # Errors
    /// When there is no such machine, something of it cannot be saved, the file cannot be written, or libvirt does not answer in time.
    pub async fn save_memory(&self, id: Uuid, file: &Path, unwanted: &CancellationToken) -> Result<()> {
        let file = file.to_str().map(str::to_owned).ok_or_else(|| {
            Error::new(Kind::Invalid, format!("`{}` is not UTF-8, which libvirt wants", file.display()))
        })?;
        let save = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            let targets = meaning::targets_of(&domain.xml()?);
            domain.snapshot(&memory_alone(&file, &targets))
        };
        let turn = unwanted.run_until_cancelled(self.turn(WHAT, Lane::Saves, TURN_DEADLINE)).await;
        let (lines, turn) = turn.unwrap_or_else(|| Err(given_up()))?;
        let mut saving = std::pin::pin!(trace::step(PEER, WHAT, finished(WHAT, DEADLINE, lines.run(turn, save))));
        if let Some(saved) = unwanted.run_until_cancelled(&mut saving).await {
            return saved;
        }
        loop {
            if let Err(error) = self.end_save(id).await {
                tracing::warn!(error = %Chain(&error), "memory that is not wanted any more is still written; trying again");
            }
            // libvirt may not have come to it yet: then there was nothing to end.
            if tokio::time::timeout(AGAIN, &mut saving).await.is_ok() {
                return Err(given_up());
            }
        }
    }

    /// Has libvirt end to write a machine's memory; fine if it does not, or there is no such machine.
    ///
    /// # Errors
    /// When libvirt does not answer, or does not do it.
    pub async fn end_save(&self, id: Uuid) -> Result<()> {
        let abort = move |connection: &Connection| match connection.look_up(id)?.map(|domain| domain.abort_job()) {
            Some(Err(error)) if !is_nothing_to_end(&error) => Err(error),
            _ => Ok(()),
        };
        self.call_in(Lane::Presses, "end to write the machine's memory", QUICK_DEADLINE, abort).await
    }
}

fn is_nothing_to_end(error: &LibvirtError) -> bool {
    matches!(error.code, NO_DOMAIN | OPERATION_INVALID)
}

fn given_up() -> Error {
    Error::new(Kind::State, "it was given up before the machine's memory was written")
}

/// A snapshot of no disk: each has to be named, or libvirt would put a layer on it.
fn memory_alone(file: &str, targets: &[String]) -> String {
    let disk = |target: &String| format!("<disk name='{}' snapshot='no'/>", escape(target.as_str()));
    let disks: String = targets.iter().map(disk).collect();
    let file = escape(file);
    format!("<domainsnapshot><memory snapshot='external' file='{file}'/><disks>{disks}</disks></domainsnapshot>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_names_each_disk_and_takes_none() {
        let targets = ["vda".to_owned(), "sdb".to_owned()];
        assert_eq!(
            memory_alone("/c/a&'b/memory", &targets),
            "<domainsnapshot><memory snapshot='external' file='/c/a&amp;&apos;b/memory'/><disks><disk name='vda' snapshot='no'/>\
             <disk name='sdb' snapshot='no'/></disks></domainsnapshot>"
        );
    }

    #[test]
    fn where_nothing_is_written_there_is_nothing_to_end() {
        let error = |code| LibvirtError { code, message: String::new() };
        assert!(is_nothing_to_end(&error(NO_DOMAIN)) && is_nothing_to_end(&error(OPERATION_INVALID)));
        assert!(!is_nothing_to_end(&error(38)), "a system error");
    }
}
