//! Command line of controld: parses, then hands over to [`controld::daemon`].
//!
//! The reason of a failure is one line on stderr; [`exit`] has the exit codes.

mod exit;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use common::Chain;
use common::manual::{self, Section};
use controld::config::Config;
use controld::daemon;
use controld::daemon::dump::{Dump, SomeUnread};
use controld::daemon::flexvolume_driver;
use controld::daemon::formats;
use controld::images::{Images, mapping};
use vmspec::Accelerator;

/// Here and not in the library, which is not built anew for each commit.
static VERSION: LazyLock<String> =
    LazyLock::new(|| common::version(env!("CARGO_PKG_VERSION"), option_env!("VIRTLET_COMMIT")));

/// Runs Kubernetes pods as virtual machines: the CRI endpoint for kubelet.
#[derive(Debug, Parser)]
#[command(version = VERSION.as_str())]
struct Cli {
    /// Configuration file [default: /etc/virtlet/controld.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or SIGINT; machines go on running after that
    Run,
    /// Read the configuration, say what is wrong with it, and exit
    CheckConfig,
    /// Print the CustomResourceDefinition of VirtletImageMapping as YAML, for `kubectl apply -f -`
    Crd,
    /// Decompress standard input to standard output, confined to just that; what `run` starts to open an image
    #[command(hide = true)]
    Decompress {
        /// `gzip`, `xz`, `zstd` or `bzip2`
        kind: String,
    },
    /// Print what the node is set up with as JSON; `virtletctl doctor` reads it
    Describe {
        /// The settings with all defaults that say where things are, or the versions of libvirt and QEMU and what they lack
        what: What,
    },
    /// Write man pages and completions below a directory, for packages
    #[command(hide = true)]
    Manual {
        /// Has them as `/` does once they are installed
        dir: PathBuf,
    },
    /// Print the forms of records that this release writes, one a line; packages ask before they replace it
    #[command(hide = true)]
    Formats {
        /// Of those kinds alone that are on record, or may be
        #[arg(long)]
        recorded: bool,
    },
    /// Say whether the pods of a manifest would become machines on this node, and what these would have; asks no cluster, no daemon
    /// and no libvirt. Exit code 1 if one would not
    Validate {
        /// As for `kubectl apply -f`; `-` is the standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// What machines run on [default: as `machine.accel` and /dev/kvm say]
        #[arg(long, value_name = "ACCELERATOR")]
        accel: Option<RunsOn>,
    },
    /// Print the records as JSON, and name those that cannot be read; the daemon must not be running
    DumpState,
}

/// Of `validate`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RunsOn {
    /// The node's CPU
    Kvm,
    /// QEMU's own, which takes more memory
    Qemu,
}

/// Of `describe`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// Paths, sockets, accelerator, cgroup driver
    Settings,
    /// Asks libvirt, which has to run
    Libvirt,
}

fn main() -> ExitCode {
    // kubelet calls it by another name, and not as the command line says.
    let mut words = std::env::args_os();
    if flexvolume_driver::is_called(words.next().as_deref()) {
        return flexvolume_driver::main(words);
    }
    let cli = Cli::parse();
    // First of all: it reads no configuration, and what it reads is not trusted.
    if let Command::Decompress { kind } = &cli.command {
        return vmimage::decode::run_apart(kind);
    }
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the log may not be set up yet")]
            {
                eprintln!("controld: {}", Chain(error.as_ref()));
            }
            ExitCode::from(exit::code(&error))
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    // Whatever the node is configured to be.
    if let Command::Manual { dir } = &cli.command {
        return manual::write(Cli::command(), Section::Administration, dir)
            .with_context(|| format!("failed to write the manual below `{}`", dir.display()));
    }
    if matches!(cli.command, Command::Formats { recorded: false }) {
        return print(&formats::written());
    }
    let config = Config::load(cli.config.as_deref())?;
    match cli.command {
        Command::Run => daemon::main(config, &VERSION)?,
        Command::CheckConfig => {
            Images::check(&config)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(mapping::check(&config.images))?;
        }
        Command::Decompress { .. } | Command::Manual { .. } => {}
        Command::Formats { .. } => print(&formats::recorded(&config))?,
        Command::Crd => print(mapping::crd::DEFINITION)?,
        Command::Describe { what } => {
            let described = match what {
                What::Settings => daemon::describe::settings(&config),
                What::Libvirt => daemon::describe::libvirt(&config)?,
            };
            print(&format!("{described:#}\n"))?;
        }
        Command::Validate { ref files, json, accel } => {
            let accel = accel.map(|accel| match accel {
                RunsOn::Kvm => Accelerator::Kvm,
                RunsOn::Qemu => Accelerator::Qemu,
            });
            let report = daemon::validate::files(&config, files, accel)?;
            print(&if json { report.json() } else { report.text() })?;
            report.verdict()?;
        }
        Command::DumpState => {
            let Dump { state, unread } = Dump::of(&config)?;
            print(&format!("{state:#}\n"))?;
            if unread > 0 {
                return Err(SomeUnread(unread).into());
            }
        }
    }
    Ok(())
}

fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("failed to write to stdout")
}
