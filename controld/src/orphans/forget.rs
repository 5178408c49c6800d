//! Removes what has no record, because a person said so.

use proto::tap::PodId;

use super::{Orphan, OrphanKind, consoles, list, networks};
use crate::container::parts::Parts;
use crate::hypervisor::Marked;
use crate::model::ContainerId;
use crate::model::error::{Error, Kind, Result};

/// Removes an orphan for good. It may be done again.
///
/// # Errors
/// When there is none of that kind and id, when it is in use, or when something of it stays.
pub async fn forget(parts: &Parts, kind: OrphanKind, id: &str) -> Result<()> {
    // As it is now: meanwhile it may have gone, or its owner may be back. Without libvirt nobody knows what is in use.
    super::look(parts).await?;
    let orphans = parts.orphans.last_seen();
    let orphan =
        orphans.iter().find(|orphan| orphan.kind == kind && orphan.id == id).ok_or_else(|| absent(kind, id))?;
    let user = parts.orphans.seen().machines.iter().find(|machine| uses(machine, orphan)).map(|machine| machine.id);
    if let Some(machine) = user {
        let machine = ContainerId::from(machine);
        let what = format!("{kind} `{id}` is in use by a machine of unknown owner; forget `machine/{machine}` first");
        return Err(Error::new(Kind::State, what));
    }
    match kind {
        OrphanKind::Machine => machine(parts, id).await?,
        OrphanKind::Disk => disk(parts, id).await?,
        OrphanKind::Network => network(parts, id).await?,
        OrphanKind::Console => console(parts, id)?,
        OrphanKind::Lease => parts.images.release(id).await?,
        OrphanKind::Record => record(parts, id).await?,
    }
    tracing::warn!(%kind, id, pod = orphan.pod.name, "removed, as somebody asked for");
    list::refresh(parts);
    Ok(())
}

/// Whether a machine needs a thing of another kind.
fn uses(machine: &Marked, orphan: &Orphan) -> bool {
    match orphan.kind {
        OrphanKind::Disk => machine.pod_uid == orphan.pod.uid || machine.pod_uid == orphan.id,
        OrphanKind::Lease => machine.pod_uid == orphan.id,
        OrphanKind::Network => machine.sandbox == orphan.id,
        OrphanKind::Console => ContainerId::from(machine.id).to_string() == orphan.id,
        OrphanKind::Machine | OrphanKind::Record => false,
    }
}

async fn machine(parts: &Parts, id: &str) -> Result<()> {
    let id: ContainerId = id.parse().map_err(|_none| absent(OrphanKind::Machine, id))?;
    parts.hypervisor.clear(id.uuid()).await?;
    parts.orphans.seen().machines.retain(|machine| machine.id != id.uuid());
    consoles::remove(parts, id)
        .map_err(|cause| Error::because(Kind::Internal, "the machine is gone, but not the files of its console", cause))
}

async fn disk(parts: &Parts, name: &str) -> Result<()> {
    let kept = parts.volumes.kept_folders().into_iter().find(|(folder, _)| folder.name() == name);
    let (folder, _) = kept.ok_or_else(|| absent(OrphanKind::Disk, name))?;
    parts.drop_folder(&folder).await
}

async fn network(parts: &Parts, id: &str) -> Result<()> {
    let pod: PodId = id.parse().map_err(|_none| absent(OrphanKind::Network, id))?;
    // Its sandbox alone may be on no record.
    if let Some(container) = parts.store.containers_of(&pod).iter().find(|container| container.state.may_run()) {
        let what = format!("network `{id}` is in use by container `{}`; stop that first", container.id);
        return Err(Error::new(Kind::State, what));
    }
    parts.tap.detach(pod.clone()).await?;
    networks::forgotten(parts, &pod).await
}

fn console(parts: &Parts, id: &str) -> Result<()> {
    let container: ContainerId = id.parse().map_err(|_none| absent(OrphanKind::Console, id))?;
    consoles::remove(parts, container)
        .map_err(|cause| Error::because(Kind::Internal, format!("console `{id}` not removed"), cause))
}

async fn record(parts: &Parts, name: &str) -> Result<()> {
    let record = parts.store.unread().into_iter().find(|record| record.name() == name);
    let record = record.ok_or_else(|| absent(OrphanKind::Record, name))?;
    // Once no record is unread any more, a network without one would be a kill's. This one's is not.
    networks::keep_all(parts).await?;
    Ok(parts.store.forget_unread(&record).await?)
}

fn absent(kind: OrphanKind, id: &str) -> Error {
    Error::new(Kind::NotFound, format!("no {kind} `{id}` of unknown owner; `virtletctl orphans` lists them"))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_a_machine_of_unknown_owner_needs_does_not_go_before_it() {
        let id = Uuid::from_u128(7);
        let console = ContainerId::from(id).to_string();
        let machine = Marked {
            id,
            name: "virtlet-x".into(),
            sandbox: "s-1".into(),
            pod_uid: "uid-1".into(),
            runs: false,
            disks: Vec::new(),
        };
        for (kind, named, pod_uid, needed) in [
            (OrphanKind::Disk, "uid-1", "", true),
            (OrphanKind::Disk, "uid-1.1", "uid-1", true),
            (OrphanKind::Disk, "uid-2", "uid-2", false),
            (OrphanKind::Lease, "uid-1", "", true),
            (OrphanKind::Network, "s-1", "", true),
            (OrphanKind::Network, "s-2", "", false),
            (OrphanKind::Console, &console, "", true),
            (OrphanKind::Machine, &console, "uid-1", false),
            (OrphanKind::Record, "containers/x", "uid-1", false),
        ] {
            let mut orphan = Orphan::new(kind, named.to_owned());
            orphan.pod.uid = pod_uid.to_owned();
            assert_eq!(uses(&machine, &orphan), needed, "{kind}/{named}");
        }
    }
}
