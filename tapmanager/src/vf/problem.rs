//! Why a VF is not claimed, handed out or given back.
//!
//! Called by [`super::claims`] and [`super::device`], which make these errors, and by [`crate::pod`], which tells them.

use std::path::PathBuf;

use common::Reason;
use sriov::PciAddr;
use sriov::claim::{Cause, ClaimError};
use sriov::device::DiscoverError;
use sriov::vfio::VfioError;

/// Why a VF is not claimed, handed out or given back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VfError {
    #[error(transparent)]
    Claim(#[from] Box<ClaimError>),
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    #[error(transparent)]
    Host(#[from] Reason),
    #[error("failed to read the note of `{vf}`")]
    Note {
        vf: PciAddr,
        #[source]
        cause: Cause,
    },
    #[error("`{vf}` is noted as the pod's and has no note any more; detach the pod and attach it again")]
    Lost { vf: PciAddr },
    #[error("`{vf}` is not claimed for the pod; detach the pod and attach it again")]
    NotClaimed { vf: PciAddr },
    #[error("failed to find the files of `{vf}`")]
    Files {
        vf: PciAddr,
        #[source]
        cause: VfioError,
    },
    #[error("failed to open `{}`", path.display())]
    Open {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
}

// === impl VfError ===

impl VfError {
    /// Whether the state of the VF stands against it, rather than the node failing.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Claim(error) => matches!(
                **error,
                ClaimError::Refused { .. }
                    | ClaimError::Shared { .. }
                    | ClaimError::Claimed { .. }
                    | ClaimError::Gone { .. }
                    | ClaimError::Foreign { .. }
                    | ClaimError::Lost { .. }
                    | ClaimError::Ended { .. }
            ),
            Self::Lost { .. } | Self::NotClaimed { .. } => true,
            Self::Discover(_) | Self::Host(_) | Self::Note { .. } | Self::Files { .. } | Self::Open { .. } => false,
        }
    }
}
