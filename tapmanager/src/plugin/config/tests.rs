use proptest::prelude::*;
use serde_json::json;
use sriov::settings::{LinkState, Rate, Vlan, VlanProto};

use super::*;

fn conf(keys: Value) -> NetConf {
    let mut all = json!({"cniVersion": "1.1.0", "name": "fast", "type": "virtlet-sriov"});
    all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn parse(keys: Value) -> Result<Wish, Failure> {
    Wish::parse(&conf(keys), Some(&CniArgs::default()), Path::new("/nonexistent/sriov.toml"))
}

fn told(keys: Value) -> String {
    let failure = parse(keys).expect_err("refused");
    assert_eq!(failure.code(), Some(Code::Config));
    failure.to_string()
}

#[test]
fn a_configuration_of_sriov_cni_means_the_same_here() {
    let wish = parse(json!({
        "deviceID": "0000:3b:02.1", "vlan": 100, "vlanQoS": 3, "vlanProto": "802.1ad",
        "mac": "CA:FE:C0:FF:EE:00", "spoofchk": "on",
        "trust": "on", "link_state": "enable", "min_tx_rate": 100, "max_tx_rate": 200, "logLevel": "debug", "dns": {},
        "ipam": {"type": "host-local"}, "capabilities": {"mac": true},
    }));
    let wish = wish.expect("good");
    assert_eq!(wish.source, Some(Source::Exact("0000:3b:02.1".parse().unwrap(), None)));
    let expected = VfSettings {
        vlan: Some(Vlan { id: 100, qos: 3, proto: VlanProto::Ad }),
        mac: Some("ca:fe:c0:ff:ee:00".parse().unwrap()),
        rate: Some(Rate { min: 100, max: 200 }),
        spoofchk: Some(true),
        trust: Some(true),
        link_state: Some(LinkState::Enable),
    };
    assert_eq!(wish.wanted.asked, expected);
}

#[test]
fn nothing_asked_for_is_no_vlan_no_trust_and_checked_frames() {
    let wish = parse(json!({"pf": "ens1f0", "spoofchk": "", "mac": "", "vlanProto": ""})).expect("good");
    assert_eq!((wish.wanted.asked, wish.mtu), (VfSettings::default(), None));
    let otherwise =
        VfSettings { vlan: Some(Vlan::default()), spoofchk: Some(true), trust: Some(false), ..VfSettings::default() };
    assert_eq!(wish.wanted.otherwise, otherwise);
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = told(json!({
        "deviceID": "3b:02.1", "vlan": 4095, "vlanqos": 1, "mac": "01:00:5e:00:00:01", "spoofchk": "yes",
        "trust": true, "link_state": "up",
        "min_tx_rate": 5, "max_tx_rate": 4, "mtu": 10, "PF": "x", "vfs": "a", "runtimeConfig": {"mac": 5},
    }));
    insta::assert_snapshot!(text.replace("; `", ";\n`"));
}

#[test]
fn one_has_to_say_which_vf_and_only_once() {
    assert_eq!(told(json!({})), "it says not which VF; name a `pool`, a `pf` or a `deviceID`");
    assert_eq!(told(json!({"vfs": "1"})), "`pf` is missing, which `vfs` and `driver` are about");
    let both = json!({"pool": "blue", "pf": "ens1f0"});
    assert!(told(both).starts_with("failed to read the pools in `/nonexistent/sriov.toml`; write it, or name `pf`"));
    let status = Wish::parse(&conf(json!({})), None, Path::new("/nonexistent/sriov.toml"));
    assert_eq!(status.expect("good").source, None);
}

#[test]
fn arguments_are_read_and_unknown_ones_refused_unless_ignored() {
    let args = CniArgs::parse("IgnoreUnknown=true;MAC=02:00:00:00:00:01;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart;X=1")
        .expect("good");
    assert_eq!((args.mac.as_deref(), args.pod.as_deref()), (Some("02:00:00:00:00:01"), Some("shop/cart")));
    assert_eq!(CniArgs::parse("").expect("good"), CniArgs::default());
    let unknown = CniArgs::parse("MAC=02:00:00:00:00:01;COLOUR=blue").expect_err("unknown").to_string();
    assert_eq!(unknown, "`CNI_ARGS` has `COLOUR`, which is unknown; add `IgnoreUnknown=1`");
    assert_eq!(
        CniArgs::parse("MAC").expect_err("no pair").to_string(),
        "`CNI_ARGS` has a piece that is no `KEY=VALUE`"
    );
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        "[0-9a-f:.]{0,20}".prop_map(Value::from),
        proptest::collection::vec("[a-z0-9]{0,4}".prop_map(Value::from), 0..3).prop_map(Value::from),
        Just(json!({"vendor": "8086", "device": "1572"})),
    ]
}

proptest! {
    #[test]
    fn hostile_values_are_refused_in_words(
        values in proptest::collection::vec((0_usize..16, value()), 0..6),
        args in "\\PC{0,40}",
    ) {
        let all: Vec<&str> = OWN_KEYS.into_iter().chain(KEYS).collect();
        let keys: Map<String, Value> =
            values.into_iter().map(|(at, value)| (all[at % all.len()].to_owned(), value)).collect();
        // `runtimeConfig` has a form of its own, which rscni-plugin reads.
        let keys: Map<String, Value> = keys.into_iter().filter(|(key, _)| key != "runtimeConfig").collect();
        let _ = CniArgs::parse(&args);
        match parse(Value::Object(keys)) {
            Ok(wish) => {
                prop_assert!(wish.source.is_some());
                prop_assert!(wish.wanted.asked.vlan.is_none_or(|vlan| vlan.id <= 4094));
            }
            Err(failure) => {
                let told = failure.to_string();
                prop_assert!(!told.is_empty() && !told.contains(char::is_control), "{told:?}");
            }
        }
    }
}
