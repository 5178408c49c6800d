use serde_json::json;

use super::*;

fn list(capabilities: &[&str]) -> NetworkList {
    let declared: Map<_, _> = capabilities.iter().map(|name| ((*name).to_owned(), true.into())).collect();
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [
        {"type": "bridge"},
        {"type": "other", "capabilities": declared},
    ]})
    .try_into()
    .unwrap()
}

fn request() -> Attach {
    let mut request = Attach::new("0123456789abcdef".parse().unwrap());
    let port = |host_ip: Option<&str>, protocol| HostPort {
        host_ip: host_ip.map(|ip| ip.parse().unwrap()),
        host_port: 8080,
        container_port: 80,
        protocol,
    };
    request.host_ports = vec![
        port(None, PortProtocol::Tcp),
        port(Some("192.0.2.1"), PortProtocol::Udp),
        port(Some("2001:db8::1"), PortProtocol::Sctp),
    ];
    request.bandwidth = Some(Bandwidth {
        ingress_rate: Some(1_000_000),
        egress_rate: Some(2_000_000),
        egress_burst: Some(9),
        ..Bandwidth::default()
    });
    request.dns = Some(Dns {
        servers: vec!["10.96.0.10".parse().unwrap()],
        searches: vec!["svc.local".to_owned()],
        options: vec!["ndots:5".to_owned()],
    });
    request.cgroup = "/kubepods/x".to_owned();
    request
}

fn ask() -> NetworkAsk {
    NetworkAsk {
        network: None,
        interface: None,
        mac: Some("02:00:00:00:00:01".parse().unwrap()),
        mac_is_wish: false,
        ips: vec!["10.0.0.5/24".parse().unwrap(), "fd00::5/64".parse().unwrap()],
        device_id: Some("0000:04:00.5".to_owned()),
        aliases: vec!["web".to_owned()],
    }
}

#[test]
fn arguments_have_the_names_and_forms_of_the_conventions() {
    let args = CapabilityArgs {
        ip_ranges: vec![vec!["10.1.0.0/16".parse().unwrap()], vec!["fd01::/64".parse().unwrap()]],
        ..CapabilityArgs::of(&request(), &ask(), true)
    };
    let expected = json!({
        "portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "192.0.2.1"},
            {"hostPort": 8080, "containerPort": 80, "protocol": "sctp", "hostIP": "2001:db8::1"},
        ],
        "bandwidth": {
            "ingressRate": 1_000_000, "ingressBurst": u32::MAX, "egressRate": 2_000_000, "egressBurst": 9,
        },
        "ips": ["10.0.0.5/24", "fd00::5/64"],
        "mac": "02:00:00:00:00:01",
        "dns": {"servers": ["10.96.0.10"], "searches": ["svc.local"], "options": ["ndots:5"]},
        "ipRanges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "fd01::/64"}]],
        "deviceID": "0000:04:00.5",
        "aliases": ["web"],
        "cgroupPath": "/kubepods/x",
    });
    assert_eq!(Value::Object(args.offered()), expected);
}

#[test]
fn what_is_not_asked_for_is_not_offered() {
    assert_eq!(CapabilityArgs::default().offered(), Map::new());
    let mut request = Attach::new("0123456789abcdef".parse().unwrap());
    request.dns = Some(Dns::default());
    request.bandwidth = Some(Bandwidth::default());
    let ask = NetworkAsk { mac: None, ips: Vec::new(), device_id: None, aliases: Vec::new(), ..ask() };
    let args = CapabilityArgs::of(&request, &ask, true);
    assert_eq!(args.offered(), Map::new());
    args.fit(&list(&[])).unwrap();
}

#[test]
fn ports_and_rates_go_to_the_first_network_alone() {
    let second = CapabilityArgs::of(&request(), &ask(), false).offered();
    assert!(!second.contains_key("portMappings") && !second.contains_key("bandwidth"), "{second:?}");
    assert!(second.contains_key("mac") && second.contains_key("dns"), "{second:?}");
}

#[test]
fn an_address_that_is_a_wish_is_offered_and_not_needed() {
    let ask = NetworkAsk { mac_is_wish: true, mac: ask().mac, ..NetworkAsk::default() };
    let args = CapabilityArgs::of(&Attach::new("0123456789abcdef".parse().unwrap()), &ask, true);
    assert_eq!(Value::Object(args.offered()), json!({"mac": "02:00:00:00:00:01"}));
    args.fit(&list(&[])).unwrap();
}

#[test]
fn a_wish_is_settled_by_what_its_network_takes() {
    let mac = ask().mac;
    let wish = NetworkAsk { mac_is_wish: true, mac, ..NetworkAsk::default() };
    let said = NetworkAsk { mac, ..NetworkAsk::default() };
    let mut request = request();
    request.networks = vec![wish.clone(), wish, said.clone()];
    let networks = [list(&["mac"]), list(&[]), list(&[])];
    let settled = [said.clone(), NetworkAsk::default(), said];
    for _ in 0..2 {
        settle_macs(&mut request, &networks);
        assert_eq!(request.networks, settled, "what is said is no wish");
    }
}

#[test]
fn a_network_that_cannot_do_what_is_asked_for_is_refused() {
    let all = ["portMappings", "bandwidth", "ips", "mac", "ipRanges", "deviceID", "aliases"];
    let args = CapabilityArgs {
        ip_ranges: vec![vec!["10.1.0.0/16".parse().unwrap()]],
        ..CapabilityArgs::of(&request(), &ask(), true)
    };
    args.fit(&list(&all)).unwrap();
    for missing in all {
        let others: Vec<_> = all.into_iter().filter(|name| *name != missing).collect();
        let error = args.fit(&list(&others)).expect_err(missing);
        assert!(matches!(error, CniError::Incapable { capability, .. } if capability == missing), "{error}");
    }
    assert_eq!(
        args.fit(&list(&[])).expect_err("refused").to_string(),
        "network `net` has no plugin that declares the capability `portMappings`, which the pod's host ports need; \
         add such a plugin to the network, or leave this out of the pod"
    );
}
