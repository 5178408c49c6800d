use super::*;
use crate::table::rows;

const KINDS: [Kind; 4] = [Kind::VirtualMachineInstance, Kind::VirtualMachine, Kind::ReplicaSet, Kind::Preset];

/// What is at a path of a schema.
fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(schema, |schema, part| {
        let name = part.trim_end_matches("[]");
        let field = schema.get("properties")?.get(name)?;
        if name == part { Some(field) } else { field.get("items") }
    })
}

fn walk(schema: &Value, visit: &mut dyn FnMut(&Value)) {
    visit(schema);
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    for below in fields.chain(schema.get("items")).chain(schema.get("additionalProperties")) {
        walk(below, visit);
    }
}

#[test]
fn every_field_of_the_table_is_in_the_schema_and_what_is_refused_has_a_rule() {
    let schema = spec(Kind::VirtualMachineInstance).expect("one of ours");
    for row in rows().into_iter().filter(|row| row.path.starts_with("spec.")) {
        let path = row.path.trim_start_matches("spec.");
        assert!(at(&schema, path).is_some(), "{path}");
        let (Verdict::Later(_) | Verdict::Refused(_)) = row.verdict else { continue };
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let rules = at(&schema, parent).and_then(|parent| parent["x-kubernetes-validations"].as_array());
        let text = row.verdict.text();
        let is_refused =
            |rule: &Value| rule["fieldPath"] == format!(".{name}") && rule["message"].as_str() == text.as_deref();
        assert!(rules.is_some_and(|rules| rules.iter().any(is_refused)), "{path}");
    }
}

#[test]
fn every_rule_is_of_something_that_is_there() {
    for kind in KINDS {
        let schema = spec(kind).expect("one of ours");
        for rule in rules::of(kind) {
            let place = at(&schema, &rule.at).unwrap_or_else(|| panic!("{kind:?}: nothing at `{}`", rule.at));
            assert!(at(place, rule.field).is_some(), "{kind:?}: no `{}` in `{}`", rule.field, rule.at);
        }
    }
}

/// Without a limit the server reckons with the longest request that it takes.
#[test]
fn everything_has_a_limit() {
    for kind in KINDS {
        walk(&spec(kind).expect("one of ours"), &mut |schema| match schema.get("type").and_then(Value::as_str) {
            Some("string") => assert!(schema.get("maxLength").is_some(), "{schema}"),
            Some("array") => assert!(schema.get("maxItems").is_some(), "{schema}"),
            Some("object") if schema.get("additionalProperties").is_some() => {
                assert!(schema.get("maxProperties").is_some(), "{schema}");
            }
            Some(_) => {}
            None => assert!(
                schema.get("x-kubernetes-int-or-string").is_some()
                    || schema.get("x-kubernetes-preserve-unknown-fields").is_some(),
                "{schema}"
            ),
        });
    }
}

#[test]
fn others_have_none() {
    assert_eq!(spec(Kind::Other), None);
}
