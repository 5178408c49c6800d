//! What the agent in a guest has said of the end of the command that its machine was for.
//!
//! One line, `CODE WHY`, which virtlogd has written to a file: see `proto::agent::EXIT_PORT`. A guest that was rebooted has
//! one for each boot, of which the last counts. The guest is free to write anything there.

use std::io;
use std::path::Path;
use std::time::Duration;

use common::watch::Watcher;
use common::{bounded, off_reactor};
use tokio::time::timeout;

use super::COMMAND_END;
use crate::model::{Exit, ExitReason};

/// Bytes at its end that are read.
const MAX: u64 = 8192;
/// How long an end is waited for that virtlogd may still have in its pipe.
const WRITER_DEADLINE: Duration = Duration::from_secs(2);
/// Characters of why a command was not started.
const MAX_WHY: usize = 1024;

/// How a command has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code, 128 and the signal's number if one has ended it.
    pub code: u8,
    /// Why it could not be started; empty if it was.
    pub why: String,
}

impl CommandEnd {
    /// Has the container end as its command did, however its machine ended after that.
    pub fn show(self, exit: &mut Exit) {
        exit.code = self.code.into();
        exit.reason = ExitReason::Completed;
        exit.message = String::new();
        if self.code != 0 {
            exit.reason = ExitReason::Error;
            exit.message =
                if self.why.is_empty() { String::new() } else { format!("the command was not started: {}", self.why) };
        }
    }
}

/// Has a container whose guest powered off without a word of its command end as what it is: not known to have succeeded.
pub fn show_none(exit: &mut Exit) {
    if exit.reason == ExitReason::Completed {
        exit.code = 1;
        exit.reason = ExitReason::Error;
        exit.message = "the guest powered off and did not say how its command had ended".into();
    }
}

/// How the command of the machine has ended, as soon as it is written. See [`read`].
///
/// # Errors
/// When the file cannot be read.
pub async fn read_soon(watcher: &Watcher, dir: &Path) -> io::Result<Option<CommandEnd>> {
    let mut watch = watcher.watch(dir)?;
    let look = || {
        let dir = dir.to_owned();
        off_reactor(move || read(&dir))
    };
    let seen = async {
        loop {
            if let Some(end) = look().await? {
                return Ok(Some(end));
            }
            watch.changed().await;
        }
    };
    match timeout(WRITER_DEADLINE, seen).await {
        Ok(end) => end,
        Err(_elapsed) => look().await,
    }
}

/// How the command of the machine has ended whose console directory this is; `None` if the guest has not said it, or nonsense.
///
/// # Errors
/// When the file cannot be read.
pub fn read(dir: &Path) -> io::Result<Option<CommandEnd>> {
    let text = match bounded::last(&dir.join(COMMAND_END), MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// The last whole line counts.
fn parse(text: &str) -> Option<CommandEnd> {
    let (lines, _begun) = text.rsplit_once('\n')?;
    let line = lines.rsplit('\n').next()?;
    let (code, why) = line.split_once(' ')?;
    let why = why.chars().filter(|c| !c.is_control()).take(MAX_WHY).collect();
    Some(CommandEnd { code: code.parse().ok()?, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_how_a_command_has_ended() {
        let end = |code, why: &str| Some(CommandEnd { code, why: why.into() });
        assert_eq!(parse("0 \n"), end(0, ""));
        assert_eq!(parse("0 \n127 no such \u{1b}file\n1 beg"), end(127, "no such file"));
        for nonsense in ["", "0", "0 \u{0}", "256 \n", "-1 x\n", "0 \n\n", "zero \n"] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
        assert_eq!(parse(&format!("1 {}\n", "a".repeat(5000))).map(|end| end.why.len()), Some(MAX_WHY));
    }

    #[test]
    fn a_container_ends_as_its_command() {
        for (code, why, reason, message) in [
            (0, "", ExitReason::Completed, ""),
            (143, "", ExitReason::Error, ""),
            (127, "no such file", ExitReason::Error, "the command was not started: no such file"),
        ] {
            let mut exit = Exit::now(ExitReason::Completed, "");
            CommandEnd { code, why: why.into() }.show(&mut exit);
            assert_eq!((exit.code, exit.reason, exit.message.as_str()), (i32::from(code), reason, message));
        }
    }

    #[test]
    fn a_command_of_which_nothing_was_said_has_not_succeeded() {
        let mut exit = Exit::now(ExitReason::Completed, "");
        show_none(&mut exit);
        assert_eq!((exit.code, exit.reason), (1, ExitReason::Error));
        let mut exit = Exit::now(ExitReason::GuestPanicked, "why");
        show_none(&mut exit);
        assert_eq!((exit.reason, exit.message.as_str()), (ExitReason::GuestPanicked, "why"));
    }

    #[tokio::test]
    async fn an_end_that_is_on_its_way_is_waited_for() {
        let dir = tempfile::tempdir().expect("tempdir");
        let watcher = Watcher::start();
        let path = dir.path().to_owned();
        let waiting = tokio::spawn(async move { read_soon(&watcher, &path).await });
        tokio::task::yield_now().await;
        std::fs::write(dir.path().join(COMMAND_END), "3 \n").expect("written");
        let end = waiting.await.expect("no panic").expect("reads");
        assert_eq!(end.map(|end| end.code), Some(3));
    }

    #[test]
    fn a_machine_that_has_said_nothing_has_no_end() {
        let dir = tempfile::tempdir().expect("tempdir");
        assert_eq!(read(dir.path()).expect("reads"), None);
        std::fs::write(dir.path().join(COMMAND_END), [0xff; 10_000]).expect("written");
        assert_eq!(read(dir.path()).expect("reads"), None);
    }
}
