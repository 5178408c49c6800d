//! A container runtime, asked at its own socket as kubelet would ask it.

use std::collections::BTreeSet;
use std::time::Duration;

use proto::cri::{
    CgroupDriver, CheckpointPodRequest, ContainerConfig, ContainerFilter, ContainerState, ContainerStateValue,
    ListContainerStatsRequest, ListContainersRequest, PodSandboxConfig, RestorePodRequest, RuntimeConfigRequest,
    StatusRequest,
};
use tonic::Code;

use super::{Client, call, look};
use crate::error::CtlError;

/// Of the largest machines, to a slow disk.
const CHECKPOINT_DEADLINE: Duration = Duration::from_secs(3600);

/// What it says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runtime {
    /// Name and version.
    pub(crate) name: String,
    /// Names of its runtime handlers; the one of pods without a RuntimeClass is empty.
    pub(crate) handlers: BTreeSet<String>,
    /// By what kubelet is to manage cgroups; a runtime of before that call does not say.
    pub(crate) cgroup_driver: Option<&'static str>,
    /// How many of its containers run.
    pub(crate) running: usize,
    /// Of how many containers it tells what they use of processors and memory.
    pub(crate) with_stats: usize,
}

impl Client {
    /// Writes a pod to a directory, as kubelet would have it. Who leaves has it undone.
    pub(crate) async fn checkpoint(&self, sandbox: &str, dir: &str) -> Result<(), CtlError> {
        let mut runtime = self.runtime.clone();
        let (pod_sandbox_id, output_path) = (sandbox.to_owned(), dir.to_owned());
        let request = CheckpointPodRequest { pod_sandbox_id, output_path, ..Default::default() };
        call("write the checkpoint", CHECKPOINT_DEADLINE, runtime.checkpoint_pod(request)).await.map(drop)
    }

    /// Makes a pod of a checkpoint, under a runtime handler: ids of its sandbox, and of its container, which is to be started.
    pub(crate) async fn restore(
        &self,
        dir: &str,
        (config, handler): (PodSandboxConfig, &str),
        container: ContainerConfig,
    ) -> Result<(String, String), CtlError> {
        let mut runtime = self.runtime.clone();
        let request = RestorePodRequest {
            checkpoint_path: dir.to_owned(),
            config: Some(config),
            runtime_handler: handler.to_owned(),
            container_configs: vec![container],
            ..Default::default()
        };
        let what = "make the pod of the checkpoint";
        let answer = call(what, CHECKPOINT_DEADLINE, runtime.restore_pod(request)).await?;
        let container = answer.restored_containers.into_iter().next().map(|restored| restored.container_id);
        Ok((answer.pod_sandbox_id, container.unwrap_or_default()))
    }

    /// All that is asked.
    pub(crate) async fn runtime(&self) -> Result<Runtime, CtlError> {
        let mut node = self.node.clone();
        let version = self.node_version().await?;
        let status = look("read its status", node.status(StatusRequest { verbose: false })).await?;
        let cgroup_driver = match look("read its cgroup driver", node.runtime_config(RuntimeConfigRequest {})).await {
            Ok(config) => config.linux.map(|linux| match linux.cgroup_driver() {
                CgroupDriver::Systemd => "systemd",
                CgroupDriver::Cgroupfs => "cgroupfs",
            }),
            Err(error) if error.code() == Some(Code::Unimplemented) => None,
            Err(error) => return Err(error),
        };
        let runs = ContainerStateValue { state: ContainerState::ContainerRunning.into() };
        let filter = Some(ContainerFilter { state: Some(runs), ..Default::default() });
        let running = look("list its containers", node.list_containers(ListContainersRequest { filter })).await?;
        let stats = node.list_container_stats(ListContainerStatsRequest::default());
        let with_stats = match look("read what its containers use", stats).await {
            Ok(stats) => stats.stats.iter().filter(|stats| stats.cpu.is_some() && stats.memory.is_some()).count(),
            Err(error) if error.code() == Some(Code::Unimplemented) => 0,
            Err(error) => return Err(error),
        };
        Ok(Runtime {
            name: format!("{} {}", version.runtime_name, version.runtime_version),
            handlers: status.runtime_handlers.into_iter().map(|handler| handler.name).collect(),
            cgroup_driver,
            running: running.containers.len(),
            with_stats,
        })
    }
}
