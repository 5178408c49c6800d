//! A node's life: installation, a pod of kubelet, upgrade, reboot, removal and purge; on Debian 13 what may differ there,
//! and libvirt's modular daemon.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tests::case::{Bed, Case};
use tests::installed::{Debian, HOST, Machine, Packages};

/// Warm, on two processors that nobody else uses, 5 minutes.
const DEADLINE: Duration = Duration::from_secs(1200);
/// Longest for what waits for no guest.
pub(super) const TOOL_DEADLINE: Duration = Duration::from_secs(300);
/// Longest until a guest answers: its boot under a KVM that is emulated, behind kubelet's next look and retry.
pub(super) const POD_DEADLINE: Duration = Duration::from_secs(300);
/// How often systemd is told to read its units while the pod runs.
const RELOADS: u32 = 2;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "installed::a_pod_outlives_upgrade_and_removal_comes_back_after_a_reboot_and_purge_leaves_nothing",
        deadline: DEADLINE,
        run: |bed| explained(Machine::boot(bed, Debian::Twelve)?, |machine| whole_life(bed, machine)),
    },
    Case {
        name: "installed::on_debian_13_a_pod_outlives_libvirtd_comes_back_with_virtqemud_and_purge_leaves_nothing",
        deadline: DEADLINE,
        run: |bed| explained(Machine::boot(bed, Debian::Thirteen)?, |machine| two_libvirts(bed, machine)),
    },
];

/// What fails on the machine is told with what that says of it.
pub(super) fn explained(mut machine: Machine, life: impl FnOnce(&mut Machine) -> Result<()>) -> Result<()> {
    life(&mut machine).map_err(|failed| {
        let told = machine.attempt(WHY, TOOL_DEADLINE).map_or_else(|silent| format!("{silent:#}"), |(_, said)| said);
        anyhow!("{failed:#}\n{told}")
    })
}

fn whole_life(bed: &Bed, machine: &mut Machine) -> Result<()> {
    let newer = Packages::build(bed, "1.1")?;
    let before = machine.run(BELONGINGS, TOOL_DEADLINE)?;
    begins(bed, machine, POD)?;
    reloads(machine)?;
    changes_of_the_package(bed, machine, &newer)?;
    comes_back(machine, "libvirtd")?;

    machine.run(&format!("{OF_VM} && echo 8M >$vm/memory.max"), TOOL_DEADLINE)?;
    machine.wait(
        "end of the VM for want of memory",
        "virtletctl inspect $(virtletctl ps -a -q) | grep -q OOMKilled",
        POD_DEADLINE,
    )?;
    ends(machine, &before)
}

/// It begins with libvirt as Debian has it, and goes on with libvirt's daemon for QEMU alone. The pod has a volume: Debian 12 has no
/// virtiofsd.
fn two_libvirts(bed: &Bed, machine: &mut Machine) -> Result<()> {
    let before = machine.run(BELONGINGS, TOOL_DEADLINE)?;
    machine.run("mkdir /srv/volume && echo a word of the node >/srv/volume/word", TOOL_DEADLINE)?;
    let pod = POD.replace(PLAIN, SHARING).replace(NO_VOLUMES, VOLUMES).replace(NO_MOUNTS, MOUNTS);
    begins(bed, machine, &pod)?;
    machine.wait("volume in the guest", SEEN, POD_DEADLINE)?;
    to_virtqemud(machine)?;
    comes_back(machine, "virtqemud")?;
    ends(machine, &before)
}

/// The VM runs on meanwhile, and controld finds the other daemon by itself.
fn to_virtqemud(machine: &mut Machine) -> Result<()> {
    let process = machine.run(PROCESS, TOOL_DEADLINE)?;
    machine.run(VIRTQEMUD, TOOL_DEADLINE)?;
    doctor(machine)?;
    ensure!(machine.run(PROCESS, TOOL_DEADLINE)? == process, "another process with virtqemud");
    machine.wait("answer with virtqemud", ANSWER, POD_DEADLINE).map(drop)
}

