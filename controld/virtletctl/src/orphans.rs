//! `orphans` and `forget`: what is on the node and on no record.

use std::io::Write;

use common::now_nanos;
use proto::orphans::{Kind, Orphan};
use serde_json::{Value, json};

use super::cli::{self, Form};
use super::client::Client;
use super::document;
use super::error::{CtlError, none_of};
use super::text::{age, moment, shown, size, table};
use super::thing::{Thing, name_of};

/// Prints them.
pub(super) async fn list(client: &Client, wanted: &cli::Orphans, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let orphans = client.orphans().await?;
    let text = match wanted.output.form() {
        None | Some(Form::Wide) => {
            let now = now_nanos();
            let rows: Vec<_> = orphans.iter().map(|orphan| row(orphan, now)).collect();
            table(["KIND/ID", "STATE", "POD", "SIZE", "KNOWN FOR", "WHY IT IS KEPT"], &rows)
        }
        Some(Form::Name) => orphans.iter().map(|orphan| format!("{}\n", shown(&name(orphan)))).collect(),
        Some(form) => document::of(orphans.iter().map(as_json).collect(), form)?,
    };
    Ok(out.write_all(text.as_bytes())?)
}

/// Removes some, one after the other, and prints those that are gone.
pub(super) async fn forget(
    client: &Client,
    wanted: cli::Forget,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    let mut failed = Vec::new();
    for Thing { kind, id } in wanted.things {
        let name = format!("{}/{id}", name_of(kind));
        match client.forget(kind, &id, &name).await.and_then(|()| Ok(writeln!(out, "{}", shown(&name))?)) {
            Ok(()) => {}
            Err(error) => failed.push(error),
        }
    }
    none_of(failed)
}

fn row(orphan: &Orphan, now: i64) -> [String; 6] {
    let pod = if orphan.pod_name.is_empty() {
        orphan.pod_uid.clone()
    } else {
        format!("{}/{}", orphan.pod_namespace, orphan.pod_name)
    };
    let since = i64::try_from(orphan.since).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
    [
        name(orphan),
        state(orphan).unwrap_or_default().into(),
        pod,
        if orphan.bytes == 0 { String::new() } else { size(orphan.bytes) },
        if since == 0 { String::new() } else { age(since, now) },
        orphan.why.clone(),
    ]
}

fn name(orphan: &Orphan) -> String {
    format!("{}/{}", name_of(orphan.kind()), orphan.id)
}

/// Of a machine.
fn state(orphan: &Orphan) -> Option<&'static str> {
    (orphan.kind() == Kind::Machine).then_some(if orphan.runs { "running" } else { "off" })
}

fn as_json(orphan: &Orphan) -> Value {
    json!({
        "kind": name_of(orphan.kind()), "id": orphan.id, "state": state(orphan), "podUid": orphan.pod_uid,
        "podNamespace": orphan.pod_namespace, "podName": orphan.pod_name, "since": moment(orphan.since),
        "bytes": orphan.bytes, "why": orphan.why,
    })
}
