//! A machine and a container, each its whole life, under kubelet alone.

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};
use tests::containerd::Release;
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::wait::wait_until;

use super::{Both, DEADLINE, POD_DEADLINE, container, machine, wait_runs};

pub(super) const CASES: &[Case] = &[
    Case { name: "proxy::a_machine_and_a_container_are_pods_of_one_kubelet", deadline: DEADLINE, run: newest },
    Case { name: "proxy::so_they_are_with_debians_containerd", deadline: DEADLINE, run: debians },
];

fn newest(bed: &Bed) -> Result<()> {
    both(bed, Release::Newest)
}

/// 1.6, the oldest that speaks CRI v1.
fn debians(bed: &Bed) -> Result<()> {
    both(bed, Release::Debian)
}

fn both(bed: &Bed, release: Release) -> Result<()> {
    let both = Both::with(bed, release, "")?;
    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &machine("vm", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "vm", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let ids = both.ids()?;
    ensure!(ids.len() == 4 && ids.keys().filter(|id| id.starts_with("vm")).count() == 2, "{ids:?}");
    // kubelet places the usage of both.
    wait_until("usage of both pods", POD_DEADLINE, || {
        kubelet.stats_summary().is_ok_and(|summary| summary["pods"].as_array().is_some_and(|pods| pods.len() == 2))
    })?;
    both.told("VirtletReady", true)?;
    for name in ["vm", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}
