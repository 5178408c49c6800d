//! `inspect` and `describe`: all that controld tells of a pod and its machines, for programs and for people.

use std::io::Write;

use proto::cri::{ContainerState, ContainerStatusResponse, PodSandboxState, PodSandboxStatusResponse};
use serde_json::{Map, Value, json};

use super::cli::{Describe, Form, InspectPods};
use super::client::Client;
use super::document;
use super::error::{CtlError, none_of};
use super::find::{Node, Pod};
use super::made;
use super::text::moment_of;

mod text;

/// Prints a list, of one entry for each pod that was found, also if others were not.
pub(super) async fn run(
    client: &Client,
    wanted: &InspectPods,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    let node = Node::read(client).await.map_err(|error| vec![error])?.within(&wanted.pods.within);
    let names = node.some_names(wanted.pods.names.clone()).map_err(|error| vec![error])?;
    let (found, mut failed) = described(client, &node, names, false).await;
    let form = if wanted.output == "yaml" { Form::Yaml } else { Form::Json };
    let printed = document::of(found.into(), form).and_then(|text| Ok(out.write_all(text.as_bytes())?));
    failed.extend(printed.err());
    none_of(failed)
}

/// Tells people of each pod that was found, also if others were not.
pub(super) async fn tell(client: &Client, wanted: Describe, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let node = Node::read(client).await.map_err(|error| vec![error])?.within(&wanted.pods.within);
    let names = node.some_names(wanted.pods.names).map_err(|error| vec![error])?;
    let (found, mut failed) = described(client, &node, names, true).await;
    let told = found.iter().map(text::of).collect::<Vec<_>>().join("\n");
    failed.extend(out.write_all(told.as_bytes()).err().map(CtlError::from));
    none_of(failed)
}

/// What is known of pods, and why there are some of which nothing is.
async fn described(
    client: &Client,
    node: &Node,
    names: Vec<String>,
    with_settings: bool,
) -> (Vec<Value>, Vec<CtlError>) {
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for text in names {
        let described = match node.find(&text) {
            Ok(pod) => describe(client, &pod, with_settings).await,
            Err(error) => Err(error),
        };
        match described {
            Ok(pod) => found.push(pod),
            Err(error) => failed.push(error),
        }
    }
    (found, failed)
}

async fn describe(client: &Client, pod: &Pod, with_settings: bool) -> Result<Value, CtlError> {
    let status = client.sandbox_in_full(&pod.sandbox.id).await?;
    let mut machines = Vec::new();
    for container in &pod.containers {
        let response = client.container_in_full(&container.id).await?;
        let settings = info(&response.info).get("settings").cloned();
        let mut told = machine(response);
        if let Some(settings) = settings.filter(|_| with_settings) {
            told["settings"] = settings;
        }
        machines.push(told);
    }
    let mut told = sandbox(status);
    told.insert("machines".into(), machines.into());
    Ok(told.into())
}

fn sandbox(response: PodSandboxStatusResponse) -> Map<String, Value> {
    let status = response.status.unwrap_or_default();
    let pod = status.metadata.clone().unwrap_or_default();
    let network = status.network.clone().unwrap_or_default();
    let ips: Vec<String> =
        std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|ip| ip.ip)).collect();
    let state = match status.state() {
        PodSandboxState::SandboxReady => "Ready",
        PodSandboxState::SandboxNotready => "NotReady",
    };
    let info = info(&response.info);
    object([
        ("id", json!(status.id)),
        ("name", json!(pod.name)),
        ("namespace", json!(pod.namespace)),
        ("uid", json!(pod.uid)),
        ("attempt", json!(pod.attempt)),
        ("state", json!(state)),
        ("createdAt", json!(moment_of(status.created_at))),
        ("ips", ips.into_iter().filter(|ip| !ip.is_empty()).collect()),
        ("runtimeHandler", json!(status.runtime_handler)),
        ("labels", sorted(&status.labels)),
        ("annotations", sorted(&made::shown(&status.annotations))),
        ("network", info.get("net").cloned().unwrap_or_default()),
    ])
}

fn machine(response: ContainerStatusResponse) -> Value {
    let status = response.status.unwrap_or_default();
    let container = status.metadata.clone().unwrap_or_default();
    let state = match status.state() {
        ContainerState::ContainerCreated => "Created",
        ContainerState::ContainerRunning => "Running",
        ContainerState::ContainerExited => "Exited",
        ContainerState::ContainerUnknown => "Unknown",
    };
    let ended = status.state() == ContainerState::ContainerExited;
    let linux = status.resources.and_then(|resources| resources.linux).unwrap_or_default();
    let mounts = status.mounts.iter().map(|mount| {
        let (path, readonly) = (&mount.container_path, mount.readonly);
        let mut shown = match &mount.image {
            None => json!({ "containerPath": path, "hostPath": mount.host_path, "readonly": readonly }),
            Some(image) => json!({
                "containerPath": path, "image": image.user_specified_image, "imageId": image.image, "readonly": readonly,
            }),
        };
        if !mount.mount_options.is_empty() {
            shown["options"] = json!(mount.mount_options);
        }
        shown
    });
    let info = info(&response.info);
    object([
        ("id", json!(status.id)),
        ("name", json!(container.name)),
        ("attempt", json!(container.attempt)),
        ("state", json!(state)),
        ("reason", json!(status.reason)),
        ("message", json!(status.message)),
        ("exitCode", if ended { json!(status.exit_code) } else { Value::Null }),
        ("createdAt", json!(moment_of(status.created_at))),
        ("startedAt", json!(moment_of(status.started_at))),
        ("finishedAt", json!(moment_of(status.finished_at))),
        ("image", json!(status.image.unwrap_or_default().image)),
        ("imageId", json!(status.image_id)),
        ("logPath", json!(status.log_path)),
        (
            "resources",
            json!({
                "cpuPeriod": linux.cpu_period, "cpuQuota": linux.cpu_quota, "cpuShares": linux.cpu_shares,
                "memoryLimitBytes": linux.memory_limit_in_bytes,
            }),
        ),
        ("labels", sorted(&status.labels)),
        ("annotations", sorted(&made::shown(&status.annotations))),
        ("mounts", mounts.collect()),
        ("machine", info.get("machine").cloned().unwrap_or_default()),
    ])
    .into()
}

/// What controld says beside CRI's fields, as JSON in a string.
pub(super) fn info(info: &std::collections::HashMap<String, String>) -> Value {
    info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn sorted(map: &std::collections::HashMap<String, String>) -> Value {
    // JSON's objects are sorted here.
    map.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>().into()
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
