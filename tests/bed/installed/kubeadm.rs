//! A worker of a kubeadm cluster, by the commands of `docs/kubeadm.md`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::installed::{Debian, HOST, Machine, Packages};
use tests::kubeadm::{ADDRESS, ENDPOINT, LINK, NODE_ADDRESS, Plane};
use tests::pages::block;

use super::node::{ANSWER, POD_DEADLINE, TOOL_DEADLINE, configure, explained, install};

/// Warm, on two processors that nobody else uses, a minute and a half.
const DEADLINE: Duration = Duration::from_secs(720);
pub(super) const PAGE: &str = include_str!("../../../docs/kubeadm.md");
/// The machine's name of itself.
pub(super) const NODE: &str = "installed";

pub(super) const CASES: &[Case] = &[Case {
    name: "installed::kubeadm_makes_it_a_worker_with_a_pod_and_takes_it_away_again",
    deadline: DEADLINE,
    run,
}];

fn run(bed: &Bed) -> Result<()> {
    let mut plane = Plane::start(bed)?;
    let machine = Machine::boot_on(bed, Debian::Twelve, LINK)?;
    explained(machine, |machine| {
        install(machine, &Packages::build(bed, "1.0")?)?;
        configure(machine, bed)?;
        furnish(machine, bed)?;
        keep_out(&mut plane)?;
        // kubeadm gives the runtime 2 s to answer, and controld has just been started: on a machine that is emulated libvirt may take longer
        // to say what its QEMU can do, and until then, or 5 s, controld's answer waits.
        machine.wait("libvirt's answer to controld", FOUND_LIBVIRT, POD_DEADLINE)?;
        join(&mut plane, machine)?;
        pod(&mut plane, machine)?;
        away(&mut plane, machine)
    })
}

const FOUND_LIBVIRT: &str =
    "journalctl -q --no-pager -o cat _PID=$(systemctl show -P MainPID controld) | grep 'connected to libvirt'";

/// The machine's card, and what Kubernetes's own packages bring: kubeadm, and kubelet as a service.
pub(super) fn furnish(machine: &mut Machine, bed: &Bed) -> Result<()> {
    let programs = ["kubeadm", "kubelet"].map(|name| {
        let program = bed.config.peer(name)?.canonicalize()?;
        anyhow::Ok(format!("ln -s {HOST}{} /usr/bin/{name}\n", program.display()))
    });
    let programs = programs.into_iter().collect::<Result<String>>()?;
    let script = format!(
        "set -e\nlink=$(basename /sys/class/net/e*)\nip addr add {NODE_ADDRESS}/24 dev $link\nip link set $link up\n\
         ip route add default via {ADDRESS}\n{programs}\
         cat >/etc/systemd/system/kubelet.service <<'END'\n{KUBELET_UNIT}\nEND\n\
         systemctl daemon-reload\nsystemctl enable kubelet\n{}",
        block(PAGE, "net.ipv4.ip_forward")?
    );
    machine.run(&script, TOOL_DEADLINE).map(drop)
}

/// What would land on each node.
pub(super) fn keep_out(plane: &mut Plane) -> Result<()> {
    plane.run(block(PAGE, "patch daemonset kube-proxy")?).map(drop)
}

/// By the file and the commands of the page, until the node is ready.
pub(super) fn join(plane: &mut Plane, machine: &mut Machine) -> Result<()> {
    let said = plane.run("kubeadm token create --print-join-command")?;
    let after = |flag: &str| said.split_whitespace().skip_while(|word| *word != flag).nth(1);
    let (token, hash) = (after("--token").context("no token")?, after("--discovery-token-ca-cert-hash"));
    let hash = hash.context("no hash")?;
    let file = block(PAGE, "kind: JoinConfiguration")?
        .replace("CONTROL-PLANE:6443", ENDPOINT)
        .replace("TOKEN", token)
        .replace("sha256:HASH", hash);
    // The machine has no file with its kernel's configuration.
    let commands = block(PAGE, "kubeadm join --config")?
        .replace("join.yaml", "join.yaml --ignore-preflight-errors=SystemVerification");
    let said = machine.run(&format!("set -e\ncat >join.yaml <<'END'\n{file}\nEND\n{commands}"), POD_DEADLINE)?;
    ensure!(said.contains("This node has joined the cluster"), "{said}");
    for check in ["kubelet.endpoint", "kubelet.cgroup-driver"] {
        ensure!(said.lines().any(|line| line.contains(check) && line.contains("ok")), "{check}: {said}");
    }
    machine.run("grep -x 'runtimeRequestTimeout: 4m.*' /var/lib/kubelet/config.yaml", TOOL_DEADLINE)?;
    let ready = format!("kubectl wait --for=condition=Ready node/{NODE} --timeout=30s");
    plane.wait("ready node", &ready, POD_DEADLINE)?;
    let node = "jsonpath={.metadata.labels.virtlet} {.spec.taints[?(@.key==\"virtlet\")].effect} \
                {.status.nodeInfo.containerRuntimeVersion}";
    let node = plane.run(&format!("kubectl get node {NODE} -o '{node}'"))?;
    ensure!(node.starts_with("true NoSchedule virtlet://"), "label, taint and runtime: {node}");
    Ok(())
}

/// The page's pod runs, and nothing else of the cluster has come.
pub(super) fn pod(plane: &mut Plane, machine: &mut Machine) -> Result<()> {
    let commands = block(PAGE, "kind: Pod")?
        .replace("NODE", NODE)
        .replace("images.example.com/debian.qcow2", "tiny")
        .replace("cpu: \"2\", memory: 1Gi", "cpu: \"1\", memory: 160Mi")
        .replace("kubectl logs -f web", "");
    plane.run(&commands)?;
    plane.wait("pod that is ready", "kubectl wait --for=condition=Ready pod/web --timeout=30s", POD_DEADLINE)?;
    machine.wait("answer of the pod's guest", ANSWER, POD_DEADLINE)?;
    plane.wait("console in kubectl logs", "kubectl logs web | grep tiny:", POD_DEADLINE)?;
    let pods = plane.run("kubectl get pods -A -o 'jsonpath={.items[*].metadata.name}'")?;
    ensure!(pods == "web", "other pods have come to the node: {pods}");
    Ok(())
}

/// The page's last commands leave nothing.
pub(super) fn away(plane: &mut Plane, machine: &mut Machine) -> Result<()> {
    plane.run(&block(PAGE, "kubectl drain")?.replace("NODE", NODE))?;
    let said = machine.run(block(PAGE, "kubeadm reset")?, TOOL_DEADLINE)?;
    plane.run(&block(PAGE, "kubectl delete node")?.replace("NODE", NODE))?;
    let left = machine.run(LEFT, TOOL_DEADLINE)?;
    ensure!(left.is_empty(), "left behind: {left}; kubeadm said: {said}");
    Ok(())
}

/// Of pods and of kubelet: VMs, what controld and tapmanager know, plugins' addresses, mounts, and what kubelet was told.
const LEFT: &str = "virtletctl ps -a -q; virsh -q -c qemu:///system list --all; ls /var/lib/virtlet/net/pods; \
     ls /var/lib/cni/networks/*/10.* /var/lib/kubelet/* /etc/kubernetes/manifests/* 2>/dev/null; grep kubelet /proc/mounts; \
     pgrep -x kubelet; :";

/// As Kubernetes's package has it: kubeadm writes the files that it names.
const KUBELET_UNIT: &str = "[Unit]
Description=kubelet
Wants=network-online.target
After=network-online.target
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=10
[Install]
WantedBy=multi-user.target";
