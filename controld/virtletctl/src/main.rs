//! Command line of virtletctl: parses, then hands over to [`virtletctl::run`].

use std::io;
use std::process::ExitCode;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use virtletctl::cli::{Cli, Command, ImageCommand};
use virtletctl::error::{CtlError, INTERRUPTED, Line};

fn main() -> ExitCode {
    let cli = Cli::parse();
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
    let interrupt = CancellationToken::new();
    // Others end at once, as processes do, or listen themselves.
    if matches!(cli.command, Command::Run(_) | Command::Pull(_) | Command::Image { command: ImageCommand::Pull(_) }) {
        let failed = |cause| vec![CtlError::Terminal { action: "listen to signals", cause }];
        let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
        let fired = interrupt.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            fired.cancel();
            // Whoever asks twice does not want to wait for the undoing.
            let _ = interrupted.recv().await;
            std::process::exit(INTERRUPTED.into());
        });
    }
    virtletctl::run(cli, &mut io::stdout(), interrupt).await
}

#[expect(clippy::print_stderr, reason = "the one place where errors are told")]
fn fail(errors: &[CtlError]) -> ExitCode {
    for error in errors {
        eprintln!("virtletctl: {}", Line(error));
    }
    errors.first().map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
}
