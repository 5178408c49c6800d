//! A real kubelet on the cell's node: static pods from a directory, and those of an API server if it has one.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use crate::case::Bed;
use crate::cluster::Cluster;
use crate::command::sh;
use crate::cri;
use crate::daemon::Daemon;
use crate::http;
use crate::node::CRI_SOCKET;
use crate::wait::wait_for;

/// The node's name.
pub const NODE: &str = "node1";
/// Where it looks for drivers of flexvolumes, in the case's directory.
pub const PLUGINS: &str = "volume-plugins";
const NODE_IP: &str = "192.168.77.1";
const READ_ONLY_PORT: u16 = 10255;
const HEALTH_PORT: u16 = 10248;
const READY_DEADLINE: Duration = Duration::from_secs(90);
/// What kubelet writes for the whole machine, with the values that it wants: in a cell it writes to files.
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The fixture.
#[derive(Debug)]
pub struct Kubelet {
    /// The daemon.
    pub daemon: Daemon,
    manifests: PathBuf,
}

impl Kubelet {
    /// Starts kubelet against controld's socket.
    ///
    /// # Errors
    /// When it was not built, or does not get healthy.
    pub fn start(bed: &Bed) -> Result<Self> {
        Self::configured(bed, &json!({}))
    }

    /// [`Kubelet::start`] with other settings.
    ///
    /// # Errors
    /// When it was not built, or does not get healthy.
    pub fn configured(bed: &Bed, settings: &Value) -> Result<Self> {
        Self::start_with(bed, "kubelet", settings, &[])
    }

    /// [`Kubelet::start`] of the release before.
    ///
    /// # Errors
    /// When it was not built, or does not get healthy.
    pub fn start_before(bed: &Bed) -> Result<Self> {
        Self::start_with(bed, "kubelet-before", &json!({}), &[])
    }

    /// Starts kubelet against controld's socket, as a node of a cluster.
    ///
    /// # Errors
    /// When it was not built, or does not get healthy.
    pub fn start_in(bed: &Bed, cluster: &Cluster) -> Result<Self> {
        Self::configured_in(bed, cluster, &json!({}))
    }

    /// [`Kubelet::start_in`] with other settings.
    ///
    /// # Errors
    /// When it was not built, or does not get healthy.
    pub fn configured_in(bed: &Bed, cluster: &Cluster, settings: &Value) -> Result<Self> {
        Self::start_with(bed, "kubelet", settings, &["--kubeconfig", &cluster.admin.to_string_lossy()])
    }

    fn start_with(bed: &Bed, program: &str, settings: &Value, more: &[&str]) -> Result<Self> {
        shield_sysctls(&bed.dir)?;
        // Stands for the node's own interface: kubelet wants an address that is not loopback, and asks DNS without one.
        for line in [
            "ip link add node0 type bridge".to_owned(),
            format!("ip addr add {NODE_IP}/24 dev node0"),
            "ip link set node0 up".to_owned(),
            "ip route add default via 192.168.77.254".to_owned(),
        ] {
            sh(&line)?;
        }
        let manifests = bed.dir.join("manifests");
        fs::create_dir(&manifests)?;
        let config = bed.dir.join("kubelet.yaml");
        let mut whole = configuration(bed, &manifests)?;
        for (key, value) in settings.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        // A line for each setting, as kubeadm writes it and people edit it. JSON is YAML.
        let lines = whole.as_object().into_iter().flatten().map(|(key, value)| format!("{key}: {value}\n"));
        fs::write(&config, lines.collect::<String>())?;
        let file = config.to_string_lossy();
        let args = [&["--config", &*file, "--hostname-override", NODE, "--node-ip", NODE_IP, "--v=2"], more].concat();
        let daemon = Daemon::start("kubelet", bed.config.peer(program)?, args, bed.logs().join("kubelet.log"))?;
        let mut kubelet = Self { daemon, manifests };
        kubelet.wait_healthy()?;
        Ok(kubelet)
    }

    /// Kills it without warning and starts it again.
    ///
    /// # Errors
    /// When it does not run, or does not get healthy.
    pub fn again(&mut self) -> Result<()> {
        self.daemon.kill9()?;
        self.restart()
    }

    /// Starts it again after it was killed.
    ///
    /// # Errors
    /// When it does not get healthy.
    pub fn restart(&mut self) -> Result<()> {
        self.daemon.start_again()?;
        self.wait_healthy()
    }

