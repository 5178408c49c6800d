use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::fixture::{Fixture, PF, VF, addr};

#[test]
fn a_virtual_function_knows_its_physical_one_its_number_and_its_driver() {
    let fixture = Fixture::usual();
    let vf = virtual_function(&fixture.root(), addr(VF)).expect("readable").expect("a VF");
    let driver = Some("igbvf".to_owned());
    assert_eq!(vf, VirtualFunction { addr: addr(VF), pf: addr(PF), number: 9, driver });
}

#[test]
fn an_unbound_virtual_function_has_no_driver() {
    let fixture = Fixture::usual();
    fixture.unset(VF, "driver");
    let vf = fixture.sysfs().virtual_function(addr(VF)).expect("readable").expect("a VF");
    assert_eq!(vf.driver, None);
}

#[test]
fn a_physical_function_is_no_virtual_one() {
    assert_eq!(Fixture::usual().sysfs().virtual_function(addr(PF)).expect("readable"), None);
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let error = Fixture::usual().sysfs().virtual_function(addr("0000:00:01.0")).expect_err("no device");
    assert_eq!(error.to_string(), "no PCI device `0000:00:01.0` on this node");
}

#[test]
fn a_virtual_function_that_its_physical_one_disowns_is_an_error() {
    let fixture = Fixture::usual();
    fixture.unset(PF, "virtfn9");
    let error = fixture.sysfs().virtual_function(addr(VF)).expect_err("disowned");
    assert!(matches!(error, DiscoverError::Disowned { .. }), "{error}");
}

#[test]
fn a_link_to_somewhere_else_is_an_error() {
    let fixture = Fixture::usual();
    fixture.unset(VF, "physfn");
    symlink("../../somewhere", fixture.device(VF).join("physfn")).unwrap();
    let error = fixture.sysfs().virtual_function(addr(VF)).expect_err("not PCI");
    assert!(matches!(error, DiscoverError::NotPci { .. }), "{error}");
}

#[test]
fn a_physical_function_lists_its_virtual_ones_by_number() {
    let fixture = Fixture::usual();
    fs::create_dir_all(fixture.device(PF).join("net/enp59s0")).unwrap();
    let pf = fixture.sysfs().physical_function(addr(PF)).expect("readable").expect("a PF");
    let vfs = vec![(8, addr("0000:3b:02.0")), (9, addr(VF))];
    let expected = PhysicalFunction {
        addr: addr(PF),
        driver: Some("igb".to_owned()),
        total: 256,
        enabled: 10,
        autoprobe: Some(true),
        vf_device: Some(0x10ca),
        netdevs: vec!["enp59s0".to_owned()],
        vfs,
    };
    assert_eq!(pf, expected);
    assert_eq!(fixture.sysfs().physical_function(addr(VF)).expect("readable"), None);
}

#[test]
fn of_256_virtual_functions_each_has_its_number() {
    let fixture = Fixture::empty();
    fixture.pf("10000:01:00.0", "igb", 256);
    let name = |number: u32| format!("10000:{:02x}:{:02x}.{}", 2 + number / 256, number / 8 % 32, number % 8);
    for number in 0..256 {
        fixture.bare_vf("10000:01:00.0", number, &name(number));
    }
    let all = fixture.sysfs().physical_functions().expect("readable");
    let [pf] = &all.found[..] else { panic!("one PF, not {:?}", all.found) };
    let expected: Vec<_> = (0..256).map(|number| (number, addr(&name(number)))).collect();
    assert_eq!(pf.vfs, expected);
    let vf = fixture.sysfs().virtual_function(addr(&name(255))).expect("readable").expect("a VF");
    assert_eq!((vf.number, vf.pf), (255, addr("10000:01:00.0")));
}

