use vmspec::plan::CpuLimit;

use super::files::{File, Version};
use super::*;

const MIB: u64 = 1 << 20;

fn limits() -> Limits {
    Limits {
        cpu: Some(CpuLimit { quota: Some(150_000), period: 100_000 }),
        shares: Some(1024),
        memory: Some(256 * MIB),
        swap: Some(0),
        memory_min: Some(128 * MIB),
        memory_low: Some(64 * MIB),
        cpuset_cpus: "0-1".into(),
        cpuset_mems: String::new(),
    }
}

fn at_path(path: &str) -> Cgroup {
    Cgroup { path: path.into() }
}

fn written(version: Version) -> Vec<String> {
    let line = |file: File| format!("{}/{}={}", file.controller, file.name, file.value);
    version.files_of(&limits()).into_iter().map(line).collect()
}

#[test]
fn each_version_has_files_of_its_own() {
    assert_eq!(
        written(Version::One),
        [
            "cpu/cpu.cfs_quota_us=-1",
            "cpu/cpu.cfs_period_us=100000",
            "cpu/cpu.cfs_quota_us=150000",
            "cpu/cpu.shares=1024",
            "memory/memory.limit_in_bytes=268435456",
            "cpuset/cpuset.cpus=0-1",
        ]
    );
    assert_eq!(
        written(Version::Two),
        [
            "cpu/cpu.max=150000 100000",
            "cpu/cpu.weight=39",
            "memory/memory.max=268435456",
            "memory/memory.swap.max=0",
            "memory/memory.min=134217728",
            "memory/memory.low=67108864",
            "cpuset/cpuset.cpus=0-1",
        ]
    );
    let nothing = Limits::default();
    let opened = |version: Version, limits: &Limits| -> Vec<String> {
        version.open_files_of(limits).into_iter().map(|file| format!("{}={}", file.name, file.value)).collect()
    };
    assert_eq!(opened(Version::One, &nothing), ["cpu.cfs_quota_us=-1", "cpu.shares=1024", "memory.limit_in_bytes=-1"]);
    let of_two = [
        "cpu.max=max",
        "cpu.weight=100",
        "memory.max=max",
        "memory.swap.max=max",
        "memory.min=0",
        "memory.low=0",
        "cpuset.cpus=\n",
        "cpuset.mems=\n",
    ];
    assert_eq!(opened(Version::Two, &nothing), of_two);
    assert_eq!(opened(Version::One, &limits()), [""; 0]);
    assert_eq!(opened(Version::Two, &limits()), ["cpuset.mems=\n"]);
    assert!(Version::One.files_of(&nothing).is_empty() && Version::Two.files_of(&nothing).is_empty());
}

#[test]
fn counts_of_either_version_are_the_same() {
    let one = |_controller, name: &'static str| match name {
        "cpu.stat" => Some("nr_periods 9\nnr_throttled 3\nthrottled_time 5000000\n".into()),
        "memory.failcnt" => Some("7\n".into()),
        "memory.oom_control" => Some("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n".into()),
        _ => None,
    };
    let two = |_controller, name: &'static str| match name {
        "cpu.stat" => Some("usage_usec 1\nnr_periods 9\nnr_throttled 3\nthrottled_usec 5000\n".into()),
        "memory.events" => Some("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n".into()),
        _ => None,
    };
    let counts =
        Counts { periods: 9, throttled_periods: 3, throttled: Duration::from_millis(5), oom_kills: 1, limit_hits: 7 };
    assert_eq!((Version::One.counts(one), Version::Two.counts(two)), (counts, counts));
    assert_eq!(Version::Two.counts(|_, _| None), Counts::default());
}