/// From a machine that knows nothing of us to a pod of kubelet that answers, confined.
fn begins(bed: &Bed, machine: &mut Machine, pod: &str) -> Result<()> {
    install(machine, &Packages::build(bed, "1.0")?)?;
    configure(machine, bed)?;
    start_kubelet(machine, bed)?;
    doctor(machine)?;
    machine.run(&format!("cat >/etc/kubernetes/manifests/vm.json <<'END'\n{pod}\nEND"), TOOL_DEADLINE)?;
    let booted = machine.wait("answer of the pod's guest", ANSWER, POD_DEADLINE)?;
    ensure!(booted.contains("boots 1"), "{booted}");
    let confined = machine.run("cat /proc/$(cat /run/libvirt/qemu/virtlet-*.pid)/attr/current", TOOL_DEADLINE)?;
    ensure!(confined.starts_with("libvirt-") && confined.contains("(enforce)"), "not confined: {confined}");
    machine.wait("console in kubelet's log", "grep -q tiny: /var/log/pods/*/vm/*.log", POD_DEADLINE)?;
    logged(machine)
}

/// doctor finds no failure, once controld has found libvirt, which takes its time on this machine to say what its QEMU can do.
fn doctor(machine: &mut Machine) -> Result<()> {
    machine.wait("doctor without a failure", "virtletctl doctor", POD_DEADLINE).map(drop)
}

/// The pod is there again after a reboot, and nothing was in the way since the machine was made. `libvirt` is the daemon that
/// VMs are with, before and after.
fn comes_back(machine: &mut Machine, libvirt: &str) -> Result<()> {
    machine.reboot()?;
    machine.wait("answer after the reboot", ANSWER, POD_DEADLINE)?;
    stopped_before(machine, libvirt)?;
    no_denials(machine)?;
    no_errors(machine)?;
    let left = machine.run("ls /run/netns /var/lib/virtlet/net/pods/*.json", TOOL_DEADLINE)?;
    ensure!(left.matches("virtlet-").count() == 1, "not the namespace of one pod: {left}");
    Ok(())
}

/// In the boot before this one controld had ended when systemd told `libvirt` to.
fn stopped_before(machine: &mut Machine, libvirt: &str) -> Result<()> {
    let did = machine.run("journalctl -b -1 --no-pager -o cat -q _PID=1", TOOL_DEADLINE)?;
    let last = |words: String| did.rfind(&words);
    let (controld, libvirt) = (last("Stopped controld.service".into()), last(format!("Stopping {libvirt}.service")));
    ensure!(controld.is_some() && controld < libvirt, "controld does not end before libvirt: {did}");
    Ok(())
}

/// The pod is removed, and the packages are purged: all is as it was `before`.
fn ends(machine: &mut Machine, before: &str) -> Result<()> {
    // kubelet would take a minute until it collects the sandbox. One that it was making is made nevertheless, and appears later.
    machine.run(&format!("systemctl disable --now kubelet && {REMOVE_ALL}"), TOOL_DEADLINE)?;
    machine.wait("node without pods", &format!("{REMOVE_ALL} && {NO_PODS}"), POD_DEADLINE)?;
    // As `virtletctl run` leaves it.
    machine
        .run("mkdir -p /var/log/virtlet/pods/default_try && apt-get purge -q -y virtlet virtletctl", TOOL_DEADLINE)?;
    as_before(machine, before)
}

/// What there is of us is what there was.
pub(super) fn as_before(machine: &mut Machine, before: &str) -> Result<()> {
    let after = machine.run(BELONGINGS, TOOL_DEADLINE)?;
    let (left, gone) = (without(&after, before), without(before, &after));
    ensure!(left.is_empty() && gone.is_empty(), "after the purge there is also {left:?}, and not {gone:?}");
    Ok(())
}

/// The lines of `all`, but each of `others` once.
fn without<'a>(all: &'a str, others: &str) -> Vec<&'a str> {
    let mut lines: Vec<_> = all.lines().filter(|line| !line.is_empty()).collect();
    for other in others.lines() {
        if let Some(at) = lines.iter().position(|line| *line == other) {
            lines.remove(at);
        }
    }
    lines
}

/// systemd reads its units anew while kubelet looks at the pod: its cgroups have what they had, and the pod is as it was.
fn reloads(machine: &mut Machine) -> Result<()> {
    let state = format!(
        "{OF_VM} && systemctl show -p ActiveState -p Delegate $(basename $(dirname $vm)) && cat $vm/memory.max \
         && cat $(dirname $vm)/cgroup.controllers $(dirname $(dirname $vm))/cgroup.controllers && {PROCESS}"
    );
    let before = machine.run(&state, TOOL_DEADLINE)?;
    ensure!(
        ["ActiveState=active", "Delegate=yes"].iter().all(|line| before.contains(line))
            && before.matches("cpuset").count() == 2,
        "no scope with all: {before}"
    );
    for _ in 0..RELOADS {
        machine.run("systemctl daemon-reload", TOOL_DEADLINE)?;
        let now = machine.run(&state, TOOL_DEADLINE)?;
        ensure!(now == before, "after a reload:\n{now}\nand before:\n{before}");
    }
    Ok(())
}

