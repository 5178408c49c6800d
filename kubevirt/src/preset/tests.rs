use serde_json::json;

use super::*;

fn preset(name: &str, selector: Value, domain: Value) -> Preset {
    let selector = serde_json::from_value(selector).expect("a selector");
    Preset { name: name.into(), namespace: None, version: None, selector, domain }
}

fn merged(domain: Value, presets: &[Preset]) -> (Value, Option<String>, Vec<String>) {
    let metadata = Metadata { labels: [("a".into(), "b".into())].into(), ..Metadata::default() };
    let mut domain = domain;
    let mut found = Findings::default();
    let record = merge(&mut domain, &metadata, None, presets, (&Path::of("spec.domain"), &mut found));
    (domain, record, found.all().iter().map(ToString::to_string).collect())
}

#[test]
fn selectors_choose_by_labels() {
    let labels: BTreeMap<String, String> = [("a".to_owned(), "b".to_owned())].into();
    for (selector, chosen) in [
        (json!({}), true),
        (json!({"matchLabels": {"a": "b"}}), true),
        (json!({"matchLabels": {"a": "c"}}), false),
        (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}), true),
        (json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}), false),
        (json!({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["b"]}]}), true),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "x", "operator": "DoesNotExist"}]}),
            true,
        ),
    ] {
        let text = selector.to_string();
        assert_eq!(preset("p", selector, json!({})).selects(&labels), Ok(chosen), "{text}");
    }
    let odd = preset("p", json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]}), json!({}));
    assert!(odd.selects(&labels).is_err());
}

#[test]
fn fields_are_merged_one_by_one_and_the_objects_own_win() {
    let presets = [
        preset(
            "b",
            json!({}),
            json!({"cpu": {"cores": 4, "model": "X"}, "features": {"acpi": {}}, "resources": {"requests": {"cpu": "1"}}}),
        ),
        preset(
            "a",
            json!({}),
            json!({"cpu": {"cores": 4}, "features": {"acpi": {"enabled": false}}, "devices": {"watchdog": {"name": "w"}}}),
        ),
        preset("not-its", json!({"matchLabels": {"a": "z"}}), json!({"cpu": {"cores": 9}})),
    ];
    let (domain, record, told) = merged(json!({"cpu": {"model": "Y"}, "devices": {}}), &presets);
    insta::assert_snapshot!(format!("{domain:#}\n{}\n{}", record.expect("merged"), told.join("\n")));
}

#[test]
fn what_two_presets_say_differently_is_an_error_whatever_their_order() {
    let a = preset("a", json!({}), json!({"memory": {"guest": "1Gi"}, "clock": {"utc": {}}}));
    let b = preset("b", json!({}), json!({"memory": {"guest": "2Gi"}, "clock": {"timezone": "Europe/Rome"}}));
    let one = merged(json!({}), &[a.clone(), b.clone()]).2;
    assert_eq!(one, merged(json!({}), &[b, a]).2);
    insta::assert_snapshot!(one.join("\n"));
}

#[test]
fn of_two_things_that_exclude_each_other_the_objects_own_stays() {
    let loader = preset("p", json!({}), json!({"firmware": {"bootloader": {"efi": {}}}, "clock": {"utc": {}}}));
    let own = json!({"firmware": {"bootloader": {"bios": {}}}, "clock": {"timezone": "Europe/Rome"}});
    let (domain, _, told) = merged(own.clone(), &[loader]);
    assert_eq!(domain, own);
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn another_namespaces_presets_are_for_others() {
    let mut other = preset("p", json!({}), json!({"cpu": {"cores": 4}}));
    other.namespace = Some("elsewhere".into());
    assert_eq!(merged(json!({}), &[other]), (json!({}), None, vec![]));
}
