//! What a shell's Tab completes: commands and options by clap, names of pods, for which controld is asked, and names of VMs, for which the
//! cluster is.
//!
//! A shell's script calls this program with [`VARIABLE`] set, so nothing else may be read or printed then. kubectl's own script has kubectl
//! run a program [`OF_PLUGIN`] for words of the plugin, which is this one by another name ([`answer_kubectl`]).

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::{CompleteEnv, Shells};
use common::dns::is_label;
use tokio::time::timeout;

use super::client::Client;
use super::cluster::Cluster;
use super::error::ClusterError;
use super::kubeconfig::At;
use super::{front, kind, name};

/// Names the socket of controld where the command line does not.
pub(super) const SOCKET: &str = "VIRTLET_SOCKET";
/// Where that socket is if nothing names it.
pub(super) const SOCKET_PATH: &str = "/run/virtlet/cri.sock";
/// Says for which shell words are wanted.
pub const VARIABLE: &str = "VIRTLETCTL_COMPLETE";
const PROGRAM: &str = "virtletctl";
/// The program that kubectl runs for words behind `kubectl virtlet`.
pub const OF_PLUGIN: &str = "kubectl_complete-virtlet";
/// What is to be done with candidates, as kubectl's scripts have it: no names of files beside them.
const NO_FILES: &str = ":4";
/// Has the API server tell names alone.
const NAMES: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
/// Names that are asked for.
const MOST: usize = 500;
/// Objects that VMs are named by.
const VMS: [&str; 2] = ["virtualmachines", "virtualmachineinstances"];
/// Nobody waits longer for a Tab.
const PATIENCE: Duration = Duration::from_secs(2);
/// zsh runs a file of `fpath` as the function of its name at the first Tab, which would complete nothing then.
const AUTOLOADED: &str =
    "\nif [ \"$funcstack[1]\" = \"_virtletctl\" ]; then\n    _clap_dynamic_completer_virtletctl \"$@\"\nfi\n";

/// Answers a shell and ends the process, if it is a shell that asks.
pub fn answer(factory: impl Fn() -> clap::Command) {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let words = front::completed(&factory, std::env::args_os().collect());
    let here = std::env::current_dir().ok();
    let asks = CompleteEnv::with_factory(|| front::with_namespace(factory())).var(VARIABLE);
    if asks.try_complete(words, here.as_deref()).unwrap_or_else(|error| error.exit()) {
        std::process::exit(0);
    }
}

/// The script that has a shell ask.
pub(super) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let asks = shells.completer(&shell.to_string());
    let mut script = Vec::new();
    let asks = asks.ok_or_else(|| io::Error::other(format!("nothing is known of the shell {shell}")))?;
    asks.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell == Shell::Zsh {
        script.extend(AUTOLOADED.bytes());
    }
    Ok(script)
}

/// Answers kubectl: `words` are those behind the plugin's name, the last of which is typed. A line for each candidate, with what it is
/// behind a tab.
///
/// # Errors
/// When it cannot be written.
pub fn answer_kubectl(
    factory: impl Fn() -> clap::Command,
    words: Vec<OsString>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut words: Vec<OsString> = std::iter::once(PROGRAM.into()).chain(words).collect();
    let typed = if words.len() > 1 { words.pop() } else { None };
    let words = front::without_options(front::behind_verb(&factory(), words, 1), 1);
    let at = words.len();
    let words = words.into_iter().chain([typed.unwrap_or_default()]).collect();
    let here = std::env::current_dir().ok();
    for one in clap_complete::engine::complete(&mut factory(), words, at, here.as_deref())? {
        let help = one.get_help().map(ToString::to_string).unwrap_or_default();
        let tab = if help.is_empty() { "" } else { "\t" };
        writeln!(out, "{}{tab}{}", one.get_value().display(), help.lines().next().unwrap_or_default())?;
    }
    writeln!(out, "{NO_FILES}")?;
    out.flush()
}

/// Completes the name of a VM of the cluster that the line is for, behind a user and a kind, too.
pub(super) fn vms() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some(current) = current.to_str() else { return Vec::new() };
        let words: Vec<String> = std::env::args_os().filter_map(|word| word.into_string().ok()).collect();
        let current = current.to_owned();
        let found = in_time(PATIENCE, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(vms_from(&current, &At::of_words(&words))).ok()
        });
        found.flatten().unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
    })
}

