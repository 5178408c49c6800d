//! A side that is away.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::ContainerStatusRequest;
use tests::case::{Bed, Case};
use tests::kubelet::Kubelet;
use tests::pace;
use tests::records::DATABASE;
use tests::wait::{wait_for, wait_until};
use tonic::Code;

use super::{Both, DEADLINE, POD_DEADLINE, container, idle_machine, wait_runs};

/// Longer than a Status is the last good one, and than kubelet's patience.
const STOPPED: Duration = Duration::from_secs(60);
/// controld tries a step of its start again after 30 s, and then has the others to make.
const AGAIN: Duration = Duration::from_secs(90);

pub(super) const CASES: &[Case] = &[
    Case { name: "proxy::a_runtime_that_is_stopped_costs_machines_nothing", deadline: DEADLINE, run: stopped },
    Case { name: "proxy::records_that_cannot_be_read_cost_containers_nothing", deadline: DEADLINE, run: unread },
];

/// SIGSTOP: connections stay, and nothing is answered.
fn stopped(bed: &Bed) -> Result<()> {
    let both = Both::start(bed)?;
    let image = both.node.offer_no_system(bed)?;
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("one", &idle_machine("one", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "one", POD_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let before = both.ids()?;
    let containerd = Pid::from_raw(both.containerd.daemon.pid()?.cast_signed());
    kill(containerd, Signal::SIGSTOP)?;
    let begun = pace::now();
    // A new machine comes up as ever, and what is there is listed.
    kubelet.apply("two", &idle_machine("two", &image))?;
    wait_runs(&kubelet, "two", POD_DEADLINE)?;
    wait_for("a minute of it", POD_DEADLINE + STOPPED, || {
        let now = both.ids()?;
        ensure!(
            before.iter().all(|(id, state)| now.get(id) == Some(state)),
            "a pod is gone from the list: {before:?}, then {now:?}"
        );
        Ok((begun.elapsed() > STOPPED).then_some(()))
    })?;
    both.told("RuntimeReady", false)?;
    ensure!(both.conditions()?["RuntimeReady"].reason == "ContainerRuntimeDown", "{:?}", both.conditions()?);
    both.told("VirtletReady", true)?;
    let of_containers = before.keys().find(|id| !id.starts_with("vm")).context("no container")?.clone();
    let request = ContainerStatusRequest { container_id: of_containers, verbose: false };
    let refused = both.node.cri.call(|mut client| async move { client.container_status(request).await });
    ensure!(refused.as_ref().is_err_and(|status| status.code() == Code::Unavailable), "{refused:?}");
    kill(containerd, Signal::SIGCONT)?;
    wait_until("a ready node", POD_DEADLINE, || both.told("RuntimeReady", true).is_ok())?;
    // Neither was made again.
    for name in ["one", "two", "c"] {
        wait_runs(&kubelet, name, POD_DEADLINE)?;
    }
    let after = both.ids()?;
    ensure!(
        before.keys().all(|id| after.contains_key(id)) && after.len() == before.len() + 2,
        "{before:?}, then {after:?}"
    );
    for name in ["one", "two", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}

/// controld cannot open its database, and stays for the containers until it can.
fn unread(bed: &Bed) -> Result<()> {
    let mut both = Both::start(bed)?;
    let kubelet = Kubelet::start(bed)?;
    kubelet.apply("c", &container("c"))?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    let before = both.ids()?;
    both.node.controld.kill9()?;
    let aside = Path::new(DATABASE).with_extension("aside");
    fs::rename(DATABASE, &aside)?;
    fs::write(DATABASE, "no database")?;
    both.node.controld.start_again()?;
    wait_for("what is wrong with the database", POD_DEADLINE, || {
        let conditions = both.conditions().unwrap_or_default();
        let of_machines = conditions.get("VirtletReady").filter(|condition| !condition.status);
        Ok(of_machines.filter(|said| said.message.contains(DATABASE) && said.message.contains("tried again")).cloned())
    })?;
    // By id, as for exec and logs.
    for id in before.keys() {
        let known = both.node.cri.container(id).is_ok() || both.node.cri.sandbox(id).is_ok();
        ensure!(known, "{id} cannot be asked for");
    }
    // None is said to be gone.
    let refused = both.ids();
    ensure!(refused.is_err(), "{refused:?}");
    both.told("RuntimeReady", true)?;
    fs::rename(&aside, DATABASE)?;
    wait_until("a next try that works", AGAIN, || both.ids().is_ok_and(|ids| ids == before))?;
    both.node.wait_ready()?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    kubelet.delete("c")?;
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}
