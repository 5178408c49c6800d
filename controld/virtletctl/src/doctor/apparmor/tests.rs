//! Profiles in trees, made like those of libvirt's package.

use super::super::finding::State;
use super::super::tests::{facts, tree};
use super::*;

/// The shape of libvirt's own profile, in few words.
const LIBVIRTD: &str = "\
#include <tunables/global>
profile libvirtd /usr/sbin/libvirtd flags=(attach_disconnected) {
  #include <abstractions/base>
  capability kill,
  / r,
  /** rwmkl,
  /usr/sbin/* PUx,
  audit deny /etc/apparmor.d/libvirt/** wxl,
  /usr/lib/qemu/bridge-helper Cx -> helper,
  profile helper {
   /usr/lib/virtlet/** rmix,
  }
  include if exists <local/usr.sbin.libvirtd>
}
";
const ABSTRACTION: &str = "\
  /usr/bin/qemu-system-x86_64 rmix,
  /usr/lib/qemu/bridge-helper Cx -> helper,
  profile helper {
   /usr/lib/virtlet/** rmix,
  }
  owner /tmp/pulse-*/ rw,
  include if exists <abstractions/libvirt-qemu.d>
";

fn judge(enforced: &str, more: &[(&str, &str)]) -> Finding {
    let files = [
        ("sys/module/apparmor/parameters/enabled", "Y\n"),
        ("sys/kernel/security/apparmor/profiles", enforced),
        ("etc/apparmor.d/usr.sbin.libvirtd", LIBVIRTD),
        ("etc/apparmor.d/abstractions/libvirt-qemu", ABSTRACTION),
    ];
    let (_dir, host) = tree(&[&files[..], more].concat());
    look(&host, &facts()).remove(0)
}

const ENFORCED: &str = "swtpm (enforce)\nlibvirtd (enforce)\nlibvirtd//helper (enforce)\n";
const LOCAL: (&str, &str) = ("etc/apparmor.d/local/usr.sbin.libvirtd", "/usr/lib/virtlet/vmwrapper PUx,\n");
const OF_MACHINES: (&str, &str) = (
    "etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet",
    "/usr/lib/virtlet/vmwrapper rmix,\n/{,var/}run/virtlet/handoff.sock rw,\n",
);

#[test]
fn stock_profiles_stand_in_the_way() {
    let found = judge(ENFORCED, &[]);
    assert_eq!(found.state, State::Failure);
    insta::assert_snapshot!(found.seen, @"enforced, and stands in the way: profile `libvirtd` does not start `/usr/lib/virtlet/vmwrapper`; profiles of machines do not start `/usr/lib/virtlet/vmwrapper`");
    let start_only = ("etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet", "/usr/lib/virtlet/vmwrapper rmix,\n");
    let start_only = judge(ENFORCED, &[LOCAL, start_only]);
    assert!(start_only.state == State::Warning && start_only.seen.contains("handoff.sock"), "{start_only:?}");
    let half = judge(ENFORCED, &[LOCAL]);
    assert!(half.state == State::Failure && !half.seen.contains("profile `libvirtd`"), "{half:?}");
}

#[test]
fn our_files_open_the_way() {
    let found = judge(ENFORCED, &[LOCAL, OF_MACHINES]);
    assert_eq!((found.state, found.mend), (State::Ok, None), "{}", found.seen);
    let denied = ("etc/apparmor.d/abstractions/libvirt-qemu.d/zz", "deny /usr/lib/virtlet/** x,\n");
    assert_eq!(judge(ENFORCED, &[LOCAL, OF_MACHINES, denied]).state, State::Failure);
}

#[test]
fn the_packages_link_is_followed_and_its_rules_are_enough() {
    let (dir, host) = tree(&[
        ("sys/module/apparmor/parameters/enabled", "Y\n"),
        ("sys/kernel/security/apparmor/profiles", ENFORCED),
        ("etc/apparmor.d/usr.sbin.libvirtd", LIBVIRTD),
        ("etc/apparmor.d/abstractions/libvirt-qemu", ABSTRACTION),
        ("etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet", include_str!("../../../../../deploy/apparmor/virtlet")),
        ("usr/sbin/vmwrapper", ""),
        ("usr/lib/virtlet/virtlet-agent", ""),
    ]);
    std::os::unix::fs::symlink("../../sbin/vmwrapper", dir.path().join("usr/lib/virtlet/vmwrapper")).expect("link");
    let found = look(&host, &facts()).remove(0);
    assert_eq!((found.state, found.mend), (State::Ok, None), "{}", found.seen);
}

#[test]
fn what_is_not_enforced_forbids_nothing() {
    assert_eq!(judge("libvirtd (complain)\n", &[]).state, State::Ok);
    let (_dir, host) = tree(&[("sys/module/apparmor/parameters/enabled", "N\n")]);
    assert_eq!(look(&host, &facts())[0].seen, "not enabled in this kernel");
}

#[test]
fn what_cannot_be_known_is_a_warning() {
    let (_dir, host) = tree(&[("sys/module/apparmor/parameters/enabled", "Y\n")]);
    let found = look(&host, &facts()).remove(0);
    assert!(found.state == State::Warning && found.seen.contains("securityfs"), "{found:?}");
    // A file that includes itself ends.
    let endless = ("etc/apparmor.d/local/usr.sbin.libvirtd", "include <local/usr.sbin.libvirtd>\n");
    assert_eq!(judge(ENFORCED, &[endless]).state, State::Failure);
}
