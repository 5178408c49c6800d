//! `exec`, `shell`, `cp` and `ssh`.

use std::path::PathBuf;

use clap::Args;

use super::Within;
use crate::place::{Place, place};
use crate::{complete, name, quantity, variable};

/// Of `exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// Pod by its name, also as NAMESPACE/NAME or pod/NAME, or by the beginning of its or its container's id; /CONTAINER may follow
    #[arg(value_name = "POD[/CONTAINER]", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Command and its arguments; no shell reads them
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<String>,
    /// Send our standard input to the command
    #[arg(short = 'i', long, visible_alias = "interactive", conflicts_with = "sync")]
    pub stdin: bool,
    /// Run the command on a terminal; our own, if we have one, is its other end
    #[arg(short, long, conflicts_with = "sync")]
    pub tty: bool,
    /// Variable for the command, beside the container's or in place of one; without a value it is our own, if we have it; may be
    /// repeated
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = variable::parse, conflicts_with = "sync")]
    pub env: Vec<String>,
    /// Directory in the guest, if not the container's
    #[arg(short, long, value_name = "PATH", value_parser = name::non_empty, conflicts_with = "sync")]
    pub workdir: Option<String>,
    /// User of the guest, if not the container's
    #[arg(short, long, value_name = "USER[:GROUP]", value_parser = name::non_empty, conflicts_with = "sync")]
    pub user: Option<String>,
    /// Name of the container, if not the newest one of the pod is meant
    #[arg(short, long, value_name = "NAME", value_parser = name::non_empty)]
    pub container: Option<String>,
    /// Show the output when the command has ended, 16 MiB of it at most
    #[arg(short, long)]
    pub sync: bool,
    /// Kill the command after so many seconds; 0 never does
    #[arg(long, value_name = "SECONDS", requires = "sync", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=604_800))]
    pub timeout: u32,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}

/// Of `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// Pod by its name, also as NAMESPACE/NAME or pod/NAME, or by the beginning of its or its container's id; /CONTAINER may follow
    #[arg(value_name = "POD[/CONTAINER]", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// User of the guest, if not the container's
    #[arg(short, long, value_name = "USER[:GROUP]", value_parser = name::non_empty)]
    pub user: Option<String>,
    /// Directory in the guest, if not the container's
    #[arg(short, long, value_name = "PATH", value_parser = name::non_empty)]
    pub workdir: Option<String>,
    /// Name of the container, if not the newest one of the pod is meant
    #[arg(short, long, value_name = "NAME", value_parser = name::non_empty)]
    pub container: Option<String>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}

/// Of `cp`.
#[derive(Debug, Args)]
pub struct Cp {
    /// What to copy: a path on this node, or one in a guest; `-` is an archive of tar on the standard input
    #[arg(value_name = "PATH|POD:PATH|-", add = complete::places(), value_parser = place)]
    pub from: Place,
    /// Where to, as the other of both; `-` writes an archive of tar to the standard output
    #[arg(value_name = "POD:PATH|PATH|-", add = complete::places(), value_parser = place)]
    pub to: Place,
    /// Always so: a directory is copied with all that is in it
    #[arg(short, long, hide = true)]
    pub recursive: bool,
    /// Always so: nothing is told of what was copied
    #[arg(short, long, hide = true)]
    pub quiet: bool,
    /// Name of the container, if not the newest one of the pod is meant
    #[arg(short, long, value_name = "NAME", value_parser = name::non_empty)]
    pub container: Option<String>,
    /// Take no more than this from a guest, of which each file takes 512 bytes beside its own
    #[arg(long, value_name = "QUANTITY", default_value = "64Gi", value_parser = quantity::bytes)]
    pub limit: i64,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}

/// Of `ssh`.
#[derive(Debug, Args)]
pub struct Ssh {
    /// Pod by its name, also as NAMESPACE/NAME or pod/NAME, or by the beginning of its or its container's id; who logs in may be in front
    #[arg(value_name = "[USER@]POD", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Command to run in place of a shell
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<String>,
    /// Who logs in [default: the user that images of this name have, else as ssh's configuration says]
    #[arg(short, long, value_name = "USER", value_parser = name::non_empty)]
    pub login_name: Option<String>,
    /// File of a private key; may be repeated [default: the one beside the public key that `run` was given]
    #[arg(short, long = "identity-file", value_name = "FILE")]
    pub identity_files: Vec<PathBuf>,
    /// Port of the guest
    #[arg(short, long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Option of ssh's, as in ssh_config(5); may be repeated
    #[arg(short, long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}
