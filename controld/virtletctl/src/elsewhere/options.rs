//! Options that docker, kubectl, virtctl, multipass and crictl have where a command of ours has none, and what does instead.

mod changes;
mod guests;
mod images;
mod looks;
mod run;

/// Commands of ours, options that they have not, and what does instead. A command is written as in `virtletctl image ls`, and empty for
/// what stands in front of all commands; the empty option is a word too many. Options in backticks are those of the commands.
type Entry = (&'static [&'static str], &'static [&'static str], &'static str);

/// Of what is meant and done without.
const LEAVE: &str = "leave it out";
const ONE_NODE: &str = "virtletctl knows this node alone, and asks no cluster; leave it out";
const SOCKET: &str = "`--socket PATH`, or VIRTLET_SOCKET, says where controld is";

const FRONT: &[Entry] = &[
    (&[""], &["-n", "--namespace"], "it stands behind the command: `virtletctl get -n NAMESPACE`"),
    (&[""], &["-H", "--host", "-r", "-i"], SOCKET),
    (&[""], &["-v"], "`--version` tells the version, and `virtletctl version` that of controld, too"),
    (&[""], &["-D", "--debug", "-t", "--timeout", "-c", "--config", "-l", "--log-level"], LEAVE),
];

/// Options that people write anywhere.
const ANYWHERE: &[(&[&str], &str)] = &[
    (&["--context", "--kubeconfig", "--cluster", "--server", "--token", "--as"], ONE_NODE),
    (&["--runtime-endpoint", "--image-endpoint"], SOCKET),
    (&["-v", "--v", "--request-timeout"], LEAVE),
    (&["-n", "--namespace", "-A", "--all-namespaces"], "no namespace is meant here; leave it out"),
];

fn entries() -> impl Iterator<Item = &'static Entry> {
    [FRONT, run::OPTIONS, looks::OPTIONS, changes::OPTIONS, guests::OPTIONS, images::OPTIONS].into_iter().flatten()
}

/// What does instead of an option of a command, or of a word that it does not take.
pub(super) fn instead(command: &str, option: &str) -> Option<&'static str> {
    let option = if option.starts_with('-') { option } else { "" };
    let fits = |(commands, options, _): &&Entry| commands.contains(&command) && options.contains(&option);
    let anywhere = || ANYWHERE.iter().find(|(options, _)| options.contains(&option)).map(|(_, instead)| *instead);
    entries().find(fits).map(|(_, _, instead)| *instead).or_else(anywhere)
}

#[cfg(test)]
pub(super) fn hints() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    let anywhere = ANYWHERE.iter().map(|(_, instead)| (&[""][..], *instead));
    entries().map(|(commands, _, instead)| (*commands, *instead)).chain(anywhere)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::tests::{command_of, has};
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn only_what_is_no_option_is_told() {
        let mut root = Cli::command();
        root.build();
        for (commands, options, _) in entries() {
            for path in *commands {
                let command = command_of(&root, path).unwrap_or_else(|| panic!("`{path}`"));
                for option in options.iter().filter(|option| !option.is_empty()) {
                    assert!(!has(command, option), "{path} {option}");
                    let first = entries().find(|(all, known, _)| all.contains(path) && known.contains(option));
                    assert_eq!(first.map(|(_, known, _)| *known), Some(*options), "{path} {option} is told twice");
                }
            }
        }
        assert_eq!(instead("logs", "main"), Some("the container is named by `-c NAME`"));
        assert_eq!(instead("ps", "--colour"), None);
    }
}
