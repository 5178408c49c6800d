use serde_json::{Value, json};

use super::*;
use crate::objects::condition;
use crate::sample::{at, going, pod, vmi};

/// Phase and reason after `phase`, with a pod of this status.
fn after(phase: &str, status: &Value) -> (String, Option<String>) {
    let vmi = vmi("a", phase);
    let after = of(&vmi, &Seen::Pod(pod(&vmi, status)), None, &at(1));
    (after.phase().to_owned(), after.reason)
}

#[test]
fn the_phase_is_that_of_the_pod() {
    let state = |state: Value| json!([{ "state": state }]);
    let table = [
        (json!({"phase": "Pending"}), "Scheduling", None),
        (json!({"phase": "Pending", "node": "n"}), "Scheduled", None),
        (
            json!({"phase": "Pending", "node": "n", "containerStatuses": state(json!({"waiting": {"reason": "ContainerCreating"}}))}),
            "Scheduled",
            None,
        ),
        (
            json!({"phase": "Pending", "node": "n", "containerStatuses": state(json!({"waiting": {"reason": "ErrImagePull"}}))}),
            "Scheduled",
            Some("ErrImagePull"),
        ),
        (json!({"phase": "Running", "node": "n", "containerStatuses": state(json!({"running": {}}))}), "Running", None),
        (json!({"phase": "Succeeded", "node": "n"}), "Succeeded", None),
        (
            json!({"phase": "Failed", "node": "n", "containerStatuses": state(json!({"terminated": {"reason": "QemuDied", "exitCode": 255}}))}),
            "Failed",
            Some("QemuDied"),
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), "Failed", Some("Evicted")),
    ];
    for (status, phase, reason) in table {
        assert_eq!(after("Pending", &status), (phase.to_owned(), reason.map(str::to_owned)), "{status}");
    }
    // A phase that it had is not had again.
    assert_eq!(after("Running", &json!({"phase": "Pending", "node": "n"})).0, "Running");
    assert_eq!(after("Failed", &json!({"phase": "Running"})).0, "Failed");
}

#[test]
fn what_others_end_has_failed_and_what_is_lost_too() {
    let running = vmi("a", "Running");
    let mut ends = (*pod(&running, &json!({"phase": "Succeeded"}))).clone();
    ends.metadata.deletion_timestamp = Some(at(0));
    let phase = |vmi: &Vmi, seen: &Seen| {
        let after = of(vmi, seen, None, &at(1));
        (after.phase().to_owned(), after.reason.unwrap_or_default())
    };
    let seen = Seen::Pod(std::sync::Arc::new(ends));
    assert_eq!(phase(&running, &seen), ("Failed".to_owned(), "PodDeleted".to_owned()));
    // Its owner wanted that.
    assert_eq!(phase(&going(running.clone()), &seen), ("Succeeded".to_owned(), String::new()));
    assert_eq!(phase(&running, &Seen::Gone), ("Failed".to_owned(), "PodLost".to_owned()));
    assert_eq!(phase(&running, &Seen::Unknown), ("Running".to_owned(), String::new()));
    assert_eq!(phase(&going(vmi("a", "Pending")), &Seen::Gone), ("Failed".to_owned(), "Deleted".to_owned()));
}

#[test]
fn conditions_say_since_when() {
    let mut vmi = vmi("a", "Running");
    let status = json!({"phase": "Running", "node": "n", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "fd00::1"}],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "virtlet.k8s/Paused", "status": "True"}],
        "containerStatuses": [{"state": {"running": {}}}]});
    vmi.status = of(&vmi, &Seen::Pod(pod(&vmi, &status)), None, &at(1));
    assert!(vmi.status.is_ready());
    assert!(condition(&vmi.status.conditions, "Paused").is_some_and(Condition::holds));
    let nic = &vmi.status.interfaces[0];
    assert_eq!((&*nic.name, nic.info_source.as_deref()), ("default", Some("pod")));
    assert_eq!(nic.ip_addresses, ["10.1.1.1", "fd00::1"]);
    let later = of(&vmi, &Seen::Pod(pod(&vmi, &status)), None, &at(9));
    assert_eq!(later, vmi.status, "nothing is written when nothing changes");
    let failure = Failure { reason: "FailedCreate", message: "exceeded quota".to_owned() };
    let failed = of(&vmi, &Seen::Pod(pod(&vmi, &status)), Some(&failure), &at(9));
    let synchronized = condition(&failed.conditions, "Synchronized").expect("said");
    assert_eq!((synchronized.holds(), synchronized.last_transition_time.clone()), (false, Some(at(9))));
    let told = events(&vmi, &failed);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].1, told[0].2.as_str()), ("SyncFailed", "exceeded quota"));
}

#[test]
fn what_presets_did_is_told_once() {
    let mut vmi = vmi("a", "Pending");
    let record = r#"{"big": {"resourceVersion": "1", "paths": ["cpu.cores"], "overridden": ["cpu.model"]}, "none": {"paths": []}}"#;
    vmi.metadata.annotations = Some([(PRESETS.to_owned(), record.to_owned())].into());
    let after = of(&vmi, &Seen::Pod(pod(&vmi, &json!({"phase": "Pending"}))), None, &at(1));
    let told: Vec<_> = events(&vmi, &after).into_iter().map(|(_, reason, text)| format!("{reason}: {text}")).collect();
    assert_eq!(
        told,
        [
            "SuccessfulCreate: made the pod with uid pod-uid",
            "PresetApplied: preset big gave it: cpu.cores",
            "PresetOverridden: preset big has other values than its own of: cpu.model",
        ]
    );
    vmi.status = after.clone();
    assert_eq!(events(&vmi, &after), []);
}

