//! What is not taken, before anything is changed.

use super::*;
use crate::group::Member;

#[test]
fn without_vfio_pci_nothing_is_touched() {
    let mut node = netdev_node();
    node.0.borrow_mut().loaded = false;
    begin(netdev_request(), &mut node.clone(), &mut node).expect_err("no driver");
    assert_eq!((node.0.borrow().changes, node.disk()), (0, None));
}

#[test]
fn a_vf_that_is_not_the_one_that_was_said_is_refused_and_not_noted() {
    let mut node = netdev_node();
    let name = Arrival::Netdev { netns: NETNS.into(), name: "net2".into() };
    for arrival in [name, Arrival::Vfio] {
        let request = Request { arrival, ..netdev_request() };
        let error = begin(request, &mut node.clone(), &mut node).expect_err("mixed up");
        assert!(matches!(error, ClaimError::Refused { .. }), "{error}");
    }
    assert_eq!((node.0.borrow().changes, node.disk()), (0, None));
}

#[test]
fn a_group_with_a_foreign_device_is_refused_before_and_after_it_was_observed() {
    let mut node = netdev_node();
    let nvme = Member { name: "0000:3c:00.0".into(), driver: Some("nvme".into()), bridge: false };
    node.0.borrow_mut().others.push(nvme.clone());
    let error = begin(netdev_request(), &mut node.clone(), &mut node).expect_err("shared");
    assert!(matches!(&error, ClaimError::Shared { cause, .. } if cause.foreign == [nvme.clone()]), "{error}");
    node.0.borrow_mut().others.clear();
    let mut claim = begin(netdev_request(), &mut node.clone(), &mut node).expect("admitted");
    node.0.borrow_mut().others.push(nvme);
    let before = node.state();
    take(&mut claim, &mut node.clone(), &mut node).expect_err("shared");
    give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    assert_eq!(node.state(), before);
}

#[test]
fn two_vfs_of_one_group_go_to_one_guest() {
    let mut node = netdev_node();
    let sibling: PciAddr = "0000:3b:02.2".parse().unwrap();
    node.0.borrow_mut().others.push(Member {
        name: sibling.to_string(),
        driver: Some("vfio-pci".into()),
        bridge: false,
    });
    begin(netdev_request(), &mut node.clone(), &mut node).expect_err("it may be another guest's");
    let both = Request { together: BTreeSet::from([sibling]), ..netdev_request() };
    begin(both, &mut node.clone(), &mut node).expect("admitted");
}

#[test]
fn a_vf_that_something_else_bound_meanwhile_is_not_taken_from_it() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    node.0.borrow_mut().state.driver = Some("uio_pci_generic".into());
    assert_eq!(repair(&claim, &mut node, ALIVE).unwrap(), Repair::GiveBack(Why::Unbound));
    let error = give_back(&mut claim, &mut node, Guest::Ended).expect_err("foreign");
    assert!(matches!(&error, ClaimError::Foreign { driver, .. } if driver == "uio_pci_generic"), "{error}");
    assert_eq!(node.state().driver.as_deref(), Some("uio_pci_generic"));
}

#[test]
fn a_vf_whose_driver_changed_before_it_was_bound_is_left_alone() {
    for (mut node, request) in [(netdev_node(), netdev_request()), (Model::with_vfio(&[], Rc::new(())), vfio_request())]
    {
        for driver in [Some("uio_pci_generic"), None] {
            let mut claim = begin(request.clone(), &mut node.clone(), &mut node).expect("admitted");
            while claim.step() != Step::Taken {
                advance(&mut claim, &mut node.clone(), &mut node).expect("taken");
            }
            let had = node.0.borrow().state.driver.clone();
            node.0.borrow_mut().state.driver = driver.map(str::to_owned);
            let changes = node.0.borrow().changes;
            let result = advance(&mut claim, &mut node.clone(), &mut node);
            // A VF that came with a netdev and has lost its driver is ours to bind: a crash may have left it so.
            let goes_on = driver.is_none() && had.as_deref() == Some(DRIVER);
            assert_eq!((result.is_ok(), node.0.borrow().changes > changes), (goes_on, goes_on), "{result:?}");
            node.0.borrow_mut().state.driver = if goes_on { Some("vfio-pci".into()) } else { had };
            give_back(&mut claim, &mut node, Guest::Ended).expect("released");
        }
    }
}

#[test]
fn a_vf_that_a_machine_has_without_a_claim_stays_with_it() {
    let mut node = Model::with_vfio(&[], Rc::new(()));
    node.0.borrow_mut().guest = true;
    let error = begin(vfio_request(), &mut node.clone(), &mut node).expect_err("a device plugin gave it");
    assert!(matches!(error, ClaimError::InUse { .. }), "{error}");
    assert_eq!((node.0.borrow().changes, node.disk()), (0, None));
}
