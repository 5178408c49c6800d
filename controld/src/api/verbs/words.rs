//! What is written for a verb: `virtlet:VERB`, and its options. Pure.

use std::time::Duration;

use super::refusal::{Refusal, shown};
use crate::guest::agents::MAX_FROZEN;

/// What the first word of each begins with. No shell looks a program of such a name up in `PATH`, and an image that has one has no other
/// reason than to be mistaken for us.
pub(super) const PREFIX: &str = "virtlet:";
/// For how long a guest is frozen where nothing else is said.
const FREEZE: Duration = Duration::from_secs(300);
/// Longest name of a user, in bytes.
const MAX_USER: usize = 256;

/// Names, options and what they are for, as they are told to who writes another one.
const HELP: [[&str; 3]; 11] = [
    ["vnc", "[--take]", "the screen, byte by byte; --take ends the session of who views it"],
    ["screenshot", "[--move-cursor]", "a picture of the screen; --move-cursor wakes a guest that shows nothing"],
    ["pause", "", "the guest stands still"],
    ["unpause", "", "it goes on"],
    ["reset", "", "the reset button: the guest hears nothing of it before"],
    ["softreboot", "", "the guest is asked to reboot"],
    ["freeze", "[--timeout SECONDS]", "its file systems stand still, until `unfreeze` or for so long (300)"],
    ["unfreeze", "", "they go on"],
    ["guestosinfo", "", "what QEMU's agent knows of the guest, as JSON"],
    ["userlist", "", "who is logged in, as JSON"],
    ["filesystemlist", "", "what is mounted, as JSON"],
];

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Vnc { take: bool },
    Screenshot { move_cursor: bool },
    Pause,
    Unpause,
    Reset,
    SoftReboot,
    Freeze { limit: Duration },
    Unfreeze,
    GuestOsInfo,
    UserList,
    FileSystemList,
}

/// A verb, and for whom.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) verb: Verb,
    /// Whom the caller acts for, by its own word.
    pub(super) user: Option<String>,
}

impl Verb {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "vnc" => Self::Vnc { take: false },
            "screenshot" => Self::Screenshot { move_cursor: false },
            "pause" => Self::Pause,
            "unpause" => Self::Unpause,
            "reset" => Self::Reset,
            "softreboot" => Self::SoftReboot,
            "freeze" => Self::Freeze { limit: FREEZE },
            "unfreeze" => Self::Unfreeze,
            "guestosinfo" => Self::GuestOsInfo,
            "userlist" => Self::UserList,
            "filesystemlist" => Self::FileSystemList,
            _ => return None,
        })
    }

    /// Whether it leaves the machine as it is, so that a probe may ask it.
    pub(super) fn only_reads(self) -> bool {
        match self {
            Self::Screenshot { move_cursor } => !move_cursor,
            Self::GuestOsInfo | Self::UserList | Self::FileSystemList => true,
            Self::Vnc { .. } | Self::Pause | Self::Unpause | Self::Reset | Self::SoftReboot => false,
            Self::Freeze { .. } | Self::Unfreeze => false,
        }
    }

    /// Whether what it prints is not for a terminal.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Self::Vnc { .. } | Self::Screenshot { .. })
    }
}

impl Wanted {
    /// Reads what was written.
    ///
    /// # Errors
    /// When that is no verb, or not as it takes it.
    pub(super) fn parse(argv: &[String]) -> Result<Self, Refusal> {
        let (first, arguments) = argv.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let known = first.strip_prefix(PREFIX).and_then(Verb::of);
        let mut verb = known.ok_or_else(|| Refusal::usage(format!("there is no verb `{}`", shown(first)), help()))?;
        let mut user = None;
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let bad = |what: &str| Refusal::usage(format!("`{first}`: {what}"), help());
            let (option, given) = argument.split_once('=').map_or((argument.as_str(), None), |(o, v)| (o, Some(v)));
            let mut value = || given.or_else(|| arguments.next().map(String::as_str)).unwrap_or_default();
            match (option, &mut verb, given) {
                ("--for", _, _) => user = Some(name_of(value()).map_err(|what| bad(&what))?),
                ("--timeout", Verb::Freeze { limit }, _) => *limit = seconds(value()).map_err(|what| bad(&what))?,
                ("--take", Verb::Vnc { take }, None) => *take = true,
                ("--move-cursor", Verb::Screenshot { move_cursor }, None) => *move_cursor = true,
                _ => return Err(bad(&format!("no such option: `{}`", shown(argument)))),
            }
        }
        Ok(Self { verb, user })
    }
}

