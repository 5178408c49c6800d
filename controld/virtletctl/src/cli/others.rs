//! Commands about virtletctl itself, about the node and about what is on it without a pod.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use super::Output;
use crate::name;
use crate::thing::{Thing, thing};

/// Of `completion`.
#[derive(Debug, Args)]
pub struct Completion {
    /// Whose script
    pub shell: Shell,
}

/// Of `manual`.
#[derive(Debug, Args)]
pub struct Manual {
    /// Has them as `/` does once they are installed
    pub dir: PathBuf,
}

/// Of `version`.
#[derive(Debug, Args)]
pub struct Version {
    /// Of virtletctl alone; asks no controld
    #[arg(long)]
    pub client: bool,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Configuration of controld [default: its own default]
    #[arg(long, value_name = "FILE")]
    pub controld_config: Option<PathBuf>,
    /// Configuration of tapmanager [default: its own default]
    #[arg(long, value_name = "FILE")]
    pub tapmanager_config: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `validate`.
#[derive(Debug, Args)]
pub struct Validate {
    /// As for `kubectl apply -f`; `-` is the standard input
    #[arg(required_unless_present = "filenames", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The same, as kubectl has it; may be repeated
    #[arg(short, long = "filename", value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// controld's configuration, if not this node's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Of `orphans`.
#[derive(Debug, Args)]
pub struct Orphans {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `forget`.
#[derive(Debug, Args)]
pub struct Forget {
    /// What to remove, as `virtletctl orphans` shows it
    #[arg(value_name = "KIND/ID", required = true, value_parser = thing)]
    pub things: Vec<Thing>,
}

/// Of `proxy`.
#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    /// Show whether the container runtime answers, for how long it has not, and how old its last good lists are
    Status(ProxyStatus),
    /// List what to change so that this node runs containers beside VMs
    ///
    /// Which lines of which files, which restarts, in which order, and what stands in the way. It changes nothing. As root; it needs no
    /// daemon. Exits with 1 if something stands in the way.
    Enable(ProxyEnable),
    /// List what to change so that kubelet speaks to the container runtime again
    ///
    /// As `enable` does. Exits with 1 while there are VMs on this node, and names them: kubelet would not know of them any more, and
    /// would make some of their pods again as containers.
    Disable(ProxyDisable),
}

impl Default for ProxyCommand {
    fn default() -> Self {
        Self::Status(ProxyStatus::default())
    }
}

/// Of `proxy enable`.
#[derive(Debug, Args)]
pub struct ProxyEnable {
    /// Socket of the other runtime, as `unix:///run/containerd/containerd.sock`
    #[arg(long, value_name = "ENDPOINT", value_parser = name::endpoint)]
    pub runtime_endpoint: String,
    /// How it is said.
    #[command(flatten)]
    pub check: ProxyCheck,
}

/// Of `proxy disable`.
#[derive(Debug, Args)]
pub struct ProxyDisable {
    /// How it is said.
    #[command(flatten)]
    pub check: ProxyCheck,
}

/// Of both.
#[derive(Debug, Args)]
pub struct ProxyCheck {
    /// List the changes; without it nothing is done
    #[arg(long)]
    pub check: bool,
    /// Configuration of controld [default: its own default]
    #[arg(long, value_name = "FILE")]
    pub controld_config: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `proxy status`.
#[derive(Debug, Default, Args)]
pub struct ProxyStatus {
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}
