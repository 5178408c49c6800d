//! `proxy enable` and `proxy disable`: look at the node, and say what is to be changed ([`plan`]) and what stands in the way.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use proto::cri::PodSandbox;
use serde_json::json;

use super::plan::{self, File, Node, Step};
use crate::cli::{self, ProxyCheck};
use crate::client::{Client, Runtime};
use crate::doctor::{self, Host, Settings, is_same, socket_of};
use crate::document;
use crate::error::CtlError;
use crate::text::shown;

/// controld's configuration, if no other is named.
const CONFIG: &str = "/etc/virtlet/controld.toml";
/// Files that kubeadm writes.
const INSTANCE: &str = "/var/lib/kubelet/instance-config.yaml";
const FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";

pub(crate) async fn enable(wanted: &cli::ProxyEnable, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    asked("enable", &wanted.check)?;
    let settings = settings(&wanted.check).await?;
    let endpoint = wanted.runtime_endpoint.as_str();
    let runtime = doctor::runtime(socket_of(endpoint)).await;
    let node = look(&Host::new("/"), &settings, &wanted.check)?;
    let in_the_way = against_enabling(&node, &settings, endpoint, &runtime);
    let end = format!("pods are containers of `{endpoint}`, but for those that are to be VMs");
    tell(&plan::enable(&node, endpoint), in_the_way, &end, &wanted.check, out)
}

pub(crate) async fn disable(
    wanted: &cli::ProxyDisable,
    socket: &Path,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    asked("disable", &wanted.check)?;
    let settings = settings(&wanted.check).await?;
    let Some(behind) = settings.runtime_endpoint.as_deref() else {
        let end = "controld is in front of no other container runtime";
        return tell(&[], Vec::new(), end, &wanted.check, out);
    };
    // Without its word nobody knows of machines.
    let machines = Client::connect(socket).await?.sandboxes().await?;
    let runtime = doctor::runtime(socket_of(behind)).await;
    let node = look(&Host::new("/"), &settings, &wanted.check)?;
    let in_the_way = against_disabling(&machines, behind, &runtime);
    let end = format!("kubelet speaks to `{behind}` itself");
    tell(&plan::disable(&node, behind), in_the_way, &end, &wanted.check, out)
}

/// Nobody is to think that something was done.
fn asked(what: &str, check: &ProxyCheck) -> Result<(), CtlError> {
    if check.check {
        return Ok(());
    }
    let text = format!(
        "`virtletctl proxy {what}` changes nothing by itself; with --check it says what is to be changed, and in which order"
    );
    Err(CtlError::Usage(text))
}

async fn settings(check: &ProxyCheck) -> Result<Settings, CtlError> {
    let told = doctor::settings(check.controld_config.as_deref()).await;
    told.map_err(|cause| CtlError::Terminal { action: "read controld's settings", cause: io::Error::other(cause) })
}

fn look(host: &Host, settings: &Settings, check: &ProxyCheck) -> Result<Node, CtlError> {
    let failed = |cause| CtlError::Terminal { action: "look at the node", cause };
    let read = |path: PathBuf| {
        let text = host.read(&path).map_err(|error| failed(io::Error::other(error)))?;
        Ok::<_, CtlError>(File { path, text })
    };
    let kubelet = doctor::kubelet(host).map_err(|error| failed(io::Error::other(error)))?;
    let kubelet_config = match &kubelet {
        Some(kubelet) => Some(read(kubelet.config.clone())?.text.unwrap_or_default()),
        None => None,
    };
    Ok(Node {
        controld: read(check.controld_config.clone().unwrap_or_else(|| CONFIG.into()))?,
        ours: settings.endpoint(),
        behind: settings.runtime_endpoint.clone(),
        kubelet,
        kubelet_config,
        instance: read(INSTANCE.into())?,
        flags: read(FLAGS.into())?,
    })
}

fn against_enabling(node: &Node, settings: &Settings, wanted: &str, runtime: &Result<Runtime, String>) -> Vec<String> {
    let mut all = Vec::new();
    if is_same(wanted, &node.ours) {
        all.push(format!("`{wanted}` is controld's own socket"));
        return all;
    }
    match runtime {
        Err(why) => all.push(format!("no container runtime answers at `{wanted}`: {why}")),
        Ok(runtime) => {
            let shared = settings.shared(runtime);
            if !shared.is_empty() {
                let names = shared.join(", ");
                all.push(format!(
                    "{} has our runtime handlers {names}, too: give ours other names first",
                    runtime.name
                ));
            }
            if let Some((ours, theirs)) = settings.drivers_apart(runtime) {
                all.push(format!(
                    "`cgroup_driver` of controld is {ours}, and the container runtime's {theirs}: leave it out"
                ));
            }
        }
    }
    let kubelets = node.kubelet.as_ref().and_then(|kubelet| kubelet.endpoint.as_deref());
    let others = match kubelets {
        Some(now) if is_same(now, &node.ours) => node.behind.as_deref(),
        now => now,
    };
    if let Some(others) = others.filter(|others| !is_same(others, wanted)) {
        all.push(format!(
            "kubelet's containers are of `{others}`, and would run on unseen: drain the node first, or name that one"
        ));
    }
    all
}

fn against_disabling(machines: &[PodSandbox], behind: &str, runtime: &Result<Runtime, String>) -> Vec<String> {
    let mut all = Vec::new();
    if !machines.is_empty() {
        let name = |sandbox: &PodSandbox| {
            let pod = sandbox.metadata.clone().unwrap_or_default();
            format!("{}/{}", pod.namespace, pod.name)
        };
        let names: Vec<_> = machines.iter().map(name).collect();
        all.push(format!("pods of this node are VMs, {}: drain the node first, or remove them", names.join(", ")));
    }
    if let Err(why) = runtime {
        all.push(format!("no container runtime answers at `{behind}`, and kubelet would have none: {why}"));
    }
    all
}

/// Prints the steps; what is in the way is the error.
fn tell(
    steps: &[Step],
    in_the_way: Vec<String>,
    end: &str,
    check: &ProxyCheck,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let text = match check.output.form() {
        Some(form) => document::of(json!({ "changes": plan::as_json(steps), "inTheWay": in_the_way }), form)?,
        None if steps.is_empty() => format!("Nothing is to be changed: {}.\n", shown(end)),
        None => {
            format!("Nothing was changed. After these steps, in this order, {}:\n\n{}", shown(end), plan::text(steps))
        }
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    if in_the_way.is_empty() { Ok(()) } else { Err(CtlError::InTheWay(in_the_way)) }
}

#[cfg(test)]
mod tests;
