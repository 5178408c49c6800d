use proptest::prelude::*;
use serde_json::json;

use super::*;

fn bridge_result() -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "cni0", "mac": "02:00:00:00:00:01", "mtu": 1500},
            {"name": "veth1", "mac": "02:00:00:00:00:02", "sandbox": ""},
            {"name": "eth0", "mac": "02:00:00:00:00:03", "sandbox": "/run/netns/x", "pciID": "0000:00:10.0"},
        ],
        "ips": [
            {"address": "10.77.0.2/24", "gateway": "10.77.0.1", "interface": 2},
            {"address": "fd00::2/64", "gateway": "fd00::1", "interface": 2},
        ],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.1.0.0/16", "gw": "10.77.0.9", "mtu": 1400}],
        "dns": {"nameservers": ["10.96.0.10"], "domain": "a.b", "search": ["a.b", "c.d"], "options": ["ndots:5"]},
        "futureField": {"x": 1},
    })
}

#[test]
fn a_result_is_read_and_unknown_fields_are_left_alone() {
    let link = |name: &str, mac: &str, sandbox: Option<&str>| Interface {
        name: name.parse().unwrap(),
        mac: mac.parse().ok(),
        sandbox: sandbox.map(str::to_owned),
        pci: sandbox.map(|_| "0000:00:10.0".to_owned()),
        mtu: (name == "cni0").then_some(1500),
    };
    let ip = |address: &str, gateway: &str| Ip {
        address: address.parse().unwrap(),
        gateway: gateway.parse().ok(),
        interface: Some(2),
    };
    let route = |dst: &str, gateway: &str| Route {
        dst: dst.parse().unwrap(),
        gateway: gateway.parse().ok(),
        mtu: None,
        advmss: None,
        priority: None,
        table: None,
        scope: None,
    };
    let expected = ResultView {
        interfaces: vec![
            link("cni0", "02:00:00:00:00:01", None),
            link("veth1", "02:00:00:00:00:02", None),
            link("eth0", "02:00:00:00:00:03", Some("/run/netns/x")),
        ],
        ips: vec![ip("10.77.0.2/24", "10.77.0.1"), ip("fd00::2/64", "fd00::1")],
        routes: vec![route("0.0.0.0/0", ""), Route { mtu: Some(1400), ..route("10.1.0.0/16", "10.77.0.9") }],
        dns: Dns {
            servers: vec!["10.96.0.10".parse().unwrap()],
            searches: vec!["a.b".to_owned(), "c.d".to_owned()],
            options: vec!["ndots:5".to_owned()],
        },
    };
    assert_eq!(ResultView::of(&bridge_result()).unwrap(), expected);
}

#[test]
fn what_a_route_has_beside_its_way_is_read() {
    let of = |route: Value| {
        let view = ResultView::of(&json!({ "routes": [route] })).expect("a result");
        let Route { mtu, advmss, priority, table, scope, .. } = view.routes[0];
        [mtu, advmss, priority, table, scope]
    };
    let all = json!({"dst": "0.0.0.0/0", "mtu": 1400, "advmss": 1360, "priority": 7, "table": 100, "scope": 253});
    assert_eq!(of(all), [Some(1400), Some(1360), Some(7), Some(100), Some(253)]);
    assert_eq!(of(json!({"dst": "0.0.0.0/0", "mtu": 0, "advmss": -1, "table": 1_u64 << 40})), [None; 5]);
}

#[test]
fn what_a_plugin_may_leave_out_may_be_missing_or_null() {
    let sparse = [
        json!({}),
        json!({"interfaces": null, "ips": null, "routes": null, "dns": null}),
        json!({"ips": [], "dns": {"nameservers": null, "search": null}}),
    ];
    for raw in sparse {
        assert_eq!(ResultView::of(&raw).unwrap(), ResultView::default(), "{raw}");
    }
    let tun = ResultView::of(&json!({"interfaces": [{"name": "tun0", "mac": "", "sandbox": "/x"}]})).unwrap();
    assert_eq!(tun.interfaces.first().unwrap().mac, None);
    let empty = ResultView::of(&json!({"ips": [{"address": "10.0.0.2/24", "gateway": ""}]})).unwrap();
    assert_eq!(empty.ips.first().unwrap().gateway, None);
}

#[test]
fn links_of_the_pod_are_those_with_a_sandbox_or_the_one_asked_for() {
    let asked: IfName = "eth7".parse().unwrap();
    let view = ResultView::of(&bridge_result()).unwrap();
    assert_eq!(view.pod_links(&asked), ["eth0".parse().unwrap()]);
    let addresses = ResultView::of(&json!({"ips": [{"address": "10.1.0.2/24"}]})).unwrap();
    assert_eq!(addresses.pod_links(&asked), [], "the addresses tell");
    assert_eq!(ResultView::default().pod_links(&asked), [asked]);
}

