//! All groups together, and what the tests of each of them share.

use std::collections::BTreeSet;
use std::fs;

use clap::Parser as _;

use super::facts::{Libvirt, Networks, Settings, TapSettings};
use super::program::ProgramError;
use super::*;
use crate::cli::{Cli, Command};

/// A node with these files, whose directories are made.
pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().expect("directory");
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("directory");
        fs::write(path, text).expect("written");
    }
    let host = Host::new(dir.path());
    (dir, host)
}

/// Answers of programs with all defaults; daemons and systemd do not answer.
pub(super) fn facts() -> Facts {
    let nobody = || ProgramError::Failed { code: Some(1), said: "nobody answers".into() };
    Facts {
        controld: Ok(Settings {
            run_dir: "/run/virtlet".into(),
            state_dir: "/var/lib/virtlet".into(),
            images_dir: "/var/lib/virtlet/images".into(),
            images_reserve: 2 << 30,
            cri_socket: "/run/virtlet/cri.sock".into(),
            tap_socket: "/run/virtlet/control.sock".into(),
            handoff_socket: "/run/virtlet/handoff.sock".into(),
            libvirt_uri: "qemu:///system".into(),
            emulator: "/usr/bin/qemu-system-x86_64".into(),
            vmwrapper: "/usr/lib/virtlet/vmwrapper".into(),
            fswrapper: "/usr/lib/virtlet/fswrapper".into(),
            virtiofsd: "/usr/libexec/virtiofsd".into(),
            accel: "auto".into(),
            cgroup_driver: "systemd".into(),
            cgroup_driver_set: false,
            handlers: ["virtlet".to_owned()].into(),
            runtime_endpoint: None,
        }),
        tapmanager: Ok(TapSettings {
            data_path: "tc".into(),
            vhost: "auto".into(),
            vmwrapper: "/usr/lib/virtlet/vmwrapper".into(),
            run_dir: "/run/virtlet".into(),
        }),
        networks: Ok(Networks::default()),
        libvirt: Ok(Libvirt { libvirt: "11.3.0".into(), qemu: Some("10.0.2".into()), lacks: Vec::new() }),
        emulator: Err(nobody()),
        tap: Err(nobody()),
        pods: Err(nobody()),
        cri_socket: "/run/virtlet/cri.sock".into(),
        cri: Err("nobody answers".into()),
        runtime: None,
        units: Err(nobody()),
    }
}

/// Nothing is known at all.
fn no_facts() -> Facts {
    let absent = |name: &str| ProgramError::Absent(name.into());
    Facts {
        controld: Err(absent("controld")),
        tapmanager: Err(absent("tapmanager")),
        networks: Err(absent("tapmanager")),
        libvirt: Err(absent("controld")),
        ..facts()
    }
}

#[tokio::test]
async fn every_check_has_a_line_whatever_is_known() {
    let (_dir, host) = tree(&[]);
    let bare = examine(host.clone(), no_facts(), &GROUPS, DEADLINE).await;
    let known = examine(host, facts(), &GROUPS, DEADLINE).await;
    let names = |findings: &[Finding]| findings.iter().map(|finding| finding.check).collect::<Vec<_>>();
    assert_eq!(names(&bare), names(&known));
    assert!(bare.iter().all(|finding| !finding.seen.is_empty()), "{bare:?}");
    let once: BTreeSet<_> = names(&bare).into_iter().collect();
    assert_eq!(once.len(), bare.len(), "a name stands twice");
    // Both say where they were looked for.
    assert!(bare[0].state == State::Failure && bare[0].seen.contains("/usr/sbin"), "{:?}", bare[0]);
}

#[tokio::test]
async fn a_group_that_hangs_or_dies_costs_its_own_lines() {
    fn hangs(host: &Host, _facts: &Facts) -> Vec<Finding> {
        // Until the test drops the other end.
        drop(fs::File::open(host.at("/fifo")));
        Vec::new()
    }
    fn dies(_host: &Host, _facts: &Facts) -> Vec<Finding> {
        panic!("as a test wants it")
    }
    fn lives(_host: &Host, _facts: &Facts) -> Vec<Finding> {
        vec![Finding::ok("lives", "well")]
    }
    let (dir, host) = tree(&[]);
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let groups = [("hangs", hangs as fn(&Host, &Facts) -> _), ("dies", dies), ("lives", lives)];
    let groups = groups.map(|(name, look)| Group { name, look });
    let found = examine(host, facts(), &groups, Duration::from_millis(100)).await;
    let told: Vec<_> = found.iter().map(|finding| (finding.check, finding.state)).collect();
    assert_eq!(told, [("hangs", State::Warning), ("dies", State::Warning), ("lives", State::Ok)]);
    // Lets the thread end.
    drop(fs::OpenOptions::new().read(true).write(true).open(&fifo).expect("opened"));
}