/// What work comes to, if it does in time. It may wait for a program, and cannot be stopped then: it is left behind, and ends with this process.
fn in_time<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, done) = mpsc::channel();
    std::thread::Builder::new().spawn(move || sender.send(work())).ok()?;
    done.recv_timeout(patience).ok()
}

/// Names of VMs that go on from what is typed, and of instances; of one of both, if its kind is in front.
async fn vms_from(current: &str, at: &At) -> Result<Vec<String>, ClusterError> {
    let begin = current.rsplit_once(['@', '/']).map_or(0, |(front, _)| front.len() + 1);
    let (front, typed) = current.split_at(begin);
    let plurals = match front.trim_end_matches('/').rsplit('@').next().unwrap_or_default() {
        "" => &VMS[..],
        "vm" | "vms" | "virtualmachine" | "virtualmachines" => &VMS[..1],
        "vmi" | "vmis" | "virtualmachineinstance" | "virtualmachineinstances" => &VMS[1..],
        _ => return Ok(Vec::new()),
    };
    let cluster = Cluster::connect_silently(at).await?;
    let mut found = Vec::new();
    for plural in plurals {
        let path = format!("{}?limit={MOST}", cluster.objects(plural, Some(cluster.namespace())));
        let list = cluster.json("list names", &path, Some(NAMES)).await?;
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item.pointer("/metadata/name")?.as_str());
        // A shell reads them.
        let names = names.filter(|name| name.starts_with(typed) && name.split('.').all(is_label));
        found.extend(names.map(|name| format!("{front}{name}")));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Completes the name of a pod, behind a user and a kind, too.
pub(super) fn pods() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some(current) = current.to_str() else { return Vec::new() };
        candidates(current, &known()).into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The same in front of a path of its guest, or a path of ours.
pub(super) fn places() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = PathCompleter::any().complete(current);
        // What is behind a colon, only the guest knows.
        let name = current.to_str().filter(|name| !name.contains(':') && !name.starts_with(['.', '/']));
        let pods = name.map(|name| candidates(name, &known())).unwrap_or_default();
        found.extend(pods.into_iter().map(|pod| CompletionCandidate::new(pod + ":")));
        found
    })
}

/// Names that go on from what is typed; with their namespaces if there is more than one of a name, or one is typed.
fn candidates(current: &str, pods: &[(String, String)]) -> Vec<String> {
    let (user, rest) =
        current.rsplit_once('@').map_or(("", current), |(_, rest)| current.split_at(current.len() - rest.len()));
    let (kind, typed) = match rest.split_once('/') {
        Some((word, typed)) if kind::is_kind(word) => rest.split_at(rest.len() - typed.len()),
        _ => ("", rest),
    };
    let mut found: Vec<String> = pods
        .iter()
        .map(|(namespace, name)| {
            let is_one = pods.iter().filter(|(_, other)| other == name).count() == 1;
            if is_one && !typed.contains('/') { name.clone() } else { format!("{namespace}/{name}") }
        })
        .filter(|name| name.starts_with(typed))
        .map(|name| format!("{user}{kind}{name}"))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Namespaces and names of all pods; none if controld does not answer.
fn known() -> Vec<(String, String)> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    #[expect(
        clippy::disallowed_methods,
        reason = "clap reads it for commands, and none is parsed while one is completed"
    )]
    let said = socket(std::env::args_os()).or_else(|| std::env::var(SOCKET).ok());
    let Ok(socket) = name::socket(said.as_deref().unwrap_or(SOCKET_PATH)) else { return Vec::new() };
    let asked = async { Client::connect(&socket).await?.sandboxes().await };
    let Ok(Ok(pods)) = runtime.block_on(async { timeout(PATIENCE, asked).await }) else { return Vec::new() };
    let pods = pods.into_iter().filter_map(|pod| pod.metadata).map(|pod| (pod.namespace, pod.name));
    // A shell reads them.
    pods.filter(|(namespace, name)| is_label(namespace) && is_label(name)).collect()
}

