use super::*;

const LIST: &str = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","x":1},{"type":"tuning"}]}"#;

#[test]
fn versions_are_those_that_both_sides_speak() {
    let of = |text: &str| NetworkList::try_from(serde_json::from_str::<Value>(text).unwrap()).unwrap().versions;
    let several =
        r#"{"name":"n","cniVersion":"0.4.0","cniVersions":["1.1.0","9.9.9","0.4.0"],"plugins":[{"type":"a"}]}"#;
    assert_eq!(of(several), [SpecVersion::V040, SpecVersion::V110]);
    assert_eq!(of(LIST), [SpecVersion::V100]);
}

#[test]
fn a_list_survives_the_journal() {
    let list = NetworkList::try_from(serde_json::from_str::<Value>(LIST).unwrap()).unwrap();
    let text = serde_json::to_string(&list).unwrap();
    assert_eq!(serde_json::from_str::<NetworkList>(&text).unwrap(), list);
    insta::assert_snapshot!(
        text,
        @r#"{"cniVersion":"1.0.0","cniVersions":["1.0.0"],"disableCheck":false,"name":"net","plugins":[{"type":"bridge","x":1},{"type":"tuning"}]}"#
    );
    let uncollected = NetworkList { disable_gc: true, ..list };
    let text = serde_json::to_string(&uncollected).unwrap();
    assert_eq!(serde_json::from_str::<NetworkList>(&text).unwrap(), uncollected);
    assert!(serde_json::from_str::<NetworkList>(r#"{"name":"n"}"#).is_err());
}

#[test]
fn capabilities_count_where_they_are_set() {
    let of = |text: &str| NetworkList::try_from(serde_json::from_str::<Value>(text).unwrap()).unwrap();
    let list = of(r#"{"name":"n","cniVersion":"1.0.0","plugins":[
            {"type":"a","capabilities":{"mac":true,"ips":false,"dns":"yes"}},{"type":"b","capabilities":["aliases"]}
        ]}"#);
    assert!(list.declares("mac"));
    for other in ["ips", "dns", "aliases", "bandwidth"] {
        assert!(!list.declares(other), "{other}");
    }
}

#[test]
fn flags_may_be_words() {
    for (value, set) in [("true", true), ("false", false), ("\"True\"", true), ("\"false\"", false), ("null", false)] {
        let text = LIST.replace("\"name\"", &format!("\"disableGC\":{value},\"name\""));
        let list = NetworkList::try_from(serde_json::from_str::<Value>(&text).unwrap()).unwrap();
        assert_eq!((list.gc_disabled(), list.check_disabled()), (set, false), "{value}");
    }
}
