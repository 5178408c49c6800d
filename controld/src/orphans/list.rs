//! What there is of each kind.

use std::collections::BTreeSet;

use common::{Chain, off_reactor};
use vmspec::error::Result;

use super::{Orphan, OrphanKind, Orphans};
use crate::hypervisor::Marked;
use crate::model::PodName;
use crate::volumes::Folder;

const LOST: &str = "it is on no record: records were lost";

impl Orphans {
    /// Asks libvirt for machines of ours that are on no record. They are left as they are.
    ///
    /// # Errors
    /// When libvirt does not answer; then what was seen last still holds.
    pub async fn look(&self) -> Result<()> {
        let ours = self.uses.hypervisor.list_ours(self.uses.instance.id()).await?;
        let on_record = self.uses.store.machines();
        let mut machines = Vec::new();
        for machine in ours {
            if on_record.contains(&machine.id.into()) {
                continue;
            }
            if machine.was_cut_off && !self.in_doubt() {
                // It was cleared away while libvirt could not forget it.
                match self.uses.hypervisor.clear(machine.id).await {
                    Ok(()) => continue,
                    Err(error) => {
                        tracing::warn!(error = %Chain(&error), machine = machine.name, "machine whose start was cut off not forgotten");
                    }
                }
            }
            // Its record goes last: one that went since the list was made has no machine any more.
            if let Some(disks) = self.uses.hypervisor.disks(machine.id).await? {
                machines.push(Marked { disks, ..machine });
            }
        }
        let known: BTreeSet<_> = self.seen().machines.iter().map(|machine| machine.id).collect();
        for machine in machines.iter().filter(|machine| !known.contains(&machine.id)) {
            tracing::error!(machine = machine.name, id = %machine.id, "machine of unknown owner is kept");
        }
        {
            let mut seen = self.seen();
            (seen.machines, seen.looked) = (machines, true);
        }
        self.refresh().await;
        Ok(())
    }

    /// All orphans, by kind.
    pub async fn list(&self) -> Vec<Orphan> {
        if let Err(error) = self.look().await {
            tracing::warn!(error = %Chain(&error), "machines not listed; those of before are shown");
            self.refresh().await;
        }
        self.known.last_seen()
    }

    /// Puts the list together anew.
    pub(super) async fn refresh(&self) {
        let this = self.clone();
        off_reactor(move || this.put_together()).await;
    }

    /// Reads directories, but waits for nobody.
    fn put_together(&self) {
        let (machines, networks) = {
            let seen = self.seen();
            (seen.machines.clone(), seen.networks.clone())
        };
        let mut all: Vec<_> = machines.iter().map(machine).collect();
        for (folder, kept) in self.uses.volumes.kept_folders() {
            let owner = self.uses.volumes.inspect(folder.clone()).owner.ok().flatten();
            all.push(Orphan {
                pod: owner.as_ref().map(PodName::from).unwrap_or_default(),
                since: kept.since,
                why: kept.why,
                bytes: folder.bytes(),
                ..Orphan::new(OrphanKind::Disk, folder.name().to_owned())
            });
        }
        all.extend(networks.iter().map(|network| Orphan {
            pod: PodName { namespace: network.namespace.clone(), name: network.name.clone(), ..PodName::default() },
            ..Orphan::new(OrphanKind::Network, network.pod.to_string())
        }));
        all.extend(
            self.left_consoles()
                .into_iter()
                .map(|id| Orphan { bytes: self.console_bytes(id), ..Orphan::new(OrphanKind::Console, id.to_string()) }),
        );
        // Every lease is a folder's, which is made before it and goes after it.
        match self.uses.volumes.folders() {
            Ok(folders) => {
                let with_folder: BTreeSet<_> = folders.iter().map(Folder::name).collect();
                let leases =
                    self.uses.images.holders().into_iter().filter(|holder| !with_folder.contains(holder.as_str()));
                all.extend(leases.map(|holder| Orphan::new(OrphanKind::Lease, holder)));
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "leases not compared with folders"),
        }
        all.extend(
            self.uses
                .store
                .unread()
                .into_iter()
                .map(|record| Orphan { why: record.problem.clone(), ..Orphan::new(OrphanKind::Record, record.name()) }),
        );
        self.seen().listed = all;
    }
}

fn machine(marked: &Marked) -> Orphan {
    Orphan {
        pod: PodName { uid: marked.pod_uid.clone(), ..PodName::default() },
        runs: marked.runs,
        ..Orphan::new(OrphanKind::Machine, vmspec::MachineId::from(marked.id).to_string())
    }
}

impl Orphan {
    pub(super) fn new(kind: OrphanKind, id: String) -> Self {
        Self { kind, id, pod: PodName::default(), since: 0, why: LOST.to_owned(), bytes: 0, runs: false }
    }
}
