//! Command line of virtletctl: parses, then hands over to [`virtletctl::run`].

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory as _, FromArgMatches as _};
use tokio::signal::unix::{SignalKind, signal};
use virtletctl::cli::{Cli, Command, ImageCommand};
use virtletctl::error::{CtlError, Line, by_signal};
use virtletctl::interrupt::Interrupt;
use virtletctl::{complete, elsewhere, front};

/// Here and not in the library, which is not built anew for each commit.
static VERSION: LazyLock<String> =
    LazyLock::new(|| common::version(env!("CARGO_PKG_VERSION"), option_env!("VIRTLET_COMMIT")));

fn main() -> ExitCode {
    complete::answer(Cli::command);
    let words = front::in_order(Cli::command, std::env::args_os().collect());
    let matches = Cli::command().version(VERSION.as_str()).try_get_matches_from(&words);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Cli { version: &VERSION, ..cli },
        Err(error) => return refuse(&error, &words),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => return fail(&[CtlError::Terminal { action: "start the runtime", cause }]),
    };
    let done = runtime.block_on(run(cli));
    // What still waits for a terminal is not waited for.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(errors) if errors.iter().all(CtlError::is_broken_pipe) => ExitCode::SUCCESS,
        Err(errors) => fail(&errors),
    }
}

async fn run(cli: Cli) -> Result<(), Vec<CtlError>> {
    let interrupt = Interrupt::default();
    if listens(&cli.command) {
        let failed = |cause| vec![CtlError::Terminal { action: "listen to signals", cause }];
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        let mut next = async move || {
            tokio::select! {
                _ = interrupted.recv() => SignalKind::interrupt().as_raw_value(),
                _ = terminated.recv() => SignalKind::terminate().as_raw_value(),
            }
        };
        let fired = interrupt.clone();
        tokio::spawn(async move {
            fired.fire(next().await);
            // Whoever asks twice does not want to wait for the undoing.
            std::process::exit(by_signal(next().await).into());
        });
    }
    virtletctl::run(cli, &mut io::stdout(), interrupt).await
}

/// Others end at once, as processes do, or listen themselves.
fn listens(command: &Command) -> bool {
    use ImageCommand::{Import, Prune, Pull, Save};
    let of_images = matches!(command, Command::Image { command: Pull(_) | Import(_) | Save(_) | Prune(_) });
    let has_to_undo = of_images || matches!(command, Command::Run(_) | Command::Pull(_));
    has_to_undo || matches!(command, Command::PortForward(_) | Command::Vnc(_))
}

/// Of a command line that is none: help, or what is wrong with it, and what does instead.
fn refuse(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match elsewhere::line(error, &words) {
        Some(line) => fail(&[CtlError::Usage(line)]),
        None => error.exit(),
    }
}

#[expect(clippy::print_stderr, reason = "the one place where errors are told")]
fn fail(errors: &[CtlError]) -> ExitCode {
    for error in errors {
        eprintln!("virtletctl: {}", Line(error));
    }
    errors.first().map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
}
