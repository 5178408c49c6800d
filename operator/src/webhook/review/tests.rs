use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn review(object: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u-1", "operation": "CREATE", "namespace": "n", "object": object, "dryRun": false}
    })
}

fn instance() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"generateName": "x-", "namespace": "n"}, "spec": {"domain": {"cpu": {"model": "Y"}}}
    })
}

fn preset(name: &str, domain: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"selector": {}, "domain": domain}})
}

fn asked(review: &Value, presets: Vec<Value>) -> Result<Value, NoReview> {
    answer(review.to_string().as_bytes(), |namespace| {
        assert_eq!(namespace, "n");
        presets
    })
}

#[test]
fn presets_are_a_patch_with_warnings() {
    let presets = vec![preset("p", json!({"cpu": {"cores": 4, "model": "X"}}))];
    let answer = asked(&review(instance()), presets).expect("an answer");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = &answer["response"];
    assert_eq!(
        (&response["uid"], &response["allowed"], &response["patchType"]),
        (&json!("u-1"), &json!(true), &json!("JSONPatch"))
    );
    assert_eq!(response["warnings"], json!([r#"spec.domain.cpu.model: "Y" here wins over "X" of preset `p`"#]));
    let patch = STANDARD.decode(response["patch"].as_str().expect("a patch")).expect("base64");
    let patch: Value = serde_json::from_slice(&patch).expect("JSON");
    assert_eq!(patch[0], json!({"op": "add", "path": "/spec/domain/cpu/cores", "value": 4}));
}

#[test]
fn without_presets_nothing_is_said() {
    let answer = asked(&review(instance()), vec![]).expect("an answer");
    assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true}));
}

#[test]
fn presets_that_differ_are_a_refusal() {
    let presets = vec![preset("a", json!({"cpu": {"cores": 4}})), preset("b", json!({"cpu": {"cores": 2}}))];
    let answer = asked(&review(instance()), presets).expect("an answer");
    let response = &answer["response"];
    assert_eq!(
        (&response["uid"], &response["allowed"], &response["status"]["code"]),
        (&json!("u-1"), &json!(false), &json!(422))
    );
    let message = response["status"]["message"].as_str().expect("a message");
    assert!(message.starts_with("spec.domain.cpu.cores: presets `a` and `b` differ: 4 and 2;"), "{message}");
}

#[test]
fn what_is_not_being_made_stays() {
    let mut review = review(instance());
    for operation in ["UPDATE", "DELETE", "CONNECT"] {
        review["request"]["operation"] = json!(operation);
        review["request"]["object"] = Value::Null;
        let answer = answer(review.to_string().as_bytes(), |_| panic!("nobody asks for presets")).expect("an answer");
        assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true}));
    }
}

#[test]
fn what_is_no_question_is_told() {
    let with = |pointer: &str, value: Value| {
        let mut review = review(instance());
        *review.pointer_mut(pointer).expect("is there") = value;
        review
    };
    for (review, told) in [
        (json!({}), NoReview::Malformed),
        (json!([]), NoReview::Malformed),
        (with("/request", Value::Null), NoReview::Malformed),
        (with("/request/uid", json!(7)), NoReview::Malformed),
        (with("/kind", json!("ConversionReview")), NoReview::Malformed),
        (with("/apiVersion", json!("admission.k8s.io/v1beta1")), NoReview::Version),
        (with("/request/namespace", json!("")), NoReview::Namespace),
        (with("/request/object/metadata/namespace", json!("other")), NoReview::Namespace),
    ] {
        assert_eq!(asked(&review, vec![]), Err(told), "{review}");
    }
    for body in ["", "{", "\u{feff}{}", &"[".repeat(100_000), &format!("{{\"request\":{}", "{\"a\":".repeat(100_000))] {
        assert_eq!(answer(body.as_bytes(), |_| vec![]), Err(NoReview::Malformed));
    }
    assert_eq!(answer(&[0xff, 0xfe], |_| vec![]), Err(NoReview::Malformed));
}

#[test]
fn of_another_object_it_is_told_with_its_field() {
    let mut secret =
        review(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "n"}, "data": {"a": "hunter2"}}));
    let told = asked(&secret, vec![]).expect("an answer").to_string();
    assert!(told.contains("\"allowed\":false") && !told.contains("hunter2"), "{told}");
    secret["request"]["object"] = Value::Null;
    assert_eq!(asked(&secret, vec![]).expect("an answer")["response"]["allowed"], false);
}

#[test]
fn texts_have_bounds() {
    let long = "ä".repeat(10_000);
    let many: serde_json::Map<String, Value> = (0..40).map(|nth| (format!("r{nth}"), json!("1"))).collect();
    let other: serde_json::Map<String, Value> = (0..40).map(|nth| (format!("r{nth}"), json!("2"))).collect();
    let mut object = instance();
    object["spec"]["domain"]["resources"] = json!({"requests": many});
    let answer =
        asked(&review(object), vec![preset("p", json!({"resources": {"requests": other}}))]).expect("an answer");
    let warnings = answer["response"]["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), MAX_WARNINGS + 1);
    assert_eq!(warnings[MAX_WARNINGS], "and 28 more");
    let found = Finding { level: kubevirt::Level::Warning, path: kubevirt::Path::default(), text: long };
    let told = told(&[found], 1, MAX_WARNING);
    assert_eq!(told[0].chars().count(), MAX_WARNING);
}

proptest! {
    #[test]
    fn any_bytes_are_answered_or_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = answer(&body, |_| vec![]);
    }

    /// Whatever stands at a place where something else is meant.
    #[test]
    fn any_object_is_answered_or_refused(place in prop::sample::select(vec![
        "/request/object", "/request/object/metadata", "/request/object/metadata/namespace", "/request/object/spec",
        "/request/object/spec/domain", "/request/object/spec/domain/cpu", "/request/operation", "/request/namespace",
    ]), value in prop::sample::select(vec![json!(null), json!([]), json!({}), json!("x"), json!(-1), json!({"a": [null]}), json!([[{}]])])) {
        let mut review = review(instance());
        *review.pointer_mut(place).expect("is there") = value;
        let _ = answer(review.to_string().as_bytes(), |_| vec![preset("p", json!({"cpu": {"cores": 4}}))]);
    }
}
