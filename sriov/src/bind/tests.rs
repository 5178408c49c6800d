use std::error::Error as _;
use std::fs;
use std::path::Path;

use super::*;
use crate::fixture::{Fixture, PF, VF, addr};

#[test]
fn a_vf_goes_to_vfio_pci_and_back_without_new_id() {
    let fixture = Fixture::usual();
    let sysfs = fixture.sysfs();
    sysfs.set_driver_override(addr(VF), Some(VFIO_PCI)).expect("chosen");
    sysfs.unbind(addr(VF)).expect("unbound");
    sysfs.probe(addr(VF), VFIO_PCI).expect("bound");
    assert_eq!(sysfs.driver(addr(VF)).unwrap().as_deref(), Some(VFIO_PCI));
    sysfs.unbind(addr(VF)).expect("unbound");
    sysfs.set_driver_override(addr(VF), Some("igbvf")).expect("chosen");
    sysfs.probe(addr(VF), "igbvf").expect("bound");
    sysfs.set_driver_override(addr(VF), None).expect("cleared");
    assert_eq!(sysfs.driver(addr(VF)).unwrap().as_deref(), Some("igbvf"));
    assert_eq!(sysfs.driver_override(addr(VF)).unwrap(), None);
    let device = |file| format!("devices/{VF}/{file}");
    let expected = [
        (device("driver_override"), "vfio-pci\n"),
        (device("driver/unbind"), VF),
        ("drivers_probe".to_owned(), VF),
        (device("driver/unbind"), VF),
        (device("driver_override"), "igbvf\n"),
        ("drivers_probe".to_owned(), VF),
        (device("driver_override"), "\n"),
    ];
    assert_eq!(fixture.writes(), expected.map(|(path, text)| (path, text.to_owned())));
}

#[test]
fn what_is_so_already_is_not_written() {
    let fixture = Fixture::usual();
    let sysfs = fixture.sysfs();
    sysfs.set_driver_override(addr(VF), None).expect("clear");
    sysfs.probe(addr(VF), "igbvf").expect("bound");
    fixture.unset(VF, "driver");
    sysfs.unbind(addr(VF)).expect("unbound");
    assert_eq!(fixture.writes(), []);
}

#[test]
fn a_vf_of_a_pf_that_probes_none_gets_its_driver_back_by_its_name() {
    let fixture = Fixture::usual();
    fixture.set(PF, "sriov_drivers_autoprobe", "0");
    fixture.unset(VF, "driver");
    let sysfs = fixture.sysfs();
    let error = sysfs.probe(addr(VF), "igbvf").expect_err("no override");
    assert!(matches!(error, BindError::NotTaken { .. }), "{error}");
    sysfs.set_driver_override(addr(VF), Some("igbvf")).expect("chosen");
    sysfs.probe(addr(VF), "igbvf").expect("bound");
}

#[test]
fn a_driver_that_is_not_loaded_is_named_with_its_command() {
    let fixture = Fixture::usual();
    fs::remove_dir(fixture.root().join("bus/pci/drivers/vfio-pci")).unwrap();
    let error = fixture.sysfs().expect_driver(VFIO_PCI).expect_err("not loaded");
    assert_eq!(error.to_string(), "the kernel has no driver `vfio-pci` for PCI devices; load it: `modprobe vfio-pci`");
}

#[test]
fn a_driver_that_refuses_is_an_error() {
    let fixture = Fixture::usual();
    fixture.unset(VF, "driver");
    fixture.kernel.unwilling.lock().unwrap().insert("igbvf".into());
    let error = fixture.sysfs().probe(addr(VF), "igbvf").expect_err("refused");
    assert_eq!(error.to_string(), format!("driver `igbvf` does not take `{VF}`; the kernel's log says why"));
    fixture.kernel.errors.lock().unwrap().push(("drivers_probe", 12));
    let error = fixture.sysfs().probe(addr(VF), "igbvf").expect_err("refused");
    assert!(error.source().is_some_and(|cause| cause.to_string().contains("os error 12")), "{error:?}");
}

#[test]
fn another_driver_that_has_it_is_an_error() {
    let fixture = Fixture::usual();
    let error = fixture.sysfs().probe(addr(VF), VFIO_PCI).expect_err("igbvf has it");
    assert!(matches!(&error, BindError::OtherDriver { driver, .. } if driver == "igbvf"), "{error}");
}

#[test]
fn what_the_kernel_took_and_did_not_do_is_an_error() {
    let fixture = Fixture::usual();
    *fixture.kernel.deaf.lock().unwrap() = true;
    let sysfs = fixture.sysfs();
    let error = sysfs.unbind(addr(VF)).expect_err("still bound");
    assert!(matches!(&error, BindError::StillBound { driver, .. } if driver == "igbvf"), "{error}");
    let error = sysfs.set_driver_override(addr(VF), Some(VFIO_PCI)).expect_err("not set");
    assert!(
        error.to_string().starts_with(&format!("`driver_override` of `{VF}` is `none` after `vfio-pci`")),
        "{error}"
    );
}

#[test]
fn an_unbind_that_fails_says_where() {
    let fixture = Fixture::usual();
    fixture.kernel.errors.lock().unwrap().push(("unbind", 16));
    let error = fixture.sysfs().unbind(addr(VF)).expect_err("busy");
    assert!(error.to_string().ends_with(&format!("/devices/{VF}/driver/unbind`")), "{error}");
}

#[test]
fn a_real_file_is_written_and_none_is_made() {
    let dir = tempfile::TempDir::new().unwrap();
    let sysfs = Sysfs::new(dir.path(), Path::new("/dev"));
    let file = dir.path().join("file");
    sysfs.store(&file, "text").expect_err("there is no such file");
    assert!(!file.exists());
    fs::write(&file, "").unwrap();
    sysfs.store(&file, "text\n").expect("written");
    assert_eq!(fs::read_to_string(&file).unwrap(), "text\n");
}
