//! What virtletctl could not do, and what the user can do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use common::{Chain, Reason};
use streaming::client::{AttachError, EndError};
use tonic::{Code, Status};
use vmimage::inspect::InspectError;

pub use self::code::by_signal;
pub(super) use self::code::{NO_PROGRAM, not_started};
use super::text::shown;

mod advice;
mod code;
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
    /// No such image on this node.
    #[error("no image `{0}` on this node")]
    NoImage(String),
    /// No such image, and too little of an id.
    #[error("no image `{0}` on this node")]
    ShortId(String),
    /// An image that is only pinned.
    #[error("image `{0}` has no name to remove")]
    NoName(String),
    /// What looks like a place that an image could be fetched from.
    #[error("`{text}` cannot be asked for an image")]
    Place {
        /// What was written.
        text: String,
        #[source]
        cause: Reason,
    },
    /// What comes on the standard input has no name.
    #[error("what comes on the standard input has no name; write one behind the `-`")]
    Nameless,
    /// An image that is no whole disk.
    #[error("image `{name}` is a layer: its file holds only what differs from {below}, and is no disk by itself")]
    NotWhole {
        name: String,
        /// What it stands on.
        below: String,
    },
    /// A file that is to be written.
    #[error("`{}` is there already; -f writes over it", .0.display())]
    Exists(PathBuf),
    /// A device, say, or a directory.
    #[error("`{}` is no regular file; for a device, write `-` and send the standard output there", .0.display())]
    NotRegular(PathBuf),
    /// Nobody wants a disk on a terminal.
    #[error("a disk is not written to a terminal; name a file, or send it on through a pipe")]
    ToTerminal,
    /// Nobody can be asked.
    #[error("nothing was removed: there is no terminal to ask at; -f removes without asking")]
    Unasked,
    /// More than one image whose id begins so.
    #[error("`{text}` is more than one image: {}", found.join(", "))]
    AmbiguousImage {
        /// What was written.
        text: String,
        /// What it may mean.
        found: Vec<String>,
    },
    /// Images that are not what they were.
    #[error("{bad} of {all} images are corrupt or missing")]
    BadImages {
        /// How many of them are.
        bad: u64,
        /// Of how many.
        all: u64,
    },
    /// A provider's sources could not be asked.
    #[error("provider `{provider}` not refreshed: {why}")]
    NotRefreshed {
        provider: String,
        /// controld's text.
        why: String,
    },
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
    /// A file that no store would take as an image.
    #[error("`{}` would not be taken", path.display())]
    Refused {
        path: PathBuf,
        #[source]
        cause: vmimage::inspect::Refusal,
    },
    /// A layer, which no store takes unless it is told to.
    #[error("`{}` would not be taken: it stands on `{named}`", path.display())]
    Layered {
        path: PathBuf,
        /// What it stands on.
        named: String,
    },
    /// A file that could not be looked into.
    #[error("failed to inspect `{}`", path.display())]
    Inspect {
        path: PathBuf,
        #[source]
        cause: InspectError,
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
    /// A copy from this node to this node, or from guest to guest.
    #[error("one of the two paths must be in a guest, as POD:PATH, and one on this node")]
    OneGuest,
    /// A program that `cp` needs is not in the guest.
    #[error(
        "no `{command}` in the guest of pod `{pod}`; install it there, or send the file through `virtletctl exec -i`"
    )]
    NoCommand { pod: String, command: &'static str },
    /// tar in a guest failed.
    #[error("`tar` in the guest ended with exit code {code}: {said}")]
    Tar {
        code: u8,
        /// Its words.
        said: String,
    },
    /// What tar in a guest sends, or is sent, is cut off or makes no sense.
    #[error("failed to copy the archive between the guest and this node")]
    Archive(#[source] io::Error),
    /// A guest sends what is not part of what it was asked for.
    #[error("the guest sends `{0}`, which was not asked for; nothing more is taken from it")]
    Stranger(String),
    /// A guest names a file by a second name that it has not sent by a first.
    #[error(
        "the guest sends `{name}` as another name of `{target}`, which it has not sent; nothing more is taken from it"
    )]
    StrangeLink { name: String, target: String },
    /// A guest's second name of a file is that of something else here.
    #[error(
        "`{}` is there already, and the guest sends it as another name of a file (a hard link), which goes over nothing; \
         remove it, or copy to where there is nothing yet", .0.display()
    )]
    LinkOver(PathBuf),
    /// A guest sends too much.
    #[error("the guest sends more than {limit} bytes; --limit allows more")]
    TooMuch { limit: u64 },
    /// Only links, devices and the like.
    #[error("nothing was copied: `{0}` is neither a file nor a directory; name what it leads to")]
    NothingCopied(String),
    /// There is no session of port-forward.
    #[error("failed to forward ports")]
    Forward(#[source] AttachError),
    /// The session of port-forward ended.
    #[error("connection for the ports of `{0}` was lost; does controld run?")]
    ForwardLost(String),
    /// Its annotations are of another release, or controld is.
    #[error("controld does not tell the settings of `{0}`; its annotations, or controld, are of another release")]
    NotExplained(String),
    /// There is nothing to show.
    #[error("the machine of `{0}` has no screen; its runtime handler needs `graphics = \"vnc\"`")]
    NoScreen(String),
    /// There is nobody who would show it.
    #[error("controld finds no QEMU of the machine of `{0}`; does it run? `virtletctl ps -a` shows how it is")]
    NoQemu(String),
    /// What stands in the place of a screen that QEMU has made.
    #[error(
        "`{}` is not the screen of the machine: {why}; if that stays so, its guest may have taken QEMU over, which alone \
         writes there",
        path.display()
    )]
    StrangeScreen { path: PathBuf, why: &'static str },
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

/// What a server says when it does not do what it was asked.
#[derive(Debug)]
pub struct Refusal(pub Status);

/// An error as one line for the user: what, why, and what to do about it.
#[derive(Debug)]
pub struct Line<'a>(pub &'a CtlError);

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

    /// Why no store would take a file, if that is what this says.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            Self::Refused { cause, .. } => Some(Chain(cause).to_string()),
            Self::Layered { named, .. } => Some(format!("it stands on `{named}`")),
            _ => None,
        }
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

fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" in namespace `{namespace}`")).unwrap_or_default()
}

// === impl Refusal ===

impl Refusal {
    /// Whether nobody answered at all.
    fn is_lost_connection(&self) -> bool {
        self.0.source().is_some_and(|cause| cause.is::<tonic::transport::Error>())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_lost_connection() {
            f.write_str("the connection was lost")
        } else if self.0.message().is_empty() {
            write!(f, "{}", self.0.code())
        } else {
            f.write_str(self.0.message())
        }
    }
}

impl StdError for Refusal {}

// === impl Line ===

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&Chain(self.0).to_string()))?;
        match self.0.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}
