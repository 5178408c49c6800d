//! Every claim with something happening at every boundary of it: each must end in use or exactly as before.

use std::fmt::Debug;
use std::rc::Rc;

use super::model::{BOOT, Event, Model, State};
use super::{LIMIT, netdev_request, same, vfio_request};
use crate::claim::{Claim, ClaimError, End, Ending, Guest, Now, Repair, Step, advance, begin, release, repair};

/// More boundaries than any life has.
const MANY: usize = 400;

#[derive(Debug, Clone, Copy)]
struct Case {
    vfio: bool,
    guest: Guest,
    /// Whether the owner of a claim that is not yet in use lives after a restart.
    owner_lives: bool,
    /// What happens to the VF while we are not there.
    meanwhile: Option<Meanwhile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Vanish,
    Recreate,
    NetnsGone,
}

/// We were killed on the way.
struct Killed;

#[test]
fn a_crash_at_every_boundary_ends_in_use_or_as_before() {
    for case in cases() {
        each_boundary(case, &[], Event::Crash);
    }
}

#[test]
fn a_second_crash_at_every_boundary_of_the_recovery_does_no_harm() {
    for case in cases() {
        for at in 0..lifetime(case, &[]) {
            each_boundary(case, &[(at, Event::Crash)], Event::Crash);
        }
    }
}

#[test]
fn an_error_of_every_call_leaves_nothing_half_made_and_may_be_repeated() {
    for case in unbroken_cases() {
        each_boundary(case, &[], Event::Fail);
        for at in 0..lifetime(case, &[]) {
            each_boundary(case, &[(at, Event::Fail)], Event::Fail);
        }
    }
}

#[test]
fn a_vf_that_vanishes_at_any_boundary_ends_its_claim_cleanly() {
    for case in cases() {
        each_boundary(case, &[], Event::Vanish);
        for at in 0..lifetime(case, &[]) {
            each_boundary(case, &[(at, Event::Crash)], Event::Vanish);
        }
    }
}

#[test]
fn a_namespace_that_goes_at_any_boundary_leaves_the_netdev_to_the_host() {
    for case in cases() {
        each_boundary(case, &[], Event::NetnsGone);
        for at in 0..lifetime(case, &[]) {
            each_boundary(case, &[(at, Event::Crash)], Event::NetnsGone);
        }
    }
}

#[test]
fn a_crash_after_the_namespace_went_or_the_vf_vanished_does_no_harm() {
    for case in cases().into_iter().filter(|case| case.meanwhile.is_none()) {
        for at in 0..lifetime(case, &[]) {
            each_boundary(case, &[(at, Event::NetnsGone)], Event::Crash);
            each_boundary(case, &[(at, Event::Vanish)], Event::Crash);
        }
    }
}

/// Those that differ when we are never killed.
fn unbroken_cases() -> impl Iterator<Item = Case> {
    cases().into_iter().filter(|case| case.owner_lives && case.meanwhile.is_none())
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for vfio in [false, true] {
        for guest in [Guest::Ended, Guest::Died] {
            for owner_lives in [false, true] {
                let kinds = [None, Some(Meanwhile::Vanish), Some(Meanwhile::Recreate), Some(Meanwhile::NetnsGone)];
                cases.extend(kinds.map(|meanwhile| Case { vfio, guest, owner_lives, meanwhile }));
            }
        }
    }
    cases
}

/// How many boundaries a case has with these events.
fn lifetime(case: Case, events: &[(usize, Event)]) -> usize {
    play(case, events).ticks()
}

/// Plays the case once for each boundary after the last of `events`, with `event` there.
fn each_boundary(case: Case, events: &[(usize, Event)], event: Event) {
    let first = events.last().map_or(0, |(at, _)| at + 1);
    for at in first..MANY {
        let all: Vec<(usize, Event)> = events.iter().copied().chain([(at, event)]).collect();
        if play(case, &all).ticks() <= at {
            return;
        }
    }
    panic!("{case:?} never ends");
}

/// The whole way of a VF, with as many restarts as it takes, and a look at the end.
fn play(case: Case, events: &[(usize, Event)]) -> Model {
    let name: Rc<dyn Debug> = Rc::new((case, events.to_vec()));
    let make = if case.vfio { Model::with_vfio } else { Model::with_netdev };
    let mut node = make(events, Rc::clone(&name));
    let before = node.state();
    let mut anew = None;
    let mut ended = first_life(&mut node, case);
    let mut restarts = 0;
    while ended.is_err() {
        restarts += 1;
        assert!(restarts < 5, "{name:?} restarts for ever");
        match case.meanwhile.filter(|_| restarts == 1) {
            None => {}
            Some(Meanwhile::Vanish) => node.0.borrow_mut().vanish(),
            Some(Meanwhile::NetnsGone) => node.0.borrow_mut().netns_gone(),
            Some(Meanwhile::Recreate) => anew = Some(node.recreate()),
        }
        node.restart();
        ended = later_life(&mut node, case);
    }
    let changed = anew.is_some() || !node.state().present;
    let expected = anew.unwrap_or(before);
    check(&node, &expected, ended.ok().flatten(), changed, &*name);
    node
}

