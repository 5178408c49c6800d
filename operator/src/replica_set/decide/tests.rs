use std::time::Instant;

use super::*;
use crate::sample::{at, going, set};

fn names(all: &[Arc<Vmi>]) -> Vec<&str> {
    all.iter().map(|vmi| vmi.name()).collect()
}

#[test]
fn there_are_as_many_as_are_wanted() {
    let none = Notes::default();
    let (of_three, two) = set(3, &["Running", "Pending"]);
    let verdict = decide(&of_three, &two, &none, &at(0));
    assert_eq!((verdict.create, verdict.delete.len(), verdict.status.replicas), (1, 0, 2));
    let (of_none, two) = set(0, &["Running", "Pending"]);
    assert_eq!(decide(&of_none, &two, &none, &at(0)).delete.len(), 2);
    let (of_many, _) = set(1000, &[]);
    assert_eq!(decide(&of_many, &[], &none, &at(0)).create, BURST);
}

#[test]
fn what_the_watch_has_not_told_of_counts() {
    let (of_three, mut two) = set(3, &["Running", "Running"]);
    let mut notes = Notes::default();
    notes.made.insert("web-9".to_owned(), Instant::now());
    assert_eq!(decide(&of_three, &two, &notes, &at(0)).create, 0);
    let (of_one, _) = set(1, &[]);
    notes.made.clear();
    notes.deleted.insert("uid-0".to_owned(), Instant::now());
    assert_eq!(decide(&of_one, &two, &notes, &at(0)).delete.len(), 0);
    two[1] = Arc::new(going((*two[1]).clone()));
    assert_eq!(decide(&of_one, &two, &notes, &at(0)).create, 1, "both are on their way");
}

#[test]
fn what_is_of_least_use_goes_first() {
    let (of_two, mut all) = set(2, &["Running", "Pending", "Running", "Scheduled"]);
    for at in [0, 2] {
        let ready = crate::objects::Condition::new("Ready", true, "", "");
        let vmi = Arc::make_mut(&mut all[at]);
        vmi.status.conditions = vec![ready];
        vmi.status.node_name = Some("node1".to_owned());
    }
    assert_eq!(names(&decide(&of_two, &all, &Notes::default(), &at(0)).delete), ["web-1", "web-3"]);
    // Of two that are alike that goes which costs less, and else the newer.
    let (of_one, _) = set(1, &[]);
    let (_, mut alike) = set(1, &["Running", "Running"]);
    assert_eq!(names(&decide(&of_one, &alike, &Notes::default(), &at(0)).delete), ["web-1"]);
    Arc::make_mut(&mut alike[1]).metadata.annotations = Some([(COST.to_owned(), "10".to_owned())].into());
    assert_eq!(names(&decide(&of_one, &alike, &Notes::default(), &at(0)).delete), ["web-0"]);
}

#[test]
fn what_has_ended_is_replaced_and_goes() {
    let (of_two, all) = set(2, &["Succeeded", "Running"]);
    let verdict = decide(&of_two, &all, &Notes::default(), &at(0));
    assert_eq!((verdict.create, names(&verdict.delete)), (1, vec!["web-0"]));
    // What never ran is replaced later and later.
    let (mut of_two, all) = set(2, &["Failed", "Running"]);
    of_two.status = decide(&of_two, &all, &Notes::default(), &at(0)).status;
    let verdict = decide(&of_two, &all, &Notes::default(), &at(0));
    assert_eq!((verdict.create, names(&verdict.delete)), (0, vec!["web-0"]));
    assert!(matches!(verdict.wanted, Wanted::Later(left) if left.as_secs() >= 10));
    // Those that run tell nothing of the next one; all of them do.
    let verdict = decide(&of_two, &all[1..], &Notes::default(), &at(1));
    assert_eq!((verdict.create, verdict.status.start_failure.is_some()), (0, true));
    assert_eq!(decide(&of_two, &all[1..], &Notes::default(), &at(200)).create, 1);
    let (_, both) = set(2, &["Running", "Running"]);
    assert_eq!(decide(&of_two, &both, &Notes::default(), &at(200)).status.start_failure, None);
}

#[test]
fn only_what_it_selects_is_its_own() {
    let (of_two, mut all) = set(2, &["Running", "Running", "Running"]);
    Arc::make_mut(&mut all[0]).metadata.labels = None;
    Arc::make_mut(&mut all[1]).metadata.owner_references = None;
    let foreign = crate::sample::vm("Always").owner(crate::group::Group::KubeVirt);
    Arc::make_mut(&mut all[2]).metadata.owner_references = Some(vec![foreign]);
    let verdict = decide(&of_two, &all, &Notes::default(), &at(0));
    assert_eq!((names(&verdict.release), names(&verdict.adopt)), (vec!["web-0"], vec!["web-1"]));
    assert_eq!((verdict.create, verdict.delete.len()), (0, 0), "what is adopted counts first");
}

#[test]
fn one_that_is_paused_or_deleted_changes_nothing() {
    let (mut of_three, all) = set(3, &["Running", "Failed"]);
    let is_going = going(of_three.clone());
    let verdict = decide(&is_going, &all, &Notes::default(), &at(0));
    assert_eq!((verdict.create, verdict.delete.len()), (0, 0));
    let mut spec = of_three.spec.value();
    spec["paused"] = true.into();
    of_three.spec = crate::objects::Json::of(&spec);
    let verdict = decide(&of_three, &all, &Notes::default(), &at(0));
    assert_eq!((verdict.create, verdict.delete.len()), (0, 0));
    assert!(verdict.status.conditions.iter().any(|one| one.type_ == "ReplicaPaused"));
    assert_eq!(verdict.status.label_selector.as_deref(), Some("app=web"));
}
