//! What is to be changed on a node so that controld stands in front of another container runtime, or no longer does: lines of files and
//! commands, in the order in which kubelet never speaks to a socket that does not know its pods. Pure.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::doctor::{Kubelet, is_same};
use crate::text::shown;

/// kubelet's setting, in its configuration and in kubeadm's file for one node.
const SETTING: &str = "containerRuntimeEndpoint";
/// Where kubelet asks about images, if that is another socket.
const IMAGES: &str = "imageServiceEndpoint";
/// The same as an option.
const OPTION: &str = "--container-runtime-endpoint";
/// By which kubeadm before 1.34 knows the socket of a node.
const ANNOTATION: &str = "kubeadm.alpha.kubernetes.io/cri-socket";
const RESTART_CONTROLD: &str = "systemctl restart controld";
const RESTART_KUBELET: &str = "systemctl restart kubelet";

/// A file, with its text if it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: Option<String>,
}

/// What the node has.
#[derive(Debug)]
pub(super) struct Node {
    /// controld's configuration.
    pub(super) controld: File,
    /// controld's socket, as kubelet names it.
    pub(super) ours: String,
    /// The runtime that controld is in front of now.
    pub(super) behind: Option<String>,
    pub(super) kubelet: Option<Kubelet>,
    /// kubelet's configuration.
    pub(super) kubelet_config: Option<String>,
    /// Of kubeadm 1.34 and later: what is this node's own of kubelet's configuration.
    pub(super) instance: File,
    /// Of kubeadm: options of kubelet.
    pub(super) flags: File,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Edit {
        file: String,
        /// A line that is there, and below which the others are.
        below: Option<String>,
        remove: Vec<String>,
        add: Vec<String>,
    },
    Run {
        command: String,
        note: &'static str,
    },
}

/// That pods are containers of the runtime at `wanted`, but for those that are to be machines.
pub(super) fn enable(node: &Node, wanted: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_set = node.behind.as_deref() == Some(wanted);
    if !is_set {
        steps.push(edit_controld(&node.controld, node.behind.as_deref(), Some(wanted)));
        steps.push(run(RESTART_CONTROLD, "VMs run on; `journalctl -u controld` says whether it reached the runtime"));
    }
    let kubelet = point(node, &node.ours);
    let annotation = annotation(node, &node.ours).filter(|_| !kubelet.is_empty());
    if node.kubelet.is_some() && !(is_set && kubelet.is_empty()) {
        steps.extend(kubelet);
        steps.push(run(RESTART_KUBELET, "containers and VMs run on"));
    }
    steps.extend(annotation);
    steps
}

/// That kubelet speaks to the runtime at `behind` again.
pub(super) fn disable(node: &Node, behind: &str) -> Vec<Step> {
    let mut steps = point(node, behind);
    let annotation = annotation(node, behind).filter(|_| !steps.is_empty());
    if node.kubelet.is_some() && !steps.is_empty() {
        steps.push(run(RESTART_KUBELET, "containers run on"));
    }
    steps.extend(annotation);
    steps.push(edit_controld(&node.controld, Some(behind), None));
    steps.push(run(RESTART_CONTROLD, "or, if the node is to have no VMs: systemctl disable --now controld tapmanager"));
    steps
}

fn run(command: impl Into<String>, note: &'static str) -> Step {
    Step::Run { command: command.into(), note }
}

/// What makes kubelet speak to `endpoint`; nothing if it does, or if there is none.
fn point(node: &Node, endpoint: &str) -> Vec<Step> {
    let Some(kubelet) = &node.kubelet else { return Vec::new() };
    let mut steps = Vec::new();
    let option = option_of(&node.flags);
    let option_wrong = option.is_some_and(|named| !is_same(named, endpoint));
    if let (true, Some(named)) = (option_wrong, option) {
        steps.push(edit(&node.flags.path, vec![format!("{OPTION}={named}")], vec![format!("{OPTION}={endpoint}")]));
    }
    if option.is_none() && kubelet.by_option && !kubelet.endpoint.as_deref().is_some_and(|now| is_same(now, endpoint)) {
        steps.push(Step::Edit {
            file: "the options that kubelet is started with (systemctl cat kubelet)".into(),
            below: None,
            remove: kubelet.endpoint.iter().map(|now| format!("{OPTION}={now}")).collect(),
            add: vec![format!("{OPTION}={endpoint}")],
        });
    }
    // Without an option it is the file that counts.
    let by_option = option.is_some() || kubelet.by_option;
    for (path, text, wanted) in [
        (&kubelet.config, node.kubelet_config.as_deref(), !by_option),
        (&node.instance.path, node.instance.text.as_deref(), false),
    ] {
        steps.extend(edit_setting(SETTING, path, text, endpoint, wanted));
        steps.extend(edit_setting(IMAGES, path, text, endpoint, false));
    }
    steps
}

