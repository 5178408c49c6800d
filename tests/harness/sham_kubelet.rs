//! What a scheduler and kubelets do to the pods of a [`Cluster`], as far as their statuses go. Nothing runs.
//!
//! In place of the real ones, since an emulated guest takes tens of seconds to boot, and cases here need hundreds of VMs that end in every way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::dice::Dice;

/// Between two looks at all pods.
const ROUND: Duration = Duration::from_millis(150);
/// Label of an instance's name.
const INSTANCE: &str = "virtlet.k8s/vmi";
/// The node of all pods.
const NODE: &str = "node1";
/// Between two signs of its life, of which Kubernetes wants one in 40 s. Not so many rounds: of hundreds of pods, on a busy machine, one takes
/// seconds.
const BEAT: Duration = Duration::from_secs(3);

/// The kubelets, until this is dropped.
#[derive(Debug)]
pub struct ShamKubelet {
    mood: Arc<Mutex<Mood>>,
    work: JoinHandle<()>,
    wrong: Arc<Mutex<Option<String>>>,
    _runtime: Runtime,
}

/// How pods fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// They start, fail to start, are powered off and die, and end when they are deleted or some time later.
    Stormy,
    /// They start, run, and end once they are deleted.
    Fair,
}

impl ShamKubelet {
    /// Begins; the seed says how pods fare.
    ///
    /// # Errors
    /// When the cluster cannot be reached.
    pub fn start(cluster: &Cluster, seed: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(cluster.client())?;
        let (mood, wrong) = (Arc::new(Mutex::new(Mood::Stormy)), Arc::new(Mutex::new(None)));
        let work = runtime.spawn(work(client, Dice::new(seed), Arc::clone(&mood), Arc::clone(&wrong)));
        Ok(Self { mood, work, wrong, _runtime: runtime })
    }

    /// From now on pods fare so.
    pub fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// Fails if two pods of one instance were ever alive together.
    ///
    /// # Errors
    /// See above; also when the kubelets ended.
    pub fn check(&self) -> Result<()> {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        ensure!(!self.work.is_finished(), "the kubelets of the case have ended");
        Ok(())
    }
}

async fn work(client: Client, dice: Dice, mood: Arc<Mutex<Mood>>, wrong: Arc<Mutex<Option<String>>>) {
    let mut rounds = tokio::time::interval(ROUND);
    let mut beaten = None::<Instant>;
    loop {
        rounds.tick().await;
        if beaten.is_none_or(|at| at.elapsed() >= BEAT) {
            beaten = Some(Instant::now());
            let _ = alive(&client).await;
        }
        let now = *mood.lock().unwrap_or_else(PoisonError::into_inner);
        // Of one that is gone meanwhile nothing is to be done, and what fails is done in the next round.
        if let Ok(pods) = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await {
            if let Err(error) = one_at_most(&pods.items) {
                wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.to_string());
            }
            for pod in &pods.items {
                let _ = one(&client, pod, &dice, now).await;
            }
        }
    }
}

/// Has the node be there, ready and nobody's to schedule to. Without it Kubernetes would take its pods away after a minute.
async fn alive(client: &Client) -> Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": NODE}, "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))?;
    // It is there but for the first time.
    let _ = Api::all(client.clone()).create(&PostParams::default(), &node).await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NODE},
        "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": MicroTime(Timestamp::now())},
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    leases.patch(NODE, &PatchParams::apply("bed").force(), &Patch::Apply(lease)).await?;
    Ok(())
}

/// Of each instance's name, whichever instance has it.
fn one_at_most(pods: &[Pod]) -> Result<()> {
    let mut alive: BTreeMap<(Option<String>, &str), Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !is_over(pod)) {
        if let Some(instance) = pod.labels().get(INSTANCE) {
            alive.entry((pod.namespace(), instance)).or_default().push(pod.name_any());
        }
    }
    for ((_, instance), pods) in alive {
        ensure!(pods.len() < 2, "two pods of instance {instance} are alive: {pods:?}");
    }
    Ok(())
}

async fn one(client: &Client, pod: &Pod, dice: &Dice, mood: Mood) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().context("no namespace")?);
    let name = pod.name_any();
    let write = async |status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(&name, &PatchParams::default(), &patch).await
    };
    let is_stormy = mood == Mood::Stormy;
    let happens = |of_hundred| dice.below(100) < of_hundred;
    if pod.metadata.deletion_timestamp.is_some() {
        if !is_stormy || happens(40) {
            if !is_over(pod) {
                write(ended(happens(50))).await?;
            }
            api.delete(&name, &DeleteParams::default().grace_period(0)).await?;
        }
        return Ok(());
    }
    if is_over(pod) {
        return Ok(());
    }
    let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    if !has_node {
        bind(client, pod).await?;
    } else if !is_running {
        if is_stormy && happens(3) {
            write(ended(false)).await?;
        } else if !is_stormy || happens(60) {
            write(running()).await?;
        }
    } else if is_stormy && happens(4) {
        write(ended(happens(50))).await?;
    }
    Ok(())
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

async fn bind(client: &Client, pod: &Pod) -> Result<()> {
    let (namespace, name) = (pod.namespace().context("no namespace")?, pod.name_any());
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    });
    let request = tonic::codegen::http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"))
        .header("content-type", "application/json")
        .body(binding.to_string().into_bytes())?;
    client.request::<Value>(request).await?;
    Ok(())
}

fn running() -> Value {
    json!({
        "phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [container(true, &json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}))],
    })
}

fn ended(by_itself: bool) -> Value {
    let (phase, reason, code) = if by_itself { ("Succeeded", "Completed", 0) } else { ("Failed", "QemuDied", 255) };
    json!({
        "phase": phase, "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [container(false, &json!({"terminated": {"exitCode": code, "reason": reason}}))],
    })
}

fn container(ready: bool, state: &Value) -> Value {
    json!({"name": "vm", "image": "i", "imageID": "i", "ready": ready, "restartCount": 0, "state": state})
}
