//! RestorePod. As RunPodSandbox and CreateContainer, of which it has the arguments, it goes on to its end if its caller leaves, and gives the same
//! answer if it is repeated.

use proto::cri::{RestorePodRequest, RestorePodResponse, RestoredContainer, RunPodSandboxRequest};
use tonic::Status;
use vmspec::error::{Error, Kind, Result};

use super::checkpoint::no_options;
use super::{Runtime, answer, finish};
use crate::api::cri::convert;
use crate::api::span;
use crate::sandbox::Restore;

impl Runtime {
    /// Makes a pod of a checkpoint.
    pub(super) async fn make_pod(&self, request: RestorePodRequest) -> Result<RestorePodResponse, Status> {
        answer(no_options(request.options.keys()))?;
        let restore = answer(of(request))?;
        span::about_pod(&restore.sandbox);
        let (sandboxes, name) = (self.sandboxes.clone(), restore.container.name.clone());
        let (sandbox, container) = finish(async move { sandboxes.restore(restore).await }).await?;
        span::about_container(container);
        let restored = RestoredContainer { name, container_id: container.to_string() };
        Ok(RestorePodResponse { pod_sandbox_id: sandbox.to_string(), restored_containers: vec![restored] })
    }
}

/// # Errors
/// When it is not the configuration of a pod with one container: a checkpoint has none.
fn of(request: RestorePodRequest) -> Result<Restore> {
    let RestorePodRequest { checkpoint_path, config, runtime_handler, options: _, container_configs } = request;
    let sandbox = convert::sandbox_config(RunPodSandboxRequest { config, runtime_handler })?;
    let Ok([container]) = <[_; 1]>::try_from(container_configs) else {
        let what = "a pod that is made of a checkpoint has one container, which is its machine; give its configuration as CreateContainer has it";
        return Err(Error::new(Kind::Invalid, what));
    };
    Ok(Restore { path: checkpoint_path, sandbox, container: convert::container_config(container)? })
}

#[cfg(test)]
mod tests {
    use proto::cri::{ContainerConfig, ContainerMetadata, ImageSpec, PodSandboxConfig, PodSandboxMetadata};

    use super::*;

    #[test]
    fn a_pod_of_a_checkpoint_is_said_as_any_other() {
        let metadata = PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "ns".into(), attempt: 0 };
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "vm".into(), attempt: 0 }),
            image: Some(ImageSpec { image: "tiny".into(), ..Default::default() }),
            ..Default::default()
        };
        let whole = RestorePodRequest {
            checkpoint_path: "/c".into(),
            config: Some(PodSandboxConfig { metadata: Some(metadata), ..Default::default() }),
            runtime_handler: "virtlet".into(),
            container_configs: vec![container.clone()],
            ..Default::default()
        };
        let restore = of(whole.clone()).expect("whole");
        assert_eq!(
            (&*restore.path, &*restore.sandbox.runtime_handler, &*restore.container.name),
            ("/c", "virtlet", "vm")
        );
        let without = |container_configs| RestorePodRequest { container_configs, ..whole.clone() };
        for other in [
            RestorePodRequest { config: None, ..whole.clone() },
            without(Vec::new()),
            without(vec![container.clone(), container]),
        ] {
            assert_eq!(of(other).expect_err("refused").kind(), Kind::Invalid);
        }
    }
}
