//! What goes wrong between us and a cluster.

use std::io;
use std::time::Duration;

use common::Chain;
use streaming::websocket::MessageError;

/// Exit codes, as the verbs of a node have them: those of `sysexits.h`.
const BAD_REQUEST: u8 = 64;
const UNKNOWN: u8 = 66;
const CONFLICT: u8 = 69;
const LATER: u8 = 75;
const FORBIDDEN: u8 = 77;

/// A cluster that cannot be asked, or does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nobody says which.
    #[error("no cluster is known: {0}")]
    Unknown(String),
    /// Nobody answers, or not to us.
    #[error("failed to {action}: the API server cannot be asked: {why}")]
    Unreachable {
        /// What was asked for.
        action: String,
        /// Why not.
        why: String,
    },
    /// It did not answer in time.
    #[error("failed to {action}: no answer of the API server within {} s", deadline.as_secs())]
    Deadline {
        /// What was asked for.
        action: String,
        /// How long that may take.
        deadline: Duration,
    },
    /// An answer was not whole.
    #[error("failed to {action}: the answer broke off: {why}")]
    Broken {
        /// What was asked for.
        action: String,
        /// How.
        why: String,
    },
    /// An answer that is none.
    #[error("failed to {action}: the answer has no {lacks}")]
    Answer {
        /// What was asked for.
        action: String,
        /// What is not there.
        lacks: &'static str,
    },
    /// It refuses.
    #[error("failed to {action}: {why}")]
    Refused {
        /// What was asked for.
        action: String,
        /// HTTP's code of it.
        code: u16,
        /// Whether it is of the API, and not of a server that does not know the path.
        is_status: bool,
        /// Its words.
        why: String,
    },
    /// A stream ended that was not to end.
    #[error("stream of the VM ended")]
    Stream(#[source] Lost),
}

/// Why a stream ended that was not to end.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The connection broke.
    #[error("the connection to the API server broke")]
    Io(#[source] io::Error),
    /// What came is not understood.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The connection ended without a word.
    #[error("the API server cut the connection")]
    Cut,
    /// Nothing came for so long.
    #[error("nothing came of the API server for {} s", .0.as_secs())]
    Silent(Duration),
    /// Nothing was taken for so long.
    #[error("the API server took nothing for {} s", .0.as_secs())]
    Stalled(Duration),
    /// The server of subresources said why.
    #[error("{0}")]
    Told(String),
}

impl ClusterError {
    /// Of a request that has no answer.
    pub(crate) fn unreachable(action: &str, error: &kube::Error) -> Self {
        // What `kube` says of an error has the text of its cause in it already.
        let why = match std::error::Error::source(error) {
            Some(cause) => Chain(cause).to_string(),
            None => error.to_string(),
        };
        Self::Unreachable { action: action.into(), why }
    }

    /// Whether we have no right to it.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code: 403, .. })
    }

    /// What the process ends with.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { code: 400 | 405 | 413 | 422 | 501, .. } => BAD_REQUEST,
            Self::Refused { code: 401 | 403, .. } => FORBIDDEN,
            Self::Refused { code: 404, .. } => UNKNOWN,
            Self::Refused { code: 409, .. } => CONFLICT,
            Self::Refused { code: 429 | 503 | 504, .. } | Self::Deadline { .. } | Self::Unreachable { .. } => LATER,
            _ => 1,
        }
    }

    /// What to do about it, if that is not in the text already. Of 400, 409 and 501 the server says it.
    pub(super) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Unknown(_) => Some("set KUBECONFIG, or name a file by --kubeconfig and a context of it by --context"),
            Self::Unreachable { .. } => {
                Some("`kubectl version` asks it, too; --context names another cluster of the kubeconfig")
            }
            Self::Refused { code: 401, .. } => Some("log in to the cluster again, or name another --context"),
            Self::Refused { code: 403, .. } => Some(
                "who gives rights in the cluster can give this one: docs/virtual-machines.md says which there are",
            ),
            Self::Refused { code: 404, is_status: true, .. } => {
                Some("`kubectl virtlet get -A` lists what there is, and -n names another namespace")
            }
            Self::Refused { code: 404, .. } => Some(
                "the cluster has no such API: `virtlet-operator install` prints it, and where KubeVirt itself runs, our \
                 VMs are of --group virtlet.k8s",
            ),
            Self::Refused { code: 429, .. } => Some("try again later"),
            Self::Refused { code: 503, is_status: false, .. } => Some(
                "does the server of subresources run? `kubectl get apiservices` shows it, by the names that begin with \
                 v1.subresources",
            ),
            Self::Stream(Lost::Io(_) | Lost::Cut | Lost::Silent(_)) => Some("the VM runs on; connect again"),
            _ => None,
        }
    }
}