fn name_of(text: &str) -> Result<String, String> {
    let fits = (1..=MAX_USER).contains(&text.len()) && !text.contains(char::is_control);
    let what = || format!("--for takes the name of a user, of at most {MAX_USER} bytes");
    if fits { Ok(text.to_owned()) } else { Err(what()) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let most = MAX_FROZEN.as_secs();
    let seconds = text.parse::<u64>().ok().filter(|seconds| (1..=most).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("--timeout takes seconds, 1 to {most}, and not `{}`", shown(text)))
}

/// A line for each verb.
fn help() -> String {
    let line =
        |[name, options, what]: &[&str; 3]| format!("{PREFIX}{} - {what}\n", [*name, *options].join(" ").trim_end());
    HELP.iter().map(line).collect::<String>() + "all take --for USER, whom the caller acts for: it is logged\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn parse(line: &str) -> Result<Wanted, Refusal> {
        Wanted::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn verbs_are_read_with_their_options() {
        let verb = |line| parse(line).expect(line).verb;
        assert_eq!(verb("virtlet:vnc --take"), Verb::Vnc { take: true });
        assert_eq!(verb("virtlet:screenshot"), Verb::Screenshot { move_cursor: false });
        for line in ["virtlet:freeze --timeout 7", "virtlet:freeze --timeout=7"] {
            assert_eq!(verb(line), Verb::Freeze { limit: Duration::from_secs(7) });
        }
        let wanted = parse("virtlet:pause --for ada").expect("pause");
        assert_eq!((wanted.verb, wanted.user.as_deref()), (Verb::Pause, Some("ada")));
        for [name, ..] in HELP {
            assert!(Verb::of(name).is_some(), "{name} is told, and unknown");
        }
    }

    #[test]
    fn probes_only_read() {
        let reads: Vec<_> = HELP
            .iter()
            .filter(|[name, ..]| Verb::of(name).is_some_and(Verb::only_reads))
            .map(|[name, ..]| *name)
            .collect();
        assert_eq!(reads, ["screenshot", "guestosinfo", "userlist", "filesystemlist"]);
        assert!(!parse("virtlet:screenshot --move-cursor").expect("screenshot").verb.only_reads());
    }

    #[test]
    fn the_sample_of_roles_has_all_verbs_and_no_others() {
        let roles = include_str!("../../../../deploy/exec-roles.yaml");
        let word = |rest: &'static str| rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        let named: BTreeSet<&str> = roles.split("vms/").skip(1).map(word).collect();
        // Any verb, and what is none.
        let known: BTreeSet<&str> = HELP.iter().map(|[name, ..]| *name).chain(["", "exec"]).collect();
        assert_eq!(named, known);
    }

    #[test]
    fn what_is_written_wrongly_is_refused_with_what_can_be_written() {
        let mut told = Vec::new();
        for line in [
            "virtlet:migrate",
            "virtlet:",
            "virtlet:\u{1b}[2J",
            "virtlet:pause now",
            "virtlet:pause --take",
            "virtlet:vnc --take=no",
            "virtlet:freeze --timeout",
            "virtlet:freeze --timeout 0",
            "virtlet:freeze --timeout 3601",
            "virtlet:reset --for a\tb",
        ] {
            let Refusal { code, text, help } = parse(line).expect_err(line);
            assert!(code == 64 && help.starts_with("virtlet:vnc [--take] - "), "{line}: {code} {help}");
            told.push(text);
        }
        insta::assert_snapshot!(told.join("\n"), @r"
        there is no verb `virtlet:migrate`
        there is no verb `virtlet:`
        there is no verb `virtlet:\u{1b}[2J`
        `virtlet:pause`: no such option: `now`
        `virtlet:pause`: no such option: `--take`
        `virtlet:vnc`: no such option: `--take=no`
        `virtlet:freeze`: --timeout takes seconds, 1 to 3600, and not ``
        `virtlet:freeze`: --timeout takes seconds, 1 to 3600, and not `0`
        `virtlet:freeze`: --timeout takes seconds, 1 to 3600, and not `3601`
        `virtlet:reset`: --for takes the name of a user, of at most 256 bytes
        ");
    }
}
