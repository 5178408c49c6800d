use serde_json::json;

use super::*;
use crate::sample::{going, pod, vmi};

fn unclaimed(phase: &str) -> Vmi {
    let mut vmi = vmi("a", phase);
    vmi.metadata.finalizers = None;
    vmi
}

#[test]
fn before_anything_is_made_the_finalizer_is_there() {
    assert_eq!(step(&unclaimed("Pending"), &Seen::Unknown), Step::Claim);
    assert_eq!(step(&vmi("a", "Pending"), &Seen::Unknown), Step::Make);
    assert_eq!(step(&vmi("a", "Pending"), &Seen::Gone), Step::Make);
    // Somebody took it off.
    let running = unclaimed("Running");
    assert_eq!(step(&running, &Seen::Pod(pod(&running, &json!({"phase": "Running"})))), Step::Claim);
    assert_eq!(step(&going(unclaimed("Pending")), &Seen::Unknown), Step::Nothing);
}

#[test]
fn one_that_had_a_pod_gets_no_other() {
    for phase in ["Scheduling", "Scheduled", "Running"] {
        let vmi = vmi("a", phase);
        assert_eq!(step(&vmi, &Seen::Unknown), Step::Look, "{phase}");
        assert_eq!(step(&vmi, &Seen::Gone), Step::Release, "{phase}");
    }
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(step(&unclaimed(phase), &Seen::Unknown), Step::Nothing, "{phase}");
        assert_eq!(step(&vmi("a", phase), &Seen::Gone), Step::Release, "{phase}");
    }
}

#[test]
fn one_that_is_deleted_stays_until_nothing_of_it_runs() {
    let is_going = going(vmi("a", "Running"));
    let live = pod(&is_going, &json!({"phase": "Running"}));
    assert_eq!(step(&is_going, &Seen::Pod(Arc::clone(&live))), Step::Stop(live));
    // Its pod ends, which takes as long as it takes.
    let mut ends = (*pod(&is_going, &json!({"phase": "Running"}))).clone();
    ends.metadata.deletion_timestamp = Some(crate::sample::at(0));
    assert_eq!(step(&is_going, &Seen::Pod(Arc::new(ends))), Step::Nothing);
    assert_eq!(step(&is_going, &Seen::Unknown), Step::Look);
    assert_eq!(step(&is_going, &Seen::Gone), Step::Release);
    assert_eq!(step(&is_going, &Seen::Pod(pod(&is_going, &json!({"phase": "Failed"})))), Step::Release);
    // Deleted before it had one, which the watch may not know.
    assert_eq!(step(&going(vmi("a", "Pending")), &Seen::Unknown), Step::Look);
    assert_eq!(step(&going(vmi("a", "Pending")), &Seen::Gone), Step::Release);
}

#[test]
fn a_pod_of_somebody_else_is_left_alone() {
    let foreign = pod(&vmi("other", "Running"), &json!({"phase": "Running"}));
    assert_eq!(step(&vmi("a", "Pending"), &Seen::Pod(Arc::clone(&foreign))), Step::Nothing);
    assert_eq!(step(&going(vmi("a", "Pending")), &Seen::Pod(foreign)), Step::Release);
}

#[test]
fn a_pod_that_lost_its_owner_is_still_the_one_in_which_the_vm_runs() {
    let vmi = going(vmi("a", "Running"));
    let mut orphan = (*pod(&vmi, &json!({"phase": "Running"}))).clone();
    orphan.metadata.owner_references = None;
    let orphan = Arc::new(orphan);
    assert_eq!(step(&vmi, &Seen::Pod(Arc::clone(&orphan))), Step::Stop(orphan));
}
