//! What a machine may take of its node: cgroups, and what becomes of one that takes more. What it has to itself: [`own`].

mod elsewhere;
mod own;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerState, LinuxContainerResources, PodSandboxConfig};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::emulator::of_one_thread;
use tests::libvirt::{only_qemu, running_domains, virsh};
use tests::node::{BOOT_DEADLINE, Node, Vm};
use tests::wait::wait_until;
use tests::world::World;

use super::shell::{exec, prints};

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
const CGROUPS: &str = "/sys/fs/cgroup";
const MIB: i64 = 1 << 20;
const PARENT: &str = "/kubepods/burstable/pod-counts";
/// Of the container.
const LIMIT: i64 = 160 * MIB;
/// As kubelet gives a burstable pod.
const OOM_SCORE: i64 = 985;

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_machine_counts_as_its_pod", deadline: DEADLINE, run: counts_as_its_pod },
    Case { name: "vm::memory_that_a_guest_frees_is_the_nodes_again", deadline: DEADLINE, run: given_back },
    Case { name: "vm::a_machine_without_memory_is_oom_killed", deadline: DEADLINE, run: oom_killed },
    Case { name: "vm::processors_of_a_pods_own_are_the_guests_one_by_one", deadline: DEADLINE, run: own::pinned },
    Case { name: "vm::a_guest_is_in_huge_pages", deadline: DEADLINE, run: own::in_huge_pages },
    Case { name: "vm::a_libvirt_with_another_run_directory_is_no_matter", deadline: DEADLINE, run: elsewhere::counts },
];

fn resources() -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 150_000,
        cpu_shares: 512,
        memory_limit_in_bytes: LIMIT,
        oom_score_adj: OOM_SCORE,
        ..Default::default()
    }
}

fn pod(node: &Node, name: &str, parent: &str) -> Result<PodSandboxConfig> {
    let mut pod = node.pod(name)?;
    pod.linux.get_or_insert_default().cgroup_parent = parent.to_owned();
    Ok(pod)
}

/// The weight that kubelet gives its cgroups, of a node with many processors: what else runs on this one, as the
/// guests of other cases, would leave a group of the kernel's own weight the time of one process.
fn weigh(parent: &str) -> Result<()> {
    for group in Path::new(parent).ancestors().filter(|group| group.parent().is_some()) {
        let dir = file("cpu", &group.display().to_string(), "");
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("cpu.shares"), (64 * 1024).to_string())?;
    }
    Ok(())
}

fn start(bed: &Bed, node: &Node, pod: PodSandboxConfig, most: &[(&str, &str)]) -> Result<Vm> {
    weigh(&pod.linux.as_ref().context("no Linux part")?.cgroup_parent)?;
    let mut container = cri::container(&node.pull(bed, "tiny.qcow2")?, [].into());
    container.linux.get_or_insert_default().resources = Some(resources());
    let annotations = most.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let pod = PodSandboxConfig { annotations, ..pod };
    node.start_pod(pod, &container)
}

/// The cgroup of the one QEMU in each hierarchy, by controller.
fn cgroups_of_qemu() -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", only_qemu()?))?;
    let of = |line: &str| {
        let mut words = line.splitn(3, ':').skip(1);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let groups = text.lines().filter_map(of);
    Ok(groups
        .flat_map(|(names, path)| names.split(',').map(|name| (name.to_owned(), path.clone())).collect::<Vec<_>>())
        .collect())
}

/// Where the machine of a pod's cgroup has the files of these controllers: a directory for each.
fn machine_in(parent: &str) -> Result<String> {
    let groups = cgroups_of_qemu()?;
    let shown = || format!("{groups:?}");
    let path = groups.get("memory").or_else(|| groups.get("")).with_context(shown)?.clone();
    ensure!(path.starts_with(&format!("{parent}/virtlet-")), "{path} is not below {parent}: {groups:?}");
    for controller in ["cpu", "cpuacct", "cpuset", "pids", "blkio"] {
        ensure!(groups.get(controller).is_none_or(|other| *other == path), "{controller}: {groups:?}");
    }
    Ok(path)
}

fn file(controller: &str, group: &str, name: &str) -> PathBuf {
    Path::new(CGROUPS).join(controller).join(group.trim_start_matches('/')).join(name)
}

fn number(controller: &str, group: &str, name: &str) -> Result<i64> {
    let path = file(controller, group, name);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().parse()?)
}

/// How soon the kernel kills the one QEMU when the node is out of memory.
fn oom_score() -> Result<i64> {
    Ok(fs::read_to_string(format!("/proc/{}/oom_score_adj", only_qemu()?))?.trim().parse()?)
}

