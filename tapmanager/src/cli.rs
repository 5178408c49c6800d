//! The command line. Called by `main` alone.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use tapmanager::config::DEFAULT_FILE;
use tapmanager::toolkit::cli::Tool;

/// Here and not in the library, which is not built anew for each commit.
static VERSION: LazyLock<String> =
    LazyLock::new(|| common::version(env!("CARGO_PKG_VERSION"), option_env!("VIRTLET_COMMIT")));

/// Network daemon of virtlet-rs: gives virtual machine pods the network that CNI plugins made.
#[derive(Debug, Parser)]
#[command(name = "tapmanager", version = VERSION.as_str(), max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Daemon(DaemonCommand),
    #[command(flatten)]
    Tool(Tool),
}

/// The daemon itself, and what is done with its files while it does not run.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Run the daemon until SIGTERM or SIGINT; running pods are left as they are
    Run(ConfigFile),
    /// Check the configuration and print it with all defaults
    CheckConfig(ConfigFile),
    /// Print the records of pods as JSON, and name those that cannot be read; works with and without a running daemon
    DumpState(ConfigFile),
    /// Print the forms of records that this release writes, one a line; packages ask before they replace it
    #[command(hide = true)]
    Formats {
        /// Of those kinds alone that are on record, or may be
        #[arg(long)]
        recorded: bool,
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Write man pages and completions below a directory, for packages
    #[command(hide = true)]
    Manual {
        /// Has them as `/` does once they are installed
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    #[arg(long, value_name = "FILE", help = format!("Configuration; {DEFAULT_FILE} by default, if that exists"))]
    pub(crate) config: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn help_is_as_documented() {
        Cli::command().debug_assert();
        let mut texts = vec![Cli::command().render_long_help().to_string()];
        for command in Cli::command().get_subcommands_mut() {
            texts.push(command.render_long_help().to_string());
        }
        insta::assert_snapshot!(texts.join("\n----\n"));
    }

    #[test]
    fn a_subcommand_is_needed_and_the_file_goes_with_it() {
        assert!(Cli::try_parse_from(["tapmanager"]).is_err());
        assert!(Cli::try_parse_from(["tapmanager", "--config", "/c", "run"]).is_err());
        let cli = Cli::try_parse_from(["tapmanager", "run", "--config", "/c"]).expect("parses");
        assert!(
            matches!(cli.command, Command::Daemon(DaemonCommand::Run(ConfigFile { config: Some(file) })) if file.as_os_str() == "/c")
        );
    }
}
