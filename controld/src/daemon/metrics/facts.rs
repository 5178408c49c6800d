//! What a scrape tells: read from memory ([`Facts::of`]), then written out.
//!
//! Names and labels are others' interface: dashboards and alerts hold on to them. They stand here and nowhere else.

use std::collections::BTreeMap;
use std::fmt::Error;

use imagestore::Downloads;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use proto::pause::Pause;
use proto::tap::PfSummary;
use vmspec::Accelerator;

use super::Sources;
use super::filesystems::Room;
use super::networks::Known;
use super::page::Page;
use crate::images::PullCounts;
use crate::model::{Container, ContainerState, SandboxState};

// Suffixes come by themselves: units, `_total` of counters, `_info`.
const BUILD: &str = "virtlet_build";
const IMAGES: &str = "virtlet_images";
const STORE: &str = "virtlet_image_store";
const STORE_UNUSED: &str = "virtlet_image_store_unused";
const PULLS_STARTED: &str = "virtlet_image_pulls_started";
const PULLS_ENDED: &str = "virtlet_image_pulls_ended";
const PULLED: &str = "virtlet_image_pulls_downloaded";
const DOWNLOADS: &str = "virtlet_image_downloads";
const SANDBOXES: &str = "virtlet_sandboxes";
const MACHINES: &str = "virtlet_machines";
const ACCELERATOR: &str = "virtlet_accelerator";
const EMULATED: &str = "virtlet_emulated_unwanted";
const PAUSED: &str = "virtlet_machines_paused";
const REBOOTS: &str = "virtlet_guest_reboots";
const ORPHANS: &str = "virtlet_orphans";
const COMMITS: &str = "virtlet_database_transactions";
const WRITING: &str = "virtlet_database_writing";
const WRITES_FAILED: &str = "virtlet_database_writes_failed";
const LOG: &str = "virtlet_database_log";
const WRITABLE: &str = "virtlet_database_writable";
const LIBVIRT: &str = "virtlet_libvirt_connected";
const LANES: &str = "virtlet_libvirt_calls_running";
const TAP: &str = "virtlet_tapmanager_requests_running";
const TAP_READY: &str = "virtlet_tapmanager_ready";
const NETWORKS: &str = "virtlet_pod_networks";
const TROUBLED: &str = "virtlet_pod_networks_in_trouble";
const PLUGINS: &str = "virtlet_cni_plugins_running";
const FREE: &str = "virtlet_filesystem_free";
const SIZE: &str = "virtlet_filesystem_size";
const VFS_MOST: &str = "virtlet_sriov_vfs_most";
const VFS: &str = "virtlet_sriov_vfs";
const VFS_USED: &str = "virtlet_sriov_vfs_used";
const CLAIMS_FAILED: &str = "virtlet_sriov_claims_failed";

const ACCELERATOR_NAME: &str = "accelerator";
const DIR: &str = "dir";
const HANDLER: &str = "handler";
const KIND: &str = "kind";
const LANE: &str = "lane";
const REASON: &str = "reason";
const NETDEV: &str = "netdev";
const OUTCOME: &str = "outcome";
const PF: &str = "pf";
const PHASE: &str = "phase";
const STATE: &str = "state";
const VERSION: &str = "version";

/// What a scrape tells.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) version: &'static str,
    /// By handler.
    pub(super) images: BTreeMap<String, u64>,
    pub(super) pulls: Vec<(String, PullCounts)>,
    /// By state, of both states.
    pub(super) downloads: BTreeMap<&'static str, u64>,
    pub(super) store_bytes: u64,
    pub(super) unused_bytes: u64,
    /// By state, of all states.
    pub(super) sandboxes: BTreeMap<&'static str, u64>,
    pub(super) machines: BTreeMap<&'static str, u64>,
    /// 1 for that of new machines.
    pub(super) accelerators: BTreeMap<&'static str, u64>,
    /// They are emulated although KVM may work.
    pub(super) emulated_unwanted: bool,
    /// By reason, of all reasons.
    pub(super) paused: BTreeMap<&'static str, u64>,
    /// Since the start.
    pub(super) reboots: u64,
    /// By kind, of all kinds.
    pub(super) orphans: BTreeMap<&'static str, u64>,
    /// Number of the database's last transaction.
    pub(super) transactions: u64,
    /// Seconds that transactions took since the start.
    pub(super) writing: f64,
    pub(super) failed_writes: u64,
    pub(super) log_bytes: u64,
    pub(super) writable: bool,
    pub(super) libvirt: bool,
    /// Calls to libvirt under way, by lane, of all lanes.
    pub(super) libvirt_calls: BTreeMap<&'static str, u64>,
    /// Requests to tapmanager under way, by lane, of all lanes.
    pub(super) tap_requests: BTreeMap<&'static str, u64>,
    pub(super) pfs: Vec<PfSummary>,
    pub(super) networks: Known,
    /// By what the directory is of.
    pub(super) rooms: BTreeMap<&'static str, Room>,
}

