use super::*;
use crate::names::NO_CLAIM;
use crate::objects::Condition;
use crate::sample::{at, going, vm, vmi};

/// One that had its strategy before.
fn old(strategy: &str) -> Vm {
    let mut vm = vm(strategy);
    vm.status.run_strategy = Some(strategy.to_owned());
    vm
}

fn asking(mut vm: Vm, action: &str) -> Vm {
    let request = format!(r#"{{"id": "1", "action": "{action}"}}"#);
    vm.metadata.annotations = Some([(POWER_REQUEST.to_owned(), request)].into());
    vm
}

fn step(vm: &Vm, vmi: Option<&Vmi>) -> Step {
    decide(vm, vmi, &at(0)).step
}

const STOP_IT: Step = Step::Stop { grace: None };

#[test]
fn the_table_of_strategies() {
    let run = [None, Some("Running"), Some("Succeeded"), Some("Failed")];
    let table = [
        ("Always", [Step::Start, Step::Nothing, STOP_IT, STOP_IT]),
        // What failed is run again, which is noted first.
        ("RerunOnFailure", [Step::Nothing, Step::Nothing, STOP_IT, Step::Nothing]),
        ("Manual", [Step::Nothing, Step::Nothing, Step::Nothing, Step::Nothing]),
        ("Once", [Step::Nothing, Step::Nothing, Step::Nothing, Step::Nothing]),
        ("Halted", [Step::Nothing, STOP_IT, STOP_IT, STOP_IT]),
    ];
    for (strategy, steps) in table {
        for (phase, wanted) in run.into_iter().zip(steps) {
            let vmi = phase.map(|phase| vmi("a", phase));
            assert_eq!(step(&old(strategy), vmi.as_ref()), wanted, "{strategy} with {phase:?}");
        }
    }
    for strategy in ["RerunOnFailure", "Once"] {
        assert_eq!(step(&vm(strategy), None), Step::Start, "{strategy} is new");
        let mut other = old("Halted");
        other.spec = vm(strategy).spec;
        assert_eq!(step(&other, None), Step::Start, "{strategy} in place of another");
    }
}

#[test]
fn what_failed_is_run_again_although_its_instance_goes_first() {
    let mut vm = old("RerunOnFailure");
    let mut failed = vmi("a", "Failed");
    failed.status.phase_transition_timestamps = vmi("b", "Running").status.phase_transition_timestamps;
    vm.status = decide(&vm, Some(&failed), &at(0)).status;
    assert_eq!(vm.status.state_change_requests, [just(START)]);
    assert_eq!(step(&vm, Some(&failed)), STOP_IT);
    assert_eq!(step(&vm, Some(&going(failed.clone()))), Step::Nothing);
    assert_eq!(step(&vm, None), Step::Start);
    vm.status = decide(&vm, Some(&vmi("b", "Pending")), &at(0)).status;
    assert_eq!(vm.status.state_change_requests, []);
}

#[test]
fn failed_starts_wait_longer_and_longer() {
    let mut vm = old("Always");
    for (nth, least) in [(1, 10), (2, 40), (3, 90), (4, 160), (5, 250), (6, 300)] {
        let failed = vmi(&format!("uid-{nth}"), "Failed");
        // Looked at twice, it is counted once.
        vm.status = decide(&vm, Some(&failed), &at(0)).status;
        let verdict = decide(&vm, Some(&failed), &at(5));
        assert_eq!(verdict.step, STOP_IT);
        assert_eq!(verdict.status.printable_status.as_deref(), Some("CrashLoopBackOff"));
        vm.status = verdict.status;
        let failure = vm.status.start_failure.clone().expect("noted");
        assert_eq!(failure.consecutive_fail_count, nth);
        let Step::Wait(left) = step(&vm, None) else { panic!("starts at once after failure {nth}") };
        assert!((least..=300).contains(&left.as_secs()), "{left:?} after failure {nth}");
    }
    let ran = decide(&vm, Some(&vmi("good", "Running")), &at(5)).status;
    assert_eq!(ran.start_failure, None);
}

#[test]
fn a_claim_that_is_not_there_is_told() {
    let mut waits = vmi("a", "Pending");
    waits.status.conditions.push(Condition::new("Synchronized", false, NO_CLAIM, ""));
    let status = decide(&old("Always"), Some(&waits), &at(0)).status;
    assert_eq!(status.printable_status.as_deref(), Some("ErrorPvcNotFound"));
}

#[test]
fn requests_are_answered_once() {
    let mut vm = asking(old("Manual"), "Start");
    let verdict = decide(&vm, None, &at(0));
    assert_eq!(verdict.status.state_change_requests, [just(START)]);
    vm.status = verdict.status;
    assert_eq!(step(&vm, None), Step::Forget);
    vm.metadata.annotations = None;
    assert_eq!(step(&vm, None), Step::Start);
    // The annotation came back, or was never taken off.
    let mut vm = asking(vm, "Start");
    vm.status.state_change_requests.clear();
    let verdict = decide(&vm, None, &at(0));
    assert_eq!((verdict.step, verdict.status.state_change_requests), (Step::Forget, vec![]));
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let running = vmi("a", "Running");
    let failed = vmi("a", "Failed");
    let table = [
        (asking(old("Always"), "Start"), Some(&running), "VM is already running"),
        (asking(old("Always"), "Start"), None, "strategy Always starts it by itself"),
        (asking(old("Once"), "Start"), None, "strategy Once does not start it again"),
        (
            asking(old("RerunOnFailure"), "Start"),
            Some(&failed),
            "strategy RerunOnFailure starts it by itself after a failure",
        ),
        (asking(old("Manual"), "Stop"), None, "VM is not running"),
        (asking(old("Halted"), "Restart"), None, "a VM of strategy Halted or Once is not restarted"),
        (asking(old("Once"), "Restart"), Some(&running), "a VM of strategy Halted or Once is not restarted"),
    ];
    for (vm, vmi, why) in table {
        let verdict = decide(&vm, vmi, &at(0));
        assert_eq!(verdict.events.first().map(|event| event.2.clone()), Some(format!("request `1` is refused: {why}")));
        assert_eq!(verdict.status.last_request.as_deref(), Some("1"));
    }
    let mut vm = old("Manual");
    vm.metadata.annotations = Some([(POWER_REQUEST.to_owned(), "{\"id\": 1".to_owned())].into());
    let verdict = decide(&vm, None, &at(0));
    assert_eq!((verdict.step, verdict.events[0].1), (Step::Forget, "InvalidRequest"));
}

#[test]
fn a_late_request_does_not_end_the_next_run() {
    let mut vm = old("Manual");
    let request = r#"{"id": "1", "action": "Stop", "vmiUID": "before"}"#;
    vm.metadata.annotations = Some([(POWER_REQUEST.to_owned(), request.to_owned())].into());
    let verdict = decide(&vm, Some(&vmi("now", "Running")), &at(0));
    assert_eq!(verdict.status.state_change_requests, []);
    // One that waited while its instance went.
    vm.metadata.annotations = None;
    vm.status.state_change_requests = vec![Request { uid: Some("before".to_owned()), ..just(STOP) }];
    let verdict = decide(&vm, Some(&vmi("now", "Running")), &at(0));
    assert_eq!((verdict.step, verdict.status.state_change_requests), (Step::Nothing, vec![]));
}

#[test]
fn a_restart_is_a_stop_and_a_start() {
    let first = vmi("a", "Running");
    let mut vm = asking(old("Manual"), "Restart");
    vm.status = decide(&vm, Some(&first), &at(0)).status;
    vm.metadata.annotations = None;
    assert_eq!(decide(&vm, Some(&first), &at(0)).status.printable_status.as_deref(), Some("Stopping"));
    assert_eq!(step(&vm, Some(&first)), STOP_IT);
    assert_eq!(step(&vm, Some(&going(first))), Step::Nothing);
    vm.status = decide(&vm, None, &at(0)).status;
    assert_eq!(vm.status.state_change_requests, [just(START)]);
    assert_eq!(step(&vm, None), Step::Start);
}

#[test]
fn a_stop_of_what_would_come_again_sets_the_strategy_first() {
    let running = vmi("a", "Running");
    let mut vm = old("Always");
    let request = r#"{"id": "1", "action": "Stop", "gracePeriodSeconds": 0}"#;
    vm.metadata.annotations = Some([(POWER_REQUEST.to_owned(), request.to_owned())].into());
    vm.status = decide(&vm, Some(&running), &at(0)).status;
    vm.metadata.annotations = None;
    assert_eq!(step(&vm, Some(&running)), Step::Set("Halted"));
    vm.spec = crate::sample::vm("Halted").spec;
    vm.status = decide(&vm, Some(&running), &at(0)).status;
    assert_eq!(step(&vm, Some(&running)), Step::Stop { grace: Some(0) });
    assert_eq!(step(&asking(old("Halted"), "Start"), None), Step::Set("Always"));
}

#[test]
fn one_that_is_deleted_waits_for_its_instance() {
    let vm = going(old("Always"));
    assert_eq!(step(&vm, Some(&vmi("a", "Running"))), STOP_IT);
    assert_eq!(step(&vm, Some(&going(vmi("a", "Running")))), Step::Nothing);
    assert_eq!(step(&vm, None), Step::Release);
    let mut orphaning = vm;
    orphaning.metadata.finalizers.as_mut().expect("there").push("orphan".to_owned());
    assert_eq!(step(&orphaning, Some(&vmi("a", "Running"))), Step::Release);
}

#[test]
fn an_instance_of_somebody_else_is_left_alone() {
    let mut foreign = vmi("a", "Succeeded");
    foreign.metadata.owner_references = None;
    for strategy in ["Always", "Halted", "Once"] {
        let verdict = decide(&old(strategy), Some(&foreign), &at(0));
        assert_eq!(verdict.step, Step::Nothing, "{strategy}");
        assert!(verdict.status.conditions.iter().any(|one| one.reason.as_deref() == Some("NameTaken")));
    }
    assert_eq!(step(&going(old("Always")), Some(&foreign)), Step::Release);
}

#[test]
fn nothing_is_written_when_nothing_changes() {
    let running = vmi("a", "Running");
    let mut vm = old("Always");
    vm.status = decide(&vm, Some(&running), &at(0)).status;
    let verdict = decide(&vm, Some(&running), &at(100));
    assert_eq!((verdict.step, verdict.status), (Step::Nothing, vm.status));
}

#[test]
fn a_start_that_waits_is_called_off() {
    let mut vm = old("RerunOnFailure");
    vm.status = decide(&vm, Some(&vmi("a", "Failed")), &at(0)).status;
    assert_eq!(vm.status.state_change_requests, [just(START)]);
    // By another strategy, which forgets what failed before.
    let mut halted = vm.clone();
    halted.spec = crate::sample::vm("Halted").spec;
    let verdict = decide(&halted, None, &at(0));
    assert_eq!((verdict.step, verdict.status.state_change_requests), (Step::Nothing, vec![]));
    // By a request.
    let verdict = decide(&asking(vm, "Stop"), None, &at(0));
    assert_eq!((verdict.events.len(), verdict.status.state_change_requests), (0, vec![]));
}

#[test]
fn what_was_stopped_stays_off_though_it_ended_before_it_was_deleted() {
    let mut vm = old("RerunOnFailure");
    vm.status.state_change_requests = vec![Request { uid: Some("a".to_owned()), ..just(STOP) }];
    assert_eq!(step(&vm, Some(&vmi("a", "Failed"))), STOP_IT);
    vm.status = decide(&vm, None, &at(0)).status;
    assert_eq!((step(&vm, None), vm.status.state_change_requests.len()), (Step::Nothing, 0));
}

#[test]
fn a_clock_that_was_ahead_holds_nothing_up() {
    let mut vm = old("Always");
    vm.status = decide(&vm, Some(&vmi("a", "Failed")), &at(1_000_000)).status;
    assert_eq!(step(&vm, None), Step::Start);
}

#[test]
fn a_run_that_presets_would_make_otherwise_is_to_be_restarted() {
    let mut vm = old("Always");
    let running = vmi("a", "Running");
    vm.status = decide(&vm, Some(&running), &at(0)).status;
    let restart = |status: &MachineStatus| {
        let condition = crate::objects::condition(&status.conditions, "RestartRequired")?;
        Some(format!("{}: {}", condition.reason.as_deref()?, condition.message.as_deref()?))
    };
    assert_eq!(restart(&status::with_presets(&vm, vm.status.clone(), &[], &at(1))), None);
    let changes = ["`big` was changed".to_owned(), "`new` is new".to_owned()];
    let changed = status::with_presets(&vm, vm.status.clone(), &changes, &at(1));
    insta::assert_snapshot!(restart(&changed).expect("told"), @"PresetsChanged: presets are not as when it was started: `big` was changed, `new` is new; restart it to have them");
    vm.status = changed.clone();
    let again = decide(&vm, Some(&running), &at(9)).status;
    assert_eq!(status::with_presets(&vm, again, &changes, &at(9)), changed, "said once");
    let mut other = running;
    other.metadata.annotations = Some([("virtlet.k8s/template".to_owned(), "another".to_owned())].into());
    let both = status::with_presets(&vm, decide(&vm, Some(&other), &at(9)).status, &changes, &at(9));
    insta::assert_snapshot!(restart(&both).expect("told"), @"TemplateChanged: the template was changed since it was started; restart it to have that; presets are not as when it was started: `big` was changed, `new` is new; restart it to have them");
    assert_eq!(both.conditions.iter().filter(|one| one.type_ == "RestartRequired").count(), 1);
}

#[test]
fn a_guest_that_is_paused_is_shown_so() {
    let mut paused = vmi("a", "Running");
    paused.status.conditions = vec![crate::objects::Condition::new("Paused", true, "Paused", "by hand")];
    let status = decide(&old("Always"), Some(&paused), &at(0)).status;
    assert_eq!(status.printable_status.as_deref(), Some("Paused"));
    let told = crate::objects::condition(&status.conditions, "Paused").expect("told");
    assert_eq!((told.reason.as_deref(), told.message.as_deref()), (Some("Paused"), Some("by hand")));
}
