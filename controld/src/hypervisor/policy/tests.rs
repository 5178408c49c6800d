use tempfile::TempDir;
use vmspec::error::{Error, Kind};

use super::*;

const VMWRAPPER: &str = "/usr/lib/virtlet/vmwrapper";
const NO_EXEC: &str = "process exited while connecting to monitor: libvirt:  error : cannot execute binary \
                       /usr/lib/virtlet/vmwrapper: Permission denied";
const NO_PROBE: &str = "Failed to start QEMU binary for probing: cannot execute: Permission denied";
const NO_SOCKET: &str = "vmwrapper[69]: failed to fetch the pod's network: failed to connect to `/run/virtlet/handoff.sock`: \
                         Permission denied (os error 13)";
const QEMUS: &str = "process exited while connecting to monitor: 2026-01-01T00:00:00.000000Z qemu-system-x86_64: -blockdev {}: Could \
                     not open '/dev/vda': Permission denied";

fn failed(said: &str) -> Result<()> {
    Err(Error::new(Kind::Internal, said.to_owned()))
}

/// A node on which vmwrapper is executable, without a policy.
fn node() -> TempDir {
    let dir = tempfile::tempdir().expect("tempdir");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("set");
    put(&dir, VMWRAPPER, "");
    mode(&dir, VMWRAPPER, 0o755);
    dir
}

fn put(dir: &TempDir, file: &str, text: &str) {
    let path = dir.path().join(file.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("parent")).expect("made");
    fs::write(path, text).expect("written");
}

fn mode(dir: &TempDir, file: &str, mode: u32) {
    let path = dir.path().join(file.trim_start_matches('/'));
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

fn told(policy: &Policy, dir: &TempDir) -> Option<String> {
    policy.trouble(dir.path(), Path::new(VMWRAPPER))
}

fn after(starts: &[&str]) -> Policy {
    let policy = Policy::default();
    starts.iter().for_each(|said| policy.hear_start(&failed(said)));
    policy
}

#[test]
fn what_is_forbidden_is_known_by_what_libvirt_or_vmwrapper_says() {
    let dir = node();
    for (said, wanted) in [
        (NO_EXEC, Some("forbids a VM to start as vmwrapper")),
        (NO_SOCKET, Some("forbids vmwrapper to fetch its pod's network")),
        (QEMUS, None),
        ("vmwrapper[69]: failed to fetch the pod's network: token refused", None),
        ("libvirt is away", None),
    ] {
        let told = told(&after(&[said]), &dir);
        assert_eq!(told.is_some(), wanted.is_some(), "{said}: {told:?}");
        assert!(told.is_none_or(|told| told.contains(wanted.expect("checked")) && !told.contains('\n')), "{said}");
    }
    let policy = Policy::default();
    policy.hear_probe(&failed(NO_PROBE));
    assert!(told(&policy, &dir).is_some_and(|told| told.contains("forbids libvirt to start vmwrapper")));
}

#[test]
fn it_is_told_until_something_shows_that_it_is_not_so_any_more() {
    let dir = node();
    let allowed = |before: &str, then: &str| told(&after(&[before, then]), &dir).is_none();
    for then in
        [QEMUS, "vmwrapper[76]: too many NICs", "vmwrapper[69]: failed to fetch the pod's network: token refused"]
    {
        assert!(allowed(NO_EXEC, then) && allowed(NO_SOCKET, then), "{then}");
    }
    for then in ["vmwrapper[78]: no emulator", "vmwrapper[69]: failed to connect to `/x`: no such file"] {
        assert!(allowed(NO_EXEC, then), "it was started: {then}");
        assert!(!allowed(NO_SOCKET, then), "it came not so far: {then}");
    }
    for then in ["libvirt is away", "libvirt did not start the machine within 60 s"] {
        assert!(!allowed(NO_EXEC, then), "{then}");
    }
    let policy = after(&[NO_EXEC, NO_SOCKET]);
    policy.hear_start(&Ok(()));
    assert_eq!(told(&policy, &dir), None);
}

#[test]
fn a_look_at_the_emulator_shows_what_libvirt_may_and_not_what_a_machine_may() {
    let dir = node();
    for outcome in [Ok(()), failed("Failed to probe QEMU binary with QMP: vmwrapper[78]: no emulator"), failed(QEMUS)] {
        let policy = Policy::default();
        policy.hear_probe(&failed(NO_PROBE));
        policy.hear_probe(&failed("libvirt is away"));
        assert!(told(&policy, &dir).is_some());
        policy.hear_probe(&outcome);
        assert_eq!(told(&policy, &dir), None, "{outcome:?}");
        let policy = after(&[NO_EXEC]);
        policy.hear_probe(&outcome);
        assert!(told(&policy, &dir).is_some(), "{outcome:?}");
    }
}

#[test]
fn apparmor_is_blamed_only_where_it_is_likely() {
    let [start, handoff] = [NO_EXEC, NO_SOCKET].map(|said| after(&[said]));
    let dir = node();
    let blamed = |policy: &Policy, who: &str| {
        let told = told(policy, &dir).expect("told");
        assert!(told.starts_with(who), "{told}");
    };
    blamed(&start, "the file system of vmwrapper, or an access list, forbids");
    blamed(&handoff, "a file's mode forbids");

    put(&dir, APPARMOR, "Y\n");
    blamed(&start, "AppArmor forbids a VM to start as vmwrapper: put back `/etc/apparmor.d/abstractions");
    blamed(&handoff, "AppArmor forbids vmwrapper to fetch its pod's network from tapmanager: put back");
    for file in INCLUDED {
        put(&dir, file, "/usr/sbin/vmwrapper rmix,\n");
        blamed(&start, "AppArmor, which has our rule, or a file system that is mounted `noexec`, forbids");
        blamed(&handoff, "a file's mode forbids");
        put(&dir, file, "");
    }
    for (file, bad, good) in [(VMWRAPPER, 0o750, 0o755), ("/usr/lib", 0o700, 0o755)] {
        mode(&dir, file, bad);
        blamed(&start, "a file's mode forbids a VM to start as vmwrapper");
        mode(&dir, file, good);
    }
    let probe = Policy::default();
    probe.hear_probe(&failed(NO_PROBE));
    blamed(
        &probe,
        "AppArmor forbids libvirt to start vmwrapper: libvirt's own profile lets it start what is in `/usr/sbin`",
    );

    put(&dir, SELINUX, "0");
    blamed(&start, "AppArmor forbids");
    put(&dir, SELINUX, "1");
    blamed(&start, "SELinux forbids a VM to start as vmwrapper: install the module of deploy/selinux");
    blamed(&handoff, "SELinux forbids");
}