fn counts_as_its_pod(bed: &Bed) -> Result<()> {
    let mut node = Node::configured(bed, &of_one_thread(bed)?)?;
    node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let parent = PARENT;
    let most = [("virtlet.cloud/max-vcpus", "3"), ("virtlet.cloud/max-memory", "256Mi")];
    let vm = start(bed, &node, pod(&node, "counts", parent)?, &most)?;
    let group = machine_in(parent)?;
    ensure!(number("cpu", &group, "cpu.cfs_quota_us")? == 150_000 && number("cpu", &group, "cpu.shares")? == 512);
    ensure!(number("memory", &group, "memory.limit_in_bytes")? == LIMIT + cri::POD_FIXED);
    ensure!(oom_score()? == OOM_SCORE, "{}", oom_score()?);
    vm.wait_up()?;
    let used = number("memory", &group, "memory.usage_in_bytes")?;
    ensure!(used > 32 * MIB, "the guest has taken {used} bytes of the pod's cgroup");
    ensure!(vm.info()?.contains("cpus 2"), "{}", vm.info()?);

    updated(&node, &vm, &group)?;
    // The guest's kernel has the third one, too.
    wait_until("three processors in the guest", BOOT_DEADLINE, || vm.info().is_ok_and(|info| info.contains("cpus 3")))?;

    // What was not done when controld died is done by the next one.
    node.controld.kill9()?;
    let qemu = only_qemu()?.to_string();
    fs::write(file("cpu", "", "cgroup.procs"), &qemu)?;
    fs::write(file("memory", "", "cgroup.procs"), &qemu)?;
    fs::write(format!("/proc/{qemu}/oom_score_adj"), "7")?;
    ensure!(machine_in(parent).is_err(), "it is back where it was");
    node.controld.start_again()?;
    node.wait_ready()?;
    wait_until("QEMU in its cgroup", BOOT_DEADLINE, || {
        machine_in(parent).is_ok() && oom_score().is_ok_and(|score| score == OOM_SCORE)
    })?;

    // libvirtd does not find the cgroup that it made.
    node.libvirt.libvirtd.kill9()?;
    node.libvirt.libvirtd.start_again()?;
    node.libvirt.wait_ready()?;
    node.wait_ready()?;
    node.remove_vm(&vm, Duration::ZERO)?;
    ensure!(!file("memory", &group, "").exists() && !file("cpu", &group, "").exists(), "{group} is left");
    fs::remove_dir_all(&vm.pod.log_directory)?;
    let again =
        |thing: &str| thing.starts_with("process ") && (thing.ends_with(" controld") || thing.ends_with(" libvirtd"));
    before.assert_same_but(|thing| thing == "link cni0" || again(thing))
}

/// Holds the guest's kernel to what it was told of its memory. A little is the firmware's.
fn has_memory(bed: &Bed, vm: &Vm, bytes: i64) -> Result<()> {
    let ended = exec(bed, vm, "dmesg | grep -o '[0-9]*K/[0-9]*K available'")?;
    let total = ended.stdout.split(['/', 'K']).nth(2).with_context(|| format!("{ended:?}"))?.parse::<i64>()? << 10;
    ensure!(total <= bytes && total * 100 >= bytes * 97, "the guest's kernel has {total} bytes, and not {bytes}");
    Ok(())
}

