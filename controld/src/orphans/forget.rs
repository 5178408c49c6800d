//! Removes what has no record, because a person said so.

use proto::tap::PodId;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::{Orphan, OrphanKind, Orphans};
use crate::hypervisor::Marked;

impl Orphans {
    /// Removes an orphan for good. It may be done again.
    ///
    /// # Errors
    /// When there is none of that kind and id, when it is in use, or when something of it stays.
    pub async fn forget(&self, kind: OrphanKind, id: &str) -> Result<()> {
        // As it is now: meanwhile it may have gone, or its owner may be back. Without libvirt nobody knows what is in use.
        self.look().await?;
        let orphans = self.known.last_seen();
        let orphan =
            orphans.iter().find(|orphan| orphan.kind == kind && orphan.id == id).ok_or_else(|| absent(kind, id))?;
        let user = self.seen().machines.iter().find(|machine| uses(machine, orphan)).map(|machine| machine.id);
        if let Some(machine) = user {
            let machine = MachineId::from(machine);
            let what =
                format!("{kind} `{id}` is in use by a machine of unknown owner; forget `machine/{machine}` first");
            return Err(Error::new(Kind::State, what));
        }
        match kind {
            OrphanKind::Machine => self.forget_machine(id).await?,
            OrphanKind::Disk => self.forget_disk(id).await?,
            OrphanKind::Network => self.forget_network(id).await?,
            OrphanKind::Console => self.forget_console(id)?,
            OrphanKind::Lease => self.uses.images.release(id).await?,
            OrphanKind::Record => self.forget_record(id).await?,
        }
        tracing::warn!(%kind, id, namespace = orphan.pod.namespace, name = orphan.pod.name, "removed, as somebody asked for");
        self.refresh().await;
        Ok(())
    }
}

/// Whether a machine needs a thing of another kind.
fn uses(machine: &Marked, orphan: &Orphan) -> bool {
    match orphan.kind {
        OrphanKind::Disk => machine.pod_uid == orphan.pod.uid || machine.pod_uid == orphan.id,
        OrphanKind::Lease => machine.pod_uid == orphan.id,
        OrphanKind::Network => machine.sandbox == orphan.id,
        OrphanKind::Console => MachineId::from(machine.id).to_string() == orphan.id,
        OrphanKind::Machine | OrphanKind::Record => false,
    }
}

impl Orphans {
    async fn forget_machine(&self, id: &str) -> Result<()> {
        let id: MachineId = id.parse().map_err(|_none| absent(OrphanKind::Machine, id))?;
        self.uses.hypervisor.clear(id.uuid()).await?;
        self.seen().machines.retain(|machine| machine.id != id.uuid());
        self.remove_console(id).map_err(|cause| {
            Error::because(Kind::Internal, "the machine is gone, but not the files of its console", cause)
        })
    }

    async fn forget_disk(&self, name: &str) -> Result<()> {
        let kept = self.uses.volumes.kept_folders().into_iter().find(|(folder, _)| folder.name() == name);
        let (folder, _) = kept.ok_or_else(|| absent(OrphanKind::Disk, name))?;
        self.drop_folder(&folder).await
    }

    async fn forget_network(&self, id: &str) -> Result<()> {
        let pod: PodId = id.parse().map_err(|_none| absent(OrphanKind::Network, id))?;
        // Its sandbox alone may be on no record.
        if let Some(container) = self.uses.store.containers_of(&pod).iter().find(|container| container.state.may_run())
        {
            let what = format!("network `{id}` is in use by container `{}`; stop that first", container.id);
            return Err(Error::new(Kind::State, what));
        }
        self.uses.tap.detach(pod.clone()).await?;
        self.network_forgotten(&pod).await
    }

    fn forget_console(&self, id: &str) -> Result<()> {
        let machine: MachineId = id.parse().map_err(|_none| absent(OrphanKind::Console, id))?;
        self.remove_console(machine)
            .map_err(|cause| Error::because(Kind::Internal, format!("console `{id}` not removed"), cause))
    }

    async fn forget_record(&self, name: &str) -> Result<()> {
        let record = self.uses.store.unread().into_iter().find(|record| record.name() == name);
        let record = record.ok_or_else(|| absent(OrphanKind::Record, name))?;
        // Once no record is unread any more, a network without one would be a kill's. This one's is not.
        self.keep_all_networks().await?;
        Ok(self.uses.store.forget_unread(&record).await?)
    }
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
        let console = MachineId::from(id).to_string();
        let machine = Marked {
            id,
            name: "virtlet-x".into(),
            sandbox: "s-1".into(),
            pod_uid: "uid-1".into(),
            runs: false,
            was_cut_off: false,
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
