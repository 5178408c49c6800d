//! `ps`: pods with their machines, one row for each container and each pod that has none; on a node with another container runtime that
//! one's, too, if they are asked for.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use common::now_nanos;
use futures_util::future::join_all;
use proto::cri::PodSandboxState;
use proto::pause::Pause;
use serde_json::Value;
use tonic::Code;

use self::row::{Row, rows};
use super::cli::{self, Scope, Within};
use super::client::Client;
use super::error::{CtlError, none_of};
use super::filter;
use super::find::Node;
use super::phase::{EXITED, RUNNING};
use super::selector::PHASE;

mod print;
mod row;
mod watch;

/// Prints all pods, also those whose status fails: what is told there stays empty, and the error comes back.
pub(super) async fn run(client: &Client, wanted: &cli::Ps, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let of_all = wanted.containers.then(|| client.of_all());
    let client = of_all.as_ref().unwrap_or(client);
    let mut failed = Vec::new();
    let printed = if wanted.watch {
        Box::pin(watch::run(client, wanted, out, &mut failed)).await
    } else {
        list(client, wanted, out, &mut failed).await
    };
    failed.extend(printed.err());
    none_of(failed)
}

async fn list(
    client: &Client,
    wanted: &cli::Ps,
    out: &mut (dyn Write + Send),
    failed: &mut Vec<CtlError>,
) -> Result<(), CtlError> {
    let rows = listed(client, wanted, failed).await?;
    Ok(out.write_all(print::text(&rows, wanted, now_nanos(), true)?.as_bytes())?)
}

/// The rows that are wanted, in their order.
async fn listed(client: &Client, wanted: &cli::Ps, failed: &mut Vec<CtlError>) -> Result<Vec<Row>, CtlError> {
    let node = Node::read(client).await?;
    let named = named(&node, wanted, failed)?;
    check_namespace(&node, &wanted.scope)?;
    let ready = node.sandboxes.iter().filter(|sandbox| sandbox.state() == PodSandboxState::SandboxReady);
    let ips = join_all(ready.map(async |sandbox| (sandbox.id.clone(), client.pod_ip(&sandbox.id).await))).await;
    let mut known = BTreeMap::new();
    for (id, ip) in ips {
        match ip {
            Ok(ip) => {
                known.insert(id, ip);
            }
            // Removed since it was listed.
            Err(error) if error.code() == Some(Code::NotFound) => {}
            Err(error) => failed.push(error),
        }
    }
    let mut rows = rows(&node, &known);
    // Who asks for a state, or for a pod, means it.
    let fields = &wanted.field_selector;
    let by_state = fields.names("state") || fields.names(PHASE) || filter::names_states(&wanted.filters);
    let all = wanted.all || by_state || named.is_some();
    rows.retain(|row| {
        (all || row.state == RUNNING)
            && is_in(&wanted.scope, &row.namespace, &row.labels)
            && named.as_ref().is_none_or(|named| named.contains(&row.pod))
    });
    let unsure = rows.iter_mut().filter(|row| matches!(row.state, RUNNING | EXITED));
    let told = join_all(unsure.map(|row| tell_more(client, row))).await;
    failed.extend(told.into_iter().filter_map(Result::err));
    rows.retain(|row| is_selected(wanted, row));
    rows.sort_by(|a, b| a.order().cmp(&b.order()));
    if let Some(field) = &wanted.sort_by {
        sort(&mut rows, field)?;
    }
    Ok(rows)
}

/// By `-n 5`, who knows docker means the last five.
fn check_namespace(node: &Node, scope: &Scope) -> Result<(), CtlError> {
    let Some(namespace) = &scope.namespace else { return Ok(()) };
    let is_number = namespace.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && node.clone().within(&Within { namespace: Some(namespace.clone()) }).sandboxes.is_empty() {
        let what = format!(
            "no pod in namespace `{namespace}`; the newest pods are the last of `virtletctl ps -a --sort-by created`"
        );
        return Err(CtlError::Usage(what));
    }
    Ok(())
}

/// The ids of the pods that were named, if some were. One that is not there is no reason to leave the others out.
fn named(node: &Node, wanted: &cli::Ps, failed: &mut Vec<CtlError>) -> Result<Option<Vec<String>>, CtlError> {
    // `get pods` names none.
    let names = node.names(wanted.names.clone())?;
    if names.is_empty() {
        return Ok(None);
    }
    let node = node.clone().within(&Within { namespace: wanted.scope.namespace.clone() });
    let mut ids = Vec::new();
    for name in names {
        match node.find(&name) {
            Ok(pod) => ids.push(pod.sandbox.id),
            Err(error) => failed.push(error),
        }
    }
    Ok(Some(ids))
}

/// Whether a pod of this namespace and with these labels is meant.
pub(super) fn is_in(scope: &Scope, namespace: &str, labels: &HashMap<String, String>) -> bool {
    scope.namespace.as_deref().is_none_or(|wanted| wanted == namespace) && scope.selector.select(labels)
}

fn is_selected(wanted: &cli::Ps, row: &Row) -> bool {
    let json = row.json();
    let plain = json.iter().filter(|(_, value)| !value.is_object()).map(|(key, value)| (key.as_str(), plain(value)));
    let mut fields: BTreeMap<&str, String> = plain.collect();
    fields.insert(PHASE, row.phase().to_owned());
    wanted.field_selector.select(&fields) && filter::select(&wanted.filters, row.judged())
}

/// Puts rows into the order of a field; those that are alike stay as they are.
fn sort(rows: &mut [Row], field: &str) -> Result<(), CtlError> {
    if let Some(row) = rows.iter().find(|row| !row.json().contains_key(field)) {
        return Err(no_field(field.to_owned(), row));
    }
    let value = |row: &Row| row.json().remove(field).unwrap_or_default();
    rows.sort_by(|a, b| match (value(a), value(b)) {
        (Value::Number(a), Value::Number(b)) => a.as_u64().cmp(&b.as_u64()),
        (a, b) => plain(&a).cmp(&plain(&b)),
    });
    Ok(())
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn no_field(field: String, row: &Row) -> CtlError {
    let known = row.json().iter().filter(|(_, value)| !value.is_object()).map(|(key, _)| key.clone()).collect();
    CtlError::NoField { field, known }
}

/// A list says neither whether a machine that runs is paused, nor with what one has ended; its status does.
async fn tell_more(client: &Client, row: &mut Row) -> Result<(), CtlError> {
    match client.container(&row.container).await {
        Ok(status) if row.state == EXITED => {
            row.exit_code = Some(status.exit_code);
            Ok(())
        }
        Ok(status) => {
            let known = [Pause::DiskFull, Pause::ByHand].into_iter().find(|pause| pause.as_str() == status.reason);
            row.state = known.map_or(RUNNING, Pause::as_str);
            Ok(())
        }
        // Removed since it was listed.
        Err(error) if error.code() == Some(Code::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}
