//! `get`: what the cluster has of VMs, in the columns that the API server makes of them, as kubectl shows them; or as it is.

use std::collections::BTreeSet;
use std::io::Write;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::names::{self, Kind, Named};
use crate::cli::{Form, VmGet};
use crate::cluster::Cluster;
use crate::document;
use crate::error::{ClusterError, CtlError, none_of};
use crate::tell::tell_line;
use crate::text::{aligned, shown};

/// Has the API server make a table.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// What is hidden in a table that is not wide has a priority above this.
const ALWAYS: i64 = 0;
/// Objects that are asked for in one call.
const PAGE: usize = 500;
/// Such calls for one list: a server that has more of them does not come to an end.
const PAGES: usize = 400;

/// A table of the API server's.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Table {
    kind: String,
    column_definitions: Vec<Column>,
    rows: Vec<Row>,
    metadata: Listed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Column {
    name: String,
    priority: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    cells: Vec<Value>,
    object: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Listed {
    r#continue: String,
}

/// Which objects of a kind: one, or all.
#[derive(Debug)]
struct Wanted {
    kind: Kind,
    one: Option<Named>,
}

pub(super) async fn run(wanted: &VmGet, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let asked = asked(wanted).map_err(|error| vec![error])?;
    let cluster = Cluster::connect(&wanted.at).await.map_err(|error| vec![error.into()])?;
    let (text, errors) = match wanted.output {
        None | Some(Form::Wide) => tables(&cluster, wanted, &asked).await,
        Some(form) => documents(&cluster, wanted, &asked, form).await,
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|cause| vec![cause.into()])?;
    none_of(errors)
}

/// Kinds alone are lists of them; names without a kind are those of VMs.
fn asked(wanted: &VmGet) -> Result<Vec<Wanted>, CtlError> {
    let default = ["vm,vmi".to_owned()];
    let words = if wanted.names.is_empty() { &default[..] } else { &wanted.names[..] };
    if let [word] = words
        && let Some(kinds) = word.split(',').map(Kind::of).collect::<Option<Vec<_>>>()
    {
        return Ok(kinds.into_iter().map(|kind| Wanted { kind, one: None }).collect());
    }
    if wanted.all_namespaces || wanted.selector.is_some() {
        return Err(CtlError::Usage("names are of one namespace, and have no selector: leave them out".into()));
    }
    let named = names::read(words)?.into_iter();
    Ok(named.map(|one| Wanted { kind: one.kind.unwrap_or(Kind::Machine), one: Some(one) }).collect())
}

async fn tables(cluster: &Cluster, wanted: &VmGet, asked: &[Wanted]) -> (String, Vec<CtlError>) {
    let (mut text, mut errors, mut none) = (Vec::new(), Vec::new(), Vec::new());
    // Those of one kind are one table.
    let mut found: Vec<(Kind, Table)> = Vec::new();
    for one in asked {
        match table(cluster, wanted, one).await {
            Ok(table) => match found.last_mut().filter(|(kind, _)| *kind == one.kind) {
                Some((_, last)) => last.rows.extend(table.rows),
                None => found.push((one.kind, table)),
            },
            Err(error) => errors.push(error.into()),
        }
    }
    for (kind, table) in &found {
        if table.rows.is_empty() {
            none.push(format!("{}s", kind.singular()));
        } else {
            text.push(printed(table, wanted));
        }
    }
    if text.is_empty() && !none.is_empty() {
        let within = if wanted.all_namespaces { "any namespace" } else { cluster.namespace() };
        tell_line(&format!("no {} in {}", none.join(" or "), shown(within)));
    }
    (text.join("\n"), errors)
}

fn printed(table: &Table, wanted: &VmGet) -> String {
    let is_wide = wanted.output == Some(Form::Wide);
    let columns: Vec<usize> = (0..table.column_definitions.len())
        .filter(|at| table.column_definitions.get(*at).is_some_and(|column| is_wide || column.priority <= ALWAYS))
        .collect();
    let with_namespace = |namespace: String, mut row: Vec<String>| {
        if wanted.all_namespaces {
            row.insert(0, namespace);
        }
        row
    };
    let names = columns.iter().filter_map(|at| table.column_definitions.get(*at));
    let heads = names.map(|column| shown(&column.name.to_uppercase())).collect();
    let rows = table.rows.iter().map(|row| {
        let cells = columns.iter().map(|at| row.cells.get(*at).map_or_else(String::new, cell)).collect();
        with_namespace(shown(row.object["metadata"]["namespace"].as_str().unwrap_or_default()), cells)
    });
    aligned(&std::iter::once(with_namespace("NAMESPACE".into(), heads)).chain(rows).collect::<Vec<_>>())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => shown(text),
        other => shown(&other.to_string()),
    }
}

