//! The rest of a control plane, on a [`Cluster`]: the controllers, the scheduler, and kubectl. There is no kube-proxy, unless a
//! case runs it as a pod: what a Service leads to is seen in its EndpointSlices.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::case::Bed;
use crate::cluster::Cluster;
use crate::command::{TOOL_DEADLINE, command, finish};
use crate::daemon::Daemon;

/// An autoscaler waits minutes for a new pod's load to be its usual one.
const SOON: &[&str] = &[
    "--horizontal-pod-autoscaler-sync-period=5s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=5s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=10s",
];

/// The fixture.
#[derive(Debug)]
pub struct Controllers {
    manager: Daemon,
    scheduler: Daemon,
    kubectl: PathBuf,
    admin: PathBuf,
    /// What is applied is written there first.
    objects: PathBuf,
}

impl Controllers {
    /// Starts both.
    ///
    /// # Errors
    /// When they were not built.
    pub fn start(bed: &Bed, cluster: &Cluster) -> Result<Self> {
        let admin = cluster.admin.clone();
        let start = |name: &str, more: &[&str]| {
            let kubeconfig = format!("--kubeconfig={}", admin.display());
            let args = [&[&*kubeconfig, "--leader-elect=false", "--secure-port=0"], more].concat();
            Daemon::start(name, bed.config.peer(name)?, args, bed.logs().join(format!("{name}.log")))
        };
        let manager = start("kube-controller-manager", SOON)?;
        let scheduler = start("kube-scheduler", &[])?;
        let (kubectl, objects) = (bed.config.peer("kubectl")?, bed.dir.join("objects.json"));
        Ok(Self { manager, scheduler, kubectl, admin, objects })
    }

    /// `kubectl ARGS...` as the administrator.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut kubectl = command(&self.kubectl, ["--kubeconfig".as_ref(), self.admin.as_os_str()]);
        kubectl.args(args);
        kubectl
    }

    /// `kubectl apply` of these objects.
    ///
    /// # Errors
    /// When one is refused, or a daemon of the control plane ended.
    pub fn apply(&mut self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(&self.objects, list.to_string())?;
        let file = self.objects.display().to_string();
        self.kubectl(&["apply", "-f", &file]).map(drop)
    }

    /// The object as the API server would make it, which it does not.
    ///
    /// # Errors
    /// When it is refused, or a daemon of the control plane ended.
    pub fn tried(&mut self, object: &Value) -> Result<Value> {
        fs::write(&self.objects, object.to_string())?;
        let file = self.objects.display().to_string();
        Ok(serde_json::from_str(&self.kubectl(&["create", "--dry-run=server", "-o", "json", "-f", &file])?)?)
    }

    /// Ends both.
    ///
    /// # Errors
    /// When one of them has ended before.
    pub fn end(mut self) -> Result<()> {
        self.manager.kill9()?;
        self.scheduler.kill9()
    }

    /// What `kubectl ARGS...` prints.
    ///
    /// # Errors
    /// When it fails, or a daemon of the control plane ended.
    pub fn kubectl(&mut self, args: &[&str]) -> Result<String> {
        self.manager.still_runs()?;
        self.scheduler.still_runs()?;
        let ended = finish(&mut self.command(args), TOOL_DEADLINE)?;
        ensure!(ended.code == Some(0), "kubectl {args:?}: {}{}", ended.stdout, ended.stderr);
        Ok(ended.stdout)
    }
}
