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
fn a_claim_that_is_only_noted_is_its_owners_to_begin_anew() {
    let mut node = netdev_node();
    begin(netdev_request(), &mut node.clone(), &mut node).expect("admitted");
    begin(netdev_request(), &mut node.clone(), &mut node).expect("admitted again");
    let other = Request { owner: "other".into(), ..netdev_request() };
    begin(other, &mut node.clone(), &mut node).expect_err("not the other's");
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
