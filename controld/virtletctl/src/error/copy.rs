//! What goes wrong with a copy between this node and a guest.

use std::io;
use std::path::PathBuf;

/// A copy that was not made, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
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
    TooMuch {
        /// What was allowed.
        limit: u64,
    },
    /// Only links, devices and the like.
    #[error("nothing was copied: `{0}` is neither a file nor a directory; name what it leads to")]
    NothingCopied(String),
}
