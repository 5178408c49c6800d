//! What a machine would have, by all that is known without the node: no image, no emulator and no network is asked.

use super::{Draft, Wishes};
use crate::config::{Handler, MachineConfig};
use crate::container::explain::{Made, Said, Setting, explain};
use crate::model::annotations::PodAnnotations;
use crate::model::error::Result;
use crate::model::{Accelerator, ContainerConfig, MachineId, SandboxConfig};

/// A machine that may be asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise<'a> {
    pub(crate) sandbox: &'a SandboxConfig,
    pub(crate) container: &'a ContainerConfig,
    pub(crate) annotations: &'a PodAnnotations,
    pub(crate) handler: &'a Handler,
    pub(crate) accel: Accelerator,
    pub(crate) node: &'a MachineConfig,
}

/// What it would have.
///
/// # Errors
/// When no node would make it.
pub(crate) fn promise(promise: Promise<'_>) -> Result<Vec<Setting>> {
    let Promise { sandbox, container, annotations, handler, accel, node } = promise;
    let id = MachineId::random();
    let draft = Draft::of(Wishes { id, sandbox, container, annotations, handler, offer: None, accel, node })?;
    let made = Made {
        cpus: draft.size.cpus,
        memory: draft.size.memory,
        huge_page: draft.huge_page,
        hardware: &draft.hardware,
        share: draft.share.as_ref(),
    };
    Ok(explain(Said { annotations, container, handler }, made))
}
