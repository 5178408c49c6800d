//! What stands in front of a command: `--socket PATH`, which is an option of all commands, and `-n NAMESPACE`, which kubectl also takes
//! there. They come in any order. In front of a verb of `vm`, and of the plugin, are all options that say which cluster it is for.

use std::ffi::OsString;

use clap::{Arg, Command};

use super::kubeconfig::OPTIONS;

/// The command whose verbs ask a cluster.
const VM: &str = "vm";

/// The words of a command line in the order that clap wants: a namespace goes behind its command, if that has one.
#[must_use]
pub fn in_order(root: impl FnOnce() -> Command, words: Vec<OsString>) -> Vec<OsString> {
    let (mut sockets, mut namespaces) = (Vec::new(), Vec::new());
    let mut at = 1;
    let command = loop {
        let Some(word) = words.get(at).and_then(|word| word.to_str()) else { return words };
        let (kind, count) = match word {
            "--socket" => (&mut sockets, 2),
            "-n" | "--namespace" => (&mut namespaces, 2),
            _ if word.starts_with("--socket=") => (&mut sockets, 1),
            _ if word.starts_with("--namespace=") || (word.starts_with("-n") && word.len() > 2) => (&mut namespaces, 1),
            _ => break word,
        };
        kind.extend(at..at + count);
        at += count;
    };
    let (root, is_vm, begin) = (root(), command == VM, sockets.len() + 2);
    let found = root.find_subcommand(command);
    if !is_vm && (namespaces.is_empty() || !found.is_some_and(has_namespace)) {
        return words;
    }
    let order = [0].into_iter().chain(sockets).chain([at]).chain(namespaces).chain(at + 1..words.len());
    let words = order.filter_map(|at| words.get(at).cloned()).collect();
    match found {
        Some(vm) if is_vm => behind_verb(vm, words, begin),
        _ => words,
    }
}

/// The words with options of a cluster behind the verb that they stand in front of. All of them begin at `begin`.
#[must_use]
pub fn behind_verb(root: &Command, mut words: Vec<OsString>, begin: usize) -> Vec<OsString> {
    let at = begin + len_of_options(words.get(begin..).unwrap_or_default());
    let verb = words.get(at).and_then(|word| word.to_str()).and_then(|verb| root.find_subcommand(verb));
    if at > begin && verb.is_some_and(has_namespace) {
        let options: Vec<OsString> = words.drain(begin..at).collect();
        words.splice(begin + 1..begin + 1, options);
    }
    words
}

/// The words without those options, if no verb is behind them yet: they stand in the way of its completion.
pub(super) fn without_options(mut words: Vec<OsString>, begin: usize) -> Vec<OsString> {
    if begin + len_of_options(words.get(begin..).unwrap_or_default()) == words.len() {
        words.truncate(begin);
    }
    words
}

/// How many words are options of a cluster, with their values.
fn len_of_options(words: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        let says = |name: &str| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        at += match word {
            _ if OPTIONS.contains(&word) => 2,
            _ if OPTIONS.into_iter().any(says) || (word.starts_with("-n") && word.len() > 2) => 1,
            _ => break,
        };
    }
    at
}

fn has_namespace(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_long() == Some("namespace"))
}

/// The words that a shell wants completed, behind its `--`. The one that is typed stays in its place, as the shell counts them.
pub(super) fn completed(root: impl FnOnce() -> Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let Some(begin) = words.iter().position(|word| word == "--") else { return words };
    let typed = words.pop();
    let line = words.split_off(begin + 1);
    let mut line = in_order(root, line);
    if let Some(at) = line.iter().position(|word| word == VM) {
        line = without_options(line, at + 1);
    }
    words.into_iter().chain(line).chain(typed).collect()
}

/// The root with a namespace in front of its commands, so that its value is not taken for one while the command is typed.
pub(super) fn with_namespace(root: Command) -> Command {
    root.arg(Arg::new("namespace in front").short('n').long("namespace").value_name("NAMESPACE").hide(true))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_namespace_goes_behind_its_command() {
        for (line, wanted) in [
            ("v get", "v get"),
            ("v -n a get pods", "v get -n a pods"),
            ("v -na get pods", "v get -na pods"),
            ("v --namespace=a ls", "v ls --namespace=a"),
            ("v --socket /x -n a get pods", "v --socket /x get -n a pods"),
            ("v -n a --socket /x get pods", "v --socket /x get -n a pods"),
            ("v --socket=/x --namespace a --socket /y get", "v --socket=/x --socket /y get --namespace a"),
            ("v -n run get pods", "v get -n run pods"),
            ("v -n a vm start web", "v vm start -n a web"),
            ("v vm --context c -n a --kubeconfig=/k start web", "v vm start --context c -n a --kubeconfig=/k web"),
            ("v --socket /x -n a vm --group=g get", "v --socket /x vm get -n a --group=g"),
            ("v vm start -n a web", "v vm start -n a web"),
            // It is no command's own, or nothing is there to be moved.
            ("v vm -n a lint x", "v vm -n a lint x"),
            ("v vm -n a", "v vm -n a"),
            ("v vm -n", "v vm -n"),
            ("v -n a image ls", "v -n a image ls"),
            ("v -n a lost", "v -n a lost"),
            ("v --socket /x get -n a", "v --socket /x get -n a"),
            ("v -n", "v -n"),
            ("v -n a", "v -n a"),
            ("v --socket", "v --socket"),
            ("v", "v"),
        ] {
            assert_eq!(in_order(Cli::command, words(line)), words(wanted), "{line}");
        }
    }

    #[test]
    fn commands_and_options_are_completed_behind_them() {
        for (line, wanted) in [
            ("v --socket /x -n prod port-f", "port-forward"),
            ("v -n prod --socket=/x port-f", "port-forward"),
            ("v -n prod get", "get"),
            ("v -nprod ps --field", "--field-selector"),
            ("v -n run --socket /x ps --field", "--field-selector"),
            ("v --namespace run ps --field", "--field-selector"),
            ("v --namesp", "--namespace"),
            ("v -n prod vm fsl", "fslist"),
            ("v vm --context c -n prod fsl", "fslist"),
            ("v vm -n prod start --dry", "--dry-run"),
        ] {
            let asked = completed(Cli::command, words(&format!("virtletctl -- {line}")));
            let asked = asked.into_iter().skip(2).collect::<Vec<_>>();
            let at = asked.len() - 1;
            let found = clap_complete::engine::complete(&mut with_namespace(Cli::command()), asked, at, None);
            let found = found.expect("completed").into_iter().map(|one| one.get_value().to_owned());
            assert_eq!(found.collect::<Vec<_>>(), [wanted], "{line}");
        }
        assert_eq!(completed(Cli::command, words("virtletctl")), words("virtletctl"), "for the script");
    }
}
