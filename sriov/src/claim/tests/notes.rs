//! What is noted, and what is done by a note.

use super::*;

#[test]
fn a_claim_of_an_earlier_boot_is_forgotten_and_changes_nothing() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    let before = node.state();
    let now = Now { boot: "boot-2", owner_lives: true };
    assert_eq!(repair(&claim, &mut node, now).unwrap(), Repair::Forget);
    let ending = Ending { boot: "boot-2", guest: Guest::Died, netdev_within: LIMIT };
    let outcome = release(&mut claim, &mut node.clone(), &mut node, ending).expect("released");
    assert_eq!((outcome.end, node.state()), (End::Vanished, before));
}

#[test]
fn a_claim_of_a_vf_that_somebody_has_is_refused() {
    let mut node = netdev_node();
    in_use(&mut node);
    let other = Request { owner: "other".into(), ..netdev_request() };
    let error = begin(other, &mut node.clone(), &mut node).expect_err("claimed");
    assert_eq!(error.to_string(), "`0000:3b:02.1` is claimed by `pod`; release that claim first");
}

#[test]
fn a_note_of_a_vf_that_was_made_anew_keeps_nobody_from_the_new_one() {
    let mut node = netdev_node();
    let claim = in_use(&mut node);
    let later = Request { owner: "other".into(), boot: "boot-2".into(), ..netdev_request() };
    let seen = |node: &Model| node.clone().look(claim.vf()).expect("looked at").expect("there");
    assert!(claim.is_of(&seen(&node)));
    // What it is refused for is its driver, not the note.
    let error = begin(later, &mut node.clone(), &mut node).expect_err("vfio-pci has it");
    assert!(matches!(error, ClaimError::Refused { .. }), "{error}");
    node.recreate();
    let name = Arrival::Netdev { netns: NETNS.into(), name: "net1".into() };
    let error =
        begin(Request { arrival: name, owner: "other".into(), ..netdev_request() }, &mut node.clone(), &mut node);
    assert!(!matches!(error, Err(ClaimError::Claimed { .. })), "{error:?}");
}

#[test]
fn a_claim_in_use_goes_to_no_machine_once_another_vf_is_in_its_place() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    assert_eq!(advance(&mut claim, &mut node.clone(), &mut node).expect("for the next machine"), Step::InUse);
    expect_bound(&claim, &mut node).expect("its own");
    node.recreate();
    let error = advance(&mut claim, &mut node.clone(), &mut node).expect_err("another one");
    assert!(matches!(error, ClaimError::Gone { .. }), "{error}");
    expect_bound(&claim, &mut node).expect_err("another one");
}

#[test]
fn a_vf_that_a_machine_has_open_is_not_given_back() {
    let mut node = netdev_node();
    let mut claim = in_use(&mut node);
    node.0.borrow_mut().guest = true;
    let (changes, noted) = (node.0.borrow().changes, node.disk());
    let error = give_back(&mut claim, &mut node, Guest::Died).expect_err("its machine runs");
    assert!(matches!(error, ClaimError::InUse { .. }), "{error}");
    assert_eq!((node.0.borrow().changes, node.disk(), claim.step()), (changes, noted, Step::InUse));
    node.0.borrow_mut().guest = false;
    give_back(&mut claim, &mut node, Guest::Died).expect("it has ended");
}

#[test]
fn a_claim_that_has_only_begun_is_noted_nowhere() {
    let mut node = netdev_node();
    let mut claim = begin(netdev_request(), &mut node.clone(), &mut node).expect("admitted");
    assert_eq!((claim.step(), node.disk(), node.0.borrow().changes), (Step::Observed, None, 0));
    let outcome = give_back(&mut claim.clone(), &mut node, Guest::Ended).expect("released");
    assert_eq!((outcome.end, node.0.borrow().changes), (End::Untouched, 0));
    assert_eq!(advance(&mut claim, &mut node.clone(), &mut node).expect("noted"), Step::Saved);
    assert_eq!((node.disk(), node.0.borrow().changes), (Some(claim), 0));
}

