//! Classes of failures, which callers map to outcomes of their own (a gRPC code, an exit code), and how errors
//! show texts and times.

use std::io;
use std::time::Duration;

use nix::errno::Errno;

/// What kind of failure an error is. The text says the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller's name or id is no such thing.
    InvalidName,
    /// The image, or the file on its server, is not there.
    NotFound,
    /// The server wants a login, or may not be asked at all.
    Denied,
    /// The image is not one that may be used.
    Refused,
    /// Something that the image stands on is missing.
    Incomplete,
    /// What the operator trusts did not sign it.
    Signature,
    /// The bytes are not those that the name demands.
    DigestMismatch,
    /// The server failed, broke the protocol or cannot be reached.
    Server,
    /// Something was waited for in vain.
    Deadline,
    /// The disk or a limit on sizes is full.
    Exhausted,
    /// The store itself is not as it was left.
    Corrupt,
    /// A fault of this machine.
    Internal,
}

pub fn of_errno(errno: Errno) -> ErrorKind {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => ErrorKind::Exhausted,
        Errno::ETIMEDOUT => ErrorKind::Deadline,
        _ => ErrorKind::Internal,
    }
}

pub fn of_io(error: &io::Error) -> ErrorKind {
    match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => of_errno(Errno::from_raw(errno)),
        (None, io::ErrorKind::TimedOut) => ErrorKind::Deadline,
        (None, _) => ErrorKind::Internal,
    }
}

/// A deadline as errors show it.
pub fn in_seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// A text from outside as an error may show it: no control characters, not endless.
pub fn printable(text: &str) -> String {
    const SHOWN: usize = 300;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}
