use std::sync::Arc;

use proto::vm::guest::Os;

use super::*;
use crate::api::cri::convert::tests::{container, sandbox};
use crate::guest::agents::ToldNic;

fn pod() -> PodName {
    PodName { uid: "u".to_owned(), namespace: "n".to_owned(), name: "p".to_owned() }
}

fn report(pause: Option<Pause>, known: &Known) -> Report {
    Report::of(&Container { pause, ..container() }, &sandbox(), known)
}

fn knows(has_agent: Option<bool>, id: &str) -> Known {
    Known { has_agent, told: Told { os: Some(Os { id: id.to_owned(), ..Os::default() }), nics: None } }
}

fn at() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

/// A pod that was patched, as far as the server merges by keys.
fn patched(before: &Value, patch: &Value) -> Pod {
    let mut pod = before.clone();
    for (key, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
        pod["metadata"]["annotations"][key] = value.clone();
    }
    for condition in patch["status"]["conditions"].as_array().into_iter().flatten() {
        let all = pod["status"]["conditions"].as_array_mut().expect("a list");
        all.retain(|other| other["type"] != condition["type"]);
        all.push(condition.clone());
    }
    serde_json::from_value(pod).expect("a pod")
}

#[test]
fn a_pod_that_has_all_of_it_is_left_alone_and_one_that_has_not_is_patched() {
    let plain =
        json!({"metadata": {"annotations": {}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let (mut pod_now, mut there) = (plain.clone(), Report::on(&patched(&plain, &json!({}))));
    let steps = [
        (None, knows(None, "")),
        (None, knows(Some(true), "debian")),
        (Some(Pause::ByHand), knows(Some(true), "debian")),
        (Some(Pause::DiskFull), knows(Some(true), "debian")),
        (None, knows(Some(false), "debian")),
    ];
    let mut patches = Vec::new();
    for (pause, known) in steps {
        let wanted = report(pause, &known);
        assert!(!wanted.is_in(&there), "{wanted:?}");
        let patch = wanted.patch(&pod(), &there, at());
        let now = patched(&pod_now, &patch);
        there = wanted.over(there);
        assert!(wanted.is_in(&there));
        assert_eq!(Report::on(&now), there, "what is told is what is read");
        pod_now = serde_json::to_value(now).expect("a pod");
        patches.push(patch);
    }
    let condition = |type_: &str, status: &str, (reason, message): (&str, &str)| {
        let at = at().to_string();
        json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at})
    };
    let paused = |why: Pause| json!({"conditions": [condition(PAUSED, "True", (why.as_str(), why.message()))]});
    let nics = r#""nics":[{"link":"eth0","mac":"02:00:00:00:00:01","addresses":["10.1.0.2","10.1.0.3","fd00::2"]}]}"#;
    let (before, with_os) = (format!("{{{nics}"), format!(r#"{{"os":{{"id":"debian"}},{nics}"#));
    let answers = condition(AGENT_CONNECTED, "True", ("Answers", ""));
    let over = [condition(PAUSED, "False", ("Running", "")), condition(AGENT_CONNECTED, "False", ("Silent", ""))];
    let wanted = [
        json!({"metadata": {"uid": "u", "annotations": {GUEST: before}}}),
        json!({"metadata": {"uid": "u", "annotations": {GUEST: with_os}}, "status": {"conditions": [answers]}}),
        json!({"metadata": {"uid": "u"}, "status": paused(Pause::ByHand)}),
        json!({"metadata": {"uid": "u"}, "status": paused(Pause::DiskFull)}),
        json!({"metadata": {"uid": "u"}, "status": {"conditions": over}}),
    ];
    assert_eq!(patches, wanted);
}

#[test]
fn a_controld_that_begins_takes_back_only_what_is_over() {
    let full = report(Some(Pause::ByHand), &knows(Some(true), "debian"));
    let there = full.over(Report::default());
    // It has asked nobody yet.
    assert!(report(Some(Pause::ByHand), &knows(None, "")).is_in(&there));
    let went_on = report(None, &knows(None, ""));
    assert!(!went_on.is_in(&there));
    let patch = went_on.patch(&pod(), &there, at());
    assert_eq!(patch["status"]["conditions"].as_array().map(Vec::len), Some(1));
    assert_eq!(patch["metadata"], json!({"uid": "u"}));
    let after = went_on.over(there);
    assert_eq!((after.paused, after.has_agent, after.guest), (None, Some(true), full.guest));
}

#[test]
fn nics_are_as_their_network_has_them_unless_the_guest_tells() {
    let net = crate::api::cri::convert::tests::sandbox().net.expect("a network");
    let mac = net.nics[0].mac.to_string();
    let mut second = net.nics[0].clone();
    (second.name, second.mac) = ("net1".parse().expect("a name"), "02:00:00:00:00:99".parse().expect("an address"));
    let sandbox = Sandbox { net: Some(PodNet { nics: vec![net.nics[0].clone(), second], ..net }), ..sandbox() };
    let nics = vec![
        ToldNic { name: "docker0".to_owned(), mac: "02:42:00:00:00:01".to_owned(), addresses: Vec::new() },
        ToldNic { name: "enp1s0\n".to_owned(), mac, addresses: vec!["192.0.2.7".parse().expect("an address")] },
    ];
    let known = Known { has_agent: Some(true), told: Told { os: None, nics: Some(nics) } };
    let container = Arc::new(container());
    let guest = Guest::parse(&Report::of(&container, &sandbox, &known).guest.expect("told")).expect("a guest");
    let shown: Vec<_> = guest.nics.iter().map(|nic| (nic.link.as_str(), nic.name.as_str(), nic.by_agent)).collect();
    assert_eq!(
        shown,
        [(sandbox.net.as_ref().expect("a network").nics[0].name.as_str(), "enp1s0", true), ("net1", "", false)]
    );
    assert_eq!(guest.nics[0].addresses, ["192.0.2.7".parse::<std::net::IpAddr>().expect("an address")]);
    let given: Vec<_> = sandbox.net.expect("a network").nics[1].addresses.iter().map(|address| address.ip()).collect();
    assert_eq!(guest.nics[1].addresses, given);
}
