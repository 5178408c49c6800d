//! A worker with containers gets virtlet-rs by the DaemonSet, leaves the cluster, and comes back for VMs: by kubeadm, and by the
//! commands of the pages.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tests::case::{Bed, Case};
use tests::containerd::archive;
use tests::installed::{Debian, HOST, Image, Machine};
use tests::kubeadm::{LINK, Plane};
use tests::pages::block;

use super::kubeadm::{NODE, PAGE, away, furnish, join, keep_out, pod};
use super::node::{
    ANSWER, BELONGINGS, CHAINS, CONFIGURED, POD_DEADLINE, PROCESS, TOOL_DEADLINE, as_before, configure, explained,
    no_denials, no_errors,
};

/// Warm, on two processors that nobody else uses, three and a half minutes.
const DEADLINE: Duration = Duration::from_secs(1200);
const DEPLOY: &str = include_str!("../../../deploy/README.md");
const NETWORK: &str = include_str!("../../../deploy/10-virtlet.conflist");
const SOCKET: &str = "unix:///run/containerd/containerd.sock";
const PAUSE: &str = "docker.io/library/pause:bed";

pub(super) const CASES: &[Case] = &[Case {
    name: "installed::a_daemonset_installs_what_a_pod_of_the_node_that_joins_again_runs_with",
    deadline: DEADLINE,
    run,
}];

fn run(bed: &Bed) -> Result<()> {
    let mut plane = Plane::start(bed)?;
    let (image, newer) = (Image::build(bed, "1.0")?, Image::build_newer(bed, "1.1")?);
    explained(Machine::boot_on(bed, Debian::Twelve, LINK)?, |machine| {
        let mut before = machine.run(BELONGINGS, TOOL_DEADLINE)?;
        furnish(machine, bed)?;
        containers(machine, bed, &image)?;
        lacking(machine, &image)?;
        worker(&mut plane, machine)?;
        install(&mut plane, machine, &image)?;
        leave(&mut plane, machine)?;
        // Those of containerd's pods are not ours: on a busy machine the chain of one was left, by its id, after `kubeadm reset` had ended it.
        before = format!("{before}\n{}", machine.run(CHAINS, TOOL_DEADLINE)?);

        configure(machine, bed)?;
        keep_out(&mut plane)?;
        join(&mut plane, machine)?;
        pod(&mut plane, machine)?;
        upgrade(machine, &newer)?;
        no_denials(machine)?;
        no_errors(machine)?;
        let (code, said) = machine.attempt(&by_hand(&newer, "remove")?, TOOL_DEADLINE)?;
        ensure!(code == Some(69) && said.contains("nothing was changed: VMs run (virtlet-"), "{code:?} {said}");
        away(&mut plane, machine)?;
        machine.run(&by_hand(&newer, "remove")?, TOOL_DEADLINE)?;
        // What is no program stays.
        machine.run(&format!("! ls /usr/sbin/controld && ls /var/lib/virtlet && {CONFIGURED}"), TOOL_DEADLINE)?;
        machine.run(&by_hand(&newer, "purge")?, TOOL_DEADLINE)?;
        machine
            .run("systemctl disable --now containerd && rm -rf /var/lib/containerd /run/containerd", TOOL_DEADLINE)?;
        as_before(machine, &before)
    })
}

/// containerd as the node's runtime, with the images that it would pull.
fn containers(machine: &mut Machine, bed: &Bed, image: &Image) -> Result<()> {
    let pause = archive(&bed.dir, PAUSE, &bed.config.dist()?.join("virtlet-install"), &["stay"])?;
    let script = format!(
        "set -e\nfor program in containerd containerd-shim-runc-v2 ctr runc; do ln -s $(ls {HOST}/usr/*bin/$program | head -n 1) /usr/bin/; done\n\
         mkdir -p /etc/containerd /etc/cni/net.d\ncat >/etc/cni/net.d/10-virtlet.conflist <<'END'\n{NETWORK}\nEND\n\
         cat >/etc/containerd/config.toml <<'END'\n{CONFIG}\nEND\n\
         cat >/etc/systemd/system/containerd.service <<'END'\n{UNIT}\nEND\n\
         systemctl daemon-reload\nsystemctl enable --now containerd\n\
         for image in {} {}; do ctr -n k8s.io images import {HOST}$image; done\n",
        pause.display(),
        image.archive.display()
    );
    machine.run(&script, TOOL_DEADLINE).map(drop)
}

