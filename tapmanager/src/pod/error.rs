//! Errors of requests about pods: a class for the program that asked, a line for people.

use std::error::Error;
use std::fmt;
use std::io;
use std::iter::successors;
use std::path::PathBuf;

use common::Chain;
use nix::errno::Errno;
use proto::tap::{ErrorBody, ErrorCode, PodId, PodPhase};

use super::machine::Conflict;
use super::request::BadAttach;
use super::sysctl::SysctlError;
use super::world::WorldError;
use crate::cni::{CniError, PluginError};
use crate::faults::InjectedFault;
use crate::journal::JournalError;
use crate::net::JoinError;
use crate::sys::netns::NetnsError;
use crate::sys::tap::TapError;

/// Why a request about a pod was not fulfilled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    #[error(transparent)]
    Bad(#[from] BadAttach),
    #[error("pod `{}` cannot be attached; detach it first", pod.as_str())]
    Conflict {
        pod: PodId,
        #[source]
        why: Conflict,
    },
    #[error(transparent)]
    Attach(#[from] Box<AttachError>),
    #[error(transparent)]
    Detach(#[from] Box<DetachError>),
    #[error("failed to hand out the virtual functions of pod `{}`", pod.as_str())]
    HandOut {
        pod: PodId,
        #[source]
        cause: WorldError,
    },
    #[error("failed to open the NICs of pod `{}`", pod.as_str())]
    Nics {
        pod: PodId,
        #[source]
        cause: WorldError,
    },
    #[error("pod `{}` cannot be taken up again", pod.as_str())]
    Recover {
        pod: PodId,
        #[source]
        cause: WorldError,
    },
    #[error("pod `{}` is on record; detach it", pod.as_str())]
    OnRecord { pod: PodId },
    #[error("namespace `{}` is not one whose owner is unknown; detach or forget its pod", netns.display())]
    Owned { netns: PathBuf },
    #[error("failed to forget `{}`", what.display())]
    Forget {
        what: PathBuf,
        #[source]
        cause: WorldError,
    },
    #[error("failed to remove the record of pod `{}`", pod.as_str())]
    Unrecorded {
        pod: PodId,
        #[source]
        cause: JournalError,
    },
    #[error("pod `{}` has no network here; attach it first", pod.as_str())]
    Unknown { pod: PodId },
    #[error("pod `{}` is {}; attach it first", pod.as_str(), verb(*phase))]
    NotAttached { pod: PodId, phase: PodPhase },
    #[error("network of pod `{}` is of no use: {trouble}", pod.as_str())]
    Unusable { pod: PodId, trouble: String },
    #[error("pod `{}` is being recovered after a restart of tapmanager; ask again", pod.as_str())]
    Recovering { pod: PodId },
    #[error("too many requests about pod `{}` are waiting; ask again later", pod.as_str())]
    Busy { pod: PodId },
    #[error("tapmanager is going down; ask again when it is back")]
    Closing,
    #[error("work on pod `{}` broke off; this is a bug, see the log; restart tapmanager to recover the pod", pod.as_str())]
    Died { pod: PodId },
}

/// A pod was not given a network.
#[derive(Debug, thiserror::Error)]
#[error("pod `{}` was not attached", pod.as_str())]
pub(crate) struct AttachError {
    pub(super) pod: PodId,
    #[source]
    pub(super) cause: StepError,
    pub(super) undone: Undone,
}

/// What became of the undo of an Attach.
#[derive(Debug, Default)]
pub(crate) struct Undone {
    /// What could not be undone.
    pub(super) left_behind: Vec<StepError>,
    /// The pod stays on record, so that a Detach can try again.
    pub(super) on_record: bool,
}

/// A pod's network was not wholly taken away.
#[derive(Debug, thiserror::Error)]
#[error("pod `{}` is not wholly detached yet; that is tried again", pod.as_str())]
pub(crate) struct DetachError {
    pub(super) pod: PodId,
    #[source]
    pub(super) cause: StepError,
}

/// A step failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {step}")]
pub(crate) struct StepError {
    pub(super) step: Step,
    #[source]
    pub(super) cause: StepCause,
}

/// Steps of an Attach, and their undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    ReadConfiguration,
    LookAtNetns,
    WriteIntent,
    CreateNetns,
    Sysctls,
    Add,
    Join,
    Claim,
    Serve,
    WriteResult,
    GiveBack,
    Unjoin,
    SendBack,
    Del,
    RemoveNetns,
    Forget,
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepCause {
    #[error(transparent)]
    World(#[from] WorldError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("{}", Each(.0))]
    Dels(Vec<WorldError>),
    #[error(transparent)]
    Bad(#[from] BadAttach),
    #[error(transparent)]
    Fault(#[from] InjectedFault),
    #[error("a file that we did not make is in the place of its namespace; remove it if nobody needs it")]
    Taken,
}

// === impl PodError ===

impl PodError {
    /// What the peer is told.
    pub(crate) fn body(&self) -> ErrorBody {
        let mut message = Chain(self).to_string();
        if let Self::Attach(error) = self {
            message = format!("{message}; {}", error.undone);
        }
        ErrorBody { code: self.code(), message }
    }

    fn code(&self) -> ErrorCode {
        match self {
            Self::Bad(_) => ErrorCode::BadRequest,
            Self::OnRecord { .. } | Self::Owned { .. } => ErrorCode::Conflict,
            Self::Forget { cause, .. } => world_code(cause),
            Self::Unrecorded { cause, .. } => kernel_code(cause),
            Self::Conflict { .. } | Self::NotAttached { .. } | Self::Unusable { .. } => ErrorCode::Conflict,
            Self::Attach(error) => error.cause.cause.code(),
            Self::Detach(error) => error.cause.cause.code(),
            Self::HandOut { cause, .. } | Self::Nics { cause, .. } | Self::Recover { cause, .. } => world_code(cause),
            Self::Unknown { .. } => ErrorCode::NotFound,
            Self::Recovering { .. } | Self::Busy { .. } | Self::Closing => ErrorCode::Unavailable,
            Self::Died { .. } => ErrorCode::Internal,
        }
    }
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left_behind.is_empty() {
            return f.write_str("nothing is left of it");
        }
        let parts: Vec<String> = self.left_behind.iter().map(|error| Chain(error).to_string()).collect();
        write!(f, "not undone: {}", parts.join(", and "))?;
        f.write_str(if self.on_record { "; detach the pod to try again" } else { "" })
    }
}

/// Several errors with their causes: a chain of sources has room for one only.
struct Each<'a>(&'a [WorldError]);

impl fmt::Display for Each<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "; and " }, Chain(error))?;
        }
        Ok(())
    }
}

