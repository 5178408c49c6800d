//! What virtletctl ends with, of each error. The table of it stands in `--help`.

use streaming::client::EndError;
use tonic::Code;

use super::{CtlError, Refusal};

/// Exit codes of the commands of `image`.
pub(super) const USAGE: u8 = 2;
pub(super) const NOT_FOUND: u8 = 3;
pub(super) const INTEGRITY: u8 = 4;
pub(super) const NETWORK: u8 = 5;
const NO_SPACE: u8 = 6;
const UNSAFE: u8 = 7;
/// As shells have it of a program that is not started, and of one that is not there.
const NOT_STARTED: u8 = 126;
pub(crate) const NO_PROGRAM: u8 = 127;
/// controld's words of a command that an agent in the guest did not start: by ours, and by QEMU's.
const REFUSED: [&str; 2] = ["guest's agent did not start the command: ", "guest agent refused `guest-exec`: "];
/// The guest's words of a program that is not there.
const ABSENT: [&str; 2] = ["No such file", "executable file not found"];

impl CtlError {
    /// What the process ends with: one of `sysexits.h`, or of those of the commands of `image`, where somebody may want
    /// to tell; else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            // EX_IOERR
            Self::Output(_) => 74,
            Self::Image { cause, .. } => cause.exit_code(),
            Self::OfCluster(error) => error.exit_code(),
            Self::OfImage(error) => error.exit_code(),
            Self::NoField { .. } | Self::Usage(_) => USAGE,
            Self::Interrupted(signal) => by_signal(*signal),
            Self::Exited(code) => *code,
            Self::Command(EndError::Failed(why)) => not_started(why).unwrap_or(1),
            Self::Call { cause, .. } => not_started(cause.0.message()).unwrap_or(1),
            _ => 1,
        }
    }
}

impl Refusal {
    /// What a command of `image` ends with.
    fn exit_code(&self) -> u8 {
        let message = self.0.message();
        match self.0.code() {
            // What is lost is controld, not a source.
            _ if self.is_lost_connection() => 1,
            Code::InvalidArgument => USAGE,
            Code::NotFound => NOT_FOUND,
            Code::DataLoss => INTEGRITY,
            Code::FailedPrecondition if message.starts_with("DigestMismatch") => INTEGRITY,
            Code::Unknown if message.starts_with("SignatureValidationFailed") => INTEGRITY,
            Code::Unknown if message.starts_with("RegistryUnavailable") => NETWORK,
            Code::FailedPrecondition if message.starts_with("UnusableSource") => INTEGRITY,
            Code::FailedPrecondition if message.starts_with("UnsafeImage") => UNSAFE,
            Code::Unavailable | Code::DeadlineExceeded => NETWORK,
            Code::ResourceExhausted => NO_SPACE,
            _ => 1,
        }
    }
}

/// What a process ends with that a signal ends, as shells have it.
#[must_use]
pub fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// What `exec` ends with if the guest did not start the command; `None` if something else went wrong.
pub(crate) fn not_started(why: &str) -> Option<u8> {
    let (_, why) = REFUSED.iter().find_map(|words| why.split_once(words))?;
    Some(if ABSENT.iter().any(|words| why.contains(words)) { NO_PROGRAM } else { NOT_STARTED })
}