impl Facts {
    /// Looks at memory alone.
    pub(super) fn of(sources: &Sources) -> Self {
        let Sources { version, images, records, accel, reboots, orphans, hypervisor, tap, .. } = sources;
        let verdict = accel.known();
        let containers = records.containers();
        let mut unused = images.sizes();
        let store_bytes = unused.values().sum();
        for file in containers.iter().flat_map(|container| files(container)) {
            unused.remove(&file);
        }
        Self {
            version,
            images: images.per_handler(),
            pulls: images.pull_counts(),
            downloads: {
                let Downloads { waiting, running } = images.store().downloads();
                [("waiting", waiting), ("running", running)].into()
            },
            store_bytes,
            unused_bytes: unused.values().sum(),
            sandboxes: tally(
                ["creating", "ready", "not_ready"],
                records.sandboxes().iter().map(|sandbox| match sandbox.state {
                    SandboxState::Creating => "creating",
                    SandboxState::Ready => "ready",
                    SandboxState::NotReady => "not_ready",
                }),
            ),
            machines: tally(
                ["created", "starting", "running", "uncertain", "exited"],
                containers.iter().map(|container| match container.state {
                    ContainerState::Created => "created",
                    ContainerState::Starting => "starting",
                    ContainerState::Running => "running",
                    ContainerState::Uncertain => "uncertain",
                    ContainerState::Exited => "exited",
                }),
            ),
            accelerators: tally(
                ["kvm", "qemu"],
                verdict.iter().map(|verdict| match verdict.accelerator {
                    Accelerator::Kvm => "kvm",
                    Accelerator::Qemu => "qemu",
                }),
            ),
            emulated_unwanted: verdict.is_some_and(|verdict| verdict.kvm_may_work),
            paused: tally(
                ["disk_full", "by_hand"],
                containers.iter().filter_map(|container| container.pause).map(|pause| match pause {
                    Pause::DiskFull => "disk_full",
                    Pause::ByHand => "by_hand",
                }),
            ),
            reboots: reboots.count(),
            orphans: orphans.counts(),
            transactions: records.commits(),
            writing: records.writing().as_secs_f64(),
            failed_writes: records.failed_writes(),
            log_bytes: records.log_len(),
            writable: records.trouble().is_none(),
            libvirt: hypervisor.ready().is_ok(),
            libvirt_calls: hypervisor.running().into(),
            tap_requests: tap.running().into(),
            pfs: sources.functions.known(),
            networks: sources.networks.known(),
            rooms: sources.filesystems.known(),
        }
    }
}

/// Names of the image files that a container's disk stands on.
fn files(container: &Container) -> impl Iterator<Item = String> {
    container.machine.root.images.iter().filter_map(|layer| Some(layer.path.file_name()?.to_str()?.to_owned()))
}

/// How many there are of each state, also of those that nothing is in.
fn tally<const N: usize>(
    states: [&'static str; N],
    found: impl Iterator<Item = &'static str>,
) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::from(states.map(|state| (state, 0)));
    found.for_each(|state| *counts.entry(state).or_default() += 1);
    counts
}

