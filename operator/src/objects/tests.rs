use kube::api::WatchEvent;
use serde_json::json;

use super::*;

/// Deeper than serde reads.
const DEPTH: usize = 5000;

/// An instance as a watch tells of it, with so deep a spec, and who set which field.
fn told(depth: usize) -> String {
    let nested = |key: &str| format!("{}1{}", format!("{{\"{key}\":").repeat(depth), "}".repeat(depth));
    let (spec, fields) = (nested("a"), nested("f:a"));
    format!(
        r#"{{"type":"MODIFIED","object":{{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance",
           "metadata":{{"name":"db","namespace":"n","uid":"u","managedFields":[{{"manager":"m","fieldsV1":{fields}}}],
           "annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"long","a":"b"}}}},
           "spec":{spec},"status":{{"phase":"Running","other":{spec}}}}}}}"#
    )
}

#[test]
fn an_object_that_is_nested_too_deep_is_read_but_for_its_spec() {
    for (depth, is_read) in [(99, true), (100, false), (DEPTH, false)] {
        let event: WatchEvent<Vmi> = serde_json::from_str(&told(depth)).expect("the watch goes on");
        let WatchEvent::Modified(vmi) = event else { panic!("another event") };
        assert_eq!((vmi.name(), vmi.namespace(), vmi.uid(), vmi.status.phase()), ("db", "n", "u", "Running"));
        assert_eq!((vmi.annotation("a"), vmi.metadata.annotations.as_ref().map(BTreeMap::len)), (Some("b"), Some(1)));
        assert_eq!(vmi.wrong().is_none(), is_read, "{:?}", vmi.wrong());
        // What is kept of it can be read.
        assert!(vmi.spec.value()["a"]["a"].is_object());
    }
    let list = format!(
        r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[{{"spec":{}}}]}}"#,
        "[".repeat(DEPTH) + &"]".repeat(DEPTH)
    );
    let list: kube::core::ObjectList<Vmi> = serde_json::from_str(&list).expect("the list is read");
    assert!(list.items[0].wrong().is_some());
}

#[test]
fn a_spec_is_the_same_text_however_it_was_written() {
    let read = |text: &str| serde_json::from_str::<Json>(text).expect("JSON");
    let mixed = json!({"a": [{}, null, true, -1, 1.5], "b": "text \n\u{e4}"});
    assert_eq!(read(r#"{ "b": "text \n\u00e4",  "a": [ {}, null, true, -1, 1.5 ] }"#), Json::of(&mixed));
    assert_eq!(serde_json::from_value::<Json>(json!({"a": 1})).expect("JSON"), Json::of(&json!({"a": 1})));
}