/// A host that is none, or has no libvirt, is left alone.
fn lacking(machine: &mut Machine, image: &Image) -> Result<()> {
    let by_hand = by_hand(image, "install")?.replace("ctr run", "ctr -n k8s.io run");
    let elsewhere = by_hand.replace("src=/,", "src=/srv,");
    ensure!(elsewhere != by_hand, "{by_hand}");
    let (code, said) = machine.attempt(&elsewhere, TOOL_DEADLINE)?;
    ensure!(code == Some(69) && said.contains("no systemd runs in the host's root"), "{code:?} {said}");
    let own = by_hand.replace("--with-ns pid:/proc/1/ns/pid", "");
    ensure!(own != by_hand, "{by_hand}");
    let (code, said) = machine.attempt(&own, TOOL_DEADLINE)?;
    ensure!(code == Some(69) && said.contains("process ids of its own"), "{code:?} {said}");
    let hidden = "mv /usr/sbin/libvirtd /root/ && mv /usr/sbin/virtqemud /root/ 2>/dev/null; ";
    let (code, said) = machine.attempt(&format!("{hidden} {by_hand}"), TOOL_DEADLINE)?;
    ensure!(code == Some(69) && said.contains("nothing was changed: the host has no libvirt"), "{code:?} {said}");
    let shown = "mv /root/libvirtd /usr/sbin/; mv /root/virtqemud /usr/sbin/ 2>/dev/null; ! ls /usr/sbin/controld";
    machine.run(shown, TOOL_DEADLINE).map(drop)
}

/// As any worker joins.
fn worker(plane: &mut Plane, machine: &mut Machine) -> Result<()> {
    let said = plane.run("kubeadm token create --print-join-command")?;
    let join = format!("{} --cri-socket {SOCKET} --ignore-preflight-errors=SystemVerification", said.trim());
    machine.run(&join, POD_DEADLINE)?;
    let ready = format!("kubectl wait --for=condition=Ready node/{NODE} --timeout=30s");
    plane.wait("ready worker", &ready, POD_DEADLINE).map(drop)
}

/// By the page's commands.
fn install(plane: &mut Plane, machine: &mut Machine, image: &Image) -> Result<()> {
    let commands = block(DEPLOY, "rollout status daemonset")?.replace("NODE", NODE);
    let mut lines = commands.lines();
    let mut next = |word: &str| lines.next().filter(|line| line.contains(word)).context("other commands in the page");
    let apply = next("apply")?.replace("target/image/daemonset.yaml", &image.daemonset.to_string_lossy());
    plane.run(&apply)?;
    plane.run(next("label")?)?;
    let ready = "kubectl -n kube-system get daemonset virtlet-install -o 'jsonpath={.status.numberReady}' | grep 1";
    let (rollout, logs) = (next("rollout")?, next("logs")?);
    let waited = plane.wait("pod of the DaemonSet", ready, POD_DEADLINE);
    waited.map_err(|failed| anyhow!("{failed:#}: {:?}", plane.run(logs)))?;
    plane.run(rollout)?;
    let said = plane.run(logs)?;
    ensure!(said.contains("new: /usr/sbin/controld\n") && said.contains("installed, daemons started"), "{said}");
    ensure!(said.lines().any(|line| line.contains("kubelet.endpoint")), "no table of doctor's: {said}");
    machine
        .run("systemctl is-active tapmanager controld && systemctl is-enabled tapmanager controld", TOOL_DEADLINE)?;
    Ok(())
}

