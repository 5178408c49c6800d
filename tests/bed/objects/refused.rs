//! Each field that the table refuses, in one object: the server tells them all, also to clients that ask it not to mind unknown ones.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use super::World;

const REFUSED: &str = "not supported";

pub(super) fn fields(world: &World<'_>) -> Result<()> {
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/virtualmachineinstances.kubevirt.io";
    let crd = world.cluster.get(crds)?;
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").context("no schema")?;
    let mut paths = Vec::new();
    let spec = refused(schema, "spec", &mut paths).context("nothing is refused")?;
    ensure!(paths.len() > 40, "only {paths:?}");
    let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "all"}, "spec": spec});
    let file = world.file(&object.to_string())?;
    let told = world.refused(&["create", "--validate=ignore", "-f", &file])?;
    let missing: Vec<&String> =
        paths.iter().filter(|path| !told.contains(&format!("{path}: Invalid value: {REFUSED}"))).collect();
    ensure!(missing.is_empty(), "not refused: {missing:?}; told was {told}");
    Ok(())
}

/// A value with all that is refused below a schema, and what has to be there beside it.
fn refused(schema: &Value, at: &str, paths: &mut Vec<String>) -> Option<Value> {
    if let Some(items) = schema.get("items") {
        return Some(json!([refused(items, &format!("{at}[0]"), paths)?]));
    }
    let mut value = Map::new();
    for (name, field) in schema.get("properties")?.as_object()? {
        let at = format!("{at}.{name}");
        let is_refused = field["description"].as_str().is_some_and(|text| text.starts_with(REFUSED));
        if is_refused {
            value.insert(name.clone(), something(field));
            paths.push(at);
        } else if let Some(below) = refused(field, &at, paths) {
            value.insert(name.clone(), below);
        }
    }
    if value.is_empty() {
        return None;
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        value.entry(name).or_insert_with(|| least(&schema["properties"][name]));
    }
    Some(value.into())
}

/// A value that asks for something.
fn something(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("boolean") => json!(true),
        Some("array") => json!([{}]),
        Some("object") => json!({}),
        Some(_) => json!("x"),
        None => json!("1Gi"),
    }
}

/// The least that a schema takes.
fn least(schema: &Value) -> Value {
    let all = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match schema["type"].as_str() {
        Some("object") => {
            all.map(|name| (name.to_owned(), least(&schema["properties"][name]))).collect::<Map<_, _>>().into()
        }
        Some("integer") => schema["minimum"].clone(),
        Some("array") => json!([]),
        _ => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("x")),
    }
}
