use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn instance(domain: Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"generateName": "x-", "namespace": "n", "labels": {"a": "b"}},
        "spec": {"domain": domain}
    })
}

fn preset(name: &str, selector: Value, domain: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "resourceVersion": "7"},
        "spec": {"selector": selector, "domain": domain}
    })
}

/// As an API server patches.
fn patched(mut object: Value, patch: &[Value]) -> Value {
    for operation in patch {
        let pointer = operation["path"].as_str().expect("a path");
        let (place, key) = pointer.rsplit_once('/').expect("not the root");
        let place = object.pointer_mut(place).and_then(Value::as_object_mut).expect("an object is there");
        let key = key.replace("~1", "/").replace("~0", "~");
        match operation["op"].as_str() {
            Some("add") => drop(place.insert(key, operation["value"].clone())),
            Some("remove") => drop(place.remove(&key).expect("something is there")),
            other => panic!("{other:?}"),
        }
    }
    object
}

/// What is refused, as it is told.
fn refused(instance: &Value, presets: &[Value]) -> Vec<String> {
    apply(instance, presets).expect_err("refused").iter().map(ToString::to_string).collect()
}

#[test]
fn a_patch_adds_what_is_missing_and_says_what_it_was() {
    let domain = json!({"cpu": {"model": "Y"}, "resources": {"requests": null}, "devices": {}});
    let small = json!({
        "cpu": {"cores": 4, "model": "X"}, "memory": {"guest": 1024}, "features": {"acpi": {}},
        "resources": {"requests": {"example.com/a~b": 1, "cpu": "1"}}
    });
    let presets = [
        preset("small", json!({"matchLabels": {"a": "b"}}), small),
        preset("acpi", json!({}), json!({"features": {"acpi": {"enabled": false}}})),
        preset("none", json!({"matchLabels": {"a": "c"}}), json!({"cpu": {"cores": 9}})),
    ];
    let applied = apply(&instance(domain.clone()), &presets).expect("applied");
    let told: Vec<String> = applied.warnings.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(format!("{:#}\n{}", json!(applied.patch), told.join("\n")));
    let object = patched(instance(domain), &applied.patch);
    assert_eq!(object.pointer("/spec/domain/cpu"), Some(&json!({"cores": 4, "model": "Y"})));
    assert_eq!(object.pointer("/spec/domain/features/acpi/enabled"), Some(&json!(false)));
    assert_eq!(object.pointer("/metadata/annotations/virtlet.k8s~1presets"), applied.record.map(Value::from).as_ref());
}

#[test]
fn twice_is_once() {
    let presets = [
        preset("p", json!({}), json!({"cpu": {"cores": 4, "model": "X"}, "clock": {"utc": {}}})),
        preset("q", json!({}), json!({"cpu": {"cores": 4}, "devices": {"watchdog": {"name": "w", "i6300esb": {}}}})),
    ];
    let first = apply(&instance(json!({"cpu": {"model": "Y"}})), &presets).expect("applied");
    let object = patched(instance(json!({"cpu": {"model": "Y"}})), &first.patch);
    let second = apply(&object, &presets).expect("applied again");
    assert_eq!(second, Applied { patch: vec![], ..first });
}

