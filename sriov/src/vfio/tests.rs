use std::fs;

use super::*;
use crate::fixture::{Fixture, VF, addr};

#[test]
fn a_device_is_reached_by_its_group_its_own_file_and_iommufd() {
    let fixture = bound();
    fs::write(fixture.dev("vfio/6"), "").unwrap();
    fs::write(fixture.dev("vfio/devices/vfio0"), "").unwrap();
    let expected = VfioFiles {
        group: Some(fixture.dev("vfio/6")),
        device: Some(fixture.dev("vfio/devices/vfio0")),
        iommufd: Some(fixture.dev("iommu")),
    };
    assert_eq!(fixture.sysfs().vfio_files(addr(VF)).expect("reached"), expected);
}

#[test]
fn an_older_kernel_has_groups_alone() {
    let fixture = bound();
    fs::write(fixture.dev("vfio/6"), "").unwrap();
    fs::remove_file(fixture.dev("iommu")).unwrap();
    fs::remove_dir_all(fixture.device(VF).join("vfio-dev")).unwrap();
    let files = fixture.sysfs().vfio_files(addr(VF)).expect("reached");
    assert_eq!(files, VfioFiles { group: Some(fixture.dev("vfio/6")), device: None, iommufd: None });
}

#[test]
fn a_file_of_its_own_that_is_not_in_this_dev_is_none() {
    let fixture = bound();
    fs::write(fixture.dev("vfio/6"), "").unwrap();
    assert_eq!(fixture.sysfs().vfio_files(addr(VF)).expect("reached").device, None);
}

#[test]
fn a_kernel_without_groups_has_devices_alone() {
    let fixture = bound();
    fs::write(fixture.dev("vfio/devices/vfio0"), "").unwrap();
    let files = fixture.sysfs().vfio_files(addr(VF)).expect("reached");
    assert_eq!((files.group, files.device), (None, Some(fixture.dev("vfio/devices/vfio0"))));
}

#[test]
fn a_device_without_any_file_is_an_error_that_says_what_to_do() {
    let fixture = Fixture::usual();
    let error = fixture.sysfs().vfio_files(addr(VF)).expect_err("not bound");
    assert!(matches!(error, VfioError::NoFile { .. }), "{error}");
    assert!(error.to_string().contains("/vfio/6`; bind"), "{error}");
}

#[test]
fn a_file_of_one_device_tells_which() {
    let fixture = bound();
    let class = fixture.root().join("class/vfio-dev/vfio3");
    fs::create_dir_all(&class).unwrap();
    std::os::unix::fs::symlink(format!("../../../{VF}"), class.join("device")).unwrap();
    assert_eq!(fixture.sysfs().device_of_file("vfio3").expect("read").as_deref(), Some(VF));
    assert_eq!(fixture.sysfs().device_of_file("vfio4").expect("read"), None);
}

/// That one that a process has open is busy is seen in an emulated node: no plain file is.
#[test]
fn what_nobody_has_open_is_not_in_use() {
    let fixture = bound();
    assert!(!fixture.sysfs().in_use(addr(VF)).expect("no file"));
    fs::write(fixture.dev("vfio/6"), "").unwrap();
    assert!(!fixture.sysfs().in_use(addr(VF)).expect("not open"));
    fixture.unset(VF, "iommu_group");
    assert!(!fixture.sysfs().in_use(addr(VF)).expect("in no group"));
}

fn bound() -> Fixture {
    let fixture = Fixture::usual();
    fixture.unset(VF, "driver");
    fixture.bind(VF, "vfio-pci");
    fixture
}