impl StepCause {
    /// Whether nothing but plugins that are not installed are to blame.
    pub(super) fn is_absence(&self) -> bool {
        let Self::Dels(errors) = self else { return false };
        errors.iter().all(|error| {
            let culprits = error.culprits();
            !culprits.is_empty() && culprits.iter().all(|culprit| culprit.absent)
        })
    }

    fn code(&self) -> ErrorCode {
        match self {
            Self::World(error) => world_code(error),
            Self::Dels(errors) => errors.first().map_or(ErrorCode::Internal, world_code),
            Self::Bad(_) => ErrorCode::BadRequest,
            Self::Journal(JournalError::Occupied { .. }) | Self::Taken => ErrorCode::Conflict,
            Self::Journal(error) => kernel_code(error),
            Self::Fault(_) => ErrorCode::Internal,
        }
    }
}

/// The one place where errors of the layers below become classes of the protocol.
fn world_code(error: &WorldError) -> ErrorCode {
    match error {
        WorldError::Conf(_) => ErrorCode::Unavailable,
        WorldError::Cni(error) => cni_code(error),
        WorldError::Netns(error) if matches!(**error, NetnsError::Exists { .. }) => ErrorCode::Conflict,
        WorldError::Join(error) if matches!(**error, JoinError::Tap(TapError::Busy { .. })) => ErrorCode::Conflict,
        WorldError::NoNetns => ErrorCode::Conflict,
        WorldError::Vf(error) if error.is_conflict() => ErrorCode::Conflict,
        WorldError::Sysctl(error) => match &**error {
            SysctlError::Refused { .. } => ErrorCode::BadRequest,
            error @ SysctlError::Netns(_) => kernel_code(error),
        },
        error => kernel_code(error),
    }
}

fn cni_code(error: &CniError) -> ErrorCode {
    match error {
        error if error.is_deadline() => ErrorCode::Deadline,
        CniError::Plugin { cause, .. } => plugin_code(cause),
        CniError::Incapable { .. } | CniError::Argument { .. } => ErrorCode::BadRequest,
        error => kernel_code(error),
    }
}

fn plugin_code(error: &PluginError) -> ErrorCode {
    match error {
        PluginError::Absent { .. } => ErrorCode::Unavailable,
        // CNI specification 1.1.0, section 5, "Error": try again later, and the two of STATUS.
        PluginError::Reported(report) if matches!(report.code, 11 | 50 | 51) => ErrorCode::Unavailable,
        error => kernel_code(error),
    }
}

/// By the kernel's word somewhere in the chain.
fn kernel_code<'a>(error: &'a (dyn Error + 'static)) -> ErrorCode {
    let source = |error: &&'a (dyn Error + 'static)| (*error).source();
    let exhausted = successors(Some(error), source).any(|cause| {
        let errno = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error).map(Errno::from_raw);
        let errno = errno.or_else(|| cause.downcast_ref::<Errno>().copied());
        matches!(
            errno,
            Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EAGAIN)
        )
    });
    if exhausted { ErrorCode::Exhausted } else { ErrorCode::Internal }
}

fn verb(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Attaching => "still being attached",
        PodPhase::Attached => "attached",
        PodPhase::Detaching => "being detached",
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadConfiguration => "choose the networks",
            Self::LookAtNetns => "look at its namespace",
            Self::WriteIntent => "write the intent",
            Self::CreateNetns => "create the namespace",
            Self::Sysctls => "set the sysctls of the namespace",
            Self::Add => "run CNI ADD",
            Self::Join => "join tap and link",
            Self::Claim => "take the virtual functions for the machine",
            Self::Serve => "serve DHCP",
            Self::WriteResult => "write the result",
            Self::GiveBack => "give the virtual functions back",
            Self::Unjoin => "remove the filters",
            Self::SendBack => "move a link of the node back to it",
            Self::Del => "run CNI DEL",
            Self::RemoveNetns => "remove the namespace",
            Self::Forget => "forget the pod",
        })
    }
}

/// Tells of a failure that nothing waits for.
pub(super) fn log_left(error: &(dyn Error + 'static)) {
    tracing::warn!(error = %Chain(error), "something was left behind");
}