#[test]
fn a_cgroup_of_version_2_gets_its_controllers_from_above() {
    let root = tempfile::tempdir().expect("tempdir");
    let at = root.path();
    // The kernel makes these in each directory.
    for dir in ["", "pods", "pods/one"] {
        fs::create_dir_all(at.join(dir)).expect("made");
        fs::write(at.join(dir).join("cgroup.controllers"), "cpu memory misc\n").expect("written");
        fs::write(at.join(dir).join("cgroup.subtree_control"), "memory\n").expect("written");
    }
    let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", at.display());
    let cgroups = Cgroups::of(&mounts, false).expect("found");
    cgroups.make(&at_path("/pods/one/vm"), &limits()).expect("made");
    for dir in ["", "pods", "pods/one"] {
        let passed = fs::read_to_string(at.join(dir).join("cgroup.subtree_control")).expect("read");
        assert_eq!(passed, "+cpu", "{dir}");
    }
    let vm = at.join("pods/one/vm");
    assert_eq!(fs::read_to_string(vm.join("cpu.max")).expect("read"), "150000 100000");
    assert!(!vm.join("cpuset.cpus").exists(), "there is no such controller");
    assert!(!vm.join("memory.swap.max").exists(), "this kernel does not count swap");
    fs::write(vm.join("memory.swap.max"), "max\n").expect("written");
    cgroups.make(&at_path("/pods/one/vm"), &limits()).expect("made");
    assert_eq!(fs::read_to_string(vm.join("memory.swap.max")).expect("read"), "0");
    cgroups.admit("/pods/one/vm", 42).expect("moved");
    assert_eq!(fs::read_to_string(vm.join("cgroup.procs")).expect("read"), "42");
    let full = cgroups.remove(&at_path("/pods/one/vm"), "virtlet-x").expect_err("it is not empty");
    assert_eq!(full.to_string(), "failed to remove cgroup `/pods/one/vm`");
    cgroups.remove(&at_path("/pods/none"), "virtlet-x").expect("nothing there");
}

#[test]
fn a_scope_is_systemds_where_there_is_one() {
    let root = tempfile::tempdir().expect("tempdir");
    let at = root.path();
    fs::create_dir_all(at.join("pod.slice/virtlet-1.scope/vm")).expect("made");
    fs::write(at.join("cgroup.controllers"), "cpu memory\n").expect("written");
    let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", at.display());
    let cgroup = at_path("/pod.slice/virtlet-1.scope/vm");
    let by_systemd = Cgroups::of(&mounts, true).expect("found");
    assert_eq!(by_systemd.scope_of(&cgroup).map(|scope| scope.slice), Some("pod.slice"));
    assert_eq!(by_systemd.scope_of(&at_path("/kubepods/pod/virtlet-1")), None);
    by_systemd.remove(&cgroup, "virtlet-x").expect("removed");
    assert!(at.join("pod.slice/virtlet-1.scope").exists(), "systemd removes it");
    by_systemd.enter(&cgroup.path, 42).expect("entered");
    assert_eq!(fs::read_to_string(at.join("pod.slice/virtlet-1.scope/vm/cgroup.procs")).expect("read"), "42");

    fs::remove_file(at.join("pod.slice/virtlet-1.scope/vm/cgroup.procs")).expect("removed");
    let without = Cgroups::of(&mounts, false).expect("found");
    assert_eq!(without.scope_of(&cgroup), None);
    without.remove(&cgroup, "virtlet-x").expect("removed");
    assert!(!at.join("pod.slice/virtlet-1.scope").exists() && at.join("pod.slice").exists());
}

