//! Command line of virtletctl: parses, then hands over to [`virtletctl::run`]. By the names that kubectl has for plugins it is one.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory as _, FromArgMatches as _};
use tokio::signal::unix::{SignalKind, signal};
use virtletctl::cli::{Cli, Command, ImageCommand, Plugin, VmCommand, VmVerb};
use virtletctl::error::{CtlError, Line, by_signal};
use virtletctl::interrupt::Interrupt;
use virtletctl::{complete, elsewhere, front};

/// Here and not in the library, which is not built anew for each commit.
static VERSION: LazyLock<String> =
    LazyLock::new(|| common::version(env!("CARGO_PKG_VERSION"), option_env!("VIRTLET_COMMIT")));

/// The name by which kubectl runs us.
const PLUGIN: &str = "kubectl-virtlet";

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().and_then(|program| Path::new(program).file_name()?.to_str().map(str::to_owned));
    match name.as_deref() {
        Some(PLUGIN) => {
            let cli = Plugin::command().version(VERSION.as_str()).try_get_matches_from(plugin(words));
            match cli.and_then(|matches| Plugin::from_arg_matches(&matches)) {
                Ok(plugin) => end(PLUGIN, plugin.into()),
                Err(error) => match elsewhere::line_of_plugin(&error) {
                    Some(line) => fail(PLUGIN, &[CtlError::Usage(line)]),
                    None => error.exit(),
                },
            }
        }
        Some(complete::OF_PLUGIN) => {
            let words = words.into_iter().skip(1).collect();
            let told = complete::answer_kubectl(Plugin::command, words, &mut io::stdout());
            if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => {
            complete::answer(Cli::command);
            let words = front::in_order(Cli::command, words);
            let matches = Cli::command().version(VERSION.as_str()).try_get_matches_from(&words);
            match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
                Ok(cli) => end("virtletctl", cli),
                Err(error) => refuse(&error, &words),
            }
        }
    }
}

/// The plugin's words in the order that clap wants; `kubectl virtlet vm VERB`, too.
fn plugin(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "vm") {
        words.remove(1);
    }
    front::behind_verb(&Plugin::command(), words, 1)
}

/// Does what a command line says, and tells what went wrong.
fn end(program: &str, cli: Cli) -> ExitCode {
    let cli = Cli { version: &VERSION, ..cli };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => return fail(program, &[CtlError::Terminal { action: "start the runtime", cause }]),
    };
    let done = runtime.block_on(run(cli));
    // What still waits for a terminal is not waited for.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(errors) if errors.iter().all(CtlError::is_broken_pipe) => ExitCode::SUCCESS,
        Err(errors) => fail(program, &errors),
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
    let has_to_undo = of_images || matches!(command, Command::Run(_) | Command::Restore(_) | Command::Pull(_));
    let of_cluster = match command {
        Command::Vm { command: VmCommand::InCluster(verb) } => matches!(verb, VmVerb::PortForward(_) | VmVerb::Vnc(_)),
        _ => false,
    };
    has_to_undo || of_cluster || matches!(command, Command::PortForward(_) | Command::Vnc(_))
}

/// Of a command line that is none: help, or what is wrong with it, and what does instead.
fn refuse(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match elsewhere::line(error, &words) {
        Some(line) => fail("virtletctl", &[CtlError::Usage(line)]),
        None => error.exit(),
    }
}

#[expect(clippy::print_stderr, reason = "the one place where errors are told")]
fn fail(program: &str, errors: &[CtlError]) -> ExitCode {
    for error in errors {
        eprintln!("{program}: {}", Line(error));
    }
    errors.first().map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
}