#[tokio::test]
async fn files_that_are_none_are_told_by_their_checks_alone() {
    // A directory stands where each of these files should be.
    let directories = [
        "proc/sys/kernel/osrelease/x",
        "proc/self/mounts/x",
        "sys/module/apparmor/parameters/enabled/x",
        "sys/fs/selinux/enforce/x",
        "var/lib/kubelet/config.yaml/x",
        "sys/bus/pci/devices/a/sriov_totalvfs/x",
        "proc/net/unix/x",
    ];
    let (_dir, host) = tree(&directories.map(|path| (path, "")));
    let found = examine(host, facts(), &GROUPS, DEADLINE).await;
    for check in ["kernel.tc", "cgroup.version", "apparmor", "selinux", "kubelet.endpoint", "sriov"] {
        let finding = found.iter().find(|finding| finding.check == check).expect(check);
        assert!(finding.state == State::Warning && finding.seen.contains("not a regular file"), "{finding:?}");
    }
}

#[tokio::test]
async fn whatever_is_in_a_file_every_check_has_its_line() {
    let files = [
        "dev/net/tun",
        "dev/kvm",
        "dev/vhost-net",
        "etc/apparmor.d/abstractions/libvirt-qemu",
        "etc/apparmor.d/usr.sbin.libvirtd",
        "etc/virtlet/emulator",
        "lib/modules/6.1/modules.builtin",
        "lib/modules/6.1/modules.dep",
        "proc/1/cmdline",
        "proc/1/comm",
        "proc/config.gz",
        "proc/modules",
        "proc/net/unix",
        "proc/self/mounts",
        "proc/sys/kernel/modules_disabled",
        "proc/sys/kernel/osrelease",
        "run/virtlet/cri.sock",
        "sys/bus/pci/devices/0000:3b:00.0/sriov_totalvfs",
        "sys/fs/cgroup/cgroup.controllers",
        "sys/fs/selinux/enforce",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "sys/kernel/security/apparmor/profiles",
        "usr/lib/virtlet/fswrapper",
        "usr/lib/virtlet/vmwrapper",
        "usr/libexec/virtiofsd",
        "var/lib/kubelet/config.yaml",
        "var/lib/selinux/targeted/active/modules/400",
    ];
    let (_dir, host) = tree(&[]);
    let names = |findings: &[Finding]| findings.iter().map(|finding| finding.check).collect::<Vec<_>>();
    let wanted = names(&examine(host, facts(), &GROUPS, DEADLINE).await);
    // Text, no text, and what each reader splits its lines at; with what opens the reader's eyes to the rest.
    let long = "x ".repeat(100_000);
    let hostile = ["", "\0", "\n\n\n", "\u{1b}[2J", "{[(\"<*", " = : , / \n= = : /", "99999999999999999999", &long];
    for text in hostile {
        let mut tree_of: Vec<(&str, &str)> = files.iter().map(|file| (*file, text)).collect();
        tree_of.push(("sys/module/apparmor/parameters/enabled", "Y"));
        let (dir, host) = tree(&tree_of);
        for kernel in [None, Some("6.1")] {
            if let Some(kernel) = kernel {
                fs::write(dir.path().join("proc/sys/kernel/osrelease"), kernel).expect("written");
                fs::write(dir.path().join("proc/1/comm"), "kubelet").expect("written");
                let enforced = format!("libvirtd (enforce)\n{text}");
                fs::write(dir.path().join("sys/kernel/security/apparmor/profiles"), enforced).expect("written");
            }
            let found = examine(host.clone(), facts(), &GROUPS, DEADLINE).await;
            assert_eq!(names(&found), wanted, "{text:.20}");
            assert!(!found.iter().any(|finding| finding.seen.contains("a bug")), "{text:.20}: {found:?}");
            // Nothing of it reaches a terminal as it is.
            assert!(!print::text(&found, None).expect("printed").contains('\u{1b}'));
        }
    }
}

#[tokio::test]
async fn the_document_names_every_check() {
    let document = include_str!("../../../../docs/doctor.md");
    let mut named: BTreeSet<_> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| !name.contains(' '))
        .collect();
    let (_dir, host) = tree(&[]);
    let found = examine(host, facts(), &GROUPS, DEADLINE).await;
    for check in found.iter().map(|finding| finding.check).chain(status::checks()).chain(["root"]) {
        assert!(named.remove(check) || check == "status", "docs/doctor.md does not name `{check}`");
    }
    assert!(
        named.is_empty() || named == BTreeSet::from(["status"]),
        "docs/doctor.md names what is no check: {named:?}"
    );
}

#[tokio::test]
async fn a_failure_is_exit_code_1() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("no.sock").display().to_string();
    let Ok(Cli { command: Command::Doctor(wanted), .. }) = Cli::try_parse_from(["virtletctl", "doctor", "--json"])
    else {
        panic!("it parses")
    };
    let mut out = Vec::new();
    let error = run(&wanted, Path::new(&socket), &mut out).await.expect_err("nobody listens there");
    assert_eq!(error.exit_code(), 1);
    let told: serde_json::Value = serde_json::from_slice(&out).expect("JSON all the same");
    assert_eq!(told["state"], "failure");
}