#[test]
fn hostile_values_are_refused_by_name() {
    let many = |entry: Value| Value::Array(vec![entry; MAX_ENTRIES + 1]);
    for (raw, expected) in [
        (json!({"ips": 1}), "it has not the form of a CNI result"),
        (json!({"ips": [{"address": "10.0.0.1"}]}), "its address `10.0.0.1` is not an address with a prefix length"),
        (json!({"ips": [{"address": "10.0.0.1/33"}]}), "its address `10.0.0.1/33` is not"),
        (json!({"ips": [{"address": "x\u{1b}[2J/3"}]}), "its address `x?[2J/3` is not"),
        (json!({"ips": [{"address": "10.0.0.1/8", "gateway": "gw"}]}), "its gateway `gw` is not an IP address"),
        (
            json!({"ips": [{"address": "10.0.0.1/8", "interface": 0}]}),
            "its address 10.0.0.1/8 is on interface 0, but it lists 0",
        ),
        (
            json!({"interfaces": [{"name": "a"}], "ips": [{"address": "10.0.0.1/8", "interface": -1}]}),
            "its address 10.0.0.1/8 is on interface -1, but it lists 1",
        ),
        (json!({"ips": [{"address": "10.0.0.1/8", "interface": 1e30}]}), "it has not the form of a CNI result"),
        (json!({"interfaces": [{"name": "../../x"}]}), "it names a link that cannot be"),
        (json!({"interfaces": [{"name": "0123456789abcdef"}]}), "it names a link that cannot be"),
        (json!({"routes": [{"dst": "default"}]}), "its route `default` is not"),
        (json!({"routes": [{"dst": "::/0", "gw": "fe80::1%eth0"}]}), "its next hop `fe80::1%eth0` is not"),
        (json!({"dns": {"nameservers": ["a"]}}), "its name server `a` is not"),
        (json!({"dns": {"search": ["a\nnameserver 6.6.6.6"]}}), "its search domain `a?nameserver 6.6.6.6` is not"),
        (json!({"dns": {"options": ["x".repeat(256)]}}), "its resolver option `xxx"),
        (json!({"ips": many(json!({"address": "10.0.0.1/8"}))}), "it lists 257 addresses, more than 256"),
        (json!({"interfaces": many(json!({"name": "a"}))}), "it lists 257 interfaces"),
        (json!({"routes": many(json!({"dst": "::/0"}))}), "it lists 257 routes"),
        (json!({"dns": {"nameservers": many("1.1.1.1".into())}}), "it lists 257 name servers"),
        (json!({"dns": {"search": many("a".into())}}), "it lists 257 search domains"),
        (json!({"dns": {"options": many("a".into())}}), "it lists 257 resolver options"),
    ] {
        let error = ResultView::of(&raw).expect_err("hostile");
        assert!(error.to_string().starts_with(expected), "{raw}: {error}");
    }
}

#[test]
fn a_result_takes_the_form_of_the_version_spoken() {
    let modern = bridge_result();
    for old in [SpecVersion::V030, SpecVersion::V031, SpecVersion::V040] {
        let converted = convert(modern.clone(), old).unwrap();
        assert_eq!(converted["cniVersion"], old.as_str());
        assert_eq!((&converted["ips"][0]["version"], &converted["ips"][1]["version"]), (&json!("4"), &json!("6")));
        assert_eq!(ResultView::of(&converted).unwrap(), ResultView::of(&modern).unwrap());
        for new in [SpecVersion::V100, SpecVersion::V110] {
            let mut expected = modern.clone();
            expected["cniVersion"] = new.as_str().into();
            assert_eq!(convert(converted.clone(), new).unwrap(), expected);
        }
    }
    assert_eq!(convert(json!({}), SpecVersion::V100).unwrap(), json!({"cniVersion": "1.0.0"}));
    let error = convert(json!({"cniVersion": "0.2.0", "ip4": {}}), SpecVersion::V040).expect_err("another family");
    assert_eq!(error.to_string(), "it is of version `0.2.0`, 0.4.0 was asked for");
}

/// Any JSON, with the words of a result in the places of names.
fn any_json() -> impl Strategy<Value = Value> {
    let words = [
        "cniVersion",
        "interfaces",
        "ips",
        "routes",
        "dns",
        "name",
        "mac",
        "sandbox",
        "address",
        "gateway",
        "interface",
        "dst",
        "gw",
        "nameservers",
        "domain",
        "search",
        "options",
        "version",
    ];
    let texts =
        ["1.0.0", "0.2.0", "eth0", "/run/netns/x", "10.0.0.2/24", "fd00::2/64", "10.0.0.1", "0.0.0.0/0", "", "\0"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-1_i64..3).prop_map(Value::from),
        proptest::sample::select(texts.to_vec()).prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    let word = proptest::sample::select(words.to_vec()).prop_map(str::to_owned);
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(word.clone(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_a_plugin_writes_is_read_or_refused(raw in any_json(), to in 0_usize..5) {
        if let Ok(view) = ResultView::of(&raw) {
            // What is read is well-formed, and the form of another version says the same.
            prop_assert!(view.ips.iter().all(|ip| ip.interface.is_none_or(|index| index < view.interfaces.len())));
            if raw.is_object() && let Ok(converted) = convert(raw, SpecVersion::ALL[to]) {
                prop_assert_eq!(ResultView::of(&converted).unwrap(), view);
                prop_assert_eq!(converted["cniVersion"].as_str(), Some(SpecVersion::ALL[to].as_str()));
            }
        }
    }

    #[test]
    fn no_text_in_the_place_of_a_value_panics(a in ".*", b in ".*", n in any::<i64>(), to in 0_usize..5) {
        let raw = json!({
            "cniVersion": a,
            "interfaces": [{"name": a, "mac": b, "sandbox": b}],
            "ips": [{"address": b, "gateway": a, "interface": n}],
            "routes": [{"dst": a, "gw": b}],
            "dns": {"nameservers": [a], "search": [b], "options": [a]},
        });
        let _ = ResultView::of(&raw);
        let _ = convert(raw, SpecVersion::ALL[to]);
    }
}
