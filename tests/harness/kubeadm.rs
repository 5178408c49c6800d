//! A cluster as kubeadm makes it, on the cell's end of a link whose other end the machine of the tier `installed` has.
//!
//! kubeadm's own steps make certificates, kubeconfigs, the control plane's manifests, and what `kubeadm join` reads. There is no
//! runtime for static pods here: what these manifests would start runs as daemons of the cell, with the words that kubeadm
//! wrote. All is where kubeadm puts it, in the `/etc/kubernetes` of the cell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::case::Bed;
use crate::command::{TOOL_DEADLINE, command, finish, run, sh};
use crate::daemon::Daemon;
use crate::wait::wait_for;

/// The tap by which the machine is reached, for [`crate::installed::Machine::boot_on`].
pub const LINK: &str = "plane0";
/// Where the API server is, for the machine.
pub const ENDPOINT: &str = "192.168.78.1:6443";
/// The control plane's address, and the machine's way to everything else.
pub const ADDRESS: &str = "192.168.78.1";
/// The address that the machine is to have.
pub const NODE_ADDRESS: &str = "192.168.78.2";
/// An API server takes four seconds, alone.
const READY_DEADLINE: Duration = Duration::from_secs(90);
const MANIFESTS: &str = "/etc/kubernetes/manifests";
const ADMIN: &str = "/etc/kubernetes/super-admin.conf";
const ETCD: &str = "http://127.0.0.1:2379";

/// The fixture.
#[derive(Debug)]
pub struct Plane {
    daemons: Vec<Daemon>,
    peers: PathBuf,
    /// The documents' commands are for somebody who is in it.
    clone: PathBuf,
}

impl Plane {
    /// Makes the cluster, and starts its control plane.
    ///
    /// # Errors
    /// When a program was not built, or does not get ready.
    pub fn start(bed: &Bed) -> Result<Self> {
        for line in [
            format!("ip tuntap add {LINK} mode tap"),
            format!("ip addr add {ADDRESS}/24 dev {LINK}"),
            format!("ip link set {LINK} up"),
        ] {
            sh(&line)?;
        }
        let kubeadm = bed.config.peer("kubeadm")?;
        let config = bed.dir.join("kubeadm.yaml");
        fs::write(&config, configuration(&kubeadm)?)?;
        let peers = kubeadm.parent().context("kubeadm in the root directory")?.to_owned();
        let phase = |words: &[&str], more: &[&str]| {
            let mut phase = command(&kubeadm, ["init", "phase"]);
            run(phase.args(words).arg("--config").arg(&config).args(more))
        };
        for words in [
            ["certs", "all"],
            ["kubeconfig", "super-admin"],
            ["kubeconfig", "controller-manager"],
            ["kubeconfig", "scheduler"],
            ["control-plane", "all"],
        ] {
            phase(&words, &[])?;
        }
        let etcd = bed.dir.join("etcd");
        let etcd = [
            format!("--data-dir={}", etcd.display()),
            "--unsafe-no-fsync".to_owned(),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        ];
        let mut daemons = vec![Daemon::start("etcd", bed.config.peer("etcd")?, etcd, bed.logs().join("etcd.log"))?];
        for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            daemons.push(daemon(bed, name)?);
        }
        let clone = bed.config.source(".")?;
        let mut plane = Self { daemons, peers, clone };
        plane.wait_ready()?;
        for words in [&["bootstrap-token"][..], &["upload-config", "all"], &["addon", "kube-proxy"]] {
            phase(words, &["--kubeconfig", ADMIN])?;
        }
        Ok(plane)
    }

    /// What a `script` prints that an administrator's bash runs, with `kubectl` and `kubeadm` at hand.
    ///
    /// # Errors
    /// When it fails, or a daemon of the control plane ended.
    pub fn run(&mut self, script: &str) -> Result<String> {
        for daemon in &mut self.daemons {
            daemon.still_runs()?;
        }
        let ended = finish(&mut self.command(script), TOOL_DEADLINE)?;
        ensure!(ended.code == Some(0), "`{script}`: {}{}", ended.stdout, ended.stderr);
        Ok(ended.stdout)
    }

    /// Runs `script` again and again until it succeeds; what it printed then.
    ///
    /// # Errors
    /// When it does not by `deadline`: the error has what it said last.
    pub fn wait(&mut self, what: &str, script: &str, deadline: Duration) -> Result<String> {
        let mut last = String::new();
        let seen = wait_for(what, deadline, || match self.run(script) {
            Ok(said) => Ok(Some(said)),
            Err(not_yet) => {
                last = format!("{not_yet:#}");
                Ok(None)
            }
        });
        seen.with_context(|| format!("last: {last}"))
    }

    fn command(&self, script: &str) -> Command {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.peers.display());
        let mut bash = command("bash", ["-e", "-o", "pipefail", "-c", script]);
        bash.env("PATH", path).env("KUBECONFIG", ADMIN).current_dir(&self.clone);
        bash
    }

    fn wait_ready(&mut self) -> Result<()> {
        self.wait("ready API server", "kubectl get --raw /readyz", READY_DEADLINE).map(drop)
    }
}

/// Starts what kubeadm's manifest of `name` would.
fn daemon(bed: &Bed, name: &str) -> Result<Daemon> {
    let file = Path::new(MANIFESTS).join(format!("{name}.yaml"));
    let pod: Value = serde_saphyr::from_str(&fs::read_to_string(&file)?)?;
    let words = pod.pointer("/spec/containers/0/command").and_then(Value::as_array);
    let mut words = words.into_iter().flatten().filter_map(Value::as_str);
    let program = words.next().with_context(|| format!("no command in `{}`", file.display()))?;
    Daemon::start(name, bed.config.peer(program)?, words, bed.logs().join(format!("{name}.log")))
}

/// Its database is ours, so that there is no static pod of it. This machine is no node.
fn configuration(kubeadm: &Path) -> Result<String> {
    let version = run(&mut command(kubeadm, ["version", "-o", "short"]))?;
    let init = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": ADDRESS},
        "nodeRegistration": {"name": "plane", "criSocket": "unix:///run/virtlet/cri.sock"},
    });
    let cluster = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration",
        "kubernetesVersion": version.trim(), "controlPlaneEndpoint": ENDPOINT,
        "etcd": {"external": {"endpoints": [ETCD]}},
    });
    Ok(format!("{init}\n---\n{cluster}\n"))
}
