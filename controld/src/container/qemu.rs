//! Which process a machine's QEMU is. tapmanager has seen it take the pod's NICs; beside that libvirt writes its number to a file, which
//! may be anywhere: a libvirt in a container, or of another user, has a run directory of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Reason, off_reactor};
use proto::tap::ProcessId;
use vmspec::error::{Error, Kind, Result};

use crate::container::uses::Uses;
use crate::hypervisor::process::STATUS_DIR;
use crate::model::Container;

/// How long tapmanager may take to tell it, from its memory. The machine runs by then, and libvirt's file does as a rule.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// Asks tapmanager for the process of a machine that was started, for all who look at it later.
///
/// # Errors
/// When tapmanager does not answer soon, or is of a release that does not know.
pub(in crate::container) async fn learn(uses: &Uses, container: &Container) -> Result<()> {
    let late = |_elapsed| {
        let within = TOLD_WITHIN.as_secs();
        Error::new(
            Kind::Deadline,
            format!("tapmanager did not tell which process took the pod's NICs within {within} s"),
        )
    };
    let told = tokio::time::timeout(TOLD_WITHIN, uses.tap.machine(container.sandbox.clone())).await.map_err(late)?;
    if let Some(process) = told? {
        uses.processes.tell(container.machine.id.uuid(), process);
    }
    Ok(())
}

/// The number of the process of a machine that runs.
///
/// # Errors
/// When there is none that is known.
pub(in crate::container) async fn find(uses: &Arc<Uses>, container: &Container) -> Result<i32, Reason> {
    let id = container.machine.id.uuid();
    let learned = if uses.processes.told(id).is_some() { Ok(()) } else { learn(uses, container).await };
    let (processes, domain) = (uses.processes.clone(), container.machine.domain.clone());
    let looked = off_reactor(move || {
        let dir = Path::new(STATUS_DIR);
        let found = processes.pid(dir, &domain, id).map_err(Reason::because("failed to find QEMU"))?;
        found.ok_or_else(|| unfound(processes.told(id), learned.err(), dir, &domain))
    });
    looked.await
}

/// Why there is no QEMU. libvirt removes its file when one ends, and a libvirt with another run directory has it elsewhere.
fn unfound(told: Option<ProcessId>, untold: Option<Error>, dir: &Path, domain: &str) -> Reason {
    let file = dir.join(format!("{domain}.pid"));
    if let Some(ProcessId { pid, .. }) = told {
        return Reason::new(format!("QEMU has ended: process {pid}, which took the pod's NICs, is gone"));
    }
    if file.exists() {
        return Reason::new(format!("QEMU has ended: `{}` names no process of this machine", file.display()));
    }
    let what = format!(
        "no process of QEMU is known: tapmanager does not tell which one took the pod's NICs, and there is no `{}`, where libvirt keeps \
         its number; QEMU has ended, or this libvirt has another run directory, for which tapmanager has to be of controld's release",
        file.display()
    );
    match untold {
        Some(error) => Reason::new(what).with(error),
        None => Reason::new(what),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use common::Chain;

    #[test]
    fn an_error_says_what_was_looked_for_and_where() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join("vm.pid");
        let why = |told, untold| Chain(&unfound(told, untold, dir.path(), "vm")).to_string();
        let neither = why(None, Some(Error::new(Kind::Unavailable, "tapmanager is down")));
        assert!(neither.starts_with("no process of QEMU is known: tapmanager does not tell"), "{neither}");
        assert!(neither.contains(&format!("there is no `{}`", file.display())), "{neither}");
        assert!(neither.ends_with(": tapmanager is down"), "{neither}");
        fs::write(&file, "1").expect("written");
        let ended = why(None, None);
        assert!(
            ended.starts_with("QEMU has ended: `") && ended.ends_with("names no process of this machine"),
            "{ended}"
        );
        let told = why(Some(ProcessId { pid: 7, started: 1 }), None);
        assert_eq!(told, "QEMU has ended: process 7, which took the pod's NICs, is gone");
    }
}
