use super::*;

#[test]
fn a_physical_function_is_never_handed_out() {
    for arrival in [netdev(), Arrival::Vfio] {
        let seen = Seen { function: Function::Physical, ..seen(Some("vfio-pci")) };
        assert_eq!(admit(&seen, &arrival), Err(Refusal::Physical));
        let seen = Seen { function: Function::Plain, ..seen };
        assert_eq!(admit(&seen, &arrival), Err(Refusal::NotVirtual));
    }
}

#[test]
fn a_vf_goes_as_it_came() {
    assert_eq!(admit(&seen(Some("vfio-pci")), &Arrival::Vfio), Ok((pf(), 3)));
    assert_eq!(admit(&seen(Some("iavf")), &netdev()), Ok((pf(), 3)));
}

#[test]
fn a_vf_that_came_in_the_other_way_is_a_mistake_that_is_told() {
    let told = |seen: &Seen, arrival: &Arrival| admit(seen, arrival).expect_err("refused").to_string();
    assert!(told(&seen(Some("iavf")), &Arrival::Vfio).starts_with("it has the driver `iavf` instead of `vfio-pci`; "));
    assert!(told(&seen(None), &Arrival::Vfio).starts_with("it has no driver instead of `vfio-pci`; "));
    let vfio = told(&seen(Some("vfio-pci")), &netdev());
    assert!(vfio.starts_with("it has the driver `vfio-pci`, and was said to be `net1` in the pod; "), "{vfio}");
    assert!(told(&seen(None), &netdev()).starts_with("it has no driver, and was said"));
}

#[test]
fn a_netdev_must_be_where_it_was_said_to_be() {
    admit_netdev("iavf", "net1", Some("net1")).expect("there");
    let error = admit_netdev("iavf", "net1", Some("net2")).expect_err("mixed up");
    assert!(error.to_string().starts_with("its netdev in the pod is `net2` and was said to be `net1`"), "{error}");
    let error = admit_netdev("uio_pci_generic", "net1", None).expect_err("something else has it");
    assert!(matches!(error, Refusal::Elsewhere { .. }), "{error}");
}

#[test]
fn a_guest_is_checked_and_not_trusted_unless_asked() {
    let wanted = guarded(VfSettings::default());
    let values: Vec<String> = wanted.attributes().iter().map(|(attribute, _)| attribute.to_string()).collect();
    assert_eq!(values, ["on", "off"]);
    let asked = VfSettings { spoofchk: Some(false), trust: Some(true), ..VfSettings::default() };
    let values: Vec<String> = guarded(asked).attributes().iter().map(|(attribute, _)| attribute.to_string()).collect();
    assert_eq!(values, ["off", "on"]);
}

fn seen(driver: Option<&str>) -> Seen {
    let function = Function::Virtual { pf: pf(), number: 3 };
    Seen { function, driver: driver.map(str::to_owned), driver_override: None, incarnation: 1 }
}

fn netdev() -> Arrival {
    Arrival::Netdev { netns: "/run/netns/pod".into(), name: "net1".into() }
}

fn pf() -> PciAddr {
    "0000:3b:00.0".parse().expect("an address")
}
