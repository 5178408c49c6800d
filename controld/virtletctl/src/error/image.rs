//! What is the matter with an image, or with a file of one.

use std::path::PathBuf;

use common::{Chain, Reason};
use vmimage::inspect::{InspectError, Refusal as NotTaken};

use super::code::{INTEGRITY, NETWORK, NOT_FOUND, USAGE};

/// An image, or a file of one, with which nothing can be done, or not what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No such image on this node.
    #[error("no image `{0}` on this node")]
    NoImage(String),
    /// No such image, and too little of an id.
    #[error("no image `{0}` on this node")]
    ShortId(String),
    /// An image that is only pinned.
    #[error("image `{0}` has no name to remove")]
    NoName(String),
    /// More than one image whose id begins so.
    #[error("`{text}` is more than one image: {}", found.join(", "))]
    Ambiguous {
        /// What was written.
        text: String,
        /// What it may mean.
        found: Vec<String>,
    },
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
    /// Images that are not what they were.
    #[error("{bad} of {all} images are corrupt or missing")]
    Bad {
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
    /// A file that no store would take as an image.
    #[error("`{}` would not be taken", path.display())]
    Refused {
        path: PathBuf,
        #[source]
        cause: NotTaken,
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
}

impl ImageError {
    /// Why no store would take a file, if that is what this says.
    pub(crate) fn refusal(&self) -> Option<String> {
        match self {
            Self::Refused { cause, .. } => Some(Chain(cause).to_string()),
            Self::Layered { named, .. } => Some(format!("it stands on `{named}`")),
            _ => None,
        }
    }

    /// What the process ends with: one of `sysexits.h` of a file, else one of those of the commands of `image`.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            // EX_DATAERR, EX_NOINPUT, EX_IOERR
            Self::Refused { .. } | Self::Layered { .. } => 65,
            Self::Inspect { cause: InspectError::Open(_) | InspectError::NotAFile, .. } => 66,
            Self::Inspect { .. } => 74,
            Self::NoImage(_) | Self::ShortId(_) | Self::NoName(_) => NOT_FOUND,
            Self::Ambiguous { .. } | Self::Place { .. } | Self::Nameless => USAGE,
            Self::Bad { .. } => INTEGRITY,
            Self::NotRefreshed { .. } => NETWORK,
            Self::NotWhole { .. } | Self::Exists(_) | Self::NotRegular(_) | Self::ToTerminal | Self::Unasked => 1,
        }
    }

    /// What to do about it, if that is not in the text already.
    pub(super) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NoImage(_) => Some("`virtletctl image ls` lists all"),
            Self::ShortId(_) => Some("of an id, write 8 characters or more"),
            Self::NoName(_) => Some("it is pinned, and goes with `virtletctl image unpin`"),
            Self::Ambiguous { .. } => Some("write more of the id"),
            Self::Bad { .. } => Some("they are put aside, and `virtletctl image pull` brings them again"),
            Self::Refused { cause: NotTaken::NotQcow2 { .. }, .. } => {
                Some("if it is a raw disk, say so with --format raw")
            }
            Self::Refused { cause: NotTaken::Compressed { by: "gzip" | "xz" | "zstd" | "bzip2" }, .. } => {
                Some("for this command only: a pull unpacks it, and judges what is in it")
            }
            Self::Layered { .. } => Some(
                "flatten it with `qemu-img convert`, or have layers taken by `images.layered` or \
                 `virtletctl image pull`, as --layered assumes",
            ),
            _ => None,
        }
    }
}
