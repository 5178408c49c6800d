//! The command line.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kubevirt::render::Options;
use tracing::level_filters::LevelFilter;

use crate::group::Group;
use crate::manifests::Settings;
use crate::names::{NAMESPACE, OPERATOR, SUBRESOURCES};
use crate::{run, subresources};

/// Looks after KubeVirt's objects in a cluster: makes VM pods of them, starts, stops and scales them.
#[derive(Debug, Parser)]
#[command(name = "virtlet-operator")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look after the objects of a cluster, until SIGTERM or SIGINT
    ///
    /// Of several such operators one writes; each answers the API server for presets.
    Run(Run),
    /// Answer the API server for consoles, screens and ports of VMs, for start, stop, pause and their like, until SIGTERM or SIGINT
    ///
    /// As KubeVirt's clients ask for them. Several of these share the work; each keeps nothing, and has its streams alone.
    Subresources(Subresources),
    /// Print what an installation is made of, for `kubectl apply --server-side -f -`
    ///
    /// CRDs, policies, roles, and the operator itself. First it asks the cluster whether these kinds are somebody else's there, KubeVirt's
    /// own say, and prints nothing if so: exit code 1.
    Install(Install),
    /// Remove an installation, but for what does not carry its label
    ///
    /// Refused as long as there are VMs. May be done again if it ended half-way.
    Uninstall(Uninstall),
    /// Print the CustomResourceDefinitions alone, for `kubectl apply --server-side -f -`; asks no cluster
    Crds(Crds),
}

/// Of our objects.
#[derive(Debug, Args)]
pub struct Place {
    /// Group of the objects, `virtlet.k8s` where KubeVirt itself is in the cluster
    #[arg(long, value_name = "GROUP", default_value_t)]
    pub group: Group,
    /// Namespace of the operator. Another one than this has to be there, and stays
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    pub namespace: String,
}

/// Which cluster.
#[derive(Debug, Args)]
pub struct Connection {
    /// Kubeconfig of the cluster [default: as KUBECONFIG says, ~/.kube/config, or that of the pod that this runs in]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Its context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Of `run`.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub connection: Connection,
    /// RuntimeClass of the pods, with `efi=` or `secure-boot=` before it that of VMs with such a firmware; may be repeated [default:
    /// virtlet]
    #[arg(long, value_name = "[FIRMWARE=]NAME")]
    pub runtime_class: Vec<RuntimeClass>,
    /// Image of pods whose VMs boot from claims; nothing is made of it
    #[arg(long, value_name = "NAME")]
    pub boot_image: Option<String>,
    /// Where kubelet and Prometheus ask: /healthz, /readyz, /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// Where the API server is answered for presets, as the Service of the namespace leads to; nowhere without it
    #[arg(long, value_name = "ADDRESS")]
    pub webhook: Option<SocketAddr>,
    /// Name of this operator among several, which no other has
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub name: Option<String>,
    #[command(flatten)]
    pub log: Log,
}

/// Of `subresources`.
#[derive(Debug, Args)]
pub struct Subresources {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub connection: Connection,
    /// Where the API server is answered, as the Service of the namespace leads to
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:9443")]
    pub serve: SocketAddr,
    /// Where kubelet and Prometheus ask: /healthz, /readyz, /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8080")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub log: Log,
}

/// Of a service.
#[derive(Debug, Args)]
pub struct Log {
    /// What is logged, at least
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// Log JSON
    #[arg(long)]
    pub log_json: bool,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// A RuntimeClass, and the firmware that its VMs have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeClass {
    firmware: Firmware,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firmware {
    Any,
    Efi,
    SecureBoot,
}

/// Of `install`.
#[derive(Debug, Args)]
pub struct Install {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub connection: Connection,
    /// Image of the operator [default: virtlet-operator, of this release]
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// RuntimeClass of the pods, with `efi=` or `secure-boot=` before it that of VMs with such a firmware; may be repeated [default:
    /// virtlet]
    #[arg(long, value_name = "[FIRMWARE=]NAME")]
    pub runtime_class: Vec<RuntimeClass>,
    /// Leave this out; may be repeated
    #[arg(long, value_name = "PART")]
    pub without: Vec<Part>,
    /// Do not ask the cluster whether these kinds are somebody else's
    #[arg(long)]
    pub offline: bool,
}

/// What an installation may do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The operator's Deployment, with its webhook: it runs elsewhere, or not at all
    Operator,
    /// The server of consoles, screens and ports, of start, stop and pause, for KubeVirt's clients
    Subresources,
}

