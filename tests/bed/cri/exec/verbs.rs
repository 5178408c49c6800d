//! Verbs: commands that controld does in the guest's place.

use std::io::Read as _;
use std::process::{Child, Stdio};

use anyhow::Context as _;
use serde_json::Value;
use tests::node::Vm;

use super::*;

/// What a screen says first.
const GREETING: &[u8] = b"RFB 003.008\n";

pub(super) fn done(bed: &Bed) -> Result<()> {
    let mut node = Node::configured(bed, "handlers.virtlet.graphics = 'vnc'")?;
    let container = cri::container(&node.pull(bed, "tiny.qcow2")?, [].into());
    let vm = node.start_pod(node.pod("verbs")?, &container)?;
    let exec = Exec { bed, id: &vm.container };
    wait_guest("QEMU's agent", BOOT_DEADLINE, || {
        Ok((exec.shell("ctl exec -s $id virtlet:guestosinfo")?.code == Some(0)).then_some(()))
    })?;
    tells(&exec)?;
    refuses(&exec)?;
    pauses(&exec)?;
    shows(&exec)?;
    freezes(&mut node, &exec)?;
    reboots(&vm, &exec)?;
    node.remove_vm(&vm, Duration::ZERO)
}

/// By virtletctl, whose exit code is the verb's.
fn verb(exec: &Exec, words: &str, code: i32) -> Result<Ended> {
    let ended = exec.shell(&format!("ctl exec {} $id {words}", if words.ends_with("vnc") { "-i" } else { "" }))?;
    ensure!(ended.code == Some(code), "{words}: not {code}: {ended:?}");
    Ok(ended)
}

fn fact(exec: &Exec, line: &str) -> Result<Value> {
    let ended = exec.shell(line)?;
    ensure!(ended.code == Some(0), "{line}: {ended:?}");
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// What KubeVirt's clients read, to clients of all ways.
fn tells(exec: &Exec) -> Result<()> {
    for way in ["exec -s", "exec -r spdy", "exec -r websocket", "ctl exec"] {
        let told = fact(exec, &format!("{way} $id virtlet:guestosinfo"))?;
        let knows =
            told["supportedCommands"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "guest-exec"));
        ensure!(knows && told["guestAgentVersion"].is_string() && told["os"]["kernelRelease"].is_string(), "{told}");
        ensure!(told["fsFreezeStatus"] == "thawed", "{told}");
    }
    let told = fact(exec, "exec -s $id virtlet:filesystemlist")?;
    let data = told["items"].as_array().and_then(|all| all.iter().find(|one| one["mountPoint"] == "/data"));
    let is_known =
        |data: &&Value| data["fileSystemType"] == "ext4" && data["totalBytes"].as_u64().is_some_and(|all| all > 0);
    ensure!(data.filter(is_known).is_some(), "{told}");
    let told = fact(exec, "exec -s $id virtlet:userlist")?;
    ensure!(told["items"].is_array() && told["metadata"].is_object(), "{told}");
    Ok(())
}

fn refuses(exec: &Exec) -> Result<()> {
    let ended = verb(exec, "virtlet:migrate --now", 64)?;
    let mut lines = ended.stderr.lines();
    ensure!(lines.next() == Some("there is no verb `virtlet:migrate`"), "{ended:?}");
    ensure!(lines.any(|line| line.starts_with("virtlet:freeze [--timeout SECONDS] ")), "{ended:?}");
    let ended = exec.shell("ctl exec -s $id virtlet:reset")?;
    ensure!(ended.code == Some(77) && ended.stderr.contains("is not for probes"), "{ended:?}");
    let ended = exec.shell("ctl exec -e A=b $id virtlet:pause")?;
    ensure!(ended.code == Some(1) && ended.stderr.contains("takes no variables"), "{ended:?}");
    // A word that only looks like one is the guest's.
    exec.prints("exec -s $id echo virtlet:pause", "virtlet:pause")
}

