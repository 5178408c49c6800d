use common::Chain;

use super::*;

fn kinds(text: &str) -> Vec<(usize, String, Kind)> {
    let documents = read(text).expect("a manifest");
    documents.iter().map(|document| (document.number, document.name().to_owned(), document.kind)).collect()
}

#[test]
fn documents_and_items_of_lists_are_objects() {
    let text = "\
---
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: a}
---
apiVersion: v1
kind: List
items:
- {apiVersion: virtlet.k8s/v1, kind: VirtualMachineInstance, metadata: {name: b}}
- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Service, metadata: {name: c}}]}
---
# Nothing.
";
    assert_eq!(
        kinds(text),
        [
            (1, "a".into(), Kind::VirtualMachine),
            (2, "b".into(), Kind::VirtualMachineInstance),
            (3, "c".into(), Kind::Other)
        ]
    );
    assert_eq!(kinds(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"}}"#), [(1, "j".into(), Kind::Other)]);
    assert_eq!(kinds(""), []);
    assert!(matches!(kinds("{apiVersion: x.kubevirt.io/v1, kind: Any}")[..], [(_, _, Kind::Refused(_))]));
    assert!(matches!(kinds("{apiVersion: cdi.kubevirt.io/v1beta1, kind: DataVolume}")[..], [(_, _, Kind::Other)]));
}

#[test]
fn what_is_hostile_is_refused_and_not_quoted() {
    let deep = format!("{{apiVersion: v1, kind: A, a: {}{}}}", "[".repeat(1000), "]".repeat(1000));
    let mut bomb = "a0: &a0 [secret, secret]\n".to_owned();
    for n in 1..30 {
        bomb.push_str(&format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1));
    }
    let many = "{apiVersion: v1, kind: A}\n---\n".repeat(MAX_OBJECTS + 1);
    for (text, wanted) in [
        ("a: [".to_owned(), "not valid YAML: "),
        ("a: secret\na: secret".to_owned(), "not valid YAML: "),
        (deep, "not valid YAML: "),
        (bomb, "not valid YAML: "),
        (" ".repeat(MAX_BYTES + 1), "longer than"),
        (many, ""),
        ("[]".to_owned(), "document 1 is no object"),
        ("secret".to_owned(), "document 1 is no object"),
        ("{apiVersion: v1, kind: A}\n---\n{kind: 7}".to_owned(), "document 2 is no object"),
    ] {
        let told = Chain(&read(&text).expect_err(wanted)).to_string();
        assert!(told.starts_with(wanted) && !told.contains("secret"), "{told}");
    }
}
