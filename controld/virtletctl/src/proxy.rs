//! `proxy`: the other container runtime of the node. `status` is how controld sees it; `enable` and `disable` say what is to be changed
//! on the node.

mod plan;
mod switch;

pub(super) use self::switch::{disable, enable};
use std::io::Write;

use serde_json::{Value, json};

use super::cli;
use super::client::Client;
use super::document;
use super::error::CtlError;
use super::text::{size, table};

/// What controld says of it, in the verbose part of `Status`.
const KEY: &str = "virtletProxy";

/// Prints it.
pub(super) async fn status(
    client: &Client,
    wanted: &cli::ProxyStatus,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let status = client.node_in_full().await?;
    let said = status.info.get(KEY).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(mut said) = said else {
        let text = match wanted.output.form() {
            Some(form) => document::of(json!({ "enabled": false }), form)?,
            None => "controld is in front of no other container runtime; `proxy.runtime_endpoint` of its configuration names one\n".into(),
        };
        return Ok(out.write_all(text.as_bytes())?);
    };
    let version = client.node_version().await.ok();
    let conditions = status.status.unwrap_or_default().conditions;
    let ready = conditions.iter().find(|condition| condition.r#type == "VirtletReady");
    if let Some(form) = wanted.output.form() {
        if let Some(said) = said.as_object_mut() {
            said.insert("enabled".into(), true.into());
            said.insert(
                "runtime".into(),
                json!(version.as_ref().map(|of| format!("{} {}", of.runtime_name, of.runtime_version))),
            );
            said.insert("virtletReady".into(), json!(ready.map(|ready| ready.status)));
        }
        return Ok(out.write_all(document::of(said, form)?.as_bytes())?);
    }
    let runtime = version.map(|of| format!("{} {}", of.runtime_name, of.runtime_version)).unwrap_or_default();
    let mut rows = vec![
        row("containers", format!("{runtime} at {}", text(&said, "runtimeEndpoint"))),
        row("connection", away(&said)),
        row(
            "virtual machines",
            ready.map_or_else(
                || "unknown".into(),
                |ready| {
                    if ready.status {
                        "ready".into()
                    } else {
                        format!("not ready: {}: {}", ready.reason, ready.message)
                    }
                },
            ),
        ),
        row("handlers", names(&said)),
    ];
    for (name, kept) in said.get("lastGoodLists").and_then(Value::as_object).into_iter().flatten() {
        let number = |key| kept.get(key).and_then(Value::as_u64);
        let kept = match (number("ageSeconds"), number("bytes")) {
            (Some(age), Some(bytes)) => format!("{age} s old, {}", size(bytes)),
            _ => "none yet".into(),
        };
        rows.push(row(&format!("last list of {name}"), kept));
    }
    Ok(out.write_all(table(["OF", "WHAT"], &rows).as_bytes())?)
}

fn row(of: &str, what: String) -> [String; 2] {
    [of.to_owned(), what]
}

fn text<'a>(said: &'a Value, key: &str) -> &'a str {
    said.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn away(said: &Value) -> String {
    match said.get("awaySeconds").and_then(Value::as_u64) {
        None => "up".into(),
        Some(seconds) => format!("away for {seconds} s: {}", text(said, "why")),
    }
}

fn names(said: &Value) -> String {
    let names = said.get("handlers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join(", ")
}
