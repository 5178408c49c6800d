//! `ps`: pods with their machines, one row for each container and each pod that has none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::time::{Duration, SystemTime};

use common::now_nanos;
use futures_util::future::join_all;
use proto::cri::{Container, ContainerState, PodSandbox, PodSandboxState};
use proto::pause::Pause;
use serde_json::{Value, json};
use tonic::Code;

use super::cli::{self, Form, Scope};
use super::client::Client;
use super::document;
use super::error::{CtlError, none_of};
use super::find::Node;
use super::text::{age, short, shown, table};

const RUNNING: &str = "Running";

/// A row, with its ids in full.
#[derive(Debug, Clone)]
struct Row {
    name: String,
    namespace: String,
    state: &'static str,
    ip: String,
    image: String,
    created: i64,
    pod: String,
    container: String,
    labels: HashMap<String, String>,
    handler: String,
    attempt: u32,
}

/// Prints all pods, also those whose status fails: what is told there stays empty, and the error comes back.
pub(super) async fn run(client: &Client, wanted: &cli::Ps, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let mut failed = Vec::new();
    let printed = list(client, wanted, out, &mut failed).await;
    failed.extend(printed.err());
    none_of(failed)
}

async fn list(
    client: &Client,
    wanted: &cli::Ps,
    out: &mut (dyn Write + Send),
    failed: &mut Vec<CtlError>,
) -> Result<(), CtlError> {
    let node = Node::read(client).await?;
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
    // Who asks for a state means it.
    let all = wanted.all || wanted.field_selector.names("state");
    rows.retain(|row| (all || row.state == RUNNING) && is_in(&wanted.scope, &row.namespace, &row.labels));
    let told = join_all(rows.iter_mut().filter(|row| row.state == RUNNING).map(|row| tell_paused(client, row))).await;
    failed.extend(told.into_iter().filter_map(Result::err));
    let rows = rows.into_iter().map(|row| Ok(selected(wanted, &row)?.then_some(row)));
    let mut rows: Vec<Row> = rows.filter_map(Result::transpose).collect::<Result<_, CtlError>>()?;
    rows.sort_by(|a, b| (&a.namespace, &a.name, b.created).cmp(&(&b.namespace, &b.name, a.created)));
    let lines = |line: fn(&Row) -> String| rows.iter().map(|row| format!("{}\n", shown(&line(row)))).collect();
    let text = match wanted.output.form() {
        // Of a pod with several containers, once.
        None if wanted.quiet => {
            let ids: BTreeSet<_> = rows.iter().map(|row| &row.pod).collect();
            ids.into_iter().map(|id| format!("{}\n", shown(id))).collect()
        }
        None => as_table(&rows, now_nanos()),
        Some(Form::Wide) => as_wide_table(&rows, now_nanos()),
        Some(Form::Name) => lines(|row| format!("{}/{}", row.namespace, row.name)),
        Some(form) => document::of(rows.iter().map(as_json).collect(), form)?,
    };
    Ok(out.write_all(text.as_bytes())?)
}

/// Whether a pod of this namespace and with these labels is meant.
pub(super) fn is_in(scope: &Scope, namespace: &str, labels: &HashMap<String, String>) -> bool {
    scope.namespace.as_deref().is_none_or(|wanted| wanted == namespace) && scope.selector.select(labels)
}

fn selected(wanted: &cli::Ps, row: &Row) -> Result<bool, CtlError> {
    let json = as_json(row);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields: BTreeMap<&str, String> = json
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_object())
        .map(|(key, value)| (key.as_str(), text(value)))
        .collect();
    let unknown = |field| CtlError::NoField { field, known: fields.keys().map(|key| (*key).to_owned()).collect() };
    wanted.field_selector.select(&fields).map_err(unknown)
}

/// A list does not say whether a machine that runs is paused; its status does.
async fn tell_paused(client: &Client, row: &mut Row) -> Result<(), CtlError> {
    match client.container(&row.container).await {
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

fn rows(node: &Node, ips: &BTreeMap<String, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for sandbox in &node.sandboxes {
        let before = rows.len();
        rows.extend(node.containers_of(sandbox).map(|container| row(sandbox, Some(container), ips)));
        if rows.len() == before {
            rows.push(row(sandbox, None, ips));
        }
    }
    rows
}

fn row(sandbox: &PodSandbox, container: Option<&Container>, ips: &BTreeMap<String, String>) -> Row {
    let pod = sandbox.metadata.clone().unwrap_or_default();
    let image = container.and_then(|container| container.image.clone()).unwrap_or_default();
    Row {
        name: pod.name,
        namespace: pod.namespace,
        state: match container {
            Some(container) => container_state(container.state()),
            None => sandbox_state(sandbox.state()),
        },
        ip: ips.get(&sandbox.id).cloned().unwrap_or_default(),
        image: image.image,
        created: container.map_or(sandbox.created_at, |container| container.created_at),
        pod: sandbox.id.clone(),
        container: container.map(|container| container.id.clone()).unwrap_or_default(),
        labels: sandbox.labels.clone(),
        handler: sandbox.runtime_handler.clone(),
        attempt: container.and_then(|container| container.metadata.as_ref()).map_or(0, |metadata| metadata.attempt),
    }
}

fn container_state(state: ContainerState) -> &'static str {
    match state {
        ContainerState::ContainerCreated => "Created",
        ContainerState::ContainerRunning => RUNNING,
        ContainerState::ContainerExited => "Exited",
        ContainerState::ContainerUnknown => "Unknown",
    }
}

/// Of a pod without a container.
fn sandbox_state(state: PodSandboxState) -> &'static str {
    match state {
        PodSandboxState::SandboxReady => "Empty",
        PodSandboxState::SandboxNotready => "Stopped",
    }
}

fn as_table(rows: &[Row], now: i64) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let Row { name, namespace, state, ip, image, created, pod, container, .. } = row;
            let ids = (short(pod), short(container));
            [
                name.clone(),
                namespace.clone(),
                (*state).into(),
                ip.clone(),
                image.clone(),
                age(*created, now),
                ids.0,
                ids.1,
            ]
        })
        .collect();
    table(["NAME", "NAMESPACE", "STATE", "IP", "IMAGE", "AGE", "POD-ID", "CONTAINER-ID"], &rows)
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

fn as_json(row: &Row) -> Value {
    let Row { name, namespace, state, ip, image, created, pod, container, labels, handler, attempt } = row;
    let since = Duration::from_nanos(u64::try_from(*created).unwrap_or_default());
    let created = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since).to_string();
    json!({
        "name": name, "namespace": namespace, "state": state, "ip": ip, "image": image, "createdAt": created,
        "podId": pod, "containerId": container, "runtimeHandler": handler, "attempt": attempt, "labels": labels,
    })
}
