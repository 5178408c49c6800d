//! Why a tool failed, with what exit code, and what to do about it.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitStatus;

use common::{Chain, Reason};
use nix::errno::Errno;
use proto::tap::{ClientError, ErrorBody, ErrorCode, PodId};

use super::text::printable;
use crate::config::ConfigError;

/// Why a tool did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The daemon's configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The daemon is not there, or not understood.
    #[error(transparent)]
    Client(ClientError),
    /// The daemon refuses, and says why.
    #[error(transparent)]
    Refused(ErrorBody),
    /// One of several pods was not taken away.
    #[error("failed to detach pod `{}`", pod.as_str())]
    Detach {
        /// The pod.
        pod: PodId,
        /// Why.
        #[source]
        cause: Box<ToolError>,
    },
    /// No pod has such a name.
    #[error("no pod `{0}`")]
    NoPod(String),
    /// More than one pod may be meant.
    #[error("`{said}` may be any of the pods {}", .ids.join(", "))]
    Ambiguous {
        /// What was said.
        said: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// A file of the command line cannot be used.
    #[error("failed to read `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file of the command line is no network.
    #[error("`{}` is no network configuration", path.display())]
    Conf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of the command line is of no known kind.
    #[error("`{}` does not end in .conflist, .conf or .json; these are the names that runtimes read", .0.display())]
    ConfName(PathBuf),
    /// The command line names neither a file nor a network.
    #[error("`{name}` is no file, and no network that is configured")]
    NoNetwork {
        /// What it names.
        name: String,
        /// What there is instead.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A network of the command line has a plugin that would not be started.
    #[error("plugin `{plugin}` of network `{network}` cannot be started: {problem}")]
    Plugin {
        /// File name of its executable.
        plugin: String,
        /// The network.
        network: String,
        /// Why, and what to do.
        problem: String,
    },
    /// A program is missing.
    #[error("no `{program}`; {remedy}")]
    Absent {
        /// Its name or path.
        program: String,
        /// Where it comes from.
        remedy: &'static str,
    },
    /// A program cannot be started or watched.
    #[error("failed to {action} `{program}`")]
    Process {
        /// What was done.
        action: &'static str,
        /// Its name or path.
        program: String,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// The private daemon did not come up.
    #[error("the private daemon {what}:\n{log}")]
    Private {
        /// How it failed.
        what: String,
        /// The end of its log.
        log: String,
    },
    /// Nobody else may make networks.
    #[error("a private daemon makes networks, which only root may")]
    NotRoot,
    /// A directory or socket of the private daemon.
    #[error("failed to {action} `{}`", path.display())]
    Dir {
        /// What was done.
        action: &'static str,
        /// The directory, or what is in it.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// The private daemon's pod could not be taken away.
    #[error("the pod was not taken away; `{}` is kept for another try: see docs/cni-integration.md", dir.display())]
    Kept {
        /// All that the private daemon has.
        dir: PathBuf,
        /// Why.
        #[source]
        cause: Box<ToolError>,
    },
    /// Nobody has said who QEMU runs as.
    #[error("it is not known who QEMU runs as; start controld once, set `qemu_uid` and `qemu_gid`, or use --conf")]
    NoQemuUser,
    /// More NICs than a guest of ours has slots for.
    #[error("the pod has {0} NICs, a guest has slots for 1 to 15")]
    Nics(usize),
    /// What libvirt would have to give.
    #[error(
        "the pod has {0} virtual functions that go to a guest by libvirt alone, as this kernel has no iommufd; start a \
         pod with `virtletctl run`"
    )]
    Hostdevs(usize),
    /// QEMU ended with an error.
    #[error("the guest ended: {status}{}", after_colon(said))]
    Guest {
        /// How.
        status: ExitStatus,
        /// What it said.
        said: String,
    },
    /// The guest ended before its script did.
    #[error("the guest ended before it was sent all of the script")]
    Unsent,
    /// The script took too long.
    #[error("the script did not end within {seconds} s; --timeout says how long it may take")]
    ScriptDeadline {
        /// How long it may take.
        seconds: u32,
    },
    /// Neither a daemon nor the node itself tells of its virtual functions.
    #[error(transparent)]
    Sriov(Reason),
    /// The result cannot be printed.
    #[error("failed to print")]
    Output(#[source] io::Error),
    /// Signals cannot be listened to.
    #[error("failed to listen to signals")]
    Signals(#[source] io::Error),
    /// The user wants no more of it, as the signal of this number says.
    #[error("interrupted")]
    Interrupted(i32),
    /// Something failed, and what was made could not be taken away again.
    #[error("{}; and then: {}", Chain(&**first), Chain(&**undo))]
    LeftBehind {
        /// Why it ended.
        first: Box<ToolError>,
        /// Why something is left.
        undo: Box<ToolError>,
    },
}

impl ToolError {
    /// The exit code; the header of [`crate::toolkit`] has the list.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) => of_client(error),
            Self::Refused(body) => of_code(body.code),
            Self::Detach { cause, .. } | Self::LeftBehind { first: cause, .. } => cause.exit_code(),
            Self::File { cause, .. } | Self::Dir { cause, .. } if denied(cause) => 77,
            Self::NotRoot => 77,
            Self::Ambiguous { .. } => 65,
            Self::File { .. } | Self::NoPod(_) => 66,
            Self::ConfName(_) | Self::Nics(_) | Self::Hostdevs(_) => 65,
            Self::Dir { .. } | Self::Process { .. } | Self::Signals(_) | Self::Sriov(_) => 71,
            Self::NoNetwork { .. } | Self::Plugin { .. } => 69,
            Self::Absent { .. } => 72,
            Self::Output(_) => 74,
            Self::ScriptDeadline { .. } => 75,
            Self::Config(_) | Self::Conf { .. } | Self::NoQemuUser => 78,
            // As shells have it of a program that a signal ends.
            Self::Interrupted(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::Private { .. } | Self::Kept { .. } | Self::Guest { .. } | Self::Unsent => 70,
        }
    }

    /// Whether nobody listens, rather than somebody who may not be asked.
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, Self::Client(error @ ClientError::Connect { .. }) if of_client(error) != 77)
    }

    /// Whether the reader of the output went away, as `head` does: no failure of ours.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe)
    }

    /// What, why, what to do: a line for stderr.
    #[must_use]
    pub fn line(&self) -> String {
        let text = Chain(self).to_string();
        // The log of a private daemon has lines.
        let text = text.lines().map(printable).collect::<Vec<_>>().join("\n");
        match self.advice() {
            Some(advice) => format!("{text}; {advice}"),
            None => text,
        }
    }

    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Client(error) if of_client(error) == 77 => Some("are you root?"),
            Self::Refused(body) if body.code == ErrorCode::NotFound => Some("`tapmanager list` lists all"),
            Self::NoPod(_) => Some("`tapmanager list` lists all"),
            Self::Client(ClientError::Codec { .. } | ClientError::WrongReply) => {
                Some("is that the socket of a tapmanager of this release?")
            }
            Self::Dir { cause, .. } if denied(cause) => Some("are you root?"),
            Self::NoNetwork { .. } => Some("`NETCONFPATH` names another directory of networks, as for cnitool"),
            Self::Plugin { .. } => Some("`CNI_PATH` names other directories of plugins, as for cnitool"),
            _ => None,
        }
    }
}

fn of_client(error: &ClientError) -> u8 {
    match error {
        ClientError::Connect { cause: Errno::EACCES | Errno::EPERM, .. } => 77,
        ClientError::Codec { .. } | ClientError::WrongReply => 76,
        error => of_code(error.code()),
    }
}

const fn of_code(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::Version => 76,
        ErrorCode::BadRequest => 65,
        ErrorCode::NotFound => 66,
        ErrorCode::Unavailable => 69,
        ErrorCode::Conflict | ErrorCode::Deadline => 75,
        ErrorCode::Denied => 77,
        ErrorCode::Exhausted => 71,
        ErrorCode::Internal => 70,
    }
}

impl From<ClientError> for ToolError {
    fn from(error: ClientError) -> Self {
        match error {
            // It names itself as every error of the command line does.
            ClientError::Refused(body) => Self::Refused(body),
            error => Self::Client(error),
        }
    }
}

fn denied(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::PermissionDenied
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Says something beside the result, on stderr.
pub fn tell(text: &str) {
    // Nobody is left to tell if this fails.
    let _ = io::stderr().write_all(text.as_bytes());
}