fn pauses(exec: &Exec) -> Result<()> {
    verb(exec, "virtlet:pause --for somebody", 0)?;
    ensure!(verb(exec, "virtlet:pause", 69)?.stderr.starts_with("the VM is paused already: "), "paused twice");
    verb(exec, "virtlet:softreboot", 69)?;
    verb(exec, "virtlet:userlist", 69)?;
    verb(exec, "virtlet:unpause", 0)?;
    let ended = verb(exec, "virtlet:unpause", 69)?;
    ensure!(ended.stderr.lines().next() == Some("the VM is not paused"), "let go on twice: {ended:?}");
    exec.prints("exec -s $id echo on", "on")
}

/// A session with a screen.
fn viewer(exec: &Exec, more: &[&str]) -> Result<Child> {
    let words = ["--socket", CRI_SOCKET, "exec", "-i", exec.id, "virtlet:vnc"];
    let mut ctl = command(exec.bed.program("virtletctl"), words);
    let mut viewer = ctl.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut greeting = [0; GREETING.len()];
    viewer.stdout.as_mut().context("no output")?.read_exact(&mut greeting)?;
    ensure!(greeting == GREETING, "{greeting:?}");
    Ok(viewer)
}

fn ends(viewer: &mut Child, code: i32) -> Result<()> {
    let ended = wait_for("the end of a viewer", SOON, || Ok(viewer.try_wait()?))?;
    ensure!(ended.code() == Some(code), "not {code}: {ended}");
    Ok(())
}

fn shows(exec: &Exec) -> Result<()> {
    let picture = exec.bed.dir.join("screen.png");
    for more in ["", "--move-cursor"] {
        let ended = exec.shell(&format!("ctl exec $id virtlet:screenshot {more} >{}", picture.display()))?;
        ensure!(ended.code == Some(0) && fs::read(&picture)?.starts_with(b"\x89PNG"), "{more}: {ended:?}");
    }
    let mut first = viewer(exec, &[])?;
    ensure!(verb(exec, "virtlet:vnc", 69)?.stderr.starts_with("somebody views the screen"), "two viewers");
    let mut second = viewer(exec, &["--take"])?;
    ends(&mut first, 69)?;
    drop(second.stdin.take());
    ends(&mut second, 0)?;
    let mut third = viewer(exec, &[])?;
    drop(third.stdin.take());
    ends(&mut third, 0)
}

fn freezes(node: &mut Node, exec: &Exec) -> Result<()> {
    let is = |status: &str| -> Result<bool> {
        Ok(fact(exec, "ctl exec $id virtlet:guestosinfo")?["fsFreezeStatus"] == status)
    };
    verb(exec, "virtlet:freeze --timeout 600", 0)?;
    ensure!(is("frozen")?, "not frozen");
    ensure!(verb(exec, "virtlet:freeze", 69)?.stderr.contains("frozen already"), "frozen twice");
    verb(exec, "virtlet:unfreeze", 0)?;
    verb(exec, "virtlet:unfreeze", 0)?;
    ensure!(is("thawed")?, "not thawed");
    // By its time, which the next controld knows of.
    verb(exec, "virtlet:freeze --timeout 2", 0)?;
    node.restart_controld()?;
    wait_for("file systems whose time is over", SOON, || Ok(is("thawed")?.then_some(())))?;
    exec.prints("exec -s $id sh -c 'echo x >/data/x && sync && echo written'", "written")
}

/// The guest counts its boots on a disk that has it all.
fn reboots(vm: &Vm, exec: &Exec) -> Result<()> {
    let up = |number: &str| -> Result<()> {
        vm.wait_log(&format!("ready: boot number {number}"), BOOT_DEADLINE)?;
        wait_guest("QEMU's agent after a boot", BOOT_DEADLINE, || {
            Ok((exec.shell("exec -s $id sync")?.code == Some(0)).then_some(()))
        })
    };
    up("1")?;
    verb(exec, "virtlet:softreboot", 0)?;
    up("2")?;
    verb(exec, "virtlet:reset", 0)?;
    up("3")
}