#[test]
fn a_record_tells_no_tales() {
    let mut object = instance(json!({"cpu": {"cores": 4}}));
    object["metadata"]["annotations"] = json!({"virtlet.k8s/presets": "{\"gone\":{\"paths\":[\"cpu.cores\"]}}"});
    let alone = apply(&object, &[]).expect("nothing to do");
    assert_eq!(patched(object.clone(), &alone.patch)["metadata"]["annotations"], json!({}));
    let with = apply(&object, &[preset("p", json!({}), json!({"cpu": {"cores": 4}}))]).expect("nothing to add");
    assert_eq!(with.record.as_deref(), Some(r#"{"p":{"paths":[],"resourceVersion":"7"}}"#));
    object["metadata"]["annotations"]["virtlet.k8s/presets"] = json!("no JSON");
    assert_eq!(apply(&object, &[preset("p", json!({}), json!({"cpu": {"cores": 4}}))]), Ok(with));
}

#[test]
fn excluded_objects_stay_as_they_are() {
    let mut object = instance(json!({"memory": 7}));
    object["metadata"]["annotations"] = json!({"virtlet.k8s/preset-exclude": "true", "virtlet.k8s/presets": "x"});
    assert_eq!(apply(&object, &[preset("p", json!({}), json!({"cpu": {"cores": 4}}))]), Ok(Applied::default()));
}

#[test]
fn presets_that_differ_are_named_with_what_they_say() {
    let presets = [
        preset("b", json!({}), json!({"memory": {"guest": "2Gi"}})),
        preset("a", json!({}), json!({"memory": {"guest": "1Gi"}})),
    ];
    // Whatever the object says itself: with another one they would still differ.
    for domain in [json!({}), json!({"memory": {"guest": "1Gi"}})] {
        let told = refused(&instance(domain), &presets);
        assert!(
            told.len() == 1
                && told[0].contains(r#"spec.domain.memory.guest: presets `a` and `b` differ: "1Gi" and "2Gi""#),
            "{told:?}"
        );
    }
}

#[test]
fn a_preset_that_is_wrong_is_an_error_of_those_that_it_is_for() {
    let wrong = json!({"cpu": {"cores": "four"}});
    let told = refused(&instance(json!({})), &[preset("p", json!({"matchLabels": {"a": "b"}}), wrong.clone())]);
    assert!(told[0].contains("preset `p` is wrong: spec.domain.cpu.cores: must be"), "{told:?}");
    let others = preset("p", json!({"matchLabels": {"a": "c"}}), wrong);
    assert_eq!(apply(&instance(json!({})), &[others]), Ok(Applied::default()));
    // Whom they are for that cannot be read, nobody knows.
    for selector in [json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]}), json!("all"), Value::Null] {
        let told = refused(&instance(json!({})), &[preset("p", selector, json!({}))]);
        assert!(told[0].contains("preset `p` is wrong: spec.selector"), "{told:?}");
    }
}

#[test]
fn what_is_no_instance_is_told() {
    let any = [preset("p", json!({}), json!({"cpu": {"cores": 4}}))];
    let domain_less = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {}});
    for (object, told) in [
        (json!({}), "error: kind: is not"),
        (json!([]), "error: kind: is not"),
        (json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {}}), "error: kind: is not"),
        (json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}), "error: metadata: is required"),
        (domain_less, "error: spec.domain: is required"),
        (instance(json!("x")), "error: spec.domain: must be an object, and is a text"),
        (instance(json!({"cpu": "x"})), "error: spec.domain.cpu: must be an object, and is a text"),
        (instance(json!({"cpu": {"cores": "x"}})), "error: spec.domain.cpu.cores: must be a whole number"),
    ] {
        let all = refused(&object, &any);
        assert!(all[0].starts_with(told), "{all:?}");
    }
    let mut odd = instance(json!({}));
    odd["metadata"]["labels"] = json!(["hunter2"]);
    assert_eq!(refused(&odd, &any), ["error: metadata: cannot be read"]);
}

/// Domains with a few fields that presets may have, too.
fn domains() -> impl Strategy<Value = Value> {
    let fields = [
        json!({"cpu": {"cores": 2}}),
        json!({"cpu": {"cores": 4, "model": "X"}}),
        json!({"cpu": {}}),
        json!({"memory": {"guest": "1Gi"}}),
        json!({"resources": {"requests": {"memory": "1Gi", "a/b": 1}}}),
        json!({"features": {"acpi": {}}}),
        json!({"features": {"acpi": {"enabled": true}}}),
        json!({"clock": {"utc": {}}}),
        json!({"clock": {"timezone": "Europe/Rome"}}),
        json!({"firmware": {"bootloader": {"efi": {"secureBoot": false}}}}),
        json!({"machine": {"type": "q35"}}),
        json!({"devices": {"rng": {}}}),
        json!({"devices": null}),
    ];
    prop::collection::vec(prop::sample::select(fields.to_vec()), 0..5).prop_map(|fields| {
        let parts =
            fields.into_iter().filter_map(|field| if let Value::Object(map) = field { Some(map) } else { None });
        Value::Object(parts.flatten().collect())
    })
}

proptest! {
    /// What is patched has all that presets say that it does not say itself, and nothing more comes of a second time.
    #[test]
    fn patches_fit_and_are_the_last(own in domains(), presets in prop::collection::vec(domains(), 0..3)) {
        let presets: Vec<Value> =
            presets.into_iter().enumerate().map(|(nth, domain)| preset(&format!("p{nth}"), json!({}), domain)).collect();
        if let Ok(first) = apply(&instance(own.clone()), &presets) {
            let object = patched(instance(own), &first.patch);
            prop_assert_eq!(apply(&object, &presets), Ok(Applied { patch: vec![], ..first }));
        }
    }
}
