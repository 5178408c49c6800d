mod crash;
mod model;
mod notes;
mod refusals;
mod sysfs;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::PciAddr;
use crate::mac::Mac;
use crate::policy::Arrival;
use crate::settings::{Kind, Rate, VfSettings, Vlan};
use model::{BOOT, DRIVER, MAC, Model, NETNS, State};

#[test]
fn a_guest_gets_the_vf_with_the_plugins_address_and_no_rights() {
    let mut node = netdev_node();
    let claim = in_use(&mut node);
    let State { driver, driver_override, settings, netdev, .. } = node.state();
    assert_eq!((driver.as_deref(), driver_override.as_deref(), netdev), (Some("vfio-pci"), Some("vfio-pci"), None));
    assert_eq!((settings.mac, settings.spoofchk, settings.trust), (Some(MAC), Some(true), Some(false)));
    assert_eq!(settings.vlan.map(|vlan| vlan.id), Some(100), "the plugin's VLAN");
    assert_eq!(claim.step(), Step::InUse);
}

#[test]
fn a_guest_gets_what_was_asked_for() {
    let mut node = netdev_node();
    let mac = Mac([2, 9, 9, 9, 9, 9]);
    let (vlan, rate) = (Vlan { id: 7, qos: 3, ..Vlan::default() }, Rate { min: 0, max: 500 });
    let asked =
        VfSettings { mac: Some(mac), vlan: Some(vlan), rate: Some(rate), trust: Some(true), ..VfSettings::default() };
    let mut claim = begin(Request { asked, ..netdev_request() }, &mut node.clone(), &mut node).expect("admitted");
    take(&mut claim, &mut node.clone(), &mut node).expect("taken");
    let settings = node.state().settings;
    assert_eq!((settings.mac, settings.vlan, settings.rate), (Some(mac), Some(vlan), Some(rate)));
    assert_eq!((settings.spoofchk, settings.trust), (Some(true), Some(true)));
}

#[test]
fn a_setting_that_nobody_asked_for_may_be_missing_and_is_told() {
    let mut node = netdev_node();
    node.0.borrow_mut().refused = vec![Kind::Spoofchk];
    let claim = in_use(&mut node);
    assert_eq!(claim.unsupported(), [Kind::Spoofchk]);
}

#[test]
fn a_vf_of_vfio_pci_stays_there() {
    let mut node = Model::with_vfio(&[], Rc::new(()));
    let before = node.state();
    let mut claim = in_use_by(&mut node, vfio_request());
    let outcome = give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    assert_eq!(outcome, Outcome { end: End::AsBefore, unreset: false });
    assert_eq!(node.state(), before);
}

#[test]
fn a_released_claim_tells_its_end_again_and_changes_nothing() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    let outcome = give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    let changes = node.0.borrow().changes;
    assert_eq!(give_back(&mut claim, &mut node, Guest::Died).expect("released"), outcome);
    assert_eq!((node.0.borrow().changes, claim.outcome()), (changes, Some(outcome)));
    let error = advance(&mut claim, &mut node.clone(), &mut node).expect_err("it has ended");
    assert!(matches!(error, ClaimError::Ended { step: Step::Restored, .. }), "{error}");
}

#[test]
fn a_vf_that_no_way_resets_is_given_back_and_told() {
    let mut node = netdev_node();
    node.0.borrow_mut().resettable = false;
    let before = node.state();
    let mut claim = in_use(&mut node);
    let outcome = give_back(&mut claim, &mut node, Guest::Died).expect("released");
    assert_eq!(outcome, Outcome { end: End::AsBefore, unreset: true });
    assert_eq!(same(&node.state()), same(&before));
}

#[test]
fn without_its_namespace_a_netdev_goes_to_the_host() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    node.0.borrow_mut().netns_gone();
    let outcome = give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    assert_eq!(outcome.end, End::OnHost);
    let (netdev, in_pod) = node.state().netdev.expect("a netdev");
    assert_eq!((netdev.mac, netdev.mtu, in_pod), (MAC, 9000, false));
    assert_eq!(node.state().driver.as_deref(), Some(DRIVER));
}

#[test]
fn a_vf_that_is_taken_away_in_use_ends_its_claim() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    node.0.borrow_mut().vanish();
    assert_eq!(repair(&claim, &mut node, ALIVE).unwrap(), Repair::GiveBack(Why::Vanished));
    let changes = node.0.borrow().changes;
    let outcome = give_back(&mut claim, &mut node, Guest::Died).expect("released");
    assert_eq!((outcome.end, node.0.borrow().changes), (End::Vanished, changes));
}

#[test]
fn a_vf_that_was_taken_away_and_made_anew_is_left_alone() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    let anew = node.recreate();
    assert_eq!(repair(&claim, &mut node, ALIVE).unwrap(), Repair::GiveBack(Why::Vanished));
    let outcome = give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    assert_eq!(outcome.end, End::Vanished);
    assert_eq!(node.state(), anew);
}

#[test]
fn settings_that_the_driver_changed_when_it_was_bound_are_put_back_again() {
    let mut node = netdev_node();
    node.0.borrow_mut().meddling = true;
    let before = node.state();
    let mut claim = in_use(&mut node);
    give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    assert_eq!(same(&node.state()), same(&before));
}

#[test]
fn an_address_that_a_vf_has_given_itself_again_is_left_to_it() {
    let mut node = netdev_node();
    node.0.borrow_mut().reporting = true;
    let mut claim = in_use(&mut node);
    give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    assert_eq!(node.state().settings.mac, Some(MAC));
}

pub(super) const LIMIT: Duration = Duration::from_secs(5);
const ALIVE: Now<'static> = Now { boot: BOOT, owner_lives: true };

fn pf() -> PciAddr {
    "0000:3b:00.0".parse().expect("an address")
}

fn netdev_node() -> Model {
    Model::with_netdev(&[], Rc::new(()))
}

fn netdev_request() -> Request {
    Request {
        vf: "0000:3b:02.1".parse().expect("an address"),
        arrival: Arrival::Netdev { netns: NETNS.into(), name: "net1".into() },
        owner: "pod".into(),
        boot: BOOT.into(),
        together: BTreeSet::new(),
        asked: VfSettings::default(),
    }
}

fn vfio_request() -> Request {
    let asked = VfSettings { mac: Some(MAC), ..VfSettings::default() };
    Request { arrival: Arrival::Vfio, asked, ..netdev_request() }
}

fn in_use(node: &mut Model) -> Claim {
    in_use_by(node, netdev_request())
}

fn in_use_by(node: &mut Model, request: Request) -> Claim {
    let mut claim = begin(request, &mut node.clone(), node).expect("admitted");
    while claim.step() != Step::InUse {
        advance(&mut claim, &mut node.clone(), node).expect("taken");
    }
    claim
}

fn give_back(claim: &mut Claim, node: &mut Model, guest: Guest) -> Result<Outcome, ClaimError> {
    release(claim, &mut node.clone(), node, Ending { boot: BOOT, guest, netdev_within: LIMIT })
}

/// A state without what no one can put back: the index of a netdev.
fn same(state: &State) -> State {
    let mut state = state.clone();
    if let Some((netdev, _)) = &mut state.netdev {
        netdev.index = 0;
    }
    state
}
