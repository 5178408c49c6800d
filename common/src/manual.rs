//! Man pages and completions of a program, from its command line as clap has it. The packages of the Makefile's `deb` are
//! made with it, by a hidden sub-command `manual DIR` of each program: nobody but a program itself has its whole command
//! line, and what ships with it cannot be of another version.
//!
//! Everything lies below DIR as it lies below `/` once it is installed. The same command line makes the same bytes.

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Where each shell looks for what packages bring, and how it calls the file of a program.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "usr/share/bash-completion/completions/", ""),
    (Shell::Zsh, "usr/share/zsh/vendor-completions/_", ""),
    (Shell::Fish, "usr/share/fish/vendor_completions.d/", ".fish"),
];

/// Section of the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// What every user may start.
    Commands,
    /// What is the administrator's.
    Administration,
}

/// Writes a page for `program` and one for each of its commands, and the completions of three shells, below `dir`.
///
/// # Errors
/// When a directory or a file cannot be written.
pub fn write(program: Command, section: Section, dir: &Path) -> io::Result<()> {
    write_with(program, section, dir, |_shell| Ok(None))
}

/// The same, with scripts of the program's own for those shells for which there are some.
///
/// # Errors
/// When a directory or a file cannot be written, or a script not be made.
pub fn write_with(
    program: Command,
    section: Section,
    dir: &Path,
    own: impl Fn(Shell) -> io::Result<Option<Vec<u8>>>,
) -> io::Result<()> {
    let number = match section {
        Section::Commands => "1",
        Section::Administration => "8",
    };
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let name = program.get_name().to_owned();
    for (shell, before, after) in COMPLETIONS {
        let script = own(shell)?.unwrap_or_else(|| {
            // Written in one piece: the generator does not expect a writer that fails.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program, &name, &mut script);
            script
        });
        put(&dir.join(format!("{before}{name}{after}")), &script)?;
    }
    pages(&program, number, &dir.join(format!("usr/share/man/man{number}")))
}

/// Of `command`, and of those below it that help shows.
fn pages(command: &Command, section: &str, dir: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let version = command.get_version().unwrap_or_default();
    // The day on which it was made is none of the reader's business, and would make each build another one.
    Man::new(command.clone())
        .title(name.clone())
        .section(section)
        .date("")
        .source(format!("virtlet-rs {version}").trim_end().to_owned())
        .render(&mut text)?;
    put(&dir.join(format!("{name}.{section}")), &text)?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| pages(below, section, dir))
}

fn put(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pages_and_completions_lie_where_they_are_installed_and_hidden_commands_have_none() {
        let dir = tempfile::tempdir().expect("directory");
        let run = Command::new("run").about("Serve");
        let program = Command::new("prog").version("1.2").subcommand(run).subcommand(Command::new("secret").hide(true));
        write(program, Section::Administration, dir.path()).expect("written");
        let man = dir.path().join("usr/share/man/man8");
        let mut found: Vec<_> =
            fs::read_dir(&man).expect("pages").map(|page| page.expect("page").file_name()).collect();
        found.sort();
        assert_eq!(found, ["prog-run.8", "prog.8"]);
        let page = fs::read_to_string(man.join("prog-run.8")).expect("page");
        assert!(page.contains(".TH prog-run 8"), "{page}");
        for (_, before, after) in COMPLETIONS {
            assert!(dir.path().join(format!("{before}prog{after}")).exists(), "{before}");
        }
        let own = |shell| Ok((shell == Shell::Zsh).then(|| b"own".to_vec()));
        write_with(Command::new("prog"), Section::Commands, dir.path(), own).expect("written");
        let script = |(_, before, after)| fs::read(dir.path().join(format!("{before}prog{after}"))).expect("script");
        assert_eq!(COMPLETIONS.map(script).map(|script| script == b"own"), [false, true, false]);
    }
}
