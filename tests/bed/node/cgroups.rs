//! A machine on a node with cgroups of version 2, as Debian's systemd mounts them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerState, LinuxContainerResources, UpdateContainerResourcesRequest};
use tests::case::{Bed, Case};
use tests::cri;
use tests::libvirt::{only_qemu, virsh};
use tests::node::{BOOT_DEADLINE, Node};

/// A machine that emulates another one is slow.
const DEADLINE: Duration = Duration::from_secs(480);
const CGROUPS: &str = "/sys/fs/cgroup";
/// As kubelet names it to a runtime that works with systemd.
const SLICE: &str = "kubepods-burstable-podtwo.slice";
const BELOW: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podtwo.slice/virtlet-";
const MIB: i64 = 1 << 20;
const LIMIT: i64 = 160 * MIB;

pub(super) const CASE: Case =
    Case { name: "node::a_machine_is_held_by_cgroups_of_version_2", deadline: DEADLINE, run: held };

fn held(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let mut container = cri::container(&node.pull(bed, "tiny.qcow2")?, [].into());
    container.linux.get_or_insert_default().resources = Some(LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit_in_bytes: LIMIT,
        cpuset_cpus: "1".into(),
        // As kubelet's MemoryQoS says them.
        unified: [("memory.min", 64 * MIB), ("memory.low", 96 * MIB), ("memory.high", 144 * MIB)]
            .map(|(file, bytes)| (file.to_owned(), bytes.to_string()))
            .into(),
        ..Default::default()
    });
    let mut pod = node.pod("two")?;
    pod.linux.get_or_insert_default().cgroup_parent = SLICE.to_owned();
    let most = [("virtlet.cloud/max-memory", "256Mi"), ("virtlet.cloud/max-vcpus", "2")];
    pod.annotations.extend(most.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let vm = node.start_pod(pod, &container)?;

    // One line: `0::PATH`.
    let qemu = only_qemu()?;
    let text = fs::read_to_string(format!("/proc/{qemu}/cgroup"))?;
    let group = text.trim().strip_prefix("0::").with_context(|| text.clone())?;
    ensure!(group.starts_with(BELOW), "QEMU is in {group}");
    let dir = Path::new(CGROUPS).join(group.trim_start_matches('/'));
    holds(&dir, &[("cpu.max", "50000 100000"), ("cpu.weight", "20"), ("cpuset.cpus.effective", "1")])?;
    holds(&dir, &[("memory.max", &(LIMIT + cri::POD_FIXED).to_string())])?;
    holds(&dir, &[("memory.min", &(64 * MIB + cri::POD_FIXED).to_string()), ("memory.high", "max")])?;
    holds(&dir, &[("memory.low", &(96 * MIB + cri::POD_FIXED).to_string())])?;

    let stats = node.crictl(&["stats", "-o", "json", &vm.container])?.stdout;
    let stats: serde_json::Value = serde_json::from_str(&stats)?;
    let used =
        stats.pointer("/stats/0/cpu/usageCoreNanoSeconds/value").and_then(|value| value.as_str()).map(str::parse);
    ensure!(matches!(used, Some(Ok(1_u64..))), "no processor time: {stats}");

    let update = ["update", "--cpu-quota", "150000", "--cpu-share", "1024", "--memory", "209715200", &vm.container];
    let updated = node.crictl(&update)?;
    ensure!(updated.code == Some(0), "{updated:?}");
    holds(&dir, &[("cpu.max", "150000 100000"), ("memory.max", &(200 * MIB + cri::POD_FIXED).to_string())])?;

    let unkept = UpdateContainerResourcesRequest {
        container_id: vm.container.clone(),
        linux: Some(LinuxContainerResources {
            unified: [("memory.min".to_owned(), "0".to_owned())].into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    node.cri.call(|mut client| async move { client.update_container_resources(unkept).await })?;
    holds(&dir, &[("memory.min", "0"), ("memory.max", &(200 * MIB + cri::POD_FIXED).to_string())])?;

    // Its thread is held as well: no thread of QEMU is elsewhere.
    let domain = virsh("list --name")?;
    let vcpus = virsh(&format!("vcpucount {} --live --current", domain.trim()))?;
    ensure!(vcpus.trim() == "2", "{vcpus} vCPUs");
    for thread in fs::read_dir(format!("/proc/{qemu}/task"))? {
        // Those that read and write disks come and go.
        let Ok(text) = fs::read_to_string(thread?.path().join("cgroup")) else { continue };
        ensure!(text.trim() == format!("0::{group}"), "a thread of QEMU is in {text}");
    }

    // The kernel kills it for want of memory.
    fs::write(dir.join("memory.max"), (8 * MIB).to_string())?;
    node.wait_state(&vm, ContainerState::ContainerExited, BOOT_DEADLINE)?;
    let status = node.cri.container(&vm.container)?;
    ensure!((status.exit_code, status.reason.as_str()) == (137, "OOMKilled"), "{} {}", status.exit_code, status.reason);
    node.remove_vm(&vm, Duration::ZERO)?;
    ensure!(!dir.exists(), "{group} is left");
    Ok(())
}

fn holds(dir: &Path, files: &[(&str, &str)]) -> Result<()> {
    for (name, wanted) in files {
        let at: PathBuf = dir.join(name);
        let is = fs::read_to_string(&at).with_context(|| at.display().to_string())?;
        ensure!(is.trim() == *wanted, "{name} is {}, not {wanted}", is.trim());
    }
    Ok(())
}