impl Collector for Facts {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut page = Page::new(encoder);
        page.info(BUILD, "Version of controld", [(VERSION, self.version)])?;
        let images = self.images.iter().map(|(handler, count)| ([(HANDLER, handler)], *count));
        page.gauges(IMAGES, "Images by the runtime handler that they were pulled for", images)?;
        page.bytes(STORE, "Bytes on the disk of all images, without downloads under way", self.store_bytes)?;
        let help = "Bytes on the disk of images that no container's disk stands on";
        page.bytes(STORE_UNUSED, help, self.unused_bytes)?;
        let pulls = &self.pulls;
        let started = pulls.iter().map(|(handler, counts)| ([(HANDLER, handler)], counts.started));
        page.counters(PULLS_STARTED, "Requests to pull an image", None, started)?;
        let ended = pulls.iter().flat_map(|(handler, counts)| {
            let outcome = |outcome, count| ([(HANDLER, handler.as_str()), (OUTCOME, outcome)], count);
            [
                outcome("changed", counts.changed),
                outcome("unchanged", counts.unchanged),
                outcome("failed", counts.failed),
                outcome("abandoned", counts.abandoned),
            ]
        });
        let help = "Requests to pull an image that came to an end. Changed: the name means another image than before, \
                    or did not mean any. Abandoned: whoever asked is gone";
        page.counters(PULLS_ENDED, help, None, ended)?;
        let bytes = pulls.iter().map(|(handler, counts)| ([(HANDLER, handler)], counts.bytes));
        let help = "Bytes that pulls downloaded, with those of an earlier attempt that a download went on with";
        page.counters(PULLED, help, Some(&Unit::Bytes), bytes)?;
        let downloads = self.downloads.iter().map(|(state, count)| ([(STATE, *state)], *count));
        let help = "Downloads of images that run, or wait until another one has ended";
        page.gauges(DOWNLOADS, help, downloads)?;
        let sandboxes = self.sandboxes.iter().map(|(state, count)| ([(STATE, *state)], *count));
        page.gauges(SANDBOXES, "Pod sandboxes by state", sandboxes)?;
        let machines = self.machines.iter().map(|(state, count)| ([(STATE, *state)], *count));
        page.gauges(MACHINES, "Machines by the state of their containers", machines)?;
        let accelerators = self.accelerators.iter().map(|(name, is_it)| ([(ACCELERATOR_NAME, *name)], *is_it));
        page.gauges(ACCELERATOR, "1 for the accelerator of new machines, once it is known", accelerators)?;
        let help = "1 if new machines are emulated, and slow, although KVM is wanted and there is a device for it";
        page.gauge(EMULATED, help, self.emulated_unwanted.into())?;
        let paused = self.paused.iter().map(|(reason, count)| ([(REASON, *reason)], *count));
        page.gauges(PAUSED, "Running machines whose guests are paused", paused)?;
        let help = "Reboots of guests since the start of controld; their containers run on";
        page.counter(REBOOTS, help, self.reboots)?;
        let orphans = self.orphans.iter().map(|(kind, count)| ([(KIND, *kind)], *count));
        page.gauges(ORPHANS, "Things of ours whose owner is not known, which are kept", orphans)?;
        page.counter(COMMITS, "Transactions of the database since it was made", self.transactions)?;
        page.seconds(WRITING, "Time that transactions of the database took since the start of controld", self.writing)?;
        let help = "Transactions of the database that failed since the start of controld";
        page.counter(WRITES_FAILED, help, self.failed_writes)?;
        page.bytes(LOG, "Bytes of the log beside the database, which has what is not in it yet", self.log_bytes)?;
        page.gauge(WRITABLE, "1 if the database could be written when it last had to be", self.writable.into())?;
        page.gauge(LIBVIRT, "1 if controld is connected to libvirt", self.libvirt.into())?;
        let calls = self.libvirt_calls.iter().map(|(lane, count)| ([(LANE, *lane)], *count));
        page.gauges(LANES, "Calls to libvirt under way; those that wait for a place are not in it", calls)?;
        let requests = self.tap_requests.iter().map(|(lane, count)| ([(LANE, *lane)], *count));
        page.gauges(TAP, "Requests to tapmanager under way; those that wait for a place are not in it", requests)?;
        let help = "1 if tapmanager answers, and a pod could be given a network";
        page.gauge(TAP_READY, help, self.networks.ready.into())?;
        let networks = self.networks.phases.iter().map(|(phase, count)| ([(PHASE, *phase)], *count));
        page.gauges(NETWORKS, "Networks of pods at tapmanager, by phase", networks)?;
        let troubled = self.networks.troubled.iter().map(|(phase, count)| ([(PHASE, *phase)], *count));
        let help = "Those of them that are of no use to their guests, or cannot be taken away";
        page.gauges(TROUBLED, help, troubled)?;
        if let Some(seconds) = self.networks.plugins {
            page.seconds(PLUGINS, "Time that CNI plugins ran since the start of tapmanager", seconds)?;
        }
        let rooms = |value: fn(&Room) -> u64| self.rooms.iter().map(move |(dir, room)| ([(DIR, *dir)], value(room)));
        let help = "Bytes on the file system of a directory that anybody may still use";
        page.sizes(FREE, help, rooms(|room| room.free))?;
        page.sizes(SIZE, "Bytes of the file system of a directory", rooms(|room| room.size))?;
        let of_pfs = |value: fn(&PfSummary) -> u64| {
            self.pfs.iter().map(move |pf| {
                let netdev = pf.netdevs.first().cloned().unwrap_or_default();
                ([(PF, pf.pf.to_string()), (NETDEV, netdev)], value(pf))
            })
        };
        let help = "Virtual functions that a physical one can have";
        page.gauges(VFS_MOST, help, of_pfs(|pf| pf.total.into()))?;
        page.gauges(VFS, "Virtual functions that there are", of_pfs(|pf| pf.enabled.into()))?;
        page.gauges(VFS_USED, "Virtual functions that are claimed for pods or by hand", of_pfs(|pf| pf.used.into()))?;
        let help = "Claims of virtual functions that failed since the start of tapmanager";
        page.counters(CLAIMS_FAILED, help, None, of_pfs(|pf| pf.failed))
    }
}
