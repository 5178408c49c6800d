use std::fs;

use super::*;
use crate::fixture::{Fixture, PF, VF, addr};

const BRIDGE: &str = "0000:3a:00.0";
const OTHER: &str = "0000:3b:02.0";

#[test]
fn a_vf_alone_in_its_group_may_go() {
    let group = Fixture::usual().sysfs().group(addr(VF)).expect("a group");
    assert_eq!((group.number, group.members.len()), (6, 1));
    group.admit(&BTreeSet::from([addr(VF)])).expect("nobody else's");
}

#[test]
fn bridges_unbound_devices_and_stubs_are_no_hindrance() {
    let fixture = shared();
    fixture.unset(OTHER, "driver");
    fixture.bind("0000:3c:00.0", "pci-stub");
    fixture.sysfs().group(addr(VF)).expect("a group").admit(&BTreeSet::from([addr(VF)])).expect("all harmless");
}

#[test]
fn every_foreign_device_of_a_group_is_named_with_its_driver() {
    let fixture = shared();
    fixture.bind("0000:3c:00.0", "nvme");
    let error = fixture.sysfs().group(addr(VF)).expect("a group").admit(&BTreeSet::from([addr(VF)]));
    assert_eq!(
        error.expect_err("shared").to_string(),
        "IOMMU group 9 has `0000:3b:02.0` (driver `igbvf`), `0000:3c:00.0` (driver `nvme`), which would share the guest's \
         isolation; unbind each from its driver, or put the VF's card into a slot whose ports have ACS"
    );
}

#[test]
fn a_member_on_vfio_pci_must_be_for_the_same_guest() {
    let fixture = shared();
    fixture.unset(OTHER, "driver");
    fixture.bind(OTHER, "vfio-pci");
    let group = fixture.sysfs().group(addr(VF)).expect("a group");
    let error = group.admit(&BTreeSet::from([addr(VF)])).expect_err("it may be another guest's");
    assert_eq!(error.foreign.len(), 1);
    group.admit(&BTreeSet::from([addr(VF), addr(OTHER)])).expect("both are ours");
}

#[test]
fn a_member_that_is_no_pci_device_counts_by_its_driver() {
    let fixture = Fixture::usual();
    let dma = fixture.root().join("kernel/iommu_groups/6/devices/dma0.auto");
    fs::create_dir_all(&dma).unwrap();
    let admitted = |fixture: &Fixture| {
        fixture.sysfs().group(addr(VF)).expect("a group").admit(&BTreeSet::from([addr(VF)])).is_ok()
    };
    assert!(admitted(&fixture));
    std::os::unix::fs::symlink("../drivers/dw-dma", dma.join("driver")).unwrap();
    assert!(!admitted(&fixture));
}

#[test]
fn a_group_is_found_by_its_number_and_says_which_members_a_process_gets() {
    let fixture = shared();
    fixture.unset(OTHER, "driver");
    fixture.bind(OTHER, "mlx5_vfio_pci");
    let sysfs = fixture.sysfs();
    let group = sysfs.group_of_number(9).expect("read").expect("there");
    assert_eq!(group, sysfs.group(addr(VF)).expect("the same"));
    let on_vfio: Vec<_> = group.members.iter().filter(|member| member.is_on_vfio()).collect();
    assert!(matches!(&on_vfio[..], [one] if one.name == OTHER), "{on_vfio:?}");
    assert_eq!(sysfs.group_of_number(10).expect("read"), None);
}

#[test]
fn without_an_iommu_the_error_says_how_to_turn_it_on() {
    let fixture = Fixture::empty();
    fixture.pf(PF, "igb", 1);
    fixture.vf(PF, 0, VF);
    let error = fixture.sysfs().group(addr(VF)).expect_err("no IOMMU");
    assert!(matches!(error, GroupError::NoIommu), "{error}");
    assert!(error.to_string().contains("intel_iommu=on"), "{error}");
    fixture.group(5, &[PF]);
    let error = fixture.sysfs().group(addr(VF)).expect_err("not behind it");
    assert!(matches!(error, GroupError::NotBehindIommu { .. }), "{error}");
}

#[test]
fn a_group_that_vfio_made_up_is_none() {
    let fixture = Fixture::usual();
    fs::write(fixture.root().join("kernel/iommu_groups/6/name"), "vfio-noiommu\n").unwrap();
    let error = fixture.sysfs().group(addr(VF)).expect_err("unsafe");
    assert!(matches!(error, GroupError::Unsafe { .. }), "{error}");
}

/// A VF in a group with its port, its sibling and a device that has no driver.
fn shared() -> Fixture {
    let fixture = Fixture::empty();
    fixture.plain(BRIDGE, "0x060400");
    fixture.bind(BRIDGE, "pcieport");
    fixture.pf(PF, "igb", 2);
    fixture.vf(PF, 0, OTHER);
    fixture.vf(PF, 1, VF);
    fixture.plain("0000:3c:00.0", "0x010802");
    fixture.group(9, &[BRIDGE, OTHER, VF, "0000:3c:00.0"]);
    fixture
}
