//! `logs`, `console`, `port-forward`, `explain`, `timeline`, `checkpoint` and `vnc`, each of one pod.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Output, Within};
use crate::ports::{self, Address, Ports};
use crate::quantity::{self, Lines};
use crate::{complete, name};

/// Of `logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// Pod by its name, also as NAMESPACE/NAME or pod/NAME, or by the beginning of its or its container's id; /CONTAINER may follow
    #[arg(value_name = "POD[/CONTAINER]", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Go on until the machine has ended
    #[arg(short, long)]
    pub follow: bool,
    /// Of the machine before the newest, if it is on record
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
    /// Begin with the last N lines
    #[arg(long, value_name = "N", default_value = "all", allow_negative_numbers = true, value_parser = quantity::lines)]
    pub tail: Lines,
    /// Only lines that are no older than this, such as 90s, 5m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = quantity::span)]
    pub since: Option<Duration>,
    /// Begin each line with its time
    #[arg(short, long)]
    pub timestamps: bool,
    /// Name of the container, if not the newest one of the pod is meant
    #[arg(short, long, value_name = "NAME", value_parser = name::non_empty)]
    pub container: Option<String>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}

/// Of `console`.
#[derive(Debug, Args)]
pub struct Console {
    /// Pod by its name, also as NAMESPACE/NAME or pod/NAME, or by the beginning of its or its container's id; /CONTAINER may follow
    #[arg(value_name = "POD[/CONTAINER]", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Name of the container, if not the newest one of the pod is meant
    #[arg(short, long, value_name = "NAME", value_parser = name::non_empty)]
    pub container: Option<String>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
    /// Always so; taken since docker and kubectl want it to be said
    #[arg(short = 'i', long, alias = "interactive", hide = true)]
    pub stdin: bool,
    /// The same
    #[arg(short, long, hide = true)]
    pub tty: bool,
}

/// Of `port-forward`.
#[derive(Debug, Args)]
pub struct PortForward {
    /// Name of the pod, also as NAMESPACE/NAME or pod/NAME, or the beginning of a pod's or container's id
    #[arg(value_name = "NAME|ID", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Ports; `:REMOTE` takes a free local port
    #[arg(value_name = "[LOCAL:]REMOTE", required = true, value_parser = ports::parse)]
    pub ports: Vec<Ports>,
    /// Local addresses to listen on, with commas in between; `localhost` is loopback
    #[arg(long = "address", value_name = "IP", value_delimiter = ',', default_value = "localhost", value_parser = ports::address)]
    pub addresses: Vec<Address>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}

/// Of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Name of the pod, also as NAMESPACE/NAME or pod/NAME, or the beginning of a pod's or container's id
    #[arg(value_name = "NAME|ID", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Container, if not the newest
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `timeline`.
#[derive(Debug, Args)]
pub struct Timeline {
    /// Name of the pod, also as NAMESPACE/NAME or pod/NAME, or the beginning of a pod's or container's id
    #[arg(value_name = "NAME|ID", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Container, if not the newest
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `checkpoint`.
#[derive(Debug, Args)]
pub struct Checkpoint {
    /// Name of the pod, also as NAMESPACE/NAME or pod/NAME, or the beginning of a pod's or container's id
    #[arg(value_name = "NAME|ID", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// An empty directory, which is made if it is not there; nobody but root may write to it
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}

/// Of `vnc`.
#[derive(Debug, Args)]
pub struct Vnc {
    /// Name of the pod, also as NAMESPACE/NAME or pod/NAME, or the beginning of a pod's or container's id
    #[arg(value_name = "NAME|ID", add = complete::pods(), value_parser = name::non_empty)]
    pub pod: String,
    /// Local port [default: a free one]
    #[arg(short, long, default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Show screen and console on a page for a browser, at a URL that works once; opens it where there is a display
    #[arg(long)]
    pub browser: bool,
    /// Write what the screen shows to a file, as PNG, and end; `-` is the standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["port", "browser"])]
    pub screenshot: Option<PathBuf>,
    /// End the session of who views the screen now, by this command or through Kubernetes
    #[arg(long, conflicts_with = "screenshot")]
    pub take: bool,
    /// Always so: no viewer is started
    #[arg(long, hide = true)]
    pub proxy_only: bool,
    /// Container, if not the newest
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Where the pod is named.
    #[command(flatten)]
    pub within: Within,
}