#[test]
fn a_claim_that_an_earlier_release_only_noted_is_its_owners_to_begin_anew() {
    let mut node = netdev_node();
    let claim = begin(netdev_request(), &mut node.clone(), &mut node).expect("admitted");
    let mut noted = Claim { saved: None, ..claim };
    node.flush(&noted).expect("noted");
    begin(netdev_request(), &mut node.clone(), &mut node).expect("admitted again");
    let other = Request { owner: "other".into(), ..netdev_request() };
    begin(other, &mut node.clone(), &mut node).expect_err("not the other's");
    advance(&mut noted, &mut node.clone(), &mut node).expect_err("nobody knows what it was like");
    assert_eq!(node.0.borrow().changes, 0);
}

#[test]
fn only_a_vf_that_is_bound_is_handed_out() {
    let mut node = netdev_node();
    let mut claim = begin(netdev_request(), &mut node.clone(), &mut node).expect("admitted");
    while claim.step() != Step::Bound {
        hand_out(&mut claim, &mut node.clone(), &mut node).expect_err("not bound yet");
        advance(&mut claim, &mut node.clone(), &mut node).expect("taken");
    }
    assert_eq!(hand_out(&mut claim, &mut node.clone(), &mut node).expect("bound"), Step::InUse);
    assert_eq!(node.disk().map(|claim| claim.step()), Some(Step::InUse));
    give_back(&mut claim, &mut node, Guest::Ended).expect("released");
    let error = hand_out(&mut claim, &mut node.clone(), &mut node).expect_err("it has ended");
    assert!(matches!(error, ClaimError::Ended { .. }), "{error}");
}

#[test]
fn a_restart_in_use_changes_nothing() {
    let mut node = netdev_node();
    let claim = in_use(&mut node);
    let changes = node.0.borrow().changes;
    assert_eq!(repair(&claim, &mut node, ALIVE).unwrap(), Repair::Adopt);
    assert_eq!(node.0.borrow().changes, changes);
    let gone = Now { owner_lives: false, ..ALIVE };
    assert_eq!(repair(&claim, &mut node, gone).unwrap(), Repair::GiveBack(Why::OwnerGone));
}

#[test]
fn a_note_is_written_as_in_the_first_release_and_read_so() {
    let mut node = netdev_node();
    let claim = in_use(&mut node);
    let kept = include_str!("../fixtures/v1.json");
    assert_eq!(serde_json::to_string_pretty(&claim).unwrap() + "\n", kept);
    assert_eq!(serde_json::from_str::<Claim>(kept).unwrap(), claim);
}

#[test]
fn a_note_of_which_something_is_not_known_is_not_read() {
    let kept = include_str!("../fixtures/v1.json");
    let newer = kept.replacen(r#""version": 1"#, r#""version": 2"#, 1);
    let error = serde_json::from_str::<Claim>(&newer).expect_err("newer");
    assert!(error.to_string().starts_with("the note's version is 2, this program knows 1"), "{error}");
    for (place, more) in [("{", r#"{"more": 1,"#), (r#""in_use""#, r#""lent""#), (r#""mtu":"#, r#""mtu2":"#)] {
        serde_json::from_str::<Claim>(&kept.replacen(place, more, 1)).expect_err(more);
    }
}

#[test]
fn nothing_is_done_by_a_note_that_lacks_what_the_vf_was_like() {
    let mut node = netdev_node();
    let mut claim = Claim { saved: None, ..in_use(&mut node) };
    let (before, disk) = (node.state(), node.disk());
    let error = give_back(&mut claim, &mut node, Guest::Ended).expect_err("broken");
    assert!(matches!(error, ClaimError::Broken { step: Step::InUse, .. }), "{error}");
    repair(&claim, &mut node, ALIVE).expect_err("broken");
    advance(&mut claim, &mut node.clone(), &mut node).expect_err("broken");
    assert_eq!((node.state(), node.disk()), (before, disk));
}