/// A pod that runs, with what its node tells of it.
fn told(vmi: &Vmi, conditions: &Value, guest: &str) -> Seen {
    let status = json!({"phase": "Running", "node": "n", "podIPs": [{"ip": "10.1.1.1"}], "conditions": conditions,
        "containerStatuses": [{"state": {"running": {}}}]});
    let mut pod = (*pod(vmi, &status)).clone();
    pod.metadata.annotations = Some([(kubevirt::guest::GUEST.to_owned(), guest.to_owned())].into());
    Seen::Pod(std::sync::Arc::new(pod))
}

#[test]
fn what_the_node_tells_of_the_guest_is_in_the_status() {
    let mut vmi = vmi("a", "Running");
    vmi.spec = crate::objects::Json::of(&json!({
        "domain": {"devices": {"interfaces": [{"name": "blue"}, {"name": "red"}, {"name": "green"}]}},
        "networks": [
            {"name": "red", "pod": {}}, {"name": "green", "multus": {"networkName": "g"}},
            {"name": "blue", "multus": {"networkName": "b"}},
        ],
    }));
    let guest = r#"{"os": {"id": "debian", "prettyName": "Debian"}, "nics": [
        {"link": "eth0", "mac": "02:00:00:00:00:01", "name": "enp1s0", "addresses": ["192.0.2.1"], "byAgent": true},
        {"link": "net1", "mac": "02:00:00:00:00:02", "name": "enp2s0", "addresses": ["192.0.2.2", "fd00::2"], "byAgent": true},
        {"link": "net2", "mac": "02:00:00:00:00:03", "addresses": ["192.0.2.3"]},
        {"link": "net3", "mac": "02:00:00:00:00:04"}]}"#;
    let conditions = json!([
        {"type": "virtlet.k8s/AgentConnected", "status": "True"},
        {"type": "virtlet.k8s/Paused", "status": "True", "reason": "Paused", "message": "by hand"},
    ]);
    vmi.status = of(&vmi, &told(&vmi, &conditions, guest), None, &at(1));
    let status = serde_json::to_value(&vmi.status).expect("JSON");
    assert_eq!(status["guestOSInfo"], json!({"id": "debian", "prettyName": "Debian"}));
    let nics = json!([
        {"name": "red", "ipAddress": "10.1.1.1", "ipAddresses": ["10.1.1.1"], "mac": "02:00:00:00:00:01",
            "interfaceName": "enp1s0", "podInterfaceName": "eth0", "infoSource": "pod, guest-agent"},
        {"name": "blue", "ipAddress": "192.0.2.2", "ipAddresses": ["192.0.2.2", "fd00::2"], "mac": "02:00:00:00:00:02",
            "interfaceName": "enp2s0", "podInterfaceName": "net1", "infoSource": "guest-agent"},
        {"name": "green", "ipAddress": "192.0.2.3", "ipAddresses": ["192.0.2.3"], "mac": "02:00:00:00:00:03",
            "podInterfaceName": "net2", "infoSource": "node"},
        {"name": "net3", "mac": "02:00:00:00:00:04", "podInterfaceName": "net3", "infoSource": "node"},
    ]);
    assert_eq!(status["interfaces"], nics);
    let told_of = |name: &str| condition(&vmi.status.conditions, name).and_then(|one| one.reason.clone());
    assert_eq!(["Paused", "AgentConnected"].map(told_of), ["Paused", "ByNode"].map(|reason| Some(reason.to_owned())));
    assert_eq!(of(&vmi, &told(&vmi, &conditions, guest), None, &at(9)), vmi.status);
    // Whatever it was: an end is an end.
    let Seen::Pod(pod) = told(&vmi, &conditions, guest) else { panic!("a pod") };
    let mut over = (*pod).clone();
    over.status.phase = Some("Succeeded".to_owned());
    let after = of(&vmi, &Seen::Pod(std::sync::Arc::new(over)), None, &at(9));
    assert!(
        condition(&after.conditions, "Paused").is_none() && condition(&after.conditions, "AgentConnected").is_none()
    );
}

#[test]
fn what_is_no_word_of_a_node_is_passed_over() {
    let vmi = vmi("a", "Running");
    let plain = of(&vmi, &told(&vmi, &json!([]), ""), None, &at(1));
    for odd in ["{", "[]", r#"{"nics": 1}"#, &format!(r#"{{"os": {{"id": "{}"}}}}"#, "a".repeat(9000))] {
        assert_eq!(of(&vmi, &told(&vmi, &json!([]), odd), None, &at(1)), plain, "{odd}");
    }
    let many = format!(r#"{{"nics": [{}{{}}]}}"#, "{},".repeat(1000));
    assert_eq!(of(&vmi, &told(&vmi, &json!([]), &many), None, &at(1)).interfaces.len(), 16);
}
