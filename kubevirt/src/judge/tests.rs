use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{convert, read};

/// Fragments of which objects are made at random: most are nearly right.
const VALUES: [&str; 16] = [
    "{}",
    "[]",
    "null",
    "7",
    "-1",
    "true",
    "x",
    "1Gi",
    "{name: a}",
    "[{name: a, disk: {}}]",
    "[{name: a, containerDisk: {image: x}}]",
    "[{name: a, emptyDisk: {capacity: 1Gi}}]",
    "{guest: 1Gi}",
    "{cores: 2}",
    "{efi: {}}",
    "[{name: default, bridge: {}}]",
];

fn keys() -> Vec<String> {
    let mut keys: Vec<String> = table::rows().into_iter().map(|row| row.path.replace("[]", "")).collect();
    keys.retain(|key| key.starts_with("spec."));
    keys.sort();
    keys
}

/// A spec in which a few fields have odd values.
fn specs() -> impl Strategy<Value = Value> {
    let field = (prop::sample::select(keys()), prop::sample::select(VALUES.to_vec()));
    prop::collection::vec(field, 0..6).prop_map(|fields| {
        let mut object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "x"},
            "spec": {
                "domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": [{"name": "a", "disk": {}}]}},
                "volumes": [{"name": "a", "containerDisk": {"image": "x"}}]
            }
        });
        for (path, value) in fields {
            let value: Value = serde_saphyr::from_str(value).expect("YAML");
            put(&mut object, &path, value);
        }
        object
    })
}

/// Sets a field, in the first item where there is a list.
fn put(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for key in path.split('.') {
        if place.as_array().is_some_and(|all| !all.is_empty()) {
            place = &mut place[0];
        }
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key];
    }
    *place = value;
}

fn document(value: Value) -> Vec<Document> {
    read(&value.to_string()).expect("an object")
}

proptest! {
    /// Whatever stands there, it is judged; and what is taken is a pod that the API would take.
    #[test]
    fn any_object_is_judged(value in specs()) {
        let documents = document(value.clone());
        let judged = render(&documents, &Options::default()).remove(0);
        prop_assert_eq!(judged.objects.is_empty(), judged.is_refused());
        prop_assert!(!judged.findings.iter().any(|finding| finding.text.starts_with("cannot be read")), "{:?}\n{}", judged.findings, value);
        for object in judged.objects.iter().filter(|object| object["kind"] == "Pod") {
            let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(object.clone()).expect("a pod");
            let spec = pod.spec.expect("a spec");
            prop_assert_eq!(spec.containers.len(), 1);
            let mut names: Vec<String> = spec.volumes.unwrap_or_default().into_iter().map(|volume| volume.name).collect();
            names.sort();
            prop_assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
        }
    }

    /// Converting twice is converting once, and what was taken before is taken afterwards.
    #[test]
    fn converting_is_done_once(value in specs()) {
        let documents = document(value);
        let converted = convert::convert(&documents[0], crate::GROUP);
        let again: Vec<Value> = converted.iter().flat_map(|value| convert::convert(&document(value.clone())[0], crate::GROUP)).collect();
        prop_assert_eq!(&again, &converted);
        if !render(&documents, &Options::default()).remove(0).is_refused() {
            let last = document(converted.last().expect("one").clone());
            prop_assert!(!render(&last, &Options::default()).remove(0).is_refused());
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        if let Ok(documents) = read(&text) {
            drop(lint(&documents, &Options::default()));
        }
    }
}