async fn table(cluster: &Cluster, wanted: &VmGet, one: &Wanted) -> Result<Table, ClusterError> {
    let (mut all, mut seen) = (Table::default(), BTreeSet::new());
    loop {
        let (action, path) = path(cluster, wanted, one, &all.metadata.r#continue);
        let value = cluster.json(&action, &path, Some(TABLE)).await?;
        let page: Table = serde_json::from_value(value).unwrap_or_default();
        if page.kind != "Table" {
            return Err(ClusterError::Answer { action, lacks: "table" });
        }
        let more = page.metadata.r#continue.clone();
        if all.column_definitions.is_empty() {
            all = page;
        } else {
            all.rows.extend(page.rows);
            all.metadata = page.metadata;
        }
        if is_last(more, &mut seen, &action)? {
            return Ok(all);
        }
    }
}

async fn documents(cluster: &Cluster, wanted: &VmGet, asked: &[Wanted], form: Form) -> (String, Vec<CtlError>) {
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for one in asked {
        match all(cluster, wanted, one).await {
            Ok(found) => objects.extend(found.into_iter().map(|object| (one.kind, object))),
            Err(error) => errors.push(error.into()),
        }
    }
    if form == Form::Name {
        let name = |(kind, object): &(Kind, Value)| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            format!("{}.{}/{}\n", kind.singular(), cluster.group(), shown(name))
        };
        return (objects.iter().map(name).collect(), errors);
    }
    let mut objects: Vec<Value> = objects.into_iter().map(|(_, object)| object).collect();
    // One that was named is it itself, as by kubectl.
    let value = match asked {
        [Wanted { one: Some(_), .. }] => match objects.pop() {
            Some(object) => object,
            None => return (String::new(), errors),
        },
        _ => json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects }),
    };
    match document::of(value, form) {
        Ok(text) => (text, errors),
        Err(error) => (String::new(), errors.into_iter().chain([error]).collect()),
    }
}

/// Objects as the cluster has them.
async fn all(cluster: &Cluster, wanted: &VmGet, one: &Wanted) -> Result<Vec<Value>, ClusterError> {
    let (mut objects, mut more, mut seen) = (Vec::new(), String::new(), BTreeSet::new());
    loop {
        let (action, path) = path(cluster, wanted, one, &more);
        let mut value = cluster.json(&action, &path, None).await?;
        if one.one.is_some() {
            return Ok(vec![value]);
        }
        match value["items"].take() {
            Value::Array(items) => objects.extend(items),
            _ => return Err(ClusterError::Answer { action, lacks: "items" }),
        }
        more = value.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
        if is_last(more.clone(), &mut seen, &action)? {
            return Ok(objects);
        }
    }
}

/// Whether no page follows, by what the last one says of the next. `seen` is what those before said.
fn is_last(more: String, seen: &mut BTreeSet<String>, action: &str) -> Result<bool, ClusterError> {
    if more.is_empty() {
        return Ok(true);
    }
    if seen.len() == PAGES || !seen.insert(more) {
        return Err(ClusterError::Answer { action: action.into(), lacks: "end" });
    }
    Ok(false)
}

/// What is asked, in words, and where: one object, or a page of all, which begins where `more` says.
fn path(cluster: &Cluster, wanted: &VmGet, one: &Wanted, more: &str) -> (String, String) {
    let plural = one.kind.plural();
    if let Some(named) = &one.one {
        let namespace = named.namespace.as_deref().unwrap_or(cluster.namespace());
        let path = format!("{}/{}", cluster.objects(plural, Some(namespace)), named.name);
        return (format!("read {} `{namespace}/{}`", one.kind.singular(), named.name), path);
    }
    let namespace = (!wanted.all_namespaces).then(|| cluster.namespace());
    let mut path = format!("{}?limit={PAGE}", cluster.objects(plural, namespace));
    for (key, value) in [("labelSelector", wanted.selector.as_deref().unwrap_or_default()), ("continue", more)] {
        if !value.is_empty() {
            path.push_str(&format!("&{key}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        }
    }
    (format!("list {plural}"), path)
}
