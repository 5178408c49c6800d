//! How the program says that it failed: one line on stderr and an exit code of sysexits.h.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::emulator::EmulatorError;
use crate::env::EnvError;
use crate::handoff::HandoffError;

/// Longest line: libvirt keeps little of what its emulator says.
const MAX_LINE: usize = 1000;

/// Why QEMU did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no arguments")]
    Usage,
    #[error("environment of the domain is wrong")]
    Env(#[from] EnvError),
    #[error("no emulator to become")]
    Emulator(#[from] EmulatorError),
    #[error("failed to fetch the pod's network")]
    Handoff(#[from] HandoffError),
    #[error("failed to pass the pod's descriptors on")]
    Inherit(#[source] nix::errno::Errno),
    #[error("failed to execute emulator `{}`", emulator.display())]
    Exec {
        emulator: PathBuf,
        #[source]
        cause: io::Error,
    },
}

impl Failure {
    /// The exit code; `main`'s header has the list.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::Handoff(error) if error.is_of_protocol() => 76,
            Self::Handoff(_) => 69,
            Self::Inherit(_) => 70,
            Self::Exec { .. } | Self::Emulator(EmulatorError::Absent { .. }) => 71,
            Self::Env(_) | Self::Emulator(_) => 78,
        }
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) {
        say(&self.line());
    }

    /// What, why, what to do.
    fn line(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        if let Some(advice) = self.advice() {
            let _ = write!(text, "; {advice}");
        }
        format_line(self.code(), &text)
    }

    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Usage => Some("libvirt starts this program in the place of QEMU, people start QEMU"),
            Self::Env(_) => Some("install controld and vmwrapper of one release"),
            Self::Emulator(error) => Some(error.advice()),
            Self::Handoff(error) => error.advice(),
            Self::Inherit(_) => Some("this is a bug, report it"),
            Self::Exec { .. } => Some("is QEMU installed, and may libvirt's user run it?"),
        }
    }
}

/// A panic is a bug: it too is one line and a code of its own.
pub(crate) fn make_panics_one_line() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        say(&format_line(70, &format!("bug, report it: {text}")));
        std::process::exit(70);
    }));
}

/// Others' text may stand in it, so its length is bounded and its control characters are not kept.
fn format_line(code: u8, text: &str) -> String {
    let text = text.chars().take(MAX_LINE).map(|c| if c.is_control() { ' ' } else { c });
    format!("vmwrapper[{code}]: {}\n", text.collect::<String>())
}

fn say(line: &str) {
    // Nobody is left to tell if this fails.
    let _ = io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proto::tap::{ClientError, ErrorBody, ErrorCode};

    use super::*;

    fn refused(code: ErrorCode, message: &str) -> Failure {
        HandoffError::from(ClientError::Refused(ErrorBody { code, message: message.into() })).into()
    }

    #[test]
    fn a_line_stays_one_line_of_bounded_length() {
        let failure = refused(ErrorCode::Denied, &format!("a\nb\x1b[2J\r{}", "x".repeat(5000)));
        let line = failure.line();
        assert!(line.starts_with("vmwrapper[69]: failed to fetch the pod's network: tapmanager: a b [2J x"), "{line}");
        assert_eq!(line.matches(char::is_control).collect::<Vec<_>>(), ["\n"]);
        assert_eq!(line.chars().count(), "vmwrapper[69]: ".len() + MAX_LINE + 1);
    }

    #[test]
    fn a_refusal_of_the_message_itself_is_of_protocol() {
        assert_eq!(refused(ErrorCode::Version, "x").code(), 76);
        assert_eq!(refused(ErrorCode::BadRequest, "x").code(), 76);
        assert_eq!(refused(ErrorCode::Unavailable, "x").code(), 69);
    }

    #[test]
    fn a_descriptor_that_cannot_be_passed_on_is_a_bug() {
        assert_eq!(Failure::Inherit(nix::errno::Errno::EBADF).code(), 70);
    }

    #[test]
    fn a_panic_is_one_line_and_code_70() {
        let output = Command::new(std::env::current_exe().expect("exe"))
            .args(["--ignored", "--exact", "failure::tests::panics_in_a_process_of_its_own"])
            .output()
            .expect("runs");
        assert_eq!(output.status.code(), Some(70));
        let text = String::from_utf8(output.stderr).expect("text");
        assert!(text.starts_with("vmwrapper[70]: bug, report it: panicked at vmwrapper/src/failure.rs:"), "{text}");
        assert!(text.ends_with(": out of  cheese\n"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    #[ignore = "ends its process; the test above runs it"]
    fn panics_in_a_process_of_its_own() {
        make_panics_one_line();
        panic!("out of \ncheese");
    }
}
