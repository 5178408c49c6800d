use proto::tap::{Bandwidth, DataPath, Dns, HostPort, NetworkAsk, PortProtocol};

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
    assert_eq!(changed(|r| r.networks.push(NetworkAsk::default())), Some("networks"));
    assert_eq!(changed(|r| r.data_path = Some(DataPath::Tc)), Some("data_path"));
    assert_eq!(changed(|r| r.queues = Some(1)), Some("queues"));
    assert_eq!(changed(|r| r.anti_spoof = Some(true)), Some("anti_spoof"));
    let port = HostPort { host_ip: None, host_port: 80, container_port: 80, protocol: PortProtocol::Tcp };
    let mut ported = request();
    ported.host_ports.push(port);
    assert_eq!(first_difference(&base, &ported), Some("host_ports"));
    assert_eq!(changed(|r| r.bandwidth = Some(Bandwidth::default())), Some("bandwidth"));
    assert_eq!(changed(|r| drop(r.sysctls.insert("net.core.somaxconn".into(), "1".into()))), Some("sysctls"));
    assert_eq!(changed(|r| r.cgroup.push('/')), Some("cgroup"));
}

#[test]
fn restart_is_decided_by_record_boot_and_world() {
    for seen in [NetnsState::Present, NetnsState::OtherFile, NetnsState::Absent] {
        for same_boot in [false, true] {
            assert_eq!(on_restart(PodPhase::Attaching, same_boot, seen), OnRestart::TakeAway);
            assert_eq!(on_restart(PodPhase::Detaching, same_boot, seen), OnRestart::TakeAway);
        }
        assert_eq!(on_restart(PodPhase::Attached, false, seen), OnRestart::TakeAway);
    }
    assert_eq!(on_restart(PodPhase::Attached, true, NetnsState::Present), OnRestart::Serve);
    assert_eq!(on_restart(PodPhase::Attached, true, NetnsState::Absent), OnRestart::Report(NETNS_GONE));
    assert_eq!(on_restart(PodPhase::Attached, true, NetnsState::OtherFile), OnRestart::Report(NETNS_GONE));
}

#[test]
fn pauses_double_up_to_a_minute_and_end_when_the_pod_is_overdue() {
    let retry = RetryPolicy { first_pause: Duration::from_secs(2), give_up: Duration::from_secs(300) };
    let failing = |tries| Failing { since: 1000, tries, why: String::new() };
    let after = |tries, now| after_failure(&failing(tries), retry, now);
    let again = |seconds| AfterFailure::Again(Duration::from_secs(seconds));
    for (tries, pause) in [(0, 2), (1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (7, 60), (u32::MAX, 60)] {
        assert_eq!(after(tries, 1000), again(pause), "{tries}");
    }
    assert_eq!(after(7, 1290), again(10), "the last try is when it is overdue");
    assert_eq!(after(7, 1300), AfterFailure::Overdue);
    assert_eq!(after(1, u64::MAX), AfterFailure::Overdue);
    // A clock that was set back.
    assert_eq!(after(1, 0), again(2));
}

#[test]
fn only_what_no_waiting_helps_is_hopeless() {
    assert!(is_hopeless(true, NetnsState::Present));
    assert!(is_hopeless(false, NetnsState::Absent));
    assert!(is_hopeless(false, NetnsState::OtherFile));
    assert!(!is_hopeless(false, NetnsState::Present));
}