/// The socket of the command line that is being completed.
fn socket(words: impl Iterator<Item = OsString>) -> Option<String> {
    let words: Vec<String> = words.filter_map(|word| word.into_string().ok()).collect();
    let behind = words.iter().position(|word| word == "--socket").and_then(|at| words.get(at + 1));
    let found = behind.map(String::as_str).or_else(|| words.iter().find_map(|word| word.strip_prefix("--socket=")));
    found.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cluster::tests::Api;

    #[test]
    fn names_go_on_from_what_is_typed() {
        let pods = [("default", "web"), ("default", "db"), ("prod", "db")];
        let pods = pods.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        for (typed, wanted) in [
            ("", &["default/db", "prod/db", "web"][..]),
            ("w", &["web"]),
            ("pod/w", &["pod/web"]),
            ("debian@w", &["debian@web"]),
            ("debian@pod/w", &["debian@pod/web"]),
            ("default/", &["default/db", "default/web"]),
            ("prod/d", &["prod/db"]),
            ("x", &[]),
        ] {
            assert_eq!(candidates(typed, &pods), wanted, "{typed}");
        }
    }

    #[tokio::test]
    async fn names_of_vms_are_those_of_the_cluster() {
        let api = Api::start().await;
        let list = |names: &[&str]| {
            let items: Vec<_> = names.iter().map(|name| serde_json::json!({ "metadata": { "name": name } })).collect();
            serde_json::json!({ "items": items }).to_string()
        };
        let at = "GET /apis/kubevirt.io/v1/namespaces/prod";
        api.answers(&format!("{at}/virtualmachines?"), 200, &list(&["web", "db", "x$(reboot)"]));
        api.answers(&format!("{at}/virtualmachineinstances?"), 200, &list(&["web", "job"]));
        let words: Vec<String> = ["-n", "prod", "--kubeconfig", &api.kubeconfig].map(str::to_owned).into();
        let here = At::of_words(&words);
        for (typed, wanted) in [
            ("", &["db", "job", "web"][..]),
            ("w", &["web"]),
            ("root@vm/w", &["root@vm/web"]),
            ("vmi/", &["vmi/job", "vmi/web"]),
            ("vm/web/", &[]),
            ("x", &[]),
        ] {
            assert_eq!(vms_from(typed, &here).await.expect("asked"), wanted, "{typed}");
        }
    }

    #[tokio::test]
    async fn a_program_that_logs_in_is_not_at_the_terminal() {
        let api = Api::start().await;
        api.answers("GET ", 200, "{\"items\":[{\"metadata\":{\"name\":\"web\"}}]}");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let told = "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t\"}}";
        let script =
            format!("read line || case \"$KUBERNETES_EXEC_INFO\" in *'\"interactive\":false'*) echo '{told}' ;; esac");
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
            "clusters": [{"name": "lab", "cluster": {"server": api.at}}],
            "users": [{"name": "me", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
                "interactiveMode": "IfAvailable",
            }}}],
        });
        std::fs::write(&path, config.to_string()).expect("written");
        let at = At { kubeconfig: Some(path), ..crate::cluster::tests::nowhere() };
        assert_eq!(vms_from("", &at).await.expect("asked"), ["web"]);
    }

    #[test]
    fn what_does_not_end_is_left_behind() {
        assert_eq!(in_time(PATIENCE, || 42), Some(42));
        let (sender, never) = mpsc::channel::<()>();
        assert_eq!(in_time(Duration::ZERO, move || never.recv()), None);
        drop(sender);
    }

    #[test]
    fn kubectl_is_told_candidates_and_that_there_are_no_files() {
        let told = |line: &[&str]| {
            let mut out = Vec::new();
            let words = line.iter().map(OsString::from).collect();
            answer_kubectl(crate::cli::Plugin::command, words, &mut out).expect("written");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(told(&["fsl"]), "fslist\tPrint the file systems of the guest, as JSON\n:4\n");
        assert_eq!(told(&["-n", "prod", "--context=c", "unf"]), "unfreeze\tLet file systems of guests go on\n:4\n");
        assert!(told(&["-n", "prod", "stop", "--gr"]).contains("\n--grace-period\tSeconds"));
        assert!(told(&[]).contains("start\tStart VMs\n"), "{}", told(&[]));
        assert!(told(&[""]).contains("start\tStart VMs\n"));
    }

    #[test]
    fn the_socket_is_that_of_the_command_line() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter();
        assert_eq!(socket(words("virtletctl -- virtletctl --socket /a ps")), Some("/a".into()));
        assert_eq!(socket(words("virtletctl --socket=/b ps")), Some("/b".into()));
        assert_eq!(socket(words("virtletctl ps")), None);
    }
}
