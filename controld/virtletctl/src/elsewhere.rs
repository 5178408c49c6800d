//! What is said of a command line that is none: one line, which names what does instead of what docker, kubectl, virtctl, multipass and
//! crictl have.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error};

use super::cli::Cli;

mod options;
mod values;
mod words;

/// Letters that may be wrong in a word that is taken for another.
const SLIP: usize = 2;

/// What is said of `words`, which clap refuses; `None` if clap prints help or a version.
#[must_use]
pub fn line(error: &Error, words: &[String]) -> Option<String> {
    let root = Cli::command();
    let (path, command) = named(&root, words);
    match error.kind() {
        // docker's `run -h NAME`; `run -h` alone asks for help.
        ErrorKind::DisplayHelp if path == "run" && names_host(words) => {
            Some("`run` has no option `-h NAME`; the guest's host name is the pod's: `--name NAME`".into())
        }
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            None
        }
        ErrorKind::InvalidSubcommand => Some(unknown_command(error, &path, command)),
        ErrorKind::UnknownArgument => Some(unknown_option(error, &path)),
        ErrorKind::MissingSubcommand if path.is_empty() => {
            Some("there is no command; `virtletctl help` lists them".into())
        }
        ErrorKind::MissingSubcommand => Some(format!(
            "`{path}` wants a command behind it, such as `virtletctl {path} ls`; `virtletctl {path} --help` lists them"
        )),
        ErrorKind::MissingRequiredArgument => {
            Some(format!("{}; `virtletctl {path} --help` shows how it is written", first(error)))
        }
        ErrorKind::TooManyValues => {
            let (option, value) = (text(error, ContextKind::InvalidArg), text(error, ContextKind::InvalidValue));
            Some(format!("`{option}` has no value; leave `={value}` out, and for `false` all of it"))
        }
        _ => {
            let option = text(error, ContextKind::InvalidArg).split(' ').next().unwrap_or_default();
            let instead = values::instead(&path, option, text(error, ContextKind::InvalidValue));
            Some(match instead {
                Some(instead) => format!("{}; {instead}", first(error)),
                None => first(error),
            })
        }
    }
}

/// The same of the plugin, if it is a word of others whose matter is known; else clap says it.
#[must_use]
pub fn line_of_plugin(error: &Error) -> Option<String> {
    let word =
        Some(text(error, ContextKind::InvalidSubcommand)).filter(|_| error.kind() == ErrorKind::InvalidSubcommand)?;
    words::instead("vm", word).map(|instead| format!("there is no command `{word}`; {instead}"))
}

fn unknown_command(error: &Error, path: &str, command: &Command) -> String {
    let word = text(error, ContextKind::InvalidSubcommand);
    let close = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(all)) => all
            .iter()
            .filter(|known| is_slip(word, known))
            .find(|known| command.find_subcommand(known).is_some_and(|command| !command.is_hide_set())),
        _ => None,
    };
    let (behind, all) =
        if path.is_empty() { (String::new(), "help".into()) } else { (format!("{path} "), format!("{path} --help")) };
    let instead = words::instead(path, word).map(str::to_owned);
    let instead = instead.or_else(|| close.map(|close| format!("is `virtletctl {behind}{close}` meant?")));
    let instead = instead.unwrap_or_else(|| format!("`virtletctl {all}` lists them"));
    format!("there is no command `{behind}{word}`; {instead}")
}

fn unknown_option(error: &Error, path: &str) -> String {
    let option = text(error, ContextKind::InvalidArg);
    let close = Some(text(error, ContextKind::SuggestedArg)).filter(|close| is_slip(option, close));
    let help = if path.is_empty() { "help".into() } else { format!("{path} --help") };
    let instead = options::instead(path, option).map(str::to_owned);
    let instead = instead.or_else(|| close.map(|close| format!("is `{close}` meant?")));
    let instead = instead.unwrap_or_else(|| format!("`virtletctl {help}` lists what there is"));
    let command = if path.is_empty() { "virtletctl" } else { path };
    let lacks = if option.starts_with('-') { "has no option" } else { "takes no word" };
    let place = if path.is_empty() { " in front of its commands" } else { "" };
    format!("`{command}` {lacks} `{option}`{place}; {instead}")
}

