//! File systems that kubelet cannot place, on either side: what it then knows of the node and of the pods.
//!
//! kubelet looks up each file system that it is told of, by a `writable_layer` of usage or by `ImageFsInfo`. One that it does not find, or
//! has no device for, ends all of `/stats/summary`, which eviction goes by, too. The pods go on while their files are somewhere else.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use proto::cri::{FilesystemUsage, ImageFsInfoRequest, ListContainerStatsRequest};
use serde_json::Value;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri::Cri;
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::node::BOOT_DEADLINE;
use tests::wait::wait_until;

use super::{Both, DEADLINE, POD_DEADLINE, container, machine, wait_runs};

const DISKS: &str = "/var/lib/virtlet/volumes";
const IMAGES: &str = "/var/lib/virtlet/images";

pub(super) const CASES: &[Case] = &[Case {
    name: "proxy::a_file_system_that_kubelet_cannot_place_spoils_nothing_else",
    deadline: DEADLINE,
    run: unplaced,
}];

fn unplaced(bed: &Bed) -> Result<()> {
    let both = Both::start(bed)?;
    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let mut kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &machine("vm", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "vm", BOOT_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    // cAdvisor's first look at the node.
    wait_until("usage of both pods", POD_DEADLINE, || whole(&kubelet).is_ok())?;
    // Both sides are on one file system, and each says where it is.
    let snapshots = PathBuf::from(&mountpoint(image_fs(&both.containerd.cri)?.first())?);
    let layers = layers(&both)?;
    ensure!(layers == [Some(DISKS.to_owned()), Some(snapshots.display().to_string())], "{layers:?}");
    let (theirs, both_sides) = (image_fs(&both.containerd.cri)?, image_fs(&both.node.cri)?);
    let used = |of: &[FilesystemUsage]| of.first().and_then(|first| first.used_bytes).map_or(0, |used| used.value);
    ensure!(both_sides.len() == 1 && used(&both_sides) > used(&theirs), "{both_sides:?} of {theirs:?} and ours");

    // One that is there and has no device, as those of clusters have none. What was there when it started kubelet has looked at.
    for place in [DISKS, &snapshots.to_string_lossy(), IMAGES] {
        sh(&format!("mount -t ramfs ramfs {place}"))?;
        kubelet.again()?;
        wait_until("usage of both pods again", POD_DEADLINE, || whole(&kubelet).is_ok())
            .with_context(|| format!("{place}: {:?}", whole(&kubelet)))?;
        sh(&format!("umount {place}"))?;
    }
    kubelet.again()?;
    wait_until("usage of both pods as at first", POD_DEADLINE, || whole(&kubelet).is_ok())?;
    ensure!(self::layers(&both)? == layers, "{:?}, not {layers:?}", self::layers(&both)?);

    gone(&both, &kubelet, Path::new(DISKS)).context("without machines' disks")?;
    gone(&both, &kubelet, &snapshots).context("without containers' layers")?;

    wait_runs(&kubelet, "vm", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    for name in ["vm", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}

/// Takes a directory away, for as long as it takes to see that kubelet goes on.
fn gone(both: &Both, kubelet: &Kubelet, place: &Path) -> Result<()> {
    let aside = place.with_extension("aside");
    fs::rename(place, &aside)?;
    let seen = (|| {
        let told = layers(both)?;
        ensure!(!told.contains(&Some(place.display().to_string())), "{told:?} has {}", place.display());
        wait_until("usage of both pods meanwhile", POD_DEADLINE, || whole(kubelet).is_ok())
            .with_context(|| format!("{:?}", whole(kubelet)))
    })();
    fs::rename(&aside, place)?;
    seen
}

/// Fails unless kubelet knows what the node has, and what each of the two pods uses, of disk too.
fn whole(kubelet: &Kubelet) -> Result<()> {
    let summary = kubelet.stats_summary()?;
    let pods = summary["pods"].as_array().context("no pods")?;
    let used = |pod: &&Value| pod.pointer("/containers/0/rootfs/usedBytes").is_some_and(Value::is_number);
    ensure!(pods.iter().filter(used).count() == 2, "{summary}");
    ensure!(summary.pointer("/node/runtime/imageFs/usedBytes").is_some_and(Value::is_number), "{summary}");
    Ok(())
}

/// Where containers are said to write, the machine's first.
fn layers(both: &Both) -> Result<[Option<String>; 2]> {
    let request = ListContainerStatsRequest::default();
    let stats = both.node.cri.call(|mut client| async move { client.list_container_stats(request).await })?.stats;
    let of = |is_machine: bool| {
        let stats = stats.iter().find(|stats| {
            stats.attributes.as_ref().is_some_and(|attributes| attributes.id.starts_with("vm") == is_machine)
        });
        let layer = stats.context("no usage")?.writable_layer.as_ref().context("no usage of disk")?;
        ensure!(layer.used_bytes.is_some(), "{layer:?}");
        anyhow::Ok(layer.fs_id.as_ref().map(|id| id.mountpoint.clone()))
    };
    Ok([of(true)?, of(false)?])
}

fn image_fs(cri: &Cri) -> Result<Vec<FilesystemUsage>> {
    let answer = cri.image_call(|mut client| async move { client.image_fs_info(ImageFsInfoRequest {}).await })?;
    Ok(answer.image_filesystems)
}

fn mountpoint(of: Option<&FilesystemUsage>) -> Result<String> {
    Ok(of.and_then(|of| of.fs_id.as_ref()).context("no file system")?.mountpoint.clone())
}
