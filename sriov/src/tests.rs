use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const VF: &str = "0000:3b:02.1";
const PF: &str = "0000:3b:00.0";

#[test]
fn a_virtual_function_knows_its_physical_one_its_number_and_its_driver() {
    let sysfs = fixture();
    let vf = virtual_function(sysfs.path(), addr(VF)).expect("readable").expect("a VF");
    let driver = Some("iavf".to_owned());
    assert_eq!(vf, VirtualFunction { addr: addr(VF), pf: addr(PF), number: 9, driver });
}

#[test]
fn an_unbound_virtual_function_has_no_driver() {
    let sysfs = fixture();
    fs::remove_file(device(&sysfs, VF).join("driver")).unwrap();
    let vf = virtual_function(sysfs.path(), addr(VF)).expect("readable").expect("a VF");
    assert_eq!(vf.driver, None);
}

#[test]
fn a_physical_function_is_no_virtual_one() {
    let sysfs = fixture();
    assert_eq!(virtual_function(sysfs.path(), addr(PF)).expect("readable"), None);
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let error = virtual_function(fixture().path(), addr("0000:00:01.0")).expect_err("no device");
    assert_eq!(error.to_string(), "no PCI device `0000:00:01.0` on this node");
}

#[test]
fn a_virtual_function_that_its_physical_one_disowns_is_an_error() {
    let sysfs = fixture();
    fs::remove_file(device(&sysfs, PF).join("virtfn9")).unwrap();
    let error = virtual_function(sysfs.path(), addr(VF)).expect_err("disowned");
    assert!(matches!(error, DiscoverError::Disowned { .. }), "{error}");
}

#[test]
fn a_link_to_somewhere_else_is_an_error() {
    let sysfs = fixture();
    fs::remove_file(device(&sysfs, VF).join("physfn")).unwrap();
    symlink("../../somewhere", device(&sysfs, VF).join("physfn")).unwrap();
    let error = virtual_function(sysfs.path(), addr(VF)).expect_err("not PCI");
    assert!(matches!(error, DiscoverError::NotPci { .. }), "{error}");
}

#[test]
fn addresses_are_parsed_strictly_and_printed_as_the_kernel_does() {
    for good in ["0000:3b:02.1", "ffff:ff:1f.7", "10000:e1:00.0"] {
        assert_eq!(addr(good).to_string(), good);
    }
    assert_eq!(addr("0000:3B:02.1").to_string(), "0000:3b:02.1");
    for bad in ["", "3b:02.1", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:0.0", "0000:+b:00.0", "0000:3b:00.0 ", "é"] {
        assert!(bad.parse::<PciAddr>().is_err(), "{bad:?} was taken");
    }
    let error = "\u{1b}[2J".parse::<PciAddr>().expect_err("no address");
    assert_eq!(error.to_string(), "`?[2J` is not a PCI address such as `0000:3b:02.1`");
}

fn addr(text: &str) -> PciAddr {
    text.parse().expect("a PCI address")
}

fn device(sysfs: &TempDir, addr: &str) -> PathBuf {
    sysfs.path().join("bus/pci/devices").join(addr)
}

/// A physical function with two virtual ones, linked as the kernel links them.
fn fixture() -> TempDir {
    let sysfs = TempDir::new().unwrap();
    for (name, number) in [("0000:3b:02.0", 8), (VF, 9)] {
        let vf = device(&sysfs, name);
        fs::create_dir_all(&vf).unwrap();
        fs::create_dir_all(device(&sysfs, PF)).unwrap();
        symlink(format!("../{PF}"), vf.join("physfn")).unwrap();
        symlink("../../../../bus/pci/drivers/iavf", vf.join("driver")).unwrap();
        symlink(format!("../{name}"), device(&sysfs, PF).join(format!("virtfn{number}"))).unwrap();
    }
    fs::write(device(&sysfs, PF).join("sriov_numvfs"), "2\n").unwrap();
    sysfs
}