/// The command that words name, as in `image ls`, and what it has; aliases by what they stand for.
fn named<'a>(root: &'a Command, words: &[String]) -> (String, &'a Command) {
    let (mut path, mut command) = (Vec::new(), root);
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "--socket" {
            words.next();
        } else if !word.starts_with("--socket=") {
            let Some(next) = command.find_subcommand(word) else { break };
            path.push(next.get_name());
            command = next;
        }
    }
    (path.join(" "), command)
}

fn names_host(words: &[String]) -> bool {
    let behind = words.iter().skip_while(|word| *word != "-h").nth(1);
    behind.is_some_and(|name| !name.starts_with('-'))
}

/// Whether somebody who writes the one has meant the other.
fn is_slip(written: &str, known: &str) -> bool {
    let wrong = strsim::osa_distance(written, known);
    wrong <= SLIP && wrong * 2 < known.trim_start_matches('-').len()
}

/// clap's own words, without what it says beside.
fn first(error: &Error) -> String {
    let told = error.to_string();
    let first = told.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    first.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn text(error: &Error, kind: ContextKind) -> &str {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::kind;

    /// The command of a path, as in `image ls`.
    pub(super) fn command_of<'a>(root: &'a Command, path: &str) -> Option<&'a Command> {
        path.split_whitespace().try_fold(root, |command, word| command.find_subcommand(word))
    }

    /// Whether a command has an option, or all short ones of `-aq`.
    pub(super) fn has(command: &Command, option: &str) -> bool {
        let mut all = command.get_arguments();
        let option = option.split('=').next().unwrap_or_default();
        match option.strip_prefix("--") {
            Some(long) => all.any(|arg| {
                arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
            }),
            None => {
                option.chars().skip(1).all(|short| command.get_arguments().any(|arg| arg.get_short() == Some(short)))
            }
        }
    }

    /// Whether what a hint names is there: commands with their options, and options of the commands that it is told of.
    fn check(root: &Command, commands: &[&str], hint: &str) {
        let is_option = |word: &&str| word.len() > 1 && word.starts_with('-');
        for quoted in hint.split('`').skip(1).step_by(2) {
            for words in quoted.split("virtletctl ").skip(1) {
                let words: Vec<&str> = words.split_whitespace().map(|word| word.trim_end_matches(')')).collect();
                let depth = words.iter().take_while(|word| !is_option(word)).count();
                let path = (1..=depth).rev().map(|depth| words[..depth].join(" "));
                let command = path.chain(iter::once(String::new())).find_map(|path| command_of(root, &path));
                let command = command.expect("the root at least");
                let is_root = command.get_name() == root.get_name();
                assert!(!is_root || words[0].starts_with("--socket"), "`{quoted}` names no command");
                for option in words.iter().filter(|word| is_option(word)) {
                    assert!(has(command, option), "`{quoted}` has no {option}");
                }
            }
            if quoted.starts_with('-') && !quoted.contains("virtletctl ") {
                for option in quoted.split_whitespace().filter(is_option) {
                    for path in commands {
                        assert!(has(command_of(root, path).expect(path), option), "`{path}` has no {option}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_instead_is_there() {
        let mut root = Cli::command();
        root.build();
        for (commands, hint) in options::hints() {
            check(&root, commands, hint);
        }
        for hint in words::hints().chain(values::hints()).chain(kind::hints()) {
            check(&root, &[], hint);
        }
    }

    #[test]
    fn a_slip_is_one_or_two_letters() {
        for (written, known, wanted) in [
            ("--namepsace", "--namespace", true),
            ("lgos", "logs", true),
            ("pss", "ps", false),
            ("deleet", "delete", true),
            ("expose", "reset", false),
            ("--gpus", "--cpus", true),
            ("rc", "rm", false),
        ] {
            assert_eq!(is_slip(written, known), wanted, "{written}");
        }
    }
}
