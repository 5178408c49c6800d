//! Command line of the operator: parses, then hands over.
//!
//! The reason of a failure is one line on stderr. Exit code 1 is a failure, 2 a command line that is none, and 74 output that cannot be
//! written.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _};
use common::Chain;
use common::log::{self, Look};
use operator::cli::{Cli, Command, Crds, Install, Log, Run, Subresources, Uninstall};
use operator::{cluster, install, manifests, run, subresources, uninstall};
use tracing::level_filters::LevelFilter;

/// Here and not in the library, which is not built anew for each commit.
static VERSION: LazyLock<String> =
    LazyLock::new(|| common::version(env!("CARGO_PKG_VERSION"), option_env!("VIRTLET_COMMIT")));

fn main() -> ExitCode {
    let matches = Cli::command().version(VERSION.as_str()).get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the one place where errors are told")]
            {
                eprintln!("virtlet-operator: {}", Chain(error.as_ref()));
            }
            ExitCode::from(if error.chain().any(|cause| cause.is::<io::Error>()) { 74 } else { 1 })
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("failed to start")?;
    match cli.command {
        Command::Run(asked) => runtime.block_on(serve(&asked)),
        Command::Subresources(asked) => runtime.block_on(stand_in(&asked)),
        Command::Install(asked) => runtime.block_on(install(&asked)),
        Command::Uninstall(asked) => runtime.block_on(uninstall(&asked)),
        Command::Crds(Crds { group }) => print(&install::yaml(&manifests::crds::all(group))?),
    }
}

async fn serve(asked: &Run) -> anyhow::Result<()> {
    start_log(&asked.log);
    let at = &asked.connection;
    let client = cluster::connect(at.kubeconfig.as_deref(), at.context.as_deref()).await?;
    Ok(run::run(client, asked.settings()).await?)
}

async fn stand_in(asked: &Subresources) -> anyhow::Result<()> {
    start_log(&asked.log);
    let at = &asked.connection;
    let (kubeconfig, context) = (at.kubeconfig.as_deref(), at.context.as_deref());
    let calls = cluster::connect(kubeconfig, context).await?;
    let streams = cluster::connect_for_streams(kubeconfig, context).await?;
    Ok(subresources::run(calls, streams, asked.settings(&VERSION)).await?)
}

fn start_log(asked: &Log) {
    let look = if asked.log_json { Look::Json } else { Look::Text };
    log::start(LevelFilter::from(asked.log_level), look, None);
}

async fn install(asked: &Install) -> anyhow::Result<()> {
    let settings = asked.settings();
    if !asked.offline {
        let at = &asked.connection;
        let client = cluster::connect(at.kubeconfig.as_deref(), at.context.as_deref()).await?;
        install::look(&client, settings.group).await?;
    }
    print(&install::yaml(&manifests::all(&settings))?)
}

async fn uninstall(asked: &Uninstall) -> anyhow::Result<()> {
    let at = &asked.connection;
    let client = cluster::connect(at.kubeconfig.as_deref(), at.context.as_deref()).await?;
    let deadline = Duration::from_secs(asked.timeout);
    uninstall::run(&client, &asked.place.settings(), asked.delete_vms, deadline, &mut io::stdout()).await?;
    Ok(())
}

fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("failed to write to stdout")
}