#[test]
fn a_scope_of_systemds_is_not_made_by_hand() {
    let root = tempfile::tempdir().expect("tempdir");
    let at = root.path();
    fs::create_dir_all(at.join("pod.slice/virtlet-1.scope/vm")).expect("made");
    for dir in ["", "pod.slice", "pod.slice/virtlet-1.scope", "pod.slice/virtlet-1.scope/vm"] {
        fs::write(at.join(dir).join("cgroup.controllers"), "cpu memory\n").expect("written");
        fs::write(at.join(dir).join("cgroup.subtree_control"), "cpu memory\n").expect("written");
    }
    let by_systemd = Cgroups::of(&format!("cgroup2 {} cgroup2 rw 0 0\n", at.display()), true).expect("found");
    let ended = at_path("/pod.slice/virtlet-2.scope/vm");
    by_systemd.make(&ended, &limits()).expect_err("systemd has made no such scope");
    assert!(!at.join("pod.slice/virtlet-2.scope").exists());
    by_systemd.make(&at_path("/pod.slice/virtlet-1.scope/vm"), &limits()).expect("made");
    assert_eq!(fs::read_to_string(at.join("pod.slice/virtlet-1.scope/vm/cpu.weight")).expect("read"), "39");
}

#[test]
fn a_process_is_in_a_cgroup_by_whole_names() {
    let text = "1:name=systemd:/a.scope\n0::/pod.slice/a.scope/vm\n";
    for (path, is_in) in
        [("/pod.slice/a.scope/vm", true), ("/pod.slice/a.scope", true), ("/pod.slice/a", false), ("/a.scope", false)]
    {
        assert_eq!(files::is_in(text, path), is_in, "{path}");
    }
}

#[test]
fn version_1_is_used_where_it_has_memory_and_a_new_cpuset_is_filled() {
    let root = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| root.path().join(name);
    for name in ["cpu", "memory", "cpuset/pod/vm", "unified"] {
        fs::create_dir_all(at(name)).expect("made");
    }
    for (dir, list) in [("cpuset", "0-3\n"), ("cpuset/pod", "\n"), ("cpuset/pod/vm", "\n")] {
        fs::write(at(dir).join("cpuset.cpus"), list).expect("written");
        fs::write(at(dir).join("cpuset.mems"), list).expect("written");
    }
    let line = |name: &str, kind: &str| format!("x {} {kind} rw,relatime,{name} 0 0\n", at(name).display());
    let mounts =
        [line("cpu", "cgroup"), line("memory", "cgroup"), line("cpuset", "cgroup"), line("unified", "cgroup2")];
    let cgroups = Cgroups::of(&mounts.concat(), true).expect("found");
    let limits = Limits { cpuset_cpus: String::new(), ..limits() };
    cgroups.make(&at_path("/pod/vm"), &limits).expect("made");
    assert_eq!(fs::read_to_string(at("cpuset/pod/vm/cpuset.cpus")).expect("read"), "0-3");
    assert!(at("memory/pod/vm/memory.limit_in_bytes").exists() && !at("unified/pod").exists());
    assert!(Cgroups::of(&line("cpu", "cgroup"), false).is_err(), "memory is missing");
}

#[test]
fn what_a_restarted_libvirtd_forgot_goes_with_the_machine_and_nothing_else() {
    let root = tempfile::tempdir().expect("tempdir");
    let of = |name: &str| root.path().join(LIBVIRTS).join(name);
    for name in ["qemu-1-virtlet-a.libvirt-qemu/vcpu0", "qemu-2-virtlet-ab.libvirt-qemu", "qemu-3-other"] {
        fs::create_dir_all(of(name)).expect("made");
    }
    remove_libvirts(&root.path().join(LIBVIRTS), "virtlet-a");
    assert!(!of("qemu-1-virtlet-a.libvirt-qemu").exists());
    assert!(of("qemu-2-virtlet-ab.libvirt-qemu").exists() && of("qemu-3-other").exists());
}

#[test]
fn memory_that_qemu_shares_with_virtiofsd_is_held() {
    assert_eq!(files::held("anon 10\nfile 90\nshmem 30\n"), Some(40));
    assert_eq!(files::held("rss 1\ntotal_rss 10\ntotal_shmem 30\n"), Some(40));
    assert_eq!(files::held("anon 10\n"), Some(10));
    assert_eq!(files::held("file 90\n"), None);
}
