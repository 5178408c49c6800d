//! Machines of ours that are on no record, and the pods that are: such a machine keeps its disk, its pod gets another one, and it
//! ends when kubelet stops its very sandbox.

use proto::tap::PodId;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::Orphans;
use crate::hypervisor::Marked;
use crate::model::Sandbox;
use crate::volumes::{Kept, VolumeError};

impl Orphans {
    /// Before a container is made: nothing in the sandbox may be in use by a machine of unknown owner. Disks that are become
    /// nobody's, so that the pod gets others. The network cannot be had twice.
    ///
    /// # Errors
    /// When there is such a machine in the sandbox, or libvirt does not answer and there may be one.
    pub async fn make_room(&self, sandbox: &Sandbox) -> Result<()> {
        let in_sandbox = |machine: &Marked| machine.sandbox == sandbox.id.as_str();
        if let Some(machine) = self.on_no_record(in_sandbox).await?.first() {
            let (id, machine) = (&sandbox.id, MachineId::from(machine.id));
            let what = format!(
                "a machine of unknown owner is in sandbox `{id}`; stop the sandbox, or run `virtletctl forget machine/{machine}`"
            );
            return Err(Error::new(Kind::State, what));
        }
        self.keep_what_is_used(&sandbox.config.uid).await
    }

    /// Keeps those of a pod's disks that machines of unknown owner use: nobody is given them, and they do not go with the pod.
    ///
    /// # Errors
    /// When that cannot be written, or libvirt does not answer and there may be such a machine.
    pub async fn keep_what_is_used(&self, pod_uid: &str) -> Result<()> {
        let machines = self.on_no_record(|machine| machine.pod_uid == pod_uid).await?;
        if machines.is_empty() {
            return Ok(());
        }
        let failed =
            |cause: VolumeError| Error::because(Kind::Internal, "disks of unknown owner cannot be kept", cause);
        for folder in self.uses.volumes.of_pod(pod_uid).map_err(failed)? {
            let uses = |machine: &&Marked| machine.disks.iter().any(|disk| folder.has(disk));
            if let Some(machine) = machines.iter().find(uses) {
                tracing::error!(
                    folder = folder.name(),
                    machine = machine.name,
                    "disks in use by a machine of unknown owner are kept"
                );
                let why = format!("machine `{}`, which is on no record, uses it", MachineId::from(machine.id));
                self.uses.volumes.keep(&folder, Kept::new(why)).map_err(failed)?;
            }
        }
        self.refresh().await;
        Ok(())
    }

    /// Ends machines that are on no record and whose mark names this sandbox, which kubelet stops.
    ///
    /// # Errors
    /// When one does not end, or libvirt does not answer and there may be one.
    pub async fn clear(&self, sandbox: &PodId) -> Result<()> {
        for machine in self.on_no_record(|machine| machine.sandbox == sandbox.as_str()).await? {
            tracing::warn!(machine = machine.name, pod = %sandbox, "ending a machine without record, with its sandbox");
            self.uses.hypervisor.clear(machine.id).await?;
            self.seen().machines.retain(|other| other.id != machine.id);
        }
        Ok(())
    }

    /// Machines of ours without record that are `wanted`. While all records are there libvirt need not be asked: what it had at the
    /// last connection is known, and nothing is made without a record.
    async fn on_no_record(&self, wanted: impl Fn(&Marked) -> bool) -> Result<Vec<Marked>> {
        let known = || -> Vec<Marked> { self.seen().machines.iter().filter(|m| wanted(m)).cloned().collect() };
        if self.in_doubt() || !self.seen().looked || !known().is_empty() {
            self.look().await?;
        }
        Ok(known())
    }

    /// Whether records may be lost.
    pub(super) fn in_doubt(&self) -> bool {
        self.uses.instance.doubt().is_some() || !self.uses.store.unread().is_empty()
    }
}
