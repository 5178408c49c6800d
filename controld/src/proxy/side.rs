//! The two sides, and which of them an id is of.

use proto::side::OUR_IDS;

/// Who serves a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Side {
    /// The other runtime of the node.
    Default,
    /// Our own services.
    Ours,
}

impl Side {
    /// Of an id, or of its beginning: crictl prints 13 characters. Other runtimes' ids are hex digits, and `v` is none
    /// (`vmspec::ids`). What is no id is the default's to refuse.
    pub(super) fn of_id(id: &str) -> Self {
        if id.starts_with(OUR_IDS) { Self::Ours } else { Self::Default }
    }
}

/// Ids of ours that do not tell so: of containers that a release of before ADR 22 made, whose calls go to the default.
pub(super) fn not_told(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    ids.into_iter().filter(|id| Side::of_id(id) != Side::Ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_its_side_whole_and_cut_short() {
        for _ in 0..50 {
            let id = vmspec::ids::random_cri_id();
            for cut in [2, 13, 64] {
                assert_eq!(Side::of_id(&id[..cut]), Side::Ours, "{id}");
            }
        }
        let old = "5f0c6f5e-2f4a-4a6c-9a0e-3d1f8f0b7c11".to_owned();
        assert_eq!(not_told([vmspec::ids::random_cri_id(), old.clone()]), [old]);
        // containerd's and CRI-O's, an old id of dockershim, nothing at all, and what a person may type.
        for id in ["4f0c1b9a7d3e", &"ab".repeat(32), "", "v", "VM12", "docker://vm12", " vm"] {
            assert_eq!(Side::of_id(id), Side::Default, "{id}");
        }
    }
}