/// From the request to the end.
fn first_life(node: &mut Model, case: Case) -> Result<Option<End>, Killed> {
    let request = if case.vfio { vfio_request() } else { netdev_request() };
    let mut claim = match begin(request, &mut node.clone(), node) {
        Ok(claim) => claim,
        Err(_) if node.crashed() => return Err(Killed),
        // Refused, and nothing is noted of it.
        Err(_) => return Ok(None),
    };
    while claim.step() != Step::InUse {
        if advance(&mut claim, &mut node.clone(), node).is_err() {
            return if node.crashed() { Err(Killed) } else { end(&mut claim, node, case) };
        }
    }
    let state = node.state();
    // Unless it went in the very last moment.
    if state.present {
        assert_eq!(state.driver.as_deref(), Some("vfio-pci"), "{case:?}");
        assert_eq!((state.settings.spoofchk, state.settings.trust), (Some(true), Some(false)), "{case:?}");
        node.0.borrow_mut().guest = true;
    }
    node.pass_time();
    if node.crashed() {
        return Err(Killed);
    }
    guest_ends(node, case);
    end(&mut claim, node, case)
}

/// What a restart does with the note.
fn later_life(node: &mut Model, case: Case) -> Result<Option<End>, Killed> {
    let Some(mut claim) = node.disk() else { return Ok(None) };
    let (guest, changes) = (node.0.borrow().guest, node.0.borrow().changes);
    let now = Now { boot: BOOT, owner_lives: guest || case.owner_lives };
    let decided = match repair(&claim, node, now) {
        Ok(decided) => decided,
        Err(_) if node.crashed() => return Err(Killed),
        Err(error) => panic!("{error} of {case:?}"),
    };
    assert_eq!(node.0.borrow().changes, changes, "looking changed something in {case:?}");
    match decided {
        Repair::Forget => return Ok(claim.outcome().map(|outcome| outcome.end)),
        Repair::Adopt => {
            // In use, as far as the note says: go on from there.
            if advance(&mut claim, &mut node.clone(), node).is_err() && node.crashed() {
                return Err(Killed);
            }
            assert_eq!(node.0.borrow().changes, changes, "adopting changed something in {case:?}");
        }
        Repair::GiveBack(_) => {
            let state = node.state();
            assert!(!guest || !state.present || state.incarnation != 41, "a guest that runs was given up in {case:?}");
        }
    }
    guest_ends(node, case);
    end(&mut claim, node, case)
}

fn guest_ends(node: &Model, case: Case) {
    let mut node = node.0.borrow_mut();
    let left = node.guest && case.guest == Guest::Died && node.state.present && node.state.incarnation == 41;
    node.state.dirty |= left;
    node.guest = false;
}

/// Releases until it works.
fn end(claim: &mut Claim, node: &mut Model, case: Case) -> Result<Option<End>, Killed> {
    let ending = Ending { boot: BOOT, guest: case.guest, netdev_within: LIMIT };
    let mut errors: Vec<ClaimError> = Vec::new();
    while errors.len() < 4 {
        match release(claim, &mut node.clone(), node, ending) {
            Ok(outcome) => return Ok(Some(outcome.end)),
            Err(_) if node.crashed() => return Err(Killed),
            Err(error) if !node.state().present => panic!("{error} of a VF that is gone, in {case:?}"),
            Err(error) => errors.push(error),
        }
    }
    panic!("{case:?} is never released: {errors:?}");
}

fn check(node: &Model, expected: &State, end: Option<End>, changed: bool, name: &dyn Debug) {
    let state = node.state();
    if !state.present {
        return;
    }
    if changed {
        let netns = state.netns;
        assert_eq!(state, State { netns, ..expected.clone() }, "{name:?}");
        return;
    }
    let mut expected = same(expected);
    let mut state = same(&state);
    if !state.netns {
        // Whoever moved it, the kernel or we: it is on the host, and its name and state there are the host's.
        expected.netns = false;
        for netdev in [&mut expected.netdev, &mut state.netdev].into_iter().flatten() {
            let (netdev, _) = netdev;
            netdev.name.clear();
            netdev.up = false;
            netdev.extra = None;
        }
        if let Some((_, in_pod)) = &mut expected.netdev {
            *in_pod = false;
        }
    }
    assert_eq!(state, expected, "{end:?} of {name:?}");
}
