use proto::tap::Dns;

use super::*;

fn request() -> Attach {
    Attach {
        namespace: "default".into(),
        name: "vm".into(),
        uid: "u1".into(),
        hostname: "vm".into(),
        ..Attach::new("p1".parse().expect("pod id"))
    }
}

#[test]
fn attach_is_decided_by_what_is_on_record() {
    let same = request();
    let refuse = |why| OnAttach::Refuse(why);
    let different = || refuse(Conflict::Different { field: "hostname" });
    let mut other = request();
    other.hostname = "else".into();
    let trouble = || refuse(Conflict::Trouble { trouble: "gone".into() });
    let table = [
        (None, None, OnAttach::Make),
        (Some((PodPhase::Attaching, &same)), None, refuse(Conflict::Leftovers)),
        (Some((PodPhase::Detaching, &same)), None, refuse(Conflict::Leftovers)),
        (Some((PodPhase::Attached, &same)), None, OnAttach::Same),
        (Some((PodPhase::Attached, &other)), None, different()),
        (Some((PodPhase::Attached, &same)), Some("gone"), trouble()),
        (Some((PodPhase::Attached, &other)), Some("gone"), different()),
    ];
    for (standing, in_trouble, expected) in table {
        assert_eq!(on_attach(standing, in_trouble, &same), expected, "{standing:?} {in_trouble:?}");
    }
}

#[test]
fn every_field_of_a_request_makes_a_difference() {
    let base = request();
    let changed = |change: fn(&mut Attach)| {
        let mut other = request();
        change(&mut other);
        first_difference(&base, &other)
    };
    assert_eq!(first_difference(&base, &base), None);
    assert_eq!(changed(|r| r.pod = "p2".parse().expect("pod id")), Some("pod"));
    assert_eq!(changed(|r| r.namespace.clear()), Some("namespace"));
    assert_eq!(changed(|r| r.name.clear()), Some("name"));
    assert_eq!(changed(|r| r.uid.clear()), Some("uid"));
    assert_eq!(changed(|r| r.hostname.clear()), Some("hostname"));
    assert_eq!(changed(|r| r.dns = Some(Dns::default())), Some("dns"));
}

#[test]
fn restart_is_decided_by_record_and_world() {
    for seen in [Seen::Netns, Seen::OtherFile, Seen::Nothing] {
        assert_eq!(on_restart(PodPhase::Attaching, seen), OnRestart::TakeAway);
        assert_eq!(on_restart(PodPhase::Detaching, seen), OnRestart::TakeAway);
    }
    assert_eq!(on_restart(PodPhase::Attached, Seen::Netns), OnRestart::Serve);
    assert!(matches!(on_restart(PodPhase::Attached, Seen::Nothing), OnRestart::Report(_)));
    assert!(matches!(on_restart(PodPhase::Attached, Seen::OtherFile), OnRestart::Report(_)));
}
