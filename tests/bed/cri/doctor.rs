//! `virtletctl doctor` on the bed's node: as it is, and with several things broken at the same time.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::case::{Bed, Case};
use tests::cni;
use tests::command::{command, finish};
use tests::node::{CRI_SOCKET, Node};
use tests::pace;

const DEADLINE: Duration = Duration::from_secs(480);
/// With a libvirtd that hangs: the longest deadline of a question, and some time to judge.
const DOCTOR_DEADLINE: Duration = Duration::from_secs(40);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::doctor_finds_a_node_well", deadline: DEADLINE, run: well },
    Case { name: "cri::doctor_names_what_is_broken", deadline: DEADLINE, run: broken },
];

/// What doctor said, and how it ended.
struct Told {
    code: Option<i32>,
    document: Value,
    stderr: String,
}

impl Told {
    /// State and words of a check.
    fn of(&self, name: &str) -> Result<(&str, &str)> {
        let checks = self.document["checks"].as_array().context("no checks")?;
        let check = checks.iter().find(|check| check["check"] == name).with_context(|| format!("no check `{name}`"))?;
        let text = |key: &str| check[key].as_str().with_context(|| format!("no {key} in {check}"));
        Ok((text("state")?, text("seen")?))
    }

    fn has(&self, name: &str, state: &str, words: &str) -> Result<()> {
        let (found, seen) = self.of(name)?;
        ensure!(found == state && seen.contains(words), "`{name}` is {found}, not {state} with `{words}`: {seen}");
        Ok(())
    }
}

fn doctor(bed: &Bed) -> Result<Told> {
    let words = ["--socket", CRI_SOCKET, "doctor", "--json"];
    let ended = finish(&mut command(bed.program("virtletctl"), words), DOCTOR_DEADLINE)?;
    let document = serde_json::from_str(&ended.stdout).with_context(|| format!("no JSON: {ended:?}"))?;
    Ok(Told { code: ended.code, document, stderr: ended.stderr })
}

/// What the machine of the bed lacks (KVM, room) is its own affair; all that the bed sets up is well.
fn well(bed: &Bed) -> Result<()> {
    let _node = Node::start(bed)?;
    let told = doctor(bed)?;
    for check in [
        "config.controld",
        "config.tapmanager",
        "vmwrapper",
        "emulator",
        "virtiofsd",
        "kernel.tun",
        "cgroup.version",
        "cni.configuration",
        "cni.plugins",
        "cni.adds",
        "cni.leases",
        "socket.cri",
        "socket.tap",
        "socket.handoff",
        "status.runtime-ready",
        "status.network-ready",
        "status.cni-ready",
    ] {
        told.has(check, "ok", "")?;
    }
    told.has("socket.cri", "ok", "mode 0600, owner 0:0")?;
    told.has("socket.handoff", "ok", "mode 0660, owner 0:")?;
    ensure!(told.of("libvirt")?.0 != "failure", "libvirt: {:?}", told.of("libvirt")?);
    let fails = told.document["state"] == "failure";
    ensure!(told.code == Some(i32::from(fails)), "exit code {:?} of {}", told.code, told.document);
    let table = finish(&mut command(bed.program("virtletctl"), ["doctor"]), DOCTOR_DEADLINE)?;
    ensure!(table.code == told.code && table.stdout.starts_with("CHECK "), "{table:?}");
    // What a lost DEL leaves.
    let left = Path::new("/var/lib/cni/networks/vtnet/10.77.0.250");
    left.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(left, format!("vm{}\r\neth0", "0".repeat(62)))?;
    doctor(bed)?.has("cni.leases", "warning", "pods on no record: 10.77.0.250")?;
    fs::remove_file(left)?;
    Ok(())
}

fn broken(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    node.net.tapmanager.kill9()?;
    fs::set_permissions(bed.vmwrapper(), fs::Permissions::from_mode(0o600))?;
    cni::install(r#"{"cniVersion": "1.0.0", "name": "vtnet", "plugins": [{"type": "no-such-plugin"}]}"#)?;
    let held = node.libvirt.libvirtd.hold()?;
    let begun = pace::now();
    let told = doctor(bed);
    let took = begun.elapsed();
    drop(held);
    let told = told?;
    ensure!(told.code == Some(1), "exit code {:?} of {}", told.code, told.document);
    ensure!(told.stderr.contains("checks failed"), "{}", told.stderr);
    told.has("vmwrapper", "failure", "QEMU's user cannot run it")?;
    told.has("cni.plugins", "failure", "plugin `no-such-plugin`: it is in none of the plugin directories")?;
    told.has("libvirt", "failure", "did not end within")?;
    told.has("socket.tap", "failure", "")?;
    told.has("socket.handoff", "failure", "")?;
    // What is not broken is still told as it is.
    told.has("socket.cri", "ok", "answers")?;
    told.has("cni.configuration", "ok", "`vtnet`")?;
    ensure!(took < DOCTOR_DEADLINE, "it took {} s", took.as_secs());
    // Without controld nothing of this is asked of it.
    node.controld.kill9()?;
    let told = doctor(bed)?;
    told.has("socket.cri", "failure", "Connection refused")?;
    told.has("status", "warning", "controld does not answer")?;
    ensure!(told.code == Some(1), "exit code {:?}", told.code);
    Ok(())
}