    fn wait_healthy(&mut self) -> Result<()> {
        wait_for("healthy kubelet", READY_DEADLINE, || {
            self.daemon.still_runs()?;
            // Each port has a server of its own, and starts to listen when it does.
            Ok(ask(HEALTH_PORT, "/healthz").and_then(|_well| ask(READ_ONLY_PORT, "/pods")).ok())
        })
        .map(drop)
    }

    /// Puts a pod's manifest into kubelet's directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn apply(&self, name: &str, pod: &Value) -> Result<()> {
        // Under another name first: kubelet must not read half of it.
        let hidden = self.manifests.join(format!(".{name}"));
        fs::write(&hidden, pod.to_string())?;
        fs::rename(&hidden, self.manifests.join(format!("{name}.json")))?;
        Ok(())
    }

    /// Takes a manifest away.
    ///
    /// # Errors
    /// When there is none.
    pub fn delete(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.manifests.join(format!("{name}.json")))?)
    }

    /// The pods as kubelet's read-only API shows them.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn pods(&self) -> Result<Vec<Value>> {
        let list: Value = serde_json::from_str(&ask(READ_ONLY_PORT, "/pods")?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// What kubelet says that the node and its pods use: eviction, `kubectl top` and autoscaling live on it.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn stats_summary(&self) -> Result<Value> {
        Ok(serde_json::from_str(&ask(READ_ONLY_PORT, "/stats/summary")?)?)
    }

    /// A page of kubelet's metrics: `/metrics` has its own, `/metrics/cadvisor` those of containers.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metrics(&self, path: &str) -> Result<String> {
        ask(READ_ONLY_PORT, path)
    }

    /// Fails unless kubelet says that these of its feature gates, which [`gates`] has turned on, are on.
    ///
    /// # Errors
    /// When one is off, or kubelet does not answer.
    pub fn has_gates(&self, names: &[&str]) -> Result<()> {
        let page = self.metrics("/metrics")?;
        let said = |name: &&&str| {
            let begin = format!("kubernetes_feature_enabled{{name=\"{name}\",");
            page.lines().any(|line| line.starts_with(&begin) && line.ends_with(" 1"))
        };
        let off: Vec<_> = names.iter().filter(|name| !said(name)).collect();
        ensure!(off.is_empty(), "kubelet does not say that {off:?} are on");
        Ok(())
    }

    /// Waits until `holds` is true of the pod.
    ///
    /// # Errors
    /// When it is not in time: the error has the pod.
    pub fn wait_pod(&self, what: &str, deadline: Duration, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        wait_for(what, deadline, || {
            last = self.pods()?.first().cloned().unwrap_or_default();
            Ok(holds(&last).then(|| last.clone()))
        })
        .with_context(|| no_pod(what, &last))
    }
}

/// What is said of a pod that does not get to be what was awaited: that first, since a report may show the first line alone.
#[must_use]
pub fn no_pod(what: &str, pod: &Value) -> String {
    let status = &pod["status"];
    format!("no {what}: {}, {}: {}", status["phase"], status["reason"], status["containerStatuses"])
}

/// Settings of kubelet that turn these feature gates on.
#[must_use]
pub fn gates(names: &[&str]) -> Value {
    let on: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!(true))).collect();
    json!({"featureGates": on})
}

/// Manifest of a pod whose only container is a machine.
#[must_use]
pub fn manifest(name: &str, image: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 20,
            "automountServiceAccountToken": false,
            // As a RuntimeClass says it, and the API server then of each of its pods.
            "overhead": {"memory": format!("{}", cri::POD_FIXED)},
            "containers": [{
                "name": "vm", "image": image, "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"memory": "160Mi", "cpu": "1"}},
            }],
        },
    })
}

fn configuration(bed: &Bed, manifests: &Path) -> Result<Value> {
    let resolv_conf = bed.dir.join("resolv.conf");
    fs::write(&resolv_conf, "nameserver 192.0.2.53\n")?;
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{CRI_SOCKET}"),
        "staticPodPath": manifests,
        "volumePluginDir": bed.dir.join(PLUGINS),
        "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": READ_ONLY_PORT,
        "fileCheckFrequency": "1s", "syncFrequency": "2s",
        "runtimeRequestTimeout": "4m",
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.test",
        "resolvConf": resolv_conf,
    }))
}

fn ask(port: u16, path: &str) -> Result<String> {
    http::get_from(IpAddr::V4(Ipv4Addr::LOCALHOST), port, path)
}

fn shield_sysctls(dir: &Path) -> Result<()> {
    for (name, value) in SYSCTLS {
        let file = dir.join(format!("sysctl-{}", name.replace('/', "-")));
        fs::write(&file, value)?;
        sh(&format!("mount --bind {} /proc/sys/{name}", file.display()))?;
    }
    Ok(())
}
