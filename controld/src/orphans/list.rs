//! What there is of each kind.

use std::collections::BTreeSet;

use common::Chain;

use super::{Orphan, OrphanKind, consoles};
use crate::container::parts::Parts;
use crate::hypervisor::Marked;
use crate::model::PodName;
use crate::model::error::Result;
use crate::volumes::Folder;

const LOST: &str = "it is on no record: records were lost";

/// Asks libvirt for machines of ours that are on no record. They are left as they are.
///
/// # Errors
/// When libvirt does not answer; then what was seen last still holds.
pub async fn look(parts: &Parts) -> Result<()> {
    let ours = parts.hypervisor.list_ours(parts.instance.id()).await?;
    let mut machines = Vec::new();
    for machine in ours {
        if parts.store.container(machine.id.into()).is_some() {
            continue;
        }
        // Its record goes last: one that went since the list was made has no machine any more.
        if let Some(disks) = parts.hypervisor.disks(machine.id).await? {
            machines.push(Marked { disks, ..machine });
        }
    }
    let known: BTreeSet<_> = parts.orphans.seen().machines.iter().map(|machine| machine.id).collect();
    for machine in machines.iter().filter(|machine| !known.contains(&machine.id)) {
        tracing::error!(machine = machine.name, id = %machine.id, "machine of unknown owner is kept");
    }
    {
        let mut seen = parts.orphans.seen();
        (seen.machines, seen.looked) = (machines, true);
    }
    refresh(parts);
    Ok(())
}

/// All orphans, by kind.
pub async fn list(parts: &Parts) -> Vec<Orphan> {
    if let Err(error) = look(parts).await {
        tracing::warn!(error = %Chain(&error), "machines not listed; those of before are shown");
        refresh(parts);
    }
    parts.orphans.last_seen()
}

/// Puts the list together anew. Reads directories, but waits for nobody.
pub(super) fn refresh(parts: &Parts) {
    let (machines, networks) = {
        let seen = parts.orphans.seen();
        (seen.machines.clone(), seen.networks.clone())
    };
    let mut all: Vec<_> = machines.iter().map(machine).collect();
    for (folder, kept) in parts.volumes.kept_folders() {
        let owner = parts.volumes.inspect(folder.clone()).owner.ok().flatten();
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
        consoles::left(parts)
            .into_iter()
            .map(|id| Orphan { bytes: consoles::bytes(parts, id), ..Orphan::new(OrphanKind::Console, id.to_string()) }),
    );
    // Every lease is a folder's, which is made before it and goes after it.
    match parts.volumes.folders() {
        Ok(folders) => {
            let with_folder: BTreeSet<_> = folders.iter().map(Folder::name).collect();
            let leases = parts.images.holders().into_iter().filter(|holder| !with_folder.contains(holder.as_str()));
            all.extend(leases.map(|holder| Orphan::new(OrphanKind::Lease, holder)));
        }
        Err(error) => tracing::warn!(error = %Chain(&error), "leases not compared with folders"),
    }
    all.extend(
        parts
            .store
            .unread()
            .into_iter()
            .map(|record| Orphan { why: record.problem.clone(), ..Orphan::new(OrphanKind::Record, record.name()) }),
    );
    parts.orphans.seen().listed = all;
}

fn machine(marked: &Marked) -> Orphan {
    Orphan {
        pod: PodName { uid: marked.pod_uid.clone(), ..PodName::default() },
        runs: marked.runs,
        ..Orphan::new(OrphanKind::Machine, crate::model::ContainerId::from(marked.id).to_string())
    }
}

impl Orphan {
    pub(super) fn new(kind: OrphanKind, id: String) -> Self {
        Self { kind, id, pod: PodName::default(), since: 0, why: LOST.to_owned(), bytes: 0, runs: false }
    }
}