/// Of `uninstall`.
#[derive(Debug, Args)]
pub struct Uninstall {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub connection: Connection,
    /// Delete all VMs first, and wait until they are gone
    #[arg(long)]
    pub delete_vms: bool,
    /// Seconds that a VM, or a definition, may take to go
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
}

/// Of `crds`.
#[derive(Debug, Args)]
pub struct Crds {
    /// Group of the objects, `virtlet.k8s` where KubeVirt itself is in the cluster
    #[arg(long, value_name = "GROUP", default_value_t)]
    pub group: Group,
}

// === impl Place ===

impl Place {
    /// As an installation has it that is told nothing else.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings { group: self.group, namespace: self.namespace.clone(), ..Settings::default() }
    }
}

// === impl Install ===

impl Install {
    /// What the installation is told.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let settings = self.place.settings();
        Settings {
            image: self.image.clone().unwrap_or_else(|| settings.image.clone()),
            runtime_classes: self.runtime_class.iter().map(ToString::to_string).collect(),
            has_operator: !self.without.contains(&Part::Operator),
            has_subresources: !self.without.contains(&Part::Subresources),
            ..settings
        }
    }
}

// === impl Run ===

impl Run {
    /// How it is to run.
    #[must_use]
    pub fn settings(&self) -> run::Settings {
        let mut options = Options { image: self.boot_image.clone(), ..Options::default() };
        for class in &self.runtime_class {
            let name = class.name.clone();
            match class.firmware {
                Firmware::Any => options.runtime_class = name,
                Firmware::Efi => options.efi = Some(name),
                Firmware::SecureBoot => options.secure_boot = Some(name),
            }
        }
        run::Settings {
            group: self.place.group,
            options,
            namespace: self.place.namespace.clone(),
            // Two of one name would both write.
            name: self.name.clone().unwrap_or_else(|| format!("process-{}", uuid::Uuid::new_v4())),
            service: OPERATOR.to_owned(),
            webhook: self.webhook,
            listen: self.listen,
        }
    }
}

// === impl Subresources ===

impl Subresources {
    /// How it is to run, of this release.
    #[must_use]
    pub fn settings(&self, release: &str) -> subresources::Settings {
        subresources::Settings {
            group: self.place.group,
            namespace: self.place.namespace.clone(),
            service: SUBRESOURCES.to_owned(),
            serve: self.serve,
            listen: self.listen,
            release: release.to_owned(),
        }
    }
}

// === impl RuntimeClass ===

impl FromStr for RuntimeClass {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let of = |word: &str, firmware| {
            let name = text.strip_prefix(word)?.strip_prefix('=')?;
            Some(Self { firmware, name: name.to_owned() })
        };
        let named = of("efi", Firmware::Efi).or_else(|| of("secure-boot", Firmware::SecureBoot));
        Ok(named.unwrap_or_else(|| Self { firmware: Firmware::Any, name: text.to_owned() }))
    }
}

impl fmt::Display for RuntimeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { firmware, name } = self;
        match firmware {
            Firmware::Any => f.write_str(name),
            Firmware::Efi => write!(f, "efi={name}"),
            Firmware::SecureBoot => write!(f, "secure-boot={name}"),
        }
    }
}

// === impl LogLevel ===

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn what_it_says_of_itself() {
        let mut cli = Cli::command().term_width(100);
        cli.build();
        let mut text = cli.render_long_help().to_string();
        for command in cli.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let name = command.get_name().to_owned();
            text.push_str(&format!("\n# {name}\n\n{}", command.render_long_help()));
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_is_left_out_is_left_out() {
        let words = [
            "virtlet-operator",
            "install",
            "--group=virtlet.k8s",
            "--without=operator",
            "--without=subresources",
            "--runtime-class=efi=vms",
        ];
        let Command::Install(install) = Cli::parse_from(words).command else { panic!("another command") };
        let settings = install.settings();
        assert_eq!(settings.group, Group::Virtlet);
        assert!(!settings.has_operator && !settings.has_subresources);
        assert_eq!(settings.runtime_classes, ["efi=vms"]);
    }
}