/// Upgrade, removal and purge under the pod's VM: the same process, and the same boot.
fn changes_of_the_package(bed: &Bed, machine: &mut Machine, newer: &Packages) -> Result<()> {
    let process = machine.run(PROCESS, TOOL_DEADLINE)?;
    let containers = machine.run(CONTAINERS, TOOL_DEADLINE)?;
    install(machine, newer)?;
    let version = machine.run("dpkg-query -Wf '${Version}' virtlet && systemctl is-active controld", TOOL_DEADLINE)?;
    ensure!(version.starts_with("1.1"), "not upgraded: {version}");
    let now = machine.run(CONTAINERS, TOOL_DEADLINE)?;
    ensure!(now == containers, "other containers after the upgrade: {now}, and before: {containers}");
    ensure!(machine.run(PROCESS, TOOL_DEADLINE)? == process, "another process after the upgrade");
    machine.wait("answer after the upgrade", ANSWER, POD_DEADLINE)?;
    ensure!(machine.run(CONFIGURED, TOOL_DEADLINE)?.contains("/srv/images"), "the upgrade took the configuration");

    let (code, said) = machine.attempt("dpkg --remove virtlet", TOOL_DEADLINE)?;
    ensure!(code != Some(0) && said.contains("not removed: VMs run"), "removed under a running VM: {said}");
    machine.wait("answer after the removal that was refused", ANSWER, POD_DEADLINE)?;
    // Whoever does so, and purges while VMs run, is refused at the latest then, and gets all back by installing again.
    let anyway = "VIRTLET_REMOVE=yes dpkg --remove virtlet && dpkg --purge virtlet";
    let (code, said) = machine.attempt(anyway, TOOL_DEADLINE)?;
    ensure!(code != Some(0) && said.contains("not purged: VMs run"), "purged under a running VM: {said}");
    ensure!(machine.run(PROCESS, TOOL_DEADLINE)? == process, "the purge ended the VM");
    // By dpkg, as apt reads all of both packages first, and has done so twice.
    machine.run(&format!("dpkg -i {HOST}{}", newer.file("virtlet")?.display()), TOOL_DEADLINE)?;
    configure(machine, bed)?;
    machine.wait("answer after the package came back", ANSWER, POD_DEADLINE)?;
    ensure!(machine.run(PROCESS, TOOL_DEADLINE)? == process, "another process after the package came back");
    Ok(())
}

/// Installs or upgrades, as an administrator does it.
pub(super) fn install(machine: &mut Machine, packages: &Packages) -> Result<()> {
    let script = format!(
        "mkdir -p /etc/apt/sources.list.d && echo '{}' >/etc/apt/sources.list.d/virtlet.list && apt-get update -q \
         && DEBIAN_FRONTEND=noninteractive apt-get install -q -y virtlet virtletctl",
        packages.source()
    );
    machine.run(&script, TOOL_DEADLINE).map(drop)
}

/// What an administrator adds: the example's network, and where the image is; and, as this machine is emulated beside other cases,
/// more time for libvirt.
pub(super) fn configure(machine: &mut Machine, bed: &Bed) -> Result<()> {
    let image = bed.config.guest("tiny.qcow2")?.canonicalize()?;
    let script = format!(
        "set -e\nmkdir -p /etc/cni/net.d /srv/images /etc/virtlet/images.d\n\
         cp /usr/share/doc/virtlet/examples/10-virtlet.conflist /etc/cni/net.d/\n\
         cp {HOST}{} /srv/images/tiny.qcow2\n\
         printf 'images.local_roots = [\"/srv/images\"]\\nmachine.accel = \"kvm\"\\nmachine.start_deadline_s = 110\\n' >>/etc/virtlet/controld.toml\n\
         printf 'translations:\\n- name: tiny\\n  url: file:///srv/images/tiny.qcow2\\n' >/etc/virtlet/images.d/local.yaml\n\
         controld check-config\nsystemctl restart controld\ntapmanager status\n",
        image.display()
    );
    machine.run(&script, TOOL_DEADLINE).map(drop)
}

