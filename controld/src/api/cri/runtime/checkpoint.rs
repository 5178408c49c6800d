//! CheckpointPod. A caller that leaves, or whose deadline has passed, wants no checkpoint, and nor does a controld that goes down: what was
//! begun is undone then.

use proto::cri::CheckpointPodRequest;
use tonic::Status;
use vmspec::error::{Error, Kind, Result};

use super::{Runtime, answer, finish};

/// Longest part of an option's name that an error shows, in characters.
const MAX_SHOWN: usize = 64;

impl Runtime {
    /// Writes a pod to a directory.
    pub(super) async fn write_pod(&self, request: CheckpointPodRequest) -> Result<(), Status> {
        let CheckpointPodRequest { pod_sandbox_id, output_path, container_ids, options } = request;
        answer(no_options(options.keys()))?;
        let sandbox = answer(self.sandbox_id(&pod_sandbox_id))?;
        let asked: Result<Vec<_>> = container_ids.iter().map(|id| self.container_id(id)).collect();
        let (asked, containers) = (answer(asked)?, self.containers.clone());
        let unwanted = containers.checkpoint_token();
        let _left = unwanted.clone().drop_guard();
        finish(async move { containers.checkpoint(&sandbox, &asked, &output_path, unwanted).await }).await
    }
}

/// CRI leaves options to the runtime, which refuses those that it does not know; we have none, of checkpoints and of pods that are made of them.
pub(super) fn no_options<'a>(names: impl Iterator<Item = &'a String>) -> Result<()> {
    let Some(name) = names.min() else { return Ok(()) };
    let shown: String = name.chars().flat_map(char::escape_default).take(MAX_SHOWN).collect();
    Err(Error::new(Kind::Invalid, format!("option `{shown}` is not known; a checkpoint has no options")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_ours_are_refused() {
        no_options([].iter()).expect("none");
        let names = ["tcp-established".to_owned(), "leave\n-running".to_owned()];
        let refused = no_options(names.iter()).expect_err("not ours");
        assert_eq!(refused.kind(), Kind::Invalid);
        assert!(refused.to_string().contains(r"`leave\n-running`"), "{refused}");
    }
}
