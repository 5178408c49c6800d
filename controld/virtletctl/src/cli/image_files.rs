//! The commands of `image` that bring images by hand, give them out, and clear away.

use std::path::PathBuf;

use clap::Args;

use super::Progress;
use crate::name::non_empty;

/// Of `image import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The file, which may be compressed; `-` is the standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// What the image is to be called [default: localhost/ and the file's name]
    #[arg(value_parser = non_empty)]
    pub name: Option<String>,
    /// Runtime handler that it is for [default: the daemon's]
    #[arg(long, value_name = "HANDLER", value_parser = non_empty)]
    pub handler: Option<String>,
    /// What the file is: qcow2, raw, vmdk, vhd, vhdx or vdi [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = non_empty)]
    pub format: Option<String>,
    /// How to say how far it is
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: Progress,
}

/// Of `image save`.
#[derive(Debug, Args)]
pub struct Save {
    /// The image, its id, or 8 characters or more of the beginning of its id
    #[arg(value_name = "NAME|ID", value_parser = non_empty)]
    pub name: String,
    /// The file to write; `-` is the standard output
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Runtime handler that the image is for [default: the daemon's]
    #[arg(long, value_name = "HANDLER", value_parser = non_empty)]
    pub handler: Option<String>,
    /// Write over a file that is there
    #[arg(short, long)]
    pub force: bool,
}

/// Of `image prune`.
#[derive(Debug, Args)]
pub struct Prune {
    /// Also images that were brought by hand, which cannot be pulled again
    #[arg(short, long)]
    pub all: bool,
    /// Only list what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long, conflicts_with = "dry_run")]
    pub force: bool,
}
