//! `tapmanager`: parses the command line, sets up logging and the runtime, and runs the daemon.
//!
//! Exit codes, as sysexits has them: 0 told to stop, 2 usage, 65 records that cannot be read, as those of a newer release, 70
//! anything else, 75 another instance runs, 77 a permission is missing, 78 configuration. The reason is one line on stderr. After
//! 65 systemd does not start the daemon again (`RestartPreventExitStatus=` of the units): that ends alike for ever. Those of the
//! tools are in [`tapmanager::toolkit`].

mod cli;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use common::Chain;
use common::log::journal::Journal;
use common::log::{self, Look};
use common::manual::{self, Section};
use tapmanager::config::{self, Config, ConfigError, LogFormat};
use tapmanager::confinement::{self, ConfinementError};
use tapmanager::daemon::records::{self, Dump, SomeUnreadable};
use tapmanager::daemon::{self, DaemonError};
use tapmanager::faults::Faults;
use tapmanager::spawner::{self, SpawnerError};
use tapmanager::toolkit::{self, ToolError, Verdict};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;

use cli::{Cli, Command, ConfigFile, DaemonCommand};

/// Exit code on records that this release cannot read.
const DATA: u8 = 65;
/// How long the end waits for threads that are still closing sockets.
const LAST_THREADS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Daemon(command) => match work(command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // Nobody is left to tell if this fails.
                let _ = writeln!(io::stderr(), "tapmanager: {}", Chain(error.as_ref()));
                ExitCode::from(exit_code(&error))
            }
        },
        Command::Tool(tool) => ended(toolkit::run(tool, &mut io::stdout())),
    }
}

/// How a tool ended.
fn ended(done: Result<Verdict, ToolError>) -> ExitCode {
    match done {
        Ok(Verdict::Well) => ExitCode::SUCCESS,
        Ok(Verdict::Unwell) => ExitCode::FAILURE,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            toolkit::tell(&format!("tapmanager: {}\n", error.line()));
            ExitCode::from(error.exit_code())
        }
    }
}

fn work(command: DaemonCommand) -> anyhow::Result<()> {
    match command {
        DaemonCommand::Run(ConfigFile { config }) => run(Config::load(config.as_deref())?),
        DaemonCommand::CheckConfig(ConfigFile { config }) => {
            let text =
                toml::to_string(&Config::load(config.as_deref())?).context("failed to print the configuration")?;
            print(&text)
        }
        DaemonCommand::DumpState(ConfigFile { config }) => {
            let Dump { state, unreadable } = records::dump(&Config::load(config.as_deref())?)?;
            print(&format!("{state:#}\n"))?;
            if unreadable == 0 { Ok(()) } else { Err(SomeUnreadable(unreadable).into()) }
        }
        DaemonCommand::Formats { recorded: false, .. } => print(&records::formats()),
        DaemonCommand::Formats { file: ConfigFile { config }, .. } => {
            print(&records::formats_recorded(&Config::load(config.as_deref())?))
        }
        DaemonCommand::Manual { dir } => manual::write(Cli::command(), Section::Administration, &dir)
            .with_context(|| format!("failed to write the manual below `{}`", dir.display())),
    }
}

fn run(config: Config) -> anyhow::Result<()> {
    let look = match config.log_format {
        LogFormat::Text => Look::Text,
        LogFormat::Json => Look::Json,
    };
    let journal = Journal::of_stderr(config::journal_stream().as_deref(), "tapmanager");
    let journal = journal.context("failed to make a socket for journald")?;
    log::start(LevelFilter::from_level(config.log_level.as_tracing()), look, journal);
    tapmanager::keep_one_heap();
    // In this order: plugins are started by a process that keeps what the daemon gives up here.
    let spawner = spawner::fork(&config.cni_plugin_dirs, &config.plugin_locks())?;
    confinement::confine(config.seccomp)?;
    let runtime = Runtime::new().context("failed to start the runtime")?;
    let done = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("failed to watch for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("failed to watch for SIGINT")?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        Ok(daemon::run(config, spawner, Arc::new(Faults::none()), shutdown).await?)
    });
    runtime.shutdown_timeout(LAST_THREADS);
    done
}

fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("failed to write to stdout")
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<ConfigError>() {
        return 78;
    }
    if error.is::<SomeUnreadable>() {
        return DATA;
    }
    if matches!(error.downcast_ref(), Some(ConfinementError::Capabilities(_))) {
        return 77;
    }
    if let Some(SpawnerError::PodLocks { cause, .. }) = error.downcast_ref()
        && cause.kind() == io::ErrorKind::PermissionDenied
    {
        return 77;
    }
    match error.downcast_ref::<DaemonError>() {
        Some(DaemonError::Config(_)) => 78,
        Some(DaemonError::Newer(_)) => DATA,
        Some(DaemonError::Permission { .. }) => 77,
        Some(DaemonError::Locked { .. }) => 75,
        _ => 70,
    }
}

#[cfg(test)]
mod tests {
    use super::DATA;

    #[test]
    fn systemd_does_not_start_anew_what_ends_on_records_of_a_newer_release() {
        let unit = include_str!("../../deploy/tapmanager.service");
        let prevented = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
        assert_eq!(prevented, Some(&*DATA.to_string()));
    }
}