/// The option in kubeadm's file, whose one variable has all of them.
fn option_of(flags: &File) -> Option<&str> {
    let words = flags.text.as_deref()?.split(|c: char| c.is_whitespace() || c == '"' || c == '\'');
    let mut words = words.skip_while(|word| !word.trim_start_matches("KUBELET_KUBEADM_ARGS=").starts_with(OPTION));
    match words.next()?.split_once(OPTION)?.1.strip_prefix('=') {
        Some(named) => Some(named),
        None => words.next(),
    }
}

/// A line of YAML; one that is not there is added if `wanted`.
fn edit_setting(key: &str, path: &Path, text: Option<&str>, endpoint: &str, wanted: bool) -> Option<Step> {
    let line = text?.lines().find(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')));
    let named = line.map(|line| line[key.len() + 1..].split(" #").next().unwrap_or_default().trim());
    let named = named.map(|named| named.trim_matches(|c| c == '"' || c == '\''));
    // kubeadm before 1.34 writes the empty one, which says no more than none.
    let named_one = named.filter(|named| !named.is_empty());
    if named_one.map_or(!wanted, |named| is_same(named, endpoint)) {
        return None;
    }
    Some(edit(path, line.map(str::to_owned).into_iter().collect(), vec![format!("{key}: {endpoint}")]))
}

fn annotation(node: &Node, endpoint: &str) -> Option<Step> {
    let is_old_kubeadm = node.flags.text.is_some() && node.instance.text.is_none();
    let command = format!("kubectl annotate node NODE --overwrite {ANNOTATION}={endpoint}");
    is_old_kubeadm.then(|| run(command, "on the control plane: kubeadm before 1.34 goes by it at an upgrade"))
}

fn edit(path: &Path, remove: Vec<String>, add: Vec<String>) -> Step {
    Step::Edit { file: path.display().to_string(), below: None, remove, add }
}

/// Of controld.toml: `now` is what it says, `then` what it is to say.
fn edit_controld(file: &File, now: Option<&str>, then: Option<&str>) -> Step {
    let text = file.text.as_deref().unwrap_or_default();
    let (mut section, mut below, mut line) = ("", None, None);
    for candidate in text.lines().map(str::trim) {
        let bare = candidate.split('#').next().unwrap_or_default().trim();
        if bare.starts_with('[') {
            section = bare;
            below = below.or((bare == "[proxy]").then_some(("runtime_endpoint", candidate)));
        }
        let key = bare.split_once('=').map(|(key, _)| key.trim()).unwrap_or_default();
        // A table beside such keys would be one too many.
        if section.is_empty() && key.starts_with("proxy.") {
            below = Some(("proxy.runtime_endpoint", candidate));
        }
        if matches!((section, key), ("[proxy]", "runtime_endpoint") | ("", "proxy.runtime_endpoint")) {
            line = Some((candidate, key));
        }
    }
    let key = line.or(below.map(|(key, line)| (line, key))).map_or("runtime_endpoint", |(_, key)| key);
    let written = |key: &str, endpoint: &str| format!("{key} = \"{endpoint}\"");
    let mut add: Vec<_> = then.map(|endpoint| written(key, endpoint)).into_iter().collect();
    let remove: Vec<_> = match (line, now) {
        (Some((line, _)), _) => vec![line.to_owned()],
        // Written in another way.
        (None, Some(now)) => vec![written("proxy.runtime_endpoint", now)],
        (None, None) => Vec::new(),
    };
    if line.is_none() && below.is_none() && !add.is_empty() {
        add.insert(0, "[proxy]".into());
    }
    let below = below.filter(|(_, below)| line.is_none_or(|(line, _)| line != *below)).map(|(_, line)| line.to_owned());
    Step::Edit { file: file.path.display().to_string(), below, remove, add }
}

/// What people read.
pub(super) fn text(steps: &[Step]) -> String {
    let mut text = String::new();
    for (number, step) in (1..).zip(steps) {
        match step {
            Step::Run { command, note } => text.push_str(&format!("{number}. {}   # {note}\n", shown(command))),
            Step::Edit { file, below, remove, add } => {
                text.push_str(&format!("{number}. {}\n", shown(file)));
                let below = below.iter().map(|line| format!("  {line}"));
                let remove = remove.iter().map(|line| format!("- {line}"));
                let add = add.iter().map(|line| format!("+ {line}"));
                for line in below.chain(remove).chain(add) {
                    text.push_str(&format!("     {}\n", shown(&line)));
                }
            }
        }
    }
    text
}

/// What programs read.
pub(super) fn as_json(steps: &[Step]) -> Value {
    let each = |step: &Step| match step {
        Step::Run { command, note } => json!({ "run": command, "note": note }),
        Step::Edit { file, below, remove, add } => {
            json!({ "file": file, "below": below, "remove": remove, "add": add })
        }
    };
    steps.iter().map(each).collect()
}

#[cfg(test)]
mod tests;