/// Bytes of its own that the one QEMU has, its guest's memory with them.
fn resident() -> Result<i64> {
    let status = fs::read_to_string(format!("/proc/{}/status", only_qemu()?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<i64>()? << 10)
}

/// A guest that takes most of its memory is within its pod's, and what it frees it gives back by its balloon. A kernel does so once it has far
/// more than 64 MiB free (Linux, `mm/page_reporting.c`).
fn given_back(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let mut container = cri::container(&node.pull(bed, "tiny.qcow2")?, [].into());
    container.linux.get_or_insert_default().resources =
        Some(LinuxContainerResources { memory_limit_in_bytes: 512 * MIB, ..resources() });
    let parent = "/kubepods/burstable/pod-busy";
    weigh(parent)?;
    let vm = node.start_pod(pod(&node, "busy", parent)?, &container)?;
    let group = machine_in(parent)?;
    vm.wait_up()?;
    has_memory(bed, &vm, 512 * MIB)?;
    let before = resident()?;
    let line =
        "mkdir /run/full && mount -t tmpfs -o size=300m full /run/full && head -c 256m /dev/zero >/run/full/file";
    prints(bed, &vm, line, "")?;
    let full = resident()?;
    ensure!(full > before + 192 * MIB, "QEMU had {before} bytes, and {full} once its guest had taken 256 MiB");
    let used = number("memory", &group, "memory.max_usage_in_bytes")?;
    let limit = number("memory", &group, "memory.limit_in_bytes")?;
    ensure!(limit == 512 * MIB + cri::POD_FIXED && used < limit, "{used} bytes of {limit} were used");
    prints(bed, &vm, "umount /run/full", "")?;
    wait_until("memory that the guest has given back", BOOT_DEADLINE, || {
        resident().is_ok_and(|now| now < full - 128 * MIB)
    })?;
    node.remove_vm(&vm, Duration::ZERO)
}

/// Live: limits, vCPUs and memory, all or nothing.
fn updated(node: &Node, vm: &Vm, group: &str) -> Result<()> {
    let domain = running_domains()?.pop().context("no machine")?;
    let vcpus = || virsh(&format!("vcpucount {domain} --live --current"));
    ensure!(vcpus()?.trim() == "2", "{}", vcpus()?);
    let update = |words: &[&str]| node.crictl(&[&["update"], words, &[vm.container.as_str()]].concat());
    let more = ["--cpu-quota", "250000", "--cpu-share", "1024", "--memory", &(200 * MIB).to_string()];

    // The step after the one that plugs vCPUs fails.
    let procs = file("memory", group, "cgroup.procs");
    sh(&format!("mount --bind /dev/full {}", procs.display()))?;
    let failed = update(&more)?;
    sh(&format!("umount {}", procs.display()))?;
    ensure!(failed.code != Some(0) && format!("{failed:?}").contains("failed to move QEMU"), "{failed:?}");
    ensure!(vcpus()?.trim() == "3", "{} vCPUs, which are never unplugged", vcpus()?);
    ensure!(number("cpu", group, "cpu.cfs_quota_us")? == 150_000 && number("cpu", group, "cpu.shares")? == 512);
    ensure!(number("memory", group, "memory.limit_in_bytes")? == LIMIT + cri::POD_FIXED);

    let done = update(&more)?;
    ensure!(done.code == Some(0), "{done:?}");
    ensure!(number("cpu", group, "cpu.cfs_quota_us")? == 250_000 && number("cpu", group, "cpu.shares")? == 1024);
    ensure!(number("memory", group, "memory.limit_in_bytes")? == 200 * MIB + cri::POD_FIXED);
    ensure!(vcpus()?.trim() == "3", "{}", vcpus()?);
    // Threads of new vCPUs, too.
    machine_in(PARENT)?;
    let counted = || -> Result<(usize, usize)> {
        let threads = fs::read_to_string(file("cpu", group, "tasks"))?.lines().count();
        Ok((threads, fs::read_dir(format!("/proc/{}/task", only_qemu()?))?.count()))
    };
    // Those that read and write disks come and go between both counts.
    wait_until("all threads in the group", GRACE, || counted().is_ok_and(|(threads, all)| threads + 1 >= all))
        .with_context(|| format!("threads in {group}, and of QEMU: {:?}", counted()))?;
    wait_until("memory by the balloon", BOOT_DEADLINE, || {
        virsh(&format!("dommemstat {domain}")).is_ok_and(|stat| stat.contains(&format!("actual {}\n", 200 << 10)))
    })?;

    let refused = update(&["--cpu-quota", "900000", "--memory", &(190 * MIB).to_string()])?;
    ensure!(refused.code != Some(0), "{refused:?}");
    ensure!(format!("{refused:?}").contains("virtlet.cloud/max-vcpus"), "{refused:?}");
    ensure!(number("memory", group, "memory.limit_in_bytes")? == 200 * MIB + cri::POD_FIXED, "half of it is done");

    let less = update(&["--memory", &LIMIT.to_string()])?;
    ensure!(less.code == Some(0), "{less:?}");
    let resources = node.cri.container(&vm.container)?.resources.and_then(|all| all.linux).context("no resources")?;
    let shown = (resources.cpu_quota, resources.cpu_shares, resources.memory_limit_in_bytes);
    ensure!(shown == (250_000, 1024, LIMIT), "{shown:?}");
    Ok(())
}

fn oom_killed(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let parent = "/kubepods/pod-greedy";
    // As kubelet makes it: the pod's limit counts, whatever its container's is.
    let dir = file("memory", parent, "");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("memory.limit_in_bytes"), (24 * MIB).to_string())?;
    let vm = start(bed, &node, pod(&node, "greedy", parent)?, &[])?;
    node.wait_state(&vm, ContainerState::ContainerExited, BOOT_DEADLINE)?;
    let status = node.cri.container(&vm.container)?;
    ensure!((status.exit_code, status.reason.as_str()) == (137, "OOMKilled"), "{} {}", status.exit_code, status.reason);
    ensure!(status.message.contains("memory limit"), "{}", status.message);
    node.remove_vm(&vm, Duration::ZERO)
}
