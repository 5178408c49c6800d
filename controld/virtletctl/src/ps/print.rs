//! Rows as text.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::cli::{self, Form, Shape};
use super::super::document;
use super::super::error::CtlError;
use super::super::kind;
use super::super::template::AGE;
use super::super::text::{age, short, shown, table};
use super::row::Row;

/// As it is wanted, and under heads if that is a table.
pub(super) fn text(rows: &[Row], wanted: &cli::Ps, now: i64, with_heads: bool) -> Result<String, CtlError> {
    if let Some(template) = &wanted.format {
        let rows: Vec<_> = rows.iter().map(|row| aged(row, now)).collect();
        return Ok(template.render(&rows, with_heads));
    }
    let lines = |line: fn(&Row) -> String| rows.iter().map(|row| format!("{}\n", shown(&line(row)))).collect();
    Ok(match wanted.shape() {
        // Of a pod with several containers, once.
        None if wanted.quiet => {
            let ids: BTreeSet<_> = rows.iter().map(|row| &row.pod).collect();
            ids.into_iter().map(|id| format!("{}\n", shown(id))).collect()
        }
        None if wanted.containers => below(as_table_of_all(rows, now, wanted.no_trunc), with_heads),
        None => below(as_table(rows, now, wanted.no_trunc), with_heads),
        Some(Shape::Form(Form::Wide)) => below(as_wide_table(rows, now), with_heads),
        Some(Shape::Form(Form::Name)) => lines(|row| format!("{}/{}", row.namespace, row.name)),
        Some(Shape::Form(form)) => document::of(rows.iter().map(Row::json).map(Value::Object).collect(), form)?,
        Some(Shape::Path(path)) => {
            let document = match one(rows).filter(|_| names_one(&wanted.names)) {
                Some(row) => row.pod(),
                None => json!({ "kind": "List", "items": rows.iter().map(Row::pod).collect::<Vec<Value>>() }),
            };
            if let Some(key) = path.lacks(&document).filter(|_| !rows.is_empty()) {
                return Err(CtlError::Usage(format!(
                    "`{key}` is not known here; `virtletctl inspect POD` tells what is"
                )));
            }
            path.render(&document)
        }
    })
}

/// As by kubectl: of one pod that is named, the pod itself, as its newest container is. kubelet keeps one that has ended beside it.
fn one(rows: &[Row]) -> Option<&Row> {
    let newest = rows.iter().max_by_key(|row| row.newest)?;
    rows.iter().all(|row| row.pod == newest.pod).then_some(newest)
}

/// Whether one pod was named, with its kind or without.
fn names_one(names: &[String]) -> bool {
    match names {
        [name] => !kind::is_kind(name),
        [word, _name] => kind::is_kind(word),
        _ => false,
    }
}

/// A row with what is another at each look.
fn aged(row: &Row, now: i64) -> Map<String, Value> {
    let mut fields = row.json();
    fields.insert(AGE.into(), age(row.created, now).into());
    fields
}

/// A table, without its first line if no heads are wanted.
fn below(table: String, with_heads: bool) -> String {
    if with_heads {
        return table;
    }
    table.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default()
}

fn as_table(rows: &[Row], now: i64, in_full: bool) -> String {
    let rows: Vec<_> = rows.iter().map(|row| cells(row, now, in_full)).collect();
    table(["NAME", "NAMESPACE", "STATE", "IP", "IMAGE", "AGE", "POD-ID", "CONTAINER-ID"], &rows)
}

fn cells(row: &Row, now: i64, in_full: bool) -> [String; 8] {
    let id = |id: String| if in_full { id } else { short(&id) };
    let Row { name, namespace, state, ip, image, created, pod, container, .. } = row.clone();
    [name, namespace, state.into(), ip, image, age(created, now), id(pod), id(container)]
}

/// Pods of both kinds, of which containers' may have several.
fn as_table_of_all(rows: &[Row], now: i64, in_full: bool) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let [name, namespace, state, ip, image, age, pod, container] = cells(row, now, in_full);
            let (kind, of_pod) = (row.kind().to_owned(), row.container_name.clone());
            [name, namespace, kind, of_pod, state, ip, image, age, pod, container]
        })
        .collect();
    let heads = ["NAME", "NAMESPACE", "KIND", "CONTAINER", "STATE", "IP", "IMAGE", "AGE", "POD-ID", "CONTAINER-ID"];
    table(heads, &rows)
}

fn as_wide_table(rows: &[Row], now: i64) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let Row { name, namespace, state, ip, image, created, pod, container, handler, attempt, .. } = row.clone();
            let (age, attempt) = (age(created, now), attempt.to_string());
            [name, namespace, state.into(), attempt, ip, image, handler, age, pod, container]
        })
        .collect();
    let heads = ["NAME", "NAMESPACE", "STATE", "ATTEMPT", "IP", "IMAGE", "HANDLER", "AGE", "POD-ID", "CONTAINER-ID"];
    table(heads, &rows)
}
