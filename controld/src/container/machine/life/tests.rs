use super::*;
use ContainerState::{Created, Exited, Running, Starting, Uncertain};

const GRACE: Duration = Duration::from_secs(30);

fn life(state: ContainerState) -> Life {
    Life { state, unwanted: None }
}

fn never_up(why: &str) -> Act {
    Act::End(End::NeverUp(why.into()))
}

#[test]
fn a_machine_comes_up_and_ends() {
    let mut life = life(Created);
    assert_eq!((life.on(Event::Start), life.state()), (Act::Boot, Starting));
    assert_eq!((life.on(Event::CameUp), life.state()), (Act::Run, Running));
    assert_eq!((life.on(Event::Start), life.state()), (Act::Nothing, Running));
    assert_eq!((life.on(Event::Stop(GRACE)), life.state()), (Act::PowerOff(GRACE), Running));
    let ended = Act::End(End::Machine(Ending::Shutdown));
    assert_eq!((life.on(Event::Ended(Ending::Shutdown)), life.state()), (ended, Exited));
    assert!(matches!(life.on(Event::Start), Act::Refuse(Kind::State, _)));
}

#[test]
fn a_failed_start_has_ended_only_when_libvirt_has_nothing_of_it() {
    let mut life = life(Starting);
    assert_eq!((life.on(Event::StartFailed("no reply".into())), life.state()), (Act::Clear, Uncertain));
    for event in [Event::Seen(Some(DomainPhase::On)), Event::Seen(None), Event::Stop(GRACE), Event::MakeWay] {
        assert_eq!((life.on(event.clone()), life.state()), (Act::Clear, Uncertain), "{event:?}");
    }
    assert!(matches!(life.on(Event::Start), Act::Refuse(Kind::Unavailable, _)));
    assert_eq!((life.on(Event::Cleared), life.state()), (never_up("no reply"), Exited));
}

#[test]
fn a_start_that_outlived_its_controld_is_what_libvirt_says() {
    for (seen, act, state) in [
        (Some(DomainPhase::On), Act::Run, Running),
        (Some(DomainPhase::Off(Ending::Shutdown)), Act::End(End::Machine(Ending::Shutdown)), Exited),
        (Some(DomainPhase::Off(Ending::Panicked)), Act::End(End::Machine(Ending::Panicked)), Exited),
        // Off, but perhaps not for long: the start may be under way.
        (Some(DomainPhase::Off(Ending::Failed)), Act::Clear, Uncertain),
        (Some(DomainPhase::Off(Ending::Unseen)), Act::Clear, Uncertain),
        (None, Act::Clear, Uncertain),
    ] {
        let mut life = Life::on_record(Starting);
        assert_eq!(life.state(), Uncertain);
        assert_eq!((life.on(Event::Seen(seen)), life.state()), (act, state), "{seen:?}");
    }
}

#[test]
fn what_is_stopped_before_it_is_known_to_run_is_cleared_away() {
    let mut life = Life::on_record(Starting);
    assert_eq!((life.on(Event::Stop(GRACE)), life.state()), (Act::Clear, Uncertain));
    assert_eq!(life.on(Event::Seen(Some(DomainPhase::On))), Act::Clear, "it has been stopped");
    assert_eq!((life.on(Event::Cleared), life.state()), (never_up("stopped before it was known to run"), Exited));
}

#[test]
fn the_next_attempt_takes_the_place_of_one_that_was_never_up() {
    let mut created = life(Created);
    assert_eq!((created.on(Event::MakeWay), created.state()), (Act::Clear, Created));
    assert_eq!((created.on(Event::Cleared), created.state()), (Act::Nothing, Created));
    let ended = never_up("never started; attempt 3 took its place");
    assert_eq!((created.on(Event::Replaced(3)), created.state()), (ended, Exited));
    assert_eq!((created.on(Event::Replaced(3)), created.state()), (Act::Nothing, Exited), "asked again");
    for state in [Starting, Running] {
        for event in [Event::MakeWay, Event::Replaced(3), Event::Remove] {
            let mut life = life(state);
            assert!(matches!(life.on(event.clone()), Act::Refuse(Kind::State, _)), "{state:?} {event:?}");
            assert_eq!(life.state(), state);
        }
    }
}

#[test]
fn what_has_no_machine_has_its_machine_cleared_away() {
    for state in [Created, Exited] {
        for event in [
            Event::Seen(Some(DomainPhase::On)),
            Event::Seen(Some(DomainPhase::Off(Ending::Unseen))),
            Event::Stop(GRACE),
            Event::Remove,
        ] {
            let mut life = life(state);
            assert_eq!((life.on(event.clone()), life.state()), (Act::Clear, state), "{state:?} {event:?}");
            assert_eq!((life.on(Event::Cleared), life.state()), (Act::Nothing, state), "{state:?} {event:?}");
        }
        assert_eq!(life(state).on(Event::Seen(None)), Act::Nothing);
    }
}

#[test]
fn a_start_that_was_not_recorded_was_not_made() {
    let mut life = life(Starting);
    assert_eq!((life.on(Event::NotBegun("disk full".into())), life.state()), (never_up("disk full"), Exited));
}

#[test]
fn only_a_guest_that_powered_off_has_succeeded() {
    use Ending::{Destroyed, Failed, Panicked, Shutdown, Unseen};
    for (ending, stopping, node_rebooted, oom_killed, code, reason) in [
        (Shutdown, false, false, false, 0, "Completed"),
        (Shutdown, true, true, false, 0, "Completed"),
        (Destroyed, true, false, false, 137, "Error"),
        (Destroyed, false, false, false, 137, "Error"),
        (Panicked, false, false, false, 134, "GuestPanicked"),
        (Failed, true, false, false, 255, "QemuDied"),
        (Unseen, false, false, false, 255, "Unknown"),
        (Unseen, false, true, false, 137, "NodeRebooted"),
        (Failed, false, false, true, 137, "OOMKilled"),
        (Unseen, false, false, true, 137, "OOMKilled"),
        (Shutdown, false, false, true, 0, "Completed"),
    ] {
        let seen = Circumstances { stopping, node_rebooted, oom_killed, unshared: false };
        let (found, _) = End::Machine(ending).reason(seen);
        assert_eq!((found.code(), found.as_str()), (code, reason), "{ending:?}");
    }
    let unshared = Circumstances { unshared: true, ..Circumstances::default() };
    let killed = Circumstances { oom_killed: true, ..unshared };
    assert_eq!(End::Machine(Destroyed).reason(killed).0.as_str(), "OOMKilled");
    let stopped = Circumstances { stopping: true, ..unshared };
    assert_eq!(End::Machine(Destroyed).reason(stopped).0.as_str(), "Error");
    for (ending, code, reason) in
        [(Destroyed, 133, "VirtiofsdDied"), (Shutdown, 0, "Completed"), (Failed, 255, "QemuDied")]
    {
        let (found, _) = End::Machine(ending).reason(unshared);
        assert_eq!((found.code(), found.as_str()), (code, reason), "{ending:?}");
    }
    let (never, why) =
        End::NeverUp("no vmwrapper".into()).reason(Circumstances { node_rebooted: true, ..Circumstances::default() });
    assert_eq!((never.code(), never.as_str(), why.as_str()), (128, "StartError", "no vmwrapper"));
}
