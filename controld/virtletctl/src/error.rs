//! What virtletctl could not do, and what the user can do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use common::Chain;
use streaming::client::{AttachError, EndError};
use tonic::Code;

pub use self::cluster::{ClusterError, Lost};
pub use self::code::by_signal;
pub(super) use self::code::{NO_PROGRAM, not_started};
pub use self::copy::CopyError;
pub use self::image::ImageError;
pub use self::line::Line;
pub use self::refusal::Refusal;

mod advice;
mod cluster;
mod code;
mod copy;
mod image;
mod line;
mod refusal;
#[cfg(test)]
mod tests;

/// A command, or a part of it, that failed.
#[derive(Debug, thiserror::Error)]
pub enum CtlError {
    /// controld's socket does not take us.
    #[error("failed to connect to controld at `{}`", socket.display())]
    Connect {
        socket: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// There is nothing to connect to.
    #[error("pod `{0}` has no address; `virtletctl ps -a` shows how it is")]
    NoAddress(String),
    /// `ssh` cannot be started.
    #[error("failed to start `ssh`; Debian has it in package openssh-client")]
    NoSsh(#[source] io::Error),
    /// controld refused, or failed.
    #[error("failed to {action}")]
    Call {
        /// What was asked for.
        action: String,
        /// Its answer.
        #[source]
        cause: Refusal,
    },
    /// The same, of a command of `image`, whose exit code says why.
    #[error("failed to {action}")]
    Image {
        /// What was asked for.
        action: String,
        /// Its answer.
        #[source]
        cause: Refusal,
    },
    /// controld did not answer in time.
    #[error("failed to {action}: no answer within {} s", deadline.as_secs())]
    Deadline {
        /// What was asked for.
        action: String,
        /// How long that may take.
        deadline: Duration,
    },
    /// An answer that lacks what it must have.
    #[error("failed to {action}: the answer has no {lacks}")]
    Answer {
        /// What was asked for.
        action: String,
        /// What is not there.
        lacks: &'static str,
    },
    /// No pod of that name or id.
    #[error("no pod or container `{text}`{}", in_namespace(namespace.as_deref()))]
    NoPod {
        /// What was written.
        text: String,
        /// Where it was looked for, if not in all namespaces.
        namespace: Option<String>,
    },
    /// A name without a namespace, which pods of others have.
    #[error("no pod `{name}` in namespace `{home}`; {}", meant_by(namespaces))]
    Elsewhere {
        name: String,
        /// Where it was looked for.
        home: &'static str,
        /// Where there are some.
        namespaces: Vec<String>,
    },
    /// The beginning of an id that may be a name, too, of a pod that is gone.
    #[error("no pod `{text}`; the id of pod `{pod}` begins so, and of an id, write 8 characters or more")]
    ShortBeginning {
        /// What was written.
        text: String,
        /// Whose id that begins.
        pod: String,
    },
    /// The same, in a namespace that may be meant as docker's `-n`.
    #[error("no pod `{text}` in namespace `{lines}`; for so many of the last lines write --tail {lines}")]
    NoPodButLines {
        /// What was written.
        text: String,
        /// A number, or `all`.
        lines: String,
    },
    /// More than one pod, or container, of that name or id.
    #[error("`{text}` is more than one: {}", found.join(", "))]
    Ambiguous {
        /// What was written.
        text: String,
        /// What it may mean.
        found: Vec<String>,
    },
    /// A pod of that name is there already.
    #[error("pod `{namespace}/{name}` is there already")]
    PodExists { name: String, namespace: String },
    /// The pod has no machine.
    #[error("pod `{0}` has no container")]
    NoContainer(String),
    /// The pod has no container of that name or id.
    #[error("pod `{pod}` has no container `{wanted}`; it has {}", found.join(", "))]
    NoSuchContainer {
        pod: String,
        /// What was written.
        wanted: String,
        /// What there is.
        found: Vec<String>,
    },
    /// No container before the newest.
    #[error("pod `{0}` has no machine before the one that it has")]
    NoPrevious(String),
    /// How the containers of a pod are made, only who made it knows.
    #[error("the machine of pod `{0}` cannot be started again: the pod was not made by `virtletctl run`")]
    NotOurs(String),
    /// A pod whose machine uses nothing, since it is off.
    #[error("machine of pod `{0}` does not run")]
    NotRunning(String),
    /// A pod whose machine would be lost by what is asked.
    #[error("machine of pod `{0}` runs")]
    Running(String),
    /// controld does not know whether a machine runs.
    #[error("it is not known whether the machine of pod `{0}` runs")]
    Uncertain(String),
    /// A row has no such field.
    #[error("a row has no field `{field}`; the fields are {}", known.join(", "))]
    NoField {
        /// What was written.
        field: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A cluster, of which something of a VM is wanted.
    #[error(transparent)]
    OfCluster(#[from] ClusterError),
    /// An image, or a file of one, with which something is the matter.
    #[error(transparent)]
    OfImage(#[from] ImageError),
    /// The container writes no log.
    #[error("pod `{0}` has no log: it was made without a log directory")]
    NoLog(String),
    /// Both an option and an annotation say the same thing.
    #[error("annotation `{key}` is given twice, also by {option}")]
    Twice {
        /// The annotation.
        key: String,
        option: &'static str,
    },
    /// A file of the command line is too long.
    #[error("`{}` is over {limit} bytes", path.display())]
    TooLong {
        path: PathBuf,
        /// What it may be.
        limit: u64,
    },
    /// A file of the command line has nothing in it.
    #[error("`{}` is empty", .0.display())]
    Empty(PathBuf),
    /// A path that CRI cannot carry.
    #[error("path `{}` is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    /// A file or directory failed.
    #[error("failed to {action} `{}`", path.display())]
    File {
        /// What was done.
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// What could be a file or an image, and there is neither the one nor anybody to ask for the other.
    #[error("no file `{}`, and nobody to ask for an image of that name", path.display())]
    NoFile {
        /// What was written.
        path: PathBuf,
        /// Why nobody can be asked.
        #[source]
        cause: Box<CtlError>,
    },
    /// The node is not fit to run pods; what was printed says why.
    #[error("{failed} of {all} checks failed")]
    Unwell { failed: usize, all: usize },
    /// What the user wants to be done cannot be done on this node as it is.
    #[error("in the way: {}", .0.join("; "))]
    InTheWay(Vec<String>),
    /// A directory without manifests.
    #[error("no file in `{}` ends in .yaml, .yml or .json", .0.display())]
    NoManifests(PathBuf),
    /// A file without objects.
    #[error("`{}` is no manifest", path.display())]
    NotManifest {
        path: PathBuf,
        #[source]
        cause: Box<kubevirt::ReadError>,
    },
    /// An object that would be refused; what is wrong with it.
    #[error("{0}")]
    Object(String),
    /// What was printed has errors.
    #[error("{refused} of {all} objects would be refused")]
    ObjectsRefused { refused: usize, all: usize },
    /// The result cannot be printed.
    #[error("failed to print")]
    Output(#[from] io::Error),
    /// What is written cannot be done here, and what does it instead.
    #[error("{0}")]
    Usage(String),
    /// What was waited for did not come.
    #[error("{what} did not come within {} s", deadline.as_secs())]
    Late {
        /// What was waited for.
        what: String,
        deadline: Duration,
    },
    /// What was only to be looked for is not there.
    #[error("{0} has not come")]
    NotYet(String),
    /// The terminal, or a signal, cannot be had.
    #[error("failed to {action}")]
    Terminal {
        /// What was done.
        action: &'static str,
        #[source]
        cause: io::Error,
    },
    /// The console cannot be attached to.
    #[error("failed to attach to the console")]
    Attach(#[from] AttachError),
    /// The console's session failed.
    #[error("session with the console failed")]
    Session(#[from] EndError),
    /// There is no session with the command.
    #[error("failed to run the command")]
    Exec(#[source] AttachError),
    /// The session with the command failed.
    #[error("failed to run the command")]
    Command(#[source] EndError),
    /// The command did not end well.
    #[error("command terminated with exit code {0}")]
    Exited(u8),
    /// A copy to or from a guest.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// There is no session of port-forward.
    #[error("failed to forward ports")]
    Forward(#[source] AttachError),
    /// The session of port-forward ended.
    #[error("connection for the ports of `{0}` was lost; does controld run?")]
    ForwardLost(String),
    /// Its annotations are of another release, or controld is.
    #[error("controld does not tell the settings of `{0}`; its annotations, or controld, are of another release")]
    NotExplained(String),
    /// It keeps in memory alone how starts went.
    #[error(
        "controld has not seen how `{0}` was started; it was started again itself since, or is of an earlier release"
    )]
    NoTimeline(String),
    /// controld does not do what is its own to do.
    #[error("{0}")]
    Verb(String),
    /// It would be shown on a page.
    #[error(
        "this virtletctl was built without the page for browsers; `make build` puts it in, or cargo where `VIRTLET_WEB` \
         names what controld/virtletctl/web/fetch.sh prints"
    )]
    NoPage,
    /// A local port cannot be had.
    #[error("failed to listen on `{address}`; name another local port, as LOCAL:REMOTE")]
    Listen {
        /// What was tried.
        address: SocketAddr,
        #[source]
        cause: io::Error,
    },
    /// Nobody wants more of it, as the signal of this number says.
    #[error("interrupted")]
    Interrupted(i32),
    /// Something failed, and what was made before could not be removed.
    #[error("{}; and `{pod}` could not be removed again: {}", Chain(&**first), Chain(&**undo))]
    LeftBehind {
        /// What is left.
        pod: String,
        /// Why it should go.
        first: Box<CtlError>,
        /// Why it did not.
        undo: Box<CtlError>,
    },
}

// === impl CtlError ===

impl CtlError {
    /// The code of controld's answer, if there was one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Call { cause, .. } | Self::Image { cause, .. } => Some(cause.0.code()),
            _ => None,
        }
    }

    /// Whether the reader of our output went away, as `head` does: no failure of ours.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe)
    }

    /// As an error of one of the commands of `image`.
    #[must_use]
    pub(super) fn of_images(self) -> Self {
        match self {
            Self::Call { action, cause } => Self::Image { action, cause },
            other => other,
        }
    }
}

/// What a command comes to that goes on after an error: fine if there was none.
pub(super) fn none_of(errors: Vec<CtlError>) -> Result<(), Vec<CtlError>> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// How the pods of these namespaces are named.
fn meant_by(namespaces: &[String]) -> String {
    match namespaces {
        [namespace] => format!("that of `{namespace}` is meant by -n {namespace}"),
        several => format!("those of {} are meant by -n NAMESPACE", several.join(", ")),
    }
}

fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" in namespace `{namespace}`")).unwrap_or_default()
}
