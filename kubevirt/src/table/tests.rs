use serde_json::{Map, Value, json};

use super::*;
use crate::Path;
use crate::finding::Findings;
use crate::types::{MachineSpec, ReplicaSetSpec, Spec};

/// A value with every field that is taken.
fn all_of(object: &Object) -> Value {
    let taken = object.0.iter().filter(|field| matches!(field.verdict, Verdict::Supported | Verdict::Warned(_)));
    taken.map(|field| (field.name.to_owned(), some(field))).collect::<Map<_, _>>().into()
}

fn some(field: &Field) -> Value {
    of(field.shape).unwrap_or_else(|| match field.name {
        "topologySpreadConstraints" | "tolerations" => json!([]),
        "httpGet" | "tcpSocket" => json!({"port": 80}),
        _ => json!({}),
    })
}

fn of(shape: Shape) -> Option<Value> {
    Some(match shape {
        Shape::Bool => json!(true),
        Shape::Int(least, most) => json!(least.max(1).min(most)),
        Shape::Text(form) => {
            let samples = ["a1", "Mg==", "02:00:00:00:00:01", "53008994-44c0-4017-ad44-9c49758083da", "0000:00:05.0"];
            let others = ["2Mi", "10.0.0.1", "q35"];
            json!(
                samples
                    .into_iter()
                    .chain(others)
                    .find(|text| text.len() <= form.most && (form.is)(text))
                    .expect(form.what)
            )
        }
        Shape::Word(words) => json!(words.first()),
        Shape::Quantity => json!("1Gi"),
        Shape::Quantities => json!({"memory": "1Gi"}),
        Shape::Texts => json!({"a": "b"}),
        Shape::Object(object) => all_of(object),
        Shape::List(of, _) => json!([self::of(*of)]),
        Shape::Foreign(..) | Shape::Unread(_) | Shape::Any => return None,
    })
}

/// What the table takes is what is made values of: no field of either is missing in the other.
#[test]
fn what_is_taken_is_what_is_read() {
    let mut found = Findings::default();
    let spec = check(&all_of(&objects::SPEC), &objects::SPEC, &Path::default(), &mut found);
    assert!(!found.has_errors(), "{:?}", found.all());
    serde_json::from_value::<Spec>(spec).expect("every field of the table is one of the type");
    let machine = check(&all_of(&objects::MACHINE_SPEC), &objects::MACHINE_SPEC, &Path::default(), &mut found);
    serde_json::from_value::<MachineSpec>(machine).expect("of a VirtualMachine");
    let set = check(&all_of(&objects::REPLICA_SET_SPEC), &objects::REPLICA_SET_SPEC, &Path::default(), &mut found);
    serde_json::from_value::<ReplicaSetSpec>(set).expect("of a ReplicaSet");
}

#[test]
fn what_becomes_of_each_field() {
    let lines = rows().into_iter().map(|Row { path, verdict }| match verdict {
        Verdict::Supported => path,
        other => format!("{path}\t{}", other.text().unwrap_or_default()),
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn no_field_is_there_twice() {
    let mut paths: Vec<String> = rows().into_iter().map(|row| row.path).collect();
    let all = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), all);
}

#[test]
fn values_of_wrong_kinds_are_told_by_path() {
    let value = json!({
        "domain": {
            "cpu": {"cores": "two", "sockets": 1.5, "threads": 300, "model": ["x"]},
            "memory": {"guest": "1GB", "hugepages": {"pageSize": "4Ki"}},
            "devices": {"disks": {"name": "a"}, "Rng": {}, "interfaces": [{"name": "a b", "macAddress": "01:00:00:00:00:01"}, 7]},
            "resources": {"requests": {"memory": "-1Gi", "cpu": [1]}},
            "machine": {"type": "isapc"},
            "firmware": {"uuid": "{53008994-44c0-4017-ad44-9c49758083da}"},
            "gpus": [{}],
            "launchSecurity": {"sev": {}},
            "ioThreads": null
        },
        "volumes": [{"name": "A", "emptyDisk": {"capacity": 2}}],
        "nodeSelector": {"a\n": 1},
        "evictionStrategy": "Never\u{1b}[2J",
        "affinity": {"nodeAffinity": 7},
        "hostname": "a.b",
        "terminationGracePeriodSeconds": -1
    });
    let mut found = Findings::default();
    check(&value, &objects::SPEC, &Path::of("spec"), &mut found);
    let told: Vec<String> = found.all().iter().map(ToString::to_string).collect();
    assert!(!told.iter().any(|line| line.contains(char::is_control)), "{told:?}");
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_asks_for_nothing_is_as_if_it_were_not_there() {
    let value = json!({
        "domain": {"cpu": {"isolateEmulatorThread": false, "model": ""}, "devices": {"gpus": [], "autoattachVSOCK": false, "tpm": null}},
        "resourceClaims": [], "networks": null
    });
    let mut found = Findings::default();
    let kept = check(&value, &objects::SPEC, &Path::default(), &mut found);
    assert_eq!(found.all(), []);
    assert_eq!(kept, json!({"domain": {"cpu": {}, "devices": {}}}));
}

#[test]
fn what_is_not_as_with_kubevirt_is_in_the_page_for_users() {
    let page = include_str!("../../../docs/virtual-machines.md");
    let differs = rows().into_iter().filter_map(|row| Some(format!("| `{}` | {} |", row.path, row.verdict.text()?)));
    let missing: Vec<String> = differs.filter(|line| !page.contains(line)).collect();
    assert!(missing.is_empty(), "not in docs/virtual-machines.md:\n{}", missing.join("\n"));
    let lines =
        page.lines().filter(|line| line.starts_with("| `spec.") || line.starts_with("| `VirtualMachine")).count();
    let differ = rows().into_iter().filter(|row| row.verdict != Verdict::Supported).count();
    assert_eq!(lines, differ, "the page has lines of fields that are not in the table");
}
