//! Values that others' options take where ours of that name are something else, and what does instead.

/// Commands of ours, an option of theirs, a part of a value that it does not take (all of it if empty), and what does instead.
type Entry = (&'static [&'static str], &'static str, &'static str, &'static str);

const VALUES: &[Entry] = &[
    (
        &["ps", "get"],
        "--selector",
        "",
        "-l is a selector of labels, and the newest pods are the last of `virtletctl ps -a --sort-by created`",
    ),
    (&["stats", "top"], "--output", "table", "a table is what comes without -o; leave it out"),
    (&["top", "stats"], "--output", ",", "processes of a guest are shown by `virtletctl exec POD ps aux`"),
    (
        &["image inspect"],
        "--format",
        "{{",
        "the format is that of a file; `virtletctl image inspect --json NAME` is for jq",
    ),
];

/// What does instead of a value.
pub(super) fn instead(command: &str, option: &str, value: &str) -> Option<&'static str> {
    let fits = |(commands, known, part, _): &&Entry| {
        commands.contains(&command)
            && *known == option
            && if part.is_empty() { value.is_empty() } else { value.contains(part) }
    };
    VALUES.iter().find(fits).map(|(.., instead)| *instead)
}

#[cfg(test)]
pub(super) fn hints() -> impl Iterator<Item = &'static str> {
    VALUES.iter().map(|(.., instead)| *instead)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::tests::{command_of, has};
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn only_options_that_are_there_have_values() {
        let mut root = Cli::command();
        root.build();
        for (commands, option, ..) in VALUES {
            assert!(commands.iter().all(|path| has(command_of(&root, path).expect(path), option)), "{option}");
        }
        assert!(instead("ps", "--selector", "").is_some() && instead("ps", "--selector", "a b").is_none());
    }
}
