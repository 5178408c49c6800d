//! What of a command line nobody is asked for: words that are refused, and scripts that complete them.

use std::path::Path;

use clap::Parser as _;

use super::ctl;
use crate::cli::Cli;
use crate::complete;

#[test]
fn wrong_arguments_are_refused() {
    for (args, wanted) in [
        (vec![], "Usage"),
        (vec!["run"], "<IMAGE>"),
        (vec!["run", ""], "must not be empty"),
        (vec!["run", "x", "--name", "A_b"], "lower-case"),
        (vec!["run", "x", "--memory", "lots"], "512Mi"),
        (vec!["run", "x", "--cpus", "0"], "500m"),
        (vec!["run", "x", "--annotation", "a"], "KEY=VALUE"),
        (vec!["rm"], "<NAME|ID>"),
        (vec!["rm", "x", "--timeout", "604801"], "604801"),
        (vec!["logs", "x", "--tail", "some"], "nor `all`"),
        (vec!["logs", "x", "--since", "soon"], "1h30m"),
        (vec!["run", "x", "-m", "512"], "write 512m for 512 MiB"),
        (vec!["run", "x", "-p", "80"], "`80:80`"),
        (vec!["run", "x", "-v", "data:/data"], "`./data`"),
        (vec!["run", "x", "--network", "host"], "published by -p"),
        (vec!["kill", "x", "-s", "TERM"], "`virtletctl stop`"),
        (vec!["ps", "--filter", "colour=red"], "ancestor"),
        (vec!["ps", "--filter", "id="], "nothing is behind `id=`"),
        (vec!["get", "pods", "--field-selector", "colour=red"], "the fields are name,"),
        (vec!["get", "pods", "--field-selector", "status.phase=Gone"], "status.phase is one of"),
        (vec!["ps", "--format", "{{.Colour}}"], "-o json"),
        (vec!["ps", "-o", "jsonpath={"], "has no `}`"),
        (vec!["ps", "-o", "go-template=x"], "--format"),
        (vec!["validate"], "<FILE>"),
        (vec!["wait", "x", "--for", "luck"], "condition=Ready"),
        (vec!["logs", "x", "-n", "A_b"], "lower-case"),
        (vec!["exec", "x"], "<COMMAND>"),
        (vec!["exec", "x", "--timeout", "3", "--", "true"], "--sync"),
        (vec!["exec", "-s", "-i", "x", "true"], "cannot be used with"),
        (vec!["cp", "web:", "x"], "behind the colon"),
        (vec!["image"], "Usage"),
    ] {
        let error = Cli::try_parse_from(std::iter::once("virtletctl").chain(args)).expect_err(wanted);
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[tokio::test]
async fn shells_complete_commands_and_options() {
    for (shell, word) in [
        ("bash", "_clap_complete_virtletctl()"),
        ("zsh", "#compdef virtletctl"),
        ("fish", "complete --keep-order --exclusive --command virtletctl"),
    ] {
        // Asks no daemon.
        let (script, errors) = ctl(Path::new("/none"), &["completion", shell]).await;
        assert_eq!(errors, [""; 0]);
        assert!(script.contains(word) && script.contains(complete::VARIABLE), "{shell}: {script}");
        // Those shells that are here find no fault with it.
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), script).expect("written");
        match std::process::Command::new(shell).arg("-n").arg(file.path()).status() {
            Ok(status) => assert!(status.success(), "{shell}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{shell}"),
        }
    }
}
