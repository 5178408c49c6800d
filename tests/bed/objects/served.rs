//! What `install` prints, whole: an operator that the API server reaches by its Service for presets, and that may do what its account may.
//! Another one takes over from it, and a namespace goes while there is none.
//!
//! Pods only have the statuses of pods that run ([`ShamKubelet`]): what is shown is of the operator and of the API server.

mod namespace;
mod presets;
mod upgrade;

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cluster::Cluster;
use tests::command::{Ended, sh};
use tests::controllers::Controllers;
use tests::daemon::Daemon;
use tests::http;
use tests::sham_kubelet::{Mood, ShamKubelet};
use tests::wait::wait_for;

use super::{NEWS_DEADLINE, World, instance};

/// A control plane starts, and some minutes of objects.
const DEADLINE: Duration = Duration::from_secs(480);
/// Until all that was asked for runs, or is gone.
const SETTLE_DEADLINE: Duration = Duration::from_secs(120);
const OPERATOR: &str = "virtlet-operator";
const NAMESPACE: &str = "virtlet-system";
/// Of VMs.
const WEB: &str = "web";
const METRICS_PORT: u16 = 8080;

pub(super) const CASES: &[Case] =
    &[Case { name: "objects::presets_an_upgrade_and_a_namespace_that_goes", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let mut served = Served::start(bed)?;
    presets::merged(&mut served)?;
    upgrade::unnoticed(&mut served)?;
    namespace::goes(&mut served)?;
    let log = served.operator.log()?;
    for wrong in ["panicked", "cannot "] {
        ensure!(!log.contains(wrong), "the operator says `{wrong}`: {log}");
    }
    Ok(())
}

struct Served<'a> {
    world: World<'a>,
    kubelet: ShamKubelet,
    operator: Daemon,
    /// By which the operator reaches the API server, as its account.
    kubeconfig: PathBuf,
    /// Where its Service leads.
    webhook: SocketAddr,
}

impl<'a> Served<'a> {
    fn start(bed: &'a Bed) -> Result<Self> {
        let cluster = Cluster::start(bed)?;
        let mut controllers = Controllers::start(bed, &cluster)?;
        let kubelet = ShamKubelet::start(&cluster, 0)?;
        kubelet.set(Mood::Fair);
        controllers.apply(&[crate::kubelet::whole::runtime_class(), named("v1", "Namespace", WEB)])?;
        let world = World { bed, cluster, controllers };
        world.install(&["--without", "subresources"])?;
        let [token, address] = [
            world.kubectl(&["create", "token", OPERATOR, "-n", NAMESPACE])?,
            world.kubectl(&["get", "service", OPERATOR, "-n", NAMESPACE, "-o", "jsonpath={.spec.clusterIP}"])?,
        ];
        // Nobody proxies Services here, so the operator has the address itself.
        sh(&format!("ip addr add {address}/32 dev lo"))?;
        let webhook = SocketAddr::new(address.parse().context("no address of the Service")?, 443);
        let mut config: Value = serde_json::from_slice(&fs::read(&world.cluster.admin)?)?;
        config["users"][0]["user"]["token"] = token.trim().into();
        let kubeconfig = bed.dir.join("operator.kubeconfig");
        fs::write(&kubeconfig, config.to_string())?;

        wait_for("webhook that nobody answers", NEWS_DEADLINE, || {
            let told = world.try_create(&sized("none"))?;
            Ok(told.stderr.contains("failed calling webhook \"presets.virtlet.k8s\"").then_some(()))
        })?;
        let operator = serve(bed, &kubeconfig, "first", Some(webhook))?;
        Ok(Self { world, kubelet, operator, kubeconfig, webhook })
    }

    /// Another operator in place of the one that has ended.
    fn serve(&mut self, name: &str, webhook: Option<SocketAddr>) -> Result<()> {
        self.operator = serve(self.world.bed, &self.kubeconfig, name, webhook)?;
        Ok(())
    }

    fn apply(&mut self, objects: &[Value]) -> Result<()> {
        self.world.controllers.apply(objects)
    }

    /// What `kubectl create` says to an object that is in the namespace [`WEB`].
    fn create(&self, object: &Value) -> Result<Ended> {
        let file = self.world.file(&object.to_string())?;
        self.world.tried(&["create", "-f", &file])
    }

    /// Waits until something holds, while operator and kubelets run.
    fn settles(&mut self, what: &str, mut holds: impl FnMut(&World<'_>) -> Result<bool>) -> Result<()> {
        wait_for(what, SETTLE_DEADLINE, || {
            self.kubelet.check()?;
            self.operator.still_runs()?;
            Ok(holds(&self.world)?.then_some(()))
        })
    }

    /// The sum of a metric's figures in the operator's text whose names begin so; 0 as long as it does not answer.
    fn figure(&self, begins: &str) -> f64 {
        let text = http::get_from(IpAddr::V4(Ipv4Addr::LOCALHOST), METRICS_PORT, "/metrics").unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with(begins));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

fn serve(bed: &Bed, kubeconfig: &Path, name: &str, webhook: Option<SocketAddr>) -> Result<Daemon> {
    let mut words = vec!["run".to_owned(), format!("--listen=127.0.0.1:{METRICS_PORT}"), format!("--name={name}")];
    words.extend(webhook.map(|at| format!("--webhook={at}")));
    let words = words.iter().map(OsStr::new).chain(["--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
    Daemon::start("operator", bed.program(OPERATOR), words, bed.logs().join("operator.log"))
}

fn named(version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}})
}

/// One that preset `small` is for, with all that it needs.
fn sized(name: &str) -> Value {
    let mut sized = instance(name);
    sized["metadata"] = json!({"name": name, "namespace": WEB, "labels": {"size": "small"}});
    sized
}

/// What a template has of one that gets its memory of preset `small`, and that has a Secret.
fn template(labels: &Value) -> Value {
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "domain": {"devices": {}}, "terminationGracePeriodSeconds": 5,
            "volumes": [
                {"name": "root", "containerDisk": {"image": "x/y:1"}},
                {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
            ],
        },
    })
}

fn preset(namespace: &str, name: &str, labels: &Value, domain: &Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "domain": domain},
    })
}

fn vm(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name, "namespace": namespace},
        "spec": {"runStrategy": "Always", "template": template(&json!({"size": "small"}))},
    })
}

fn set(namespace: &str, name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"set": name}},
            "template": template(&json!({"set": name, "size": "small"})),
        },
    })
}
