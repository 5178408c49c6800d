use proto::tap::{Attach, DataPath, Dns, IfName, NetworkAsk, NicKind, PodNet, Route, Tap};
use serde_json::json;

use super::*;
use crate::cni::NetworkList;
use crate::journal::Failing;
use crate::net::Choices;

fn network(name: &str) -> NetworkList {
    let plugins = json!([{ "type": "bridge" }, { "type": "tuning" }]);
    serde_json::from_value(json!({ "name": name, "cniVersion": "1.0.0", "plugins": plugins })).expect("a network")
}

fn nic(name: &str, data_path: DataPath, addresses: &[&str]) -> Nic {
    let gateway = "10.77.0.1".parse().ok();
    Nic {
        name: name.parse().expect("a name"),
        network: "pods".to_owned(),
        kind: NicKind::Tap(Tap { data_path, queues: 2 }),
        mac: "02:00:00:00:00:01".parse().expect("an address"),
        mtu: 1450,
        addresses: addresses.iter().map(|text| text.parse().expect("an address")).collect(),
        routes: vec![Route { dst: "0.0.0.0/0".parse().expect("a network"), gateway }],
    }
}

fn record() -> Record {
    let mut request = Attach::new("p1".parse().expect("pod id"));
    request.sysctls.insert("net.core.somaxconn".to_owned(), "128".to_owned());
    let attachment = |network: NetworkList, ifname: &str, ask: NetworkAsk, result| Attachment {
        network,
        ifname: ifname.parse::<IfName>().expect("a name"),
        ask,
        begun: None,
        result,
    };
    let named = NetworkAsk { network: Some("blue".to_owned()), ..NetworkAsk::default() };
    let result = json!({ "cniVersion": "1.0.0", "ips": [{ "address": "10.77.0.2/16" }] });
    let attachments = vec![
        attachment(network("pods"), "eth0", NetworkAsk::default(), Some(result)),
        attachment(network("blue"), "net1", named, None),
    ];
    let choices = Choices { data_path: DataPath::Tc, queues: 2, anti_spoof: true };
    let mut record = Record::intent(request, "boot".to_owned(), "/run/netns/virtlet-p1".into(), choices, attachments);
    record.phase = PodPhase::Attached;
    let nics = vec![
        nic("eth0", DataPath::Tc, &["10.77.0.2/24", "fd00::2/64"]),
        nic("net1", DataPath::Macvtap, &["10.78.0.2/24"]),
        nic("net2", DataPath::Tc, &[]),
    ];
    let dns = Dns { servers: vec!["10.77.0.1".parse().expect("an address")], ..Dns::default() };
    record.net = Some(PodNet { netns: record.netns.clone(), nics, dns });
    record
}

#[test]
fn what_became_of_a_pod_is_told_with_its_reasons() {
    insta::assert_snapshot!(explain(&record()).join("\n"));
}

#[test]
fn what_a_guest_has_otherwise_than_a_process_is_told() {
    let mut record = record();
    record.notes = vec!["nic `eth0`: mtu 1423 is the least of its routes; the link has 1500".to_owned()];
    let net = record.net.as_mut().expect("a network");
    net.nics[0].addresses.push("10.77.0.3/24".parse().expect("an address"));
    let lines = explain(&record);
    assert!(lines.contains(&record.notes[0]), "{lines:?}");
    let one = "nic `eth0`: DHCP has one IPv4 address, 10.77.0.2/24, so its guest is told all of them by cloud-init, if it has that";
    assert!(lines.iter().any(|line| line == one), "{lines:?}");
}

#[test]
fn a_pod_on_its_way_out_says_what_holds_it_up() {
    let mut record = record();
    record.phase = PodPhase::Detaching;
    record.failing = Some(Failing { since: 1, tries: 3, why: "its plugin is busy".to_owned() });
    let lines = explain(&record);
    assert!(lines.contains(&"not wholly taken away after 3 tries: its plugin is busy".to_owned()), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("no descriptor of it is handed out"));
}
