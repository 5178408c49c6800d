//! Commands about virtletctl itself and about the node.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::Output;

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
