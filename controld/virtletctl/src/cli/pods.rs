//! The commands of pods and their machines.

use std::time::Duration;

use clap::Args;

use super::Output;
use crate::condition::{self, Until};
use crate::selector::{self, Labels};
use crate::{complete, name, quantity};

/// Which pods are named.
#[derive(Debug, Args)]
pub struct Pods {
    /// Names of pods, also as NAMESPACE/NAME or pod/NAME, or beginnings of their or their containers' ids
    #[arg(value_name = "NAME|ID", add = complete::pods(), required = true, value_parser = name::non_empty)]
    pub names: Vec<String>,
    /// Where they are named.
    #[command(flatten)]
    pub within: Within,
}

/// Where a pod is named.
#[derive(Debug, Default, Args)]
pub struct Within {
    /// Namespace of what is named [default: any]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name::label)]
    pub namespace: Option<String>,
}

/// Which pods a list is of.
#[derive(Debug, Default, Args)]
pub struct Scope {
    /// Only pods of this namespace
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name::label)]
    pub namespace: Option<String>,
    /// Pods of all namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only pods with such labels, as kubectl has them: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, with
    /// commas in between
    #[arg(short = 'l', long, value_name = "LABELS", default_value = "", hide_default_value = true, value_parser = selector::labels)]
    pub selector: Labels,
}

/// Of `inspect`.
#[derive(Debug, Args)]
pub struct InspectPods {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
    /// How to print
    #[arg(short, long, value_name = "FORM", default_value = "json", value_parser = ["json", "yaml"])]
    pub output: String,
}

/// Of `describe`.
#[derive(Debug, Args)]
pub struct Describe {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
}

/// Of `wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
    /// What for: that machines are running or stopped, that guests are ready, or that pods are removed
    ///
    /// A guest is ready when an agent in it answers, or something listens on its port 22. kubectl's condition=Ready and delete
    /// are taken, too.
    #[arg(long = "for", value_name = "WHAT", default_value = "stopped", value_parser = condition::parse)]
    pub until: Until,
    /// How long at most; 0 looks once [default: for ever, or 5m for what comes soon or never]
    #[arg(long, value_name = "DURATION", value_parser = quantity::span)]
    pub timeout: Option<Duration>,
}

/// Of `stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Which machines.
    #[command(flatten)]
    pub top: Top,
    /// Once, and no more
    #[arg(long)]
    pub no_stream: bool,
}

/// Of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Names of pods, also as NAMESPACE/NAME or pod/NAME, or beginnings of their or their containers' ids [default: all that run]
    #[arg(value_name = "NAME|ID", add = complete::pods(), value_parser = name::non_empty)]
    pub pods: Vec<String>,
    /// Which pods.
    #[command(flatten)]
    pub scope: Scope,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Which pods.
    #[command(flatten)]
    pub scope: Scope,
    /// How to print; JSON is one object a line.
    #[command(flatten)]
    pub output: Output,
}

/// Of `stop` and `restart`.
#[derive(Debug, Args)]
pub struct Stop {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
    /// How long a guest may take to shut down, in seconds
    #[arg(short, long, visible_alias = "time", value_name = "SECONDS", default_value = "30", value_parser = quantity::grace)]
    pub timeout: u32,
}

/// Of `kill`.
#[derive(Debug, Args)]
pub struct Kill {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
    /// KILL, which is the default: a machine takes no other
    #[arg(short, long, value_parser = name::kill_signal, hide = true)]
    pub signal: Option<String>,
}

/// Of `reset`.
#[derive(Debug, Args)]
pub struct Reset {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
}

/// Of `start`.
#[derive(Debug, Args)]
pub struct Start {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
}

/// Of `pause` and `resume`.
#[derive(Debug, Args)]
pub struct Pause {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
}

/// Of `rm`.
#[derive(Debug, Args)]
pub struct Rm {
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
    /// Also pods whose machines run, which are ended at once
    #[arg(short, long)]
    pub force: bool,
    /// With -f, how long a guest may take to shut down before, in seconds
    #[arg(short, long, visible_aliases = ["time", "grace-period"], value_name = "SECONDS", value_parser = quantity::grace)]
    pub timeout: Option<u32>,
    /// Always so: disks go with their pods
    #[arg(short, long, hide = true)]
    pub volumes: bool,
}

/// Of `delete`.
#[derive(Debug, Args)]
pub struct Delete {
    /// Names of pods, also as NAMESPACE/NAME or pod/NAME, or beginnings of their ids
    #[arg(value_name = "NAME|ID", add = complete::pods(), required = true, value_parser = name::non_empty)]
    pub names: Vec<String>,
    /// Namespace of what is named [default: `default` of names, any of ids]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name::label)]
    pub namespace: Option<String>,
    /// How long a guest may take to shut down, in seconds [default: 30, or 0 with --force]
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = quantity::grace)]
    pub grace_period: Option<u32>,
    /// End machines at once
    #[arg(long, visible_alias = "now")]
    pub force: bool,
}
