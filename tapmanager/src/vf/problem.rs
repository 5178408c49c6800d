//! Why a VF is not claimed, handed out or given back.
//!
//! Called by [`super::claims`] and [`super::device`], which make these errors, and by [`crate::pod`] and [`crate::daemon`],
//! which tell them.

use std::path::PathBuf;
use std::time::Duration;

use common::Reason;
use proto::tap::ErrorCode;
use sriov::claim::{Cause, ClaimError};
use sriov::device::DiscoverError;
use sriov::settings::input::InputError;
use sriov::vfio::VfioError;
use sriov::{PciAddr, ReadError};

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
    #[error("failed to list the physical functions")]
    List(#[source] ReadError),
    #[error(
        "`{vf}` is claimed for pod `{owner}` and not by hand; delete the pod, or force it once the pod's machine has ended"
    )]
    NotByHand { vf: PciAddr, owner: String },
    #[error("`{by}` is no name for who claims a virtual function: 1 to 64 letters, digits, `-`, `_` and `.`")]
    By { by: String },
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(
        "the kernel does not tell of `{device}` within {} s: VFs are being taken away (`sriov_numvfs`) or unbound that a \
         machine still has; end that machine",
        within.as_secs()
    )]
    Waits { device: PciAddr, within: Duration },
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
                    | ClaimError::InUse { .. }
                    | ClaimError::Foreign { .. }
                    | ClaimError::Lost { .. }
                    | ClaimError::Ended { .. }
            ),
            Self::Lost { .. } | Self::NotClaimed { .. } | Self::NotByHand { .. } => true,
            Self::Discover(_)
            | Self::Host(_)
            | Self::Note { .. }
            | Self::Files { .. }
            | Self::Open { .. }
            | Self::List(_)
            | Self::By { .. }
            | Self::Input(_)
            | Self::Waits { .. } => false,
        }
    }

    /// What a program does about it when a person asked.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::By { .. } | Self::Input(_) | Self::Discover(DiscoverError::NoDevice { .. }) => ErrorCode::BadRequest,
            // Waiting helps none of these.
            Self::Claim(error) if matches!(**error, ClaimError::Refused { .. } | ClaimError::Shared { .. }) => {
                ErrorCode::BadRequest
            }
            Self::Waits { .. } => ErrorCode::Deadline,
            error if error.is_conflict() => ErrorCode::Conflict,
            _ => ErrorCode::Internal,
        }
    }
}
