//! Commands about virtletctl itself.

use clap::Args;
use clap_complete::Shell;

use super::Output;

/// Of `completion`.
#[derive(Debug, Args)]
pub struct Completion {
    /// Whose script
    pub shell: Shell,
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
