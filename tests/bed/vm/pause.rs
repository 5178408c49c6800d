//! A guest that a person pauses.

use std::time::Duration;

use anyhow::{Result, ensure};
use proto::cri::ContainerState;
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node, SHUTDOWN, Vm};
use tests::wait::wait_for;

const GRACE: Duration = Duration::from_secs(60);

pub(super) const CASES: &[Case] = &[Case {
    name: "vm::a_paused_guest_stands_still_goes_on_and_shuts_down",
    deadline: Duration::from_secs(480),
    run: paused,
}];

fn paused(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let vm = node.boot_vm(bed, "still", "")?;
    let done = |verb: &str| -> Result<()> {
        let ended = virtletctl(bed, &[verb, "still"])?;
        ensure!(ended.code == Some(0) && ended.stdout == "still\n", "{verb}: {ended:?}");
        Ok(())
    };
    done("pause")?;
    done("pause")?;
    reason(&node, &vm, "Paused")?;
    ensure!(vm.info().is_err(), "a paused guest answers");
    let explained = virtletctl(bed, &["explain", "still"])?;
    ensure!(explained.stdout.contains("the guest was paused by hand"), "{explained:?}");
    let refused = virtletctl(bed, &["exec", "still", "true"])?;
    let advice = "`virtletctl resume` lets it go on";
    ensure!(refused.code != Some(0) && refused.stderr.contains(advice), "{refused:?}");
    node.restart_controld()?;
    reason(&node, &vm, "Paused")?;
    done("resume")?;
    done("unpause")?;
    ensure!(!virtletctl(bed, &["explain", "still"])?.stdout.contains("paused"), "explained as paused");
    reason(&node, &vm, "")?;
    vm.info()?;

    done("pause")?;
    node.cri.stop(&vm.container, SHUTDOWN)?;
    vm.wait_log("tiny: stopping", BOOT_DEADLINE)?;
    let status = node.cri.container(&vm.container)?;
    ensure!(status.state() == ContainerState::ContainerExited && status.exit_code == 0, "{status:?}");
    let refused = virtletctl(bed, &["pause", "still"])?;
    ensure!(refused.code == Some(1) && refused.stderr.contains("does not run"), "{refused:?}");
    node.remove_vm(&vm, GRACE)
}

fn virtletctl(bed: &Bed, args: &[&str]) -> Result<Ended> {
    finish(command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]).args(args), TOOL_DEADLINE)
}

fn reason(node: &Node, vm: &Vm, reason: &str) -> Result<()> {
    wait_for(&format!("reason `{reason}` of the container"), BOOT_DEADLINE, || {
        Ok((node.cri.container(&vm.container)?.reason == reason).then_some(()))
    })
}
