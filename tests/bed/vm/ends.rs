//! The ways in which a machine ends, and what a container says of each.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::ContainerState;
use tests::case::{Bed, Case};
use tests::controld_metrics::{self, ADDRESS};
use tests::cri;
use tests::libvirt::{only_qemu, qemus, running_domains, virsh};
use tests::node::{BOOT_DEADLINE, Node, Vm};
use tests::pace;
use tests::wait::wait_until;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_hung_guest_is_destroyed_at_the_deadline", deadline: DEADLINE, run: hung },
    Case { name: "vm::qemus_that_hang_hold_up_no_stop", deadline: DEADLINE, run: hung_qemus },
    Case { name: "vm::a_shorter_second_stop_wins", deadline: DEADLINE, run: shorter_stop },
    Case { name: "vm::a_guest_that_powers_off_has_completed", deadline: DEADLINE, run: powers_off },
    Case { name: "vm::a_killed_qemu_is_an_error", deadline: DEADLINE, run: killed },
    Case { name: "vm::a_rebooted_guest_stays_running", deadline: DEADLINE, run: reboots },
];

/// User-data of a guest that hears neither its power button nor its agent. An agent that is just starting loses other signals.
const DEAF: &str = "#!/bin/sh\nkillall -9 acpid\nprintf '#!/bin/sh\\n' >/etc/acpi/PWRF/00000080\n\
                    rm $(which qemu-ga)\nkillall -9 qemu-ga\necho deaf now >/dev/console\n";

fn hung(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "hung", DEAF)?;
    vm.wait_log("deaf now", BOOT_DEADLINE)?;
    let (started, begun) = (Instant::now(), pace::now());
    node.cri.stop(&vm.container, Duration::from_secs(4))?;
    let (took, at_most) = (started.elapsed(), begun.elapsed());
    ensure!(took >= Duration::from_secs(4) && at_most < Duration::from_secs(12), "stopped after {took:?}");
    ended(&node, &vm, 137, "Error")?;
    node.remove_vm(&vm, GRACE)
}

fn hung_qemus(bed: &Bed) -> Result<()> {
    /// Presses that controld has under way at a time.
    const PRESSES: usize = 4;
    const HUNG: usize = PRESSES + 1;
    let node = Node::start(bed)?;
    // They are not there to boot.
    let no_system = cri::container(&node.pull_no_system(bed)?, [].into());
    let start = |n| node.start_pod(node.pod(&format!("hung{n}"))?, &no_system);
    let hung: Vec<_> = (0..HUNG).map(start).collect::<Result<_>>()?;
    let qemus = qemus()?;
    ensure!(qemus.len() == HUNG, "QEMUs {qemus:?}");
    let well = node.boot_vm(bed, "well", "")?;
    qemus.iter().try_for_each(|qemu| kill(Pid::from_raw(*qemu), Signal::SIGSTOP))?;
    std::thread::scope(|scope| {
        let cri = &node.cri;
        let long = |vm: &'_ Vm| cri.stop(&vm.container, Duration::from_secs(600));
        let stops: Vec<_> = hung.iter().map(|vm| scope.spawn(move || long(vm))).collect();
        wait_until("QEMUs that do not answer", BOOT_DEADLINE, || {
            node.controld.log().is_ok_and(|log| log.matches("power button not pressed").count() >= PRESSES)
        })?;
        node.cri.stop(&well.container, Duration::from_secs(8))?;
        for vm in &hung {
            let started = pace::now();
            node.cri.stop(&vm.container, Duration::ZERO)?;
            ensure!(started.elapsed() < Duration::from_secs(20), "stopped after {:?}", started.elapsed());
        }
        for stop in stops {
            stop.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        anyhow::Ok(())
    })?;
    hung.iter().chain([&well]).try_for_each(|vm| node.remove_vm(vm, GRACE))
}

fn shorter_stop(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "shorter", DEAF)?;
    vm.wait_log("deaf now", BOOT_DEADLINE)?;
    let started = pace::now();
    std::thread::scope(|scope| {
        let long = scope.spawn(|| node.cri.stop(&vm.container, Duration::from_secs(100)));
        let short = scope.spawn(|| node.cri.stop(&vm.container, Duration::from_secs(3)));
        for stop in [long, short] {
            stop.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        anyhow::Ok(())
    })?;
    ensure!(started.elapsed() < Duration::from_secs(15), "stopped after {:?}", started.elapsed());
    ended(&node, &vm, 137, "Error")?;
    node.remove_vm(&vm, GRACE)
}

fn powers_off(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let vm = node.start_vm(bed, "poweroff", "#!/bin/sh\necho good night >/dev/console\npoweroff\n")?;
    node.wait_state(&vm, ContainerState::ContainerExited, BOOT_DEADLINE)?;
    ended(&node, &vm, 0, "Completed")?;
    ensure!(vm.log_text()?.contains("good night"), "the end of the console is missing:\n{}", vm.log_text()?);
    node.remove_vm(&vm, GRACE)
}

fn killed(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "killed", "")?;
    kill(Pid::from_raw(only_qemu()?), Signal::SIGKILL)?;
    node.wait_state(&vm, ContainerState::ContainerExited, BOOT_DEADLINE)?;
    ended(&node, &vm, 255, "QemuDied")?;
    ensure!(running_domains()?.is_empty(), "a domain is left");
    node.remove_vm(&vm, GRACE)
}

fn reboots(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, &format!("metrics.address = '{ADDRESS}'"))?;
    let vm = node.boot_vm(bed, "reboots", "")?;
    let qemu = only_qemu()?;
    let mut boots = 1;
    for way in ["reboot", "reset"] {
        if way == "reboot" {
            // A command's end may not be seen by whoever started it: its agent ends, too.
            node.crictl(&["exec", "--sync", "--timeout", "5", &vm.container, "reboot"])?;
        } else {
            virsh(&format!("reset {}", running_domains()?.concat()))?;
        }
        boots += 1;
        wait_until(&format!("boot {boots} of the guest"), BOOT_DEADLINE, || {
            vm.log_text().is_ok_and(|log| log.matches("tiny: ready").count() == boots) && vm.info().is_ok()
        })?;
        ensure!(node.cri.state(&vm.container)? == ContainerState::ContainerRunning, "not running after `{way}`");
        ensure!(only_qemu()? == qemu, "another QEMU after `{way}`");
        let page = controld_metrics::page()?;
        let counted = format!("virtlet_guest_reboots_total {}\n", boots - 1);
        ensure!(page.contains(&counted), "after `{way}` no {counted} in {page}");
    }
    node.remove_vm(&vm, GRACE)
}

fn ended(node: &Node, vm: &Vm, code: i32, reason: &str) -> Result<()> {
    let status = node.cri.container(&vm.container)?;
    ensure!(status.state() == ContainerState::ContainerExited, "state {:?}", status.state());
    ensure!(
        (status.exit_code, status.reason.as_str()) == (code, reason),
        "{} {}: {}",
        status.exit_code,
        status.reason,
        status.message
    );
    ensure!(status.finished_at >= status.started_at && status.started_at >= status.created_at, "times: {status:?}");
    Ok(())
}
