//! What kubelet is told that there is, by pods: of each the sandboxes and the containers, and whether they run.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use proto::cri::{ContainerState, ListContainersRequest, ListPodSandboxRequest, PodSandboxState};
use tests::cri::Cri;
use tests::kubelet::NODE;

/// All pods, by the names of their manifests.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<String, Pod>);

/// Ids, and whether what they name is ready or runs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pod {
    sandboxes: BTreeMap<String, bool>,
    containers: BTreeMap<String, bool>,
}

impl Told {
    /// By a socket that kubelet could speak to.
    pub(super) fn by(cri: &Cri) -> Result<Self> {
        let request = ListPodSandboxRequest::default();
        let sandboxes = cri.call(|mut client| async move { client.list_pod_sandbox(request).await })?.items;
        let request = ListContainersRequest::default();
        let containers = cri.call(|mut client| async move { client.list_containers(request).await })?.containers;
        let mut pods = BTreeMap::<String, Pod>::new();
        for sandbox in sandboxes {
            let is_ready = sandbox.state() == PodSandboxState::SandboxReady;
            let name = sandbox.metadata.context("a sandbox of no pod")?.name;
            let name = name.strip_suffix(&format!("-{NODE}")).context("a pod of no manifest")?;
            let pod = pods.entry(name.to_owned()).or_default();
            for container in containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id) {
                pod.containers.insert(container.id.clone(), container.state() == ContainerState::ContainerRunning);
            }
            pod.sandboxes.insert(sandbox.id, is_ready);
        }
        Ok(Self(pods))
    }

    /// The id of the pod's container.
    pub(super) fn container(&self, name: &str) -> Result<String> {
        let ids: Vec<_> = self.0.get(name).into_iter().flat_map(|pod| pod.containers.keys()).collect();
        let [id] = *ids else { bail!("not one container of {name}: {ids:?}") };
        Ok(id.clone())
    }

    /// Of the pod's sandboxes and containers.
    pub(super) fn ids(&self, name: &str) -> Vec<&str> {
        let pods = self.0.get(name).into_iter();
        pods.flat_map(|pod| pod.sandboxes.keys().chain(pod.containers.keys())).map(String::as_str).collect()
    }

    /// Fails unless these pods are what they were.
    pub(super) fn stay(&self, names: &[&str], before: &Self) -> Result<()> {
        for name in names {
            let (before, now) = (before.0.get(*name), self.0.get(*name));
            ensure!(before == now, "{name}: {before:?}, then {now:?}");
        }
        Ok(())
    }

    /// Whether nothing of a pod runs. What is left of it kubelet removes once a minute.
    pub(super) fn has_ended(&self, name: &str) -> bool {
        let mut states =
            self.0.get(name).into_iter().flat_map(|pod| pod.sandboxes.values().chain(pod.containers.values()));
        states.all(|runs| !runs)
    }
}