/// As the page for kubeadm has it, with the socket of containerd, which then has nothing left.
fn leave(plane: &mut Plane, machine: &mut Machine) -> Result<()> {
    plane.run(&block(PAGE, "kubectl drain")?.replace("NODE", NODE))?;
    let reset = block(PAGE, "kubeadm reset")?.replace("unix:///run/virtlet/cri.sock", SOCKET);
    machine.run(&reset, TOOL_DEADLINE)?;
    plane.run(&block(PAGE, "kubectl delete node")?.replace("NODE", NODE))?;
    let left = machine.run("ctr -n k8s.io containers ls -q", TOOL_DEADLINE)?;
    ensure!(left.is_empty(), "containers that nobody knows of: {left}");
    Ok(())
}

/// The VM runs on, with the daemons of the newer image; the configuration stays, and a second run does nothing.
fn upgrade(machine: &mut Machine, newer: &Image) -> Result<()> {
    let process = machine.run(PROCESS, TOOL_DEADLINE)?;
    machine.run(&format!("ctr images import {HOST}{}", newer.archive.display()), TOOL_DEADLINE)?;
    let by_hand = by_hand(newer, "install")?;
    let said = machine.run(&by_hand, TOOL_DEADLINE)?;
    ensure!(said.contains("new: /usr/sbin/tapmanager\n") && said.contains("daemons started"), "{said}");
    ensure!(
        !said.contains("new: /usr/sbin/controld\n") && said.contains("edited: /etc/virtlet/controld.toml"),
        "{said}"
    );
    machine.run("cmp /proc/$(systemctl show -P MainPID tapmanager)/exe /usr/sbin/tapmanager", TOOL_DEADLINE)?;
    machine.run(CONFIGURED, TOOL_DEADLINE)?;
    let daemon = "systemctl show -P MainPID controld";
    let first = machine.run(daemon, TOOL_DEADLINE)?;
    let said = machine.run(&by_hand, TOOL_DEADLINE)?;
    ensure!(said.contains("all is as it was") && machine.run(daemon, TOOL_DEADLINE)? == first, "started anew: {said}");
    machine.run("systemctl mask controld", TOOL_DEADLINE)?;
    let (code, said) = machine.attempt(&by_hand, TOOL_DEADLINE)?;
    ensure!(code != Some(0) && said.contains("`controld.service` is masked on the host"), "{said}");
    machine.run("systemctl unmask controld && systemctl disable controld", TOOL_DEADLINE)?;
    let said = machine.run(&by_hand, TOOL_DEADLINE)?;
    ensure!(said.contains("not started, since it was disabled: controld.service"), "{said}");
    machine.run("! systemctl is-enabled controld && systemctl enable controld", TOOL_DEADLINE)?;
    machine.wait("answer after the upgrade", ANSWER, POD_DEADLINE)?;
    ensure!(machine.run(PROCESS, TOOL_DEADLINE)? == process, "another process after the upgrade");
    Ok(())
}

/// The page's command for a node whose kubelet has no containers.
fn by_hand(image: &Image, what: &str) -> Result<String> {
    let commands = block(DEPLOY, "ctr run")?;
    let run = commands.lines().find(|line| line.starts_with("ctr run")).context("no such command")?;
    let run = run.strip_suffix("install").context("another command in the page")?;
    Ok(format!("{}{what}", run.replace("registry.example.com/virtlet-install:2", &image.name)))
}

/// kubelet's cgroup driver is systemd.
const CONFIG: &str = "version = 2
[plugins.'io.containerd.grpc.v1.cri']
sandbox_image = 'docker.io/library/pause:bed'
[plugins.'io.containerd.grpc.v1.cri'.cni]
bin_dir = '/usr/lib/cni'
conf_dir = '/etc/cni/net.d'
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
SystemdCgroup = true";

const UNIT: &str = "[Unit]
Description=containerd
[Service]
Type=notify
ExecStart=/usr/bin/containerd
Delegate=yes
KillMode=process
[Install]
WantedBy=multi-user.target";