fn start_kubelet(machine: &mut Machine, bed: &Bed) -> Result<()> {
    let kubelet = bed.config.peer("kubelet")?.canonicalize().context("no kubelet")?;
    let unit = KUBELET_UNIT.replace("KUBELET", &format!("{HOST}{}", kubelet.display()));
    let script = format!(
        "set -e\nmkdir -p /etc/kubernetes/manifests\n\
         cat >/etc/kubernetes/kubelet.yaml <<'END'\n{KUBELET_SETTINGS}\nEND\n\
         echo nameserver 192.0.2.53 >/etc/kubernetes/resolv.conf\n\
         cat >/etc/systemd/system/kubelet.service <<'END'\n{unit}\nEND\n\
         systemctl daemon-reload\nsystemctl enable --now kubelet\n"
    );
    machine.run(&script, TOOL_DEADLINE).map(drop)
}

/// What both daemons have done for a pod is in the journal by the pod's name.
fn logged(machine: &mut Machine) -> Result<()> {
    let query = "journalctl --no-pager -o cat VIRTLET_POD_NAMESPACE=default VIRTLET_POD_NAME=vm-node1";
    for (daemon, message) in [("tapmanager", "pod attached"), ("controld", "machine started")] {
        let said = machine.run(&format!("{query} -u {daemon}"), TOOL_DEADLINE)?;
        ensure!(said.contains(message), "{daemon}'s entries about the pod lack `{message}`: {said}");
    }
    Ok(())
}

/// The daemons' units leave them all that they need.
pub(super) fn no_errors(machine: &mut Machine) -> Result<()> {
    let errors = machine.run("journalctl -p err -t controld -t tapmanager --no-pager -o cat -q || :", TOOL_DEADLINE)?;
    ensure!(errors.is_empty(), "errors of the daemons: {errors}");
    Ok(())
}

/// Of all that ran since the machine was made: none of the denials is of what we do or have done.
pub(super) fn no_denials(machine: &mut Machine) -> Result<()> {
    let denials = machine.run(&format!("{DENIALS} || :"), TOOL_DEADLINE)?;
    ensure!(!denials.contains("DENIED"), "AppArmor stands in the way: {denials}");
    Ok(())
}

/// The firewall's, by which `bridge` hides pods' addresses.
pub(super) const CHAINS: &str = "iptables-save 2>/dev/null | grep CNI- || :";

/// What may be left of us: files, links, namespaces, units, definitions of VMs, and what plugins keep. What libvirt has left of
/// a VM that the reboot cut off is libvirt's.
pub(super) const BELONGINGS: &str = "find / -xdev -regextype egrep \
     -regex '/(proc|sys|host|etc/cni|etc/apt|var/cache|var/lib/(dpkg|apt|cni|libvirt)|var/log/(libvirt|pods|containers))' -prune \
     -o \\( -name '*virtlet*' -o -name 'controld*' -o -name 'tapmanager*' -o -name vmwrapper -o -name fswrapper \\) -print | sort; \
     ls -d /run/virtlet /run/netns/virtlet-* /var/lib/cni/networks/virtlet/10.* /var/lib/cni/results/* 2>/dev/null; \
     virsh -q -c qemu:///system list --all; iptables-save 2>/dev/null | grep CNI-; :";

/// Removes all pods that there are.
const REMOVE_ALL: &str = "virtletctl ps -a -q | xargs -r virtletctl rm -f";
/// Fails while there is one, or tapmanager has a record of one.
const NO_PODS: &str = "[ -z \"$(virtletctl ps -a -q)\" ] && ! ls /var/lib/virtlet/net/pods/*.json 2>/dev/null";

