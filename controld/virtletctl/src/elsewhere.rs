//! Commands that docker, kubectl or virsh have and virtletctl has not, and what does instead.

/// Their words, and ours.
const WORDS: [(&[&str], &str); 18] = [
    (
        &["apply", "create", "replace"],
        "`virtletctl run IMAGE` makes a pod; manifests are for `kubectl apply`, and `virtletctl validate -f FILE` judges them",
    ),
    (&["build", "commit"], "images are made by other programs, and taken by `virtletctl image import FILE`"),
    (&["login", "logout"], "a pull logs in by itself: `virtletctl pull --username USER --password-file FILE IMAGE`"),
    (&["network", "networks"], "`tapmanager networks` lists networks, and `virtletctl run --network NAME` uses one"),
    (&["volume", "volumes"], "`virtletctl run -v PATH:PATH` shares a directory of the node"),
    (
        &["import", "load"],
        "`virtletctl image import FILE` takes a disk as an image; `virtletctl run ./FILE` starts it, too",
    ),
    (&["save"], "`virtletctl image save NAME FILE` writes an image's disk"),
    (&["prune"], "`virtletctl image prune` removes images that no pod uses; `virtletctl rm POD` removes pods"),
    (
        &["tag", "push", "history"],
        "an image is called what it was pulled or imported as; `virtletctl image inspect NAME` tells of it",
    ),
    (
        &["info", "system", "node", "nodes"],
        "`virtletctl doctor` looks at the node; `virtletctl image prune` makes room",
    ),
    (
        &["update", "edit", "patch", "set", "scale", "resize", "rename", "label", "annotate"],
        "what a pod is made of stays; `virtletctl run` makes another, and a pod of a cluster is changed by `kubectl`",
    ),
    (
        &["port"],
        "`virtletctl port-forward POD PORT` opens one until Ctrl-C, and `virtletctl run -p PORT:PORT` publishes one",
    ),
    (&["diff", "export"], "`virtletctl cp POD:/ -` writes an archive of a guest's files"),
    (&["screenshot"], "`virtletctl vnc --screenshot FILE POD` writes what a screen shows"),
    (&["shutdown"], "`virtletctl stop POD` has a guest shut down"),
    (&["destroy"], "`virtletctl kill POD` ends a machine at once; `virtletctl rm -f POD` removes it, too"),
    (&["suspend"], "`virtletctl pause POD` has a guest stand still"),
    (&["dominfo", "domstate", "dumpxml"], "`virtletctl describe POD` tells all of a machine"),
];

/// What does instead, if a word is known.
#[must_use]
pub fn instead(word: &str) -> Option<&'static str> {
    WORDS.iter().find(|(words, _)| words.contains(&word)).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn only_what_is_no_command_is_done_elsewhere() {
        let command = Cli::command();
        for word in WORDS.iter().flat_map(|(words, _)| *words) {
            assert!(command.find_subcommand(word).is_none(), "{word}");
        }
        assert_eq!(instead("suspend"), Some("`virtletctl pause POD` has a guest stand still"));
        assert_eq!(instead("ps"), None);
    }

    #[test]
    fn the_commands_that_are_named_are_there() {
        let command = Cli::command();
        for (_, instead) in WORDS {
            let named = instead.split('`').filter_map(|words| words.strip_prefix("virtletctl "));
            for words in named {
                let verb = words.split(' ').next().unwrap_or_default();
                assert!(command.find_subcommand(verb).is_some(), "{words}");
            }
        }
        let error = Cli::try_parse_from(["virtletctl", "apply"]).expect_err("no command");
        assert_eq!(error.kind(), clap::error::ErrorKind::InvalidSubcommand);
    }
}
