//! What goes wrong between us and a cluster.

use std::io;
use std::time::Duration;

use common::Chain;
use kube::client::AuthError;
use kube::config::KubeconfigError;
use streaming::websocket::MessageError;

/// Exit codes, as the verbs of a node have them: those of `sysexits.h`.
const BAD_REQUEST: u8 = 64;
const UNKNOWN: u8 = 66;
const CONFLICT: u8 = 69;
const LATER: u8 = 75;
const FORBIDDEN: u8 = 77;
/// Letters of what a program says of its failure.
const MAX_SAID: usize = 300;

/// A cluster that cannot be asked, or does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nobody says which.
    #[error("no cluster is known: {0}")]
    Unknown(String),
    /// There is a way to it that is not known here.
    #[error("cluster `{0}` of the kubeconfig is behind a proxy (`proxy-url`), and none is used here")]
    Proxy(String),
    /// Who is to say who we are does not.
    #[error("{0}")]
    Login(String),
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
    /// All was said to the VM, and of it nothing came for so long, nor its end.
    #[error("the VM said nothing for {} s after the end of what it was sent, and did not end", .0.as_secs())]
    Unfinished(Duration),
}

impl ClusterError {
    /// Of a kubeconfig. What is told of text that is none has lines of it in it, secrets among them: all but the place is left out.
    pub(crate) fn of_kubeconfig(error: &KubeconfigError) -> Self {
        let why = match error {
            KubeconfigError::Parse(error) => {
                let place = error.location().map(|at| format!(", at line {}, column {}", at.line(), at.column()));
                format!("the kubeconfig is not one{}", place.unwrap_or_default())
            }
            // The text of its cause is in it.
            other => other.to_string(),
        };
        Self::Unknown(why)
    }

    /// Of who is to ask the API, before anybody is asked.
    pub(crate) fn of_client(error: &kube::Error) -> Self {
        login(error).unwrap_or_else(|| Self::Unknown(error.to_string()))
    }

    /// Of a request that has no answer.
    pub(crate) fn unreachable(action: &str, error: &kube::Error) -> Self {
        if let Some(login) = login(error) {
            return login;
        }
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
            Self::Login(_) | Self::Refused { code: 401 | 403, .. } => FORBIDDEN,
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
            Self::Login(_) | Self::Refused { code: 401, .. } => {
                Some("log in to the cluster again, or name another --context")
            }
            Self::Refused { code: 403, .. } => {
                Some("who gives rights in the cluster can give this one: docs/virtual-machines.md says which there are")
            }
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

/// If it is that we cannot log in: why, without what programs were given and what they print, which is secret.
fn login(error: &kube::Error) -> Option<ClusterError> {
    let first: &(dyn std::error::Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |error| error.source());
    let why = match causes.find_map(|error| error.downcast_ref::<AuthError>())? {
        AuthError::AuthExecRun { out, .. } => {
            let said = String::from_utf8_lossy(&out.stderr).trim().chars().take(MAX_SAID).collect::<String>();
            let colon = if said.is_empty() { "" } else { ": " };
            format!("the kubeconfig's login program failed: {}{colon}{said}", out.status)
        }
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            "the kubeconfig's login program failed: what it printed is no ExecCredential".to_owned()
        }
        AuthError::AuthExecStart(cause) => format!("the kubeconfig's login program cannot be started: {cause}"),
        // The text of its cause is in it.
        other => other.to_string(),
    };
    Some(ClusterError::Login(why))
}
