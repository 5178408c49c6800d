//! What of its node a machine has to itself: processors and huge pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{HugepageLimit, LinuxContainerResources, UpdateContainerResourcesRequest};
use tests::case::Bed;
use tests::command::sh;
use tests::cri;
use tests::image_server::Fault;
use tests::libvirt::only_qemu;
use tests::node::{BOOT_DEADLINE, Node};
use tests::wait::wait_until;

use super::{LIMIT, MIB, has_memory, pod};

/// Until the kernel has put pages together.
const ROOM_DEADLINE: Duration = Duration::from_secs(60);

/// As kubelet's CPU manager gives them, to a pod that asks for whole ones.
fn own_processors() -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_quota: -1,
        cpu_shares: 2048,
        cpuset_cpus: "0-1".into(),
        cpuset_mems: "0".into(),
        memory_limit_in_bytes: LIMIT,
        ..Default::default()
    }
}

pub(super) fn pinned(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    // With nothing on it to boot: a guest that uses several virtual CPUs may end its QEMU (see `tests::emulator`), and the threads that
    // are looked at are those that one thread for all is not.
    let nothing = bed.dir.join("nothing.qcow2");
    sh(&format!("qemu-img create -q -f qcow2 {} 64M", nothing.display()))?;
    let image = node.images.offer("nothing.qcow2", &nothing, Fault::None);
    node.cri.pull(&image)?;
    let mut container = cri::container(&image, [].into());
    container.linux.get_or_insert_default().resources = Some(own_processors());
    let vm = node.start_pod(pod(&node, "pinned", "/kubepods/pod-pinned")?, &container)?;
    let (each, together) = (BTreeMap::from([(0, "0"), (1, "1")]), BTreeMap::from([(0, "0-1"), (1, "0-1")]));
    virtual_cpus_are_on(&each)?;
    let qemu = only_qemu()?;
    let maps = fs::read_to_string(format!("/proc/{qemu}/numa_maps"))?;
    ensure!(maps.contains("bind:0"), "no memory of QEMU is bound to the node's memory node: {maps}");
    let main = fs::read_to_string(format!("/proc/{qemu}/status"))?;
    ensure!(main.contains("Cpus_allowed_list:\t0-1\n"), "QEMU itself is not on all processors of the pod: {main}");

    // What a cgroup does to threads that come anew is undone.
    node.controld.kill9()?;
    sh(&format!("taskset -a -c -p 0-1 {qemu}"))?;
    virtual_cpus_are_on(&together)?;
    node.controld.start_again()?;
    node.wait_ready()?;
    wait_until("a processor for each virtual one", BOOT_DEADLINE, || virtual_cpus_are_on(&each).is_ok())?;

    // A pod that shares has them together.
    let shared = LinuxContainerResources { cpu_quota: 150_000, cpu_shares: 1536, ..own_processors() };
    let update = UpdateContainerResourcesRequest {
        container_id: vm.container.clone(),
        linux: Some(shared),
        ..Default::default()
    };
    node.cri.call(|mut client| async move { client.update_container_resources(update).await })?;
    virtual_cpus_are_on(&together)?;
    node.remove_vm(&vm, Duration::ZERO)
}

/// Where the kernel lets each of the guest's virtual CPUs run.
fn virtual_cpus_are_on(expected: &BTreeMap<u16, &str>) -> Result<()> {
    let mut found = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{}/task", only_qemu()?))? {
        let dir = thread?.path();
        // QEMU has others, which come and go.
        let Ok(name) = fs::read_to_string(dir.join("comm")) else { continue };
        let Some(number) = name.strip_prefix("CPU ").and_then(|rest| rest.split('/').next()) else { continue };
        let status = fs::read_to_string(dir.join("status"))?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("no list")?;
        found.insert(number.parse()?, list.trim().to_owned());
    }
    let found: BTreeMap<u16, &str> = found.iter().map(|(number, list)| (*number, list.as_str())).collect();
    ensure!(found == *expected, "virtual CPUs are on {found:?}, and not on {expected:?}");
    Ok(())
}

