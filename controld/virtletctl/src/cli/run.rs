//! `run` and `restore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::publish::{self, Publish};
use crate::share::{self, Share};
use crate::{name, quantity, variable};

/// Of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Image, as a pod would name it; or where one is, as https://HOST/FILE; or a file of one, as ./FILE
    #[arg(value_parser = name::non_empty)]
    pub image: String,
    /// The command that the machine is for, with annotation `virtlet.cloud/run-command=true` alone
    #[arg(value_name = "COMMAND", trailing_var_arg = true, hide = true)]
    pub command: Vec<String>,
    /// Name of the pod and of its machine [default: made of the image's]
    #[arg(long, value_parser = name::label)]
    pub name: Option<String>,
    /// Namespace of the pod
    #[arg(short, long, default_value = "default", value_parser = name::label)]
    pub namespace: String,
    /// Memory of the pod, such as 512m, 2g or 512Mi; the guest has a little less
    #[arg(short, long, value_name = "QUANTITY", value_parser = quantity::memory)]
    pub memory: Option<i64>,
    /// CPUs, such as 2 or 500m; the guest has the next whole number
    #[arg(long, value_name = "QUANTITY", value_parser = quantity::milli_cpus)]
    pub cpus: Option<i64>,
    /// Runtime handler, as a RuntimeClass names it [default: the daemon's]
    #[arg(long, visible_alias = "runtime", value_name = "HANDLER", value_parser = name::non_empty)]
    pub handler: Option<String>,
    /// Port of the node that leads to a port of the guest; may be repeated
    #[arg(short, long, value_name = "[IP:]PORT:PORT[/PROTOCOL]", value_parser = publish::parse)]
    pub publish: Vec<Publish>,
    /// Directory or file of the node that the guest has at a path, by virtiofs; may be repeated
    #[arg(short, long = "volume", value_name = "PATH:PATH[:ro]", value_parser = share::parse)]
    pub volumes: Vec<Share>,
    /// Network beside the default one; may be repeated
    #[arg(long = "network", visible_alias = "net", value_name = "NAME[@LINK]", value_parser = name::network)]
    pub networks: Vec<String>,
    /// Variable for commands that our agent runs in the guest; without a value it is our own, if we have it; may be repeated
    #[arg(short, long, value_name = "NAME[=VALUE]", value_parser = variable::parse)]
    pub env: Vec<String>,
    /// Label of the pod; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = name::annotation)]
    pub labels: Vec<(String, String)>,
    /// Attach to the console once the machine has started; Ctrl-] leaves
    #[arg(short, long, visible_alias = "stdin")]
    pub interactive: bool,
    /// The same: the console is a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// End once the machine has started, which is the default
    #[arg(short, long)]
    pub detach: bool,
    /// Stay until the machine has ended, or its console is left, and remove the pod then, with its disk
    #[arg(long)]
    pub rm: bool,
    /// End only when the guest can be spoken to: an agent answers in it, or something listens on port 22; it may take so long, or 5m
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "5m",
        value_parser = quantity::span)]
    pub wait: Option<Duration>,
    /// File of public keys that may log in to the guest; may be repeated
    ///
    /// `virtletctl ssh` takes the private key beside the first: the file of that name without `.pub`.
    #[arg(long = "ssh-key", value_name = "FILE")]
    pub ssh_keys: Vec<PathBuf>,
    /// File of cloud-init's user-data
    #[arg(long, value_name = "FILE")]
    pub user_data: Option<PathBuf>,
    /// Annotation of the pod; may be repeated
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = name::annotation)]
    pub annotations: Vec<(String, String)>,
    /// Where the directory of the pod's logs is made
    #[arg(long, value_name = "DIR", default_value = "/var/log/virtlet/pods")]
    pub log_dir: PathBuf,
}

/// Of `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The directory of a checkpoint; nobody but root may write to it, or to what is above it
    #[arg(value_name = "DIR")]
    pub checkpoint: PathBuf,
    /// The pod, which is of the same image and size.
    #[command(flatten)]
    pub run: Run,
}

impl Run {
    /// Whether its console is wanted here.
    pub(crate) fn attaches(&self) -> bool {
        !self.detach && (self.interactive || self.tty)
    }
}