#[test]
fn physical_functions_of_all_domains_are_found_in_order_and_one_that_is_broken_hides_none() {
    let fixture = Fixture::usual();
    for (pf, driver) in
        [("10000:e1:00.0", "ice"), ("ffff:01:00.0", "ice"), ("0001:3b:00.0", "ice"), ("0000:af:00.0", "mlx5_core")]
    {
        fixture.pf(pf, driver, 0);
    }
    fixture.plain("0000:00:01.0", "0x060400");
    fs::create_dir_all(fixture.root().join("bus/pci/devices/no address")).unwrap();
    fixture.set("0000:af:00.0", "sriov_numvfs", "many");
    let all = fixture.sysfs().physical_functions().expect("readable");
    let found: Vec<String> = all.found.iter().map(|pf| pf.addr.to_string()).collect();
    assert_eq!(found, [PF, "0001:3b:00.0", "ffff:01:00.0", "10000:e1:00.0"]);
    let [(broken, error)] = &all.unreadable[..] else { panic!("one is broken: {:?}", all.unreadable) };
    assert_eq!(*broken, addr("0000:af:00.0"));
    assert!(error.to_string().ends_with("/sriov_numvfs` holds `many`, which is not a number of VFs"), "{error}");
}

#[test]
fn what_older_kernels_do_not_say_is_left_out() {
    let fixture = Fixture::usual();
    for file in ["sriov_drivers_autoprobe", "sriov_vf_device", "sriov_numvfs"] {
        fixture.unset(PF, file);
    }
    let pf = fixture.sysfs().physical_function(addr(PF)).expect("readable").expect("a PF");
    assert_eq!((pf.autoprobe, pf.vf_device, pf.enabled), (None, None, 0));
    for file in ["numa_node", "driver_override", "vendor"] {
        fixture.unset(VF, file);
    }
    let details = fixture.sysfs().details(addr(VF)).expect("readable");
    assert_eq!((details.numa_node, details.driver_override, details.ids), (None, None, None));
}

#[test]
fn a_node_without_pci_has_no_physical_functions() {
    let empty = tempfile::TempDir::new().unwrap();
    let all = Sysfs::new(empty.path(), empty.path()).physical_functions().expect("readable");
    assert!(all.found.is_empty() && all.unreadable.is_empty());
}

#[test]
fn details_are_those_of_the_device() {
    let fixture = Fixture::usual();
    fs::create_dir_all(fixture.device(VF).join("net/eth1")).unwrap();
    fixture.set(VF, "numa_node", "1");
    fixture.set(VF, "driver_override", "vfio-pci");
    let details = fixture.sysfs().details(addr(VF)).expect("readable");
    assert_eq!((details.numa_node, details.ids), (Some(1), Some((0x8086, 0x10ca))));
    assert_eq!((details.driver_override.as_deref(), details.netdevs), (Some("vfio-pci"), vec!["eth1".to_owned()]));
    assert_eq!(fixture.sysfs().details(addr(PF)).expect("readable").numa_node, None);
}

#[test]
fn a_claim_sees_what_a_device_is() {
    let fixture = Fixture::usual();
    fixture.plain("0000:00:01.0", "0x060400");
    let kind = |name| fixture.sysfs().look(addr(name)).expect("readable").map(|seen| seen.function);
    assert_eq!(kind(VF), Some(Function::Virtual { pf: addr(PF), number: 9 }));
    assert_eq!((kind(PF), kind("0000:00:01.0")), (Some(Function::Physical), Some(Function::Plain)));
    assert_eq!(kind("0000:00:02.0"), None);
    let pf = |name| fixture.sysfs().physfn(addr(name));
    assert_eq!((pf(VF).expect("readable"), pf(PF).expect("readable")), (Some(addr(PF)), None));
    assert!(matches!(pf("0000:00:02.0"), Err(DiscoverError::NoDevice { .. })));
}

#[test]
fn a_device_that_was_made_anew_is_another_one() {
    let fixture = Fixture::usual();
    let sysfs = fixture.sysfs();
    let before = sysfs.details(addr(VF)).expect("readable").incarnation;
    assert_eq!(sysfs.details(addr(VF)).expect("readable").incarnation, before);
    // Kept, as a file system may give its number to the next.
    fs::rename(fixture.root().join("devices").join(VF), fixture.root().join("devices/old")).unwrap();
    fs::create_dir(fixture.root().join("devices").join(VF)).unwrap();
    assert_ne!(sysfs.details(addr(VF)).expect("readable").incarnation, before);
}
