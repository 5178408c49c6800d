//! Why a verb is not done: a text for a person, and an exit code by which a program knows what kind of no it is (of `sysexits.h`).

use common::Chain;
use vmspec::error::{Error, Kind};

/// There is no such verb, or it takes no such option.
const USAGE: u8 = 64;
/// The container is gone.
const ABSENT: u8 = 66;
/// The machine is not such, or not so now, that it could be done.
const CONFLICT: u8 = 69;
/// What should not happen.
const FAILED: u8 = 70;
/// libvirt, QEMU or the guest's agent does not answer; trying again may help.
const AGAIN: u8 = 75;
/// Not in this way.
const DENIED: u8 = 77;
/// Longest text, in characters.
const MAX_TEXT: usize = 1024;

/// A verb that is not done.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u8,
    /// One line.
    pub(super) text: String,
    /// Further lines, each with its end.
    pub(super) help: String,
}

impl Refusal {
    pub(super) fn usage(text: String, help: String) -> Self {
        Self { code: USAGE, text, help }
    }

    pub(super) fn conflict(text: impl Into<String>) -> Self {
        Self { code: CONFLICT, text: text.into(), help: String::new() }
    }

    /// To a probe.
    pub(super) fn of_probe(verb: &str) -> Self {
        let text = format!("`{verb}` is not for probes: they run again and again, and it does not only read");
        Self { code: DENIED, text, help: String::new() }
    }

    /// As it is written to stderr.
    pub(super) fn lines(&self) -> String {
        format!("{}\n{}", self.text, self.help)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            Kind::Invalid => USAGE,
            Kind::NotFound => ABSENT,
            Kind::State | Kind::Exists => CONFLICT,
            Kind::Denied => DENIED,
            Kind::Unavailable | Kind::Deadline | Kind::Exhausted => AGAIN,
            Kind::DataLoss | Kind::Unimplemented | Kind::Named | Kind::Internal => FAILED,
        };
        let text = Chain(&error).to_string();
        let text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT).collect();
        Self { code, text, help: String::new() }
    }
}

/// A word that somebody has written, fit to be shown.
pub(super) fn shown(word: &str) -> String {
    word.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_and_a_code_that_tells_its_kind() {
        let cause = std::io::Error::other("first\nsecond");
        let refusal = Refusal::from(Error::because(Kind::State, "not done", cause));
        assert_eq!((refusal.code, refusal.lines().as_str()), (69, "not done: first second\n"));
        for (kind, code) in [(Kind::NotFound, 66), (Kind::Deadline, 75), (Kind::Internal, 70), (Kind::Denied, 77)] {
            assert_eq!(Refusal::from(Error::new(kind, "x")).code, code);
        }
        assert_eq!(Refusal::from(Error::new(Kind::State, "x".repeat(9999))).text.len(), MAX_TEXT);
    }
}