/// Huge pages of the node that it would not have without the case.
struct HugePages {
    before: u64,
}

impl HugePages {
    const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

    fn read(name: &str) -> Result<u64> {
        Ok(fs::read_to_string(Path::new(Self::FILE).join(name))?.trim().parse()?)
    }

    fn reserve(more: u64) -> Result<Self> {
        let pages = Self { before: Self::read("nr_hugepages")? };
        let wanted = pages.before + more;
        // It makes as many as it finds room for, which other cases' machines may leave it in pieces.
        wait_until("room for huge pages", ROOM_DEADLINE, || {
            fs::write(Path::new(Self::FILE).join("nr_hugepages"), wanted.to_string()).is_ok()
                && Self::read("nr_hugepages").is_ok_and(|now| now == wanted)
        })
        .with_context(|| format!("the kernel has {:?} huge pages, not {wanted}", Self::read("nr_hugepages")))?;
        Ok(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // They go with the machine at the latest.
        let _ = fs::write(Path::new(Self::FILE).join("nr_hugepages"), self.before.to_string());
    }
}

pub(super) fn in_huge_pages(bed: &Bed) -> Result<()> {
    let guest = 128 * MIB;
    let wanted = (guest / (2 * MIB)).cast_unsigned();
    let _pages = HugePages::reserve(wanted)?;
    let dir = bed.dir.join("hugepages");
    fs::create_dir(&dir)?;
    sh(&format!("mount -t hugetlbfs -o pagesize=2M none {}", dir.display()))?;
    let node = Node::start(bed)?;
    let free = HugePages::read("free_hugepages")?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let container = |pages: &[(&str, i64)], memory_limit_in_bytes| {
        let pages = pages
            .iter()
            .map(|(size, limit)| HugepageLimit { page_size: (*size).to_owned(), limit: limit.cast_unsigned() });
        let mut container = cri::container(&image, [].into());
        let resources =
            LinuxContainerResources { memory_limit_in_bytes, hugepage_limits: pages.collect(), ..Default::default() };
        container.linux.get_or_insert_default().resources = Some(resources);
        container
    };
    let mut pod = node.pod("huge")?;
    pod.linux.get_or_insert_default().overhead = None;
    let sandbox = node.cri.run_sandbox(&pod)?;
    for (pages, limit, why) in [
        (&[("1GB", 1 << 30), ("2MB", guest)][..], LIMIT, "a machine's memory has pages of one size"),
        (&[("2MB", guest)], 64 * MIB, "that QEMU takes beside its guest's huge pages"),
        (&[], 40 * MIB, "the least is 64 MiB; raise the limit or `overhead.podFixed`"),
    ] {
        let refused = node.cri.create(&sandbox, &container(pages, limit), &pod).err().context(why)?;
        ensure!(refused.message().contains(why), "{refused}");
    }
    node.cri.remove_sandbox(&sandbox)?;

    // No more than what QEMU takes beside.
    let vm = node.start_pod(pod, &container(&[("1GB", 0), ("2MB", guest)], 260 * MIB))?;
    vm.wait_up()?;
    has_memory(bed, &vm, guest)?;
    let left = HugePages::read("free_hugepages")?;
    ensure!(left + wanted == free, "{left} of {free} huge pages are free");
    let limits = node.cri.container(&vm.container)?.resources.and_then(|all| all.linux).map(|all| all.hugepage_limits);
    let told = HugepageLimit { page_size: "2MB".into(), limit: guest.cast_unsigned() };
    ensure!(limits.as_deref() == Some(&[told]), "{limits:?}");
    node.remove_vm(&vm, Duration::from_secs(30))?;
    wait_until("huge pages that are free again", BOOT_DEADLINE, || {
        HugePages::read("free_hugepages").is_ok_and(|now| now == free)
    })
}