/// Those of AppArmor, by the kernel's log; fails if there are none.
pub(super) const DENIALS: &str = "journalctl -k -g 'apparmor=.DENIED' --no-pager -o cat";
/// Who is the VM: its process.
pub(super) const PROCESS: &str = "cat /run/libvirt/qemu/virtlet-*.pid";
/// Sets `vm` to the directory of its cgroup.
const OF_VM: &str = "vm=/sys/fs/cgroup$(cut -d : -f 3 /proc/$(cat /run/libvirt/qemu/virtlet-*.pid)/cgroup)";
/// What a failed case is explained by, if its machine still answers.
const WHY: &str = "virtletctl ps -a; for c in $(virtletctl ps -a -q); do virtletctl logs $c | tail -n 8; done; \
     p=$(cat /run/libvirt/qemu/virtlet-*.pid) && cat /proc/$p/cgroup && cd /sys/fs/cgroup$(cut -d : -f 3 /proc/$p/cgroup) \
     && grep -H . cpu.stat cpu.max memory.current memory.max; ls /run/libvirt/qemu; tail -n 20 /var/log/libvirt/qemu/virtlet-*.log; \
     journalctl --no-pager -o short-precise -n 80 -u controld -u tapmanager -u libvirtd -u virtqemud; \
     journalctl --no-pager -k -n 20; journalctl --no-pager -u kubelet -g 'Killing|Stop|Start|unhealthy' -n 40; journalctl --no-pager -u kubelet -n 20; :";
/// As an administrator goes from the one daemon of libvirt to that of QEMU.
const VIRTQEMUD: &str = "systemctl disable --now libvirtd.service libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket \
     && systemctl enable --now virtqemud.socket";
/// Those that run.
const CONTAINERS: &str = "virtletctl ps -q";
pub(super) const CONFIGURED: &str = "grep ^images.local_roots /etc/virtlet/controld.toml";
/// Of the guest, by the address that the pod has. curl asks again by itself: a look starts programs on the machine that the guest has to boot on.
pub(super) const ANSWER: &str = "ip=$(virtletctl ps -o json | grep -o '10\\.88\\.[0-9.]*' | head -n 1) && [ \"$ip\" ] \
     && curl -s -S -f -m 48 --retry 8 --retry-all-errors --retry-delay 4 --retry-max-time 48 http://$ip/cgi-bin/info";

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vm", "namespace": "default"},
"spec": {"volumes": [], "terminationGracePeriodSeconds": 20, "automountServiceAccountToken": false, "overhead": {"memory": "320Mi"},
"containers": [{"name": "vm", "volumeMounts": [], "image": "tiny", "imagePullPolicy": "IfNotPresent",
"resources": {"limits": {"memory": "160Mi", "cpu": "1"}}}]}}"#;

const PLAIN: &str = r#""namespace": "default"}"#;
/// A guest without our agent, which is told to mount the volume itself.
const SHARING: &str = r##""namespace": "default", "annotations": {"virtlet.cloud/shared-fs": "virtiofs",
"VirtletCloudInitUserDataScript": "#!/bin/sh\nmkdir -p /tmp/v && mount -t virtiofs virtlet /tmp/v && cat /tmp/v/0/word >/dev/console"}}"##;
const NO_VOLUMES: &str = r#""volumes": [], "#;
const VOLUMES: &str = r#""volumes": [{"name": "v", "hostPath": {"path": "/srv/volume", "type": "Directory"}}], "#;
const NO_MOUNTS: &str = r#""volumeMounts": []"#;
const MOUNTS: &str = r#""volumeMounts": [{"name": "v", "mountPath": "/data", "readOnly": true}]"#;
const SEEN: &str = "grep -q 'a word of the node' /var/log/pods/*/vm/*.log";

/// It looks at pods as seldom as its cases can do with: each look takes half a second of a machine that is emulated.
const KUBELET_SETTINGS: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/virtlet/cri.sock
staticPodPath: /etc/kubernetes/manifests
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
fileCheckFrequency: 5s
syncFrequency: 10s
runtimeRequestTimeout: 4m
evictionHard: {nodefs.available: 1%, imagefs.available: 1%, memory.available: 50Mi}
resolvConf: /etc/kubernetes/resolv.conf";

/// The bridge stands for the node's own interface: kubelet wants an address that is not loopback.
const KUBELET_UNIT: &str = "[Unit]
Description=kubelet
Wants=controld.service
After=controld.service
[Service]
ExecStartPre=-ip link add node0 type bridge
ExecStartPre=-ip addr add 192.168.77.1/24 dev node0
ExecStartPre=-ip link set node0 up
ExecStartPre=-ip route add default via 192.168.77.254
ExecStart=KUBELET --config /etc/kubernetes/kubelet.yaml --hostname-override node1 --node-ip 192.168.77.1
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target";
