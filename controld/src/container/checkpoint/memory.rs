//! The file of the memory that a machine is to go on from. That it is there says that the guest has not run; that it is empty, that it may.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use common::off_reactor;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use vmspec::error::Result;
use vmspec::plan::MachinePlan;

use crate::files::{io_failed, remove};

/// How names of files with memories end.
const MEMORIES: &str = ".memory";

/// Where the memory of a machine is that is to go on from it.
pub(in crate::container) fn memory_of(plan: &MachinePlan) -> PathBuf {
    plan.root.overlay.with_file_name(format!("{}{MEMORIES}", plan.id))
}

/// Has a machine go on from the memory that another one of its pod has not gone on from, if the two are the same but for their names: whether
/// there is one.
///
/// # Errors
/// When the disk fails.
pub(in crate::container) async fn hand_over(from: &MachinePlan, to: &MachinePlan) -> Result<bool> {
    let renamed = MachinePlan { id: to.id, domain: to.domain.clone(), cgroup: to.cgroup.clone(), ..from.clone() };
    if renamed != *to {
        return Ok(false);
    }
    let (from, to) = (memory_of(from), memory_of(to));
    let linked = move || {
        // It may have run.
        if fs::metadata(&from)?.len() == 0 {
            return Ok(false);
        }
        fs::hard_link(from, to).map(|()| true)
    };
    match off_reactor(linked).await {
        // It has run.
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Ok(false),
        handed => {
            handed.map_err(|cause| io_failed("the guest's memory not handed over to the pod's next container", cause))
        }
    }
}

/// Removes memories that a pod's earlier containers have not gone on from.
///
/// # Errors
/// When the disk fails.
pub(in crate::container) async fn forget(machine: &MachinePlan) -> Result<()> {
    let memory = memory_of(machine);
    let removed = off_reactor(move || remove_memories(&memory)).await;
    removed.map_err(|cause| io_failed("a memory that nobody goes on from not removed", cause))
}

/// Empties a memory, if there is one.
pub(super) fn empty(memory: &Path) -> io::Result<bool> {
    match openat(CWD, memory, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(false),
        opened => {
            let file = File::from(opened?);
            file.set_len(0)?;
            // Before anything that the guest writes.
            file.sync_all().map(|()| true)
        }
    }
}

/// Removes the memories in a pod's folder: its earlier containers and a killed controld may have left some.
pub(super) fn remove_memories(one: &Path) -> io::Result<()> {
    let Some(dir) = one.parent() else { return Ok(()) };
    let entries = match fs::read_dir(dir) {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().ends_with(MEMORIES.as_bytes()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::tests::container;

    #[test]
    fn memories_of_earlier_tries_go_and_nothing_else() {
        let dir = tempfile::tempdir().expect("tempdir");
        for name in ["root.qcow2", "a.memory", "b.memory", "memory.json"] {
            fs::write(dir.path().join(name), "").expect("written");
        }
        remove_memories(&dir.path().join("c.memory")).expect("removed");
        let names = fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["memory.json", "root.qcow2"]);
        remove_memories(&dir.path().join("gone/c.memory")).expect("there are none");
    }

    #[tokio::test]
    async fn a_memory_is_the_next_machines_if_that_is_the_same_and_the_last_one_did_not_run() {
        let dir = tempfile::tempdir().expect("tempdir");
        let [mut last, mut next] = [0, 1].map(|attempt| container("vm", attempt).machine);
        for plan in [&mut last, &mut next] {
            plan.root.overlay = dir.path().join("root.qcow2");
        }
        assert!(!hand_over(&last, &next).await.expect("none"));
        fs::write(memory_of(&last), "memory").expect("written");
        let larger = MachinePlan { huge_page: Some(2 << 20), ..next.clone() };
        assert!(!hand_over(&last, &larger).await.expect("another machine"));
        assert!(hand_over(&last, &next).await.expect("the same"));
        assert_eq!(fs::read(memory_of(&next)).expect("handed over"), b"memory");
        fs::remove_file(memory_of(&last)).expect("removed");
        assert!(empty(&memory_of(&next)).expect("emptied") && !empty(&memory_of(&last)).expect("none"));
        assert!(!hand_over(&next, &last).await.expect("it may have run"));
        remove_memories(&memory_of(&next)).expect("it runs");
        assert!(!hand_over(&last, &next).await.expect("it has run"));
    }
}
