//! controld is killed under pods of both kinds.

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::libvirt::running_domains;
use tests::node::BOOT_DEADLINE;
use tests::wait::wait_until;

use super::{Both, DEADLINE, POD_DEADLINE, container, machine, wait_runs};

/// Of two kills each.
const ROUNDS: usize = 4;

pub(super) const CASES: &[Case] =
    &[Case { name: "proxy::controld_that_is_killed_restarts_no_pod", deadline: DEADLINE, run: killed }];

fn killed(bed: &Bed) -> Result<()> {
    let mut both = Both::start(bed)?;
    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("vm", &machine("vm", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "vm", BOOT_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let before = both.ids()?;
    for round in 0..ROUNDS {
        // What comes and goes meanwhile is at another step each time.
        let (machine_name, container_name) = (format!("vm{round}"), format!("c{round}"));
        kubelet.apply(&machine_name, &machine(&machine_name, &image))?;
        kubelet.apply(&container_name, &container(&container_name))?;
        let more = before.len() + 1 + round % 4;
        wait_until("pods that are being made", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.len() >= more))?;
        both.node.controld.kill9()?;
        both.node.controld.start_again()?;
        both.node.wait_ready()?;
        wait_until("pods that were being made", POD_DEADLINE, || {
            both.ids().is_ok_and(|ids| ids.len() >= before.len() + 4)
        })?;
        kubelet.delete(&machine_name)?;
        kubelet.delete(&container_name)?;
        both.node.controld.kill9()?;
        both.node.controld.start_again()?;
        both.node.wait_ready()?;
        wait_until("both pods that stay, and no others", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids == before))?;
    }
    wait_runs(&kubelet, "vm", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    ensure!(running_domains()?.len() == 1, "{:?}", running_domains()?);
    for name in ["vm", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}
