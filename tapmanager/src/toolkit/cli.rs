//! The command line of the tools. What clap refuses ends with exit code 2.

pub mod sriov;

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use ipnetwork::IpNetwork;
use proto::tap::{self, DataPath, HostPort, MacAddr, NetnsName, NetworkAsk, PodId};

use super::error::ToolError;
use super::ports;
use super::which::Which;
use crate::config::{Config, DEFAULT_FILE};

/// Kernel of the guest if the command line names none.
pub(super) const KERNEL: &str = "/usr/lib/virtlet/guest/vmlinuz";
/// Initial RAM disk of the guest if the command line names none.
pub(super) const INITRD: &str = "/usr/lib/virtlet/guest/initrd";

/// The tools.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Give a pod its network and show what its guest is told
    ///
    /// Without --conf and --shell the pod stays attached until `tapmanager detach`. With either, it is detached again
    /// before this ends.
    Attach(Box<Attach>),
    /// Take a pod's network away; fine if there is none
    Detach(Detach),
    /// Take away what belongs to no pod, and say what was kept and why
    Collect(Common),
    /// Take away what is left of a pod whose record is not understood or whose networks cannot be given back
    Forget(Forget),
    /// List all pods
    List(Common),
    /// List the networks of the node and whether their plugins can be started; exit code 1 if not those of the default one
    ///
    /// By files alone: no daemon is asked, and no plugin is run. NETCONFPATH and CNI_PATH name other directories than the
    /// daemon has, as for cnitool.
    Networks(Common),
    /// Say whether pods can be given a network; exit code 1 if not
    Status(Common),
    /// Compare a pod with what it was given; exit code 1 with findings
    Check(OfPod),
    /// Say what became of a pod's networks and why, and what its guest is told
    Explain(Explain),
    /// SR-IOV virtual functions: list, explain, claim, release, repair
    #[command(subcommand)]
    Sriov(sriov::Sriov),
}

/// What all tools have.
#[derive(Debug, Args)]
pub struct Common {
    /// Configuration of the daemon, which says where its socket is
    #[arg(long, value_name = "FILE", help = format!("Configuration of the daemon; {DEFAULT_FILE} by default, if that exists"))]
    pub config: Option<PathBuf>,
    /// How the result is printed; text on a terminal, else JSON
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Output>,
    /// Same as `-o json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For programs; docs/cni-integration.md says what is in it
    Json,
    /// For people
    #[value(alias = "wide")]
    Text,
}

/// Of `check` and, beside more, of `explain`.
#[derive(Debug, Args)]
pub struct OfPod {
    /// The pod: its id, how that begins, its name, or NAMESPACE/NAME
    pub pod: Which,
    #[command(flatten)]
    pub common: Common,
}

/// Of `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The pod and the daemon.
    #[command(flatten)]
    pub of: OfPod,
    /// Draw the pod's way from its guest to the node as it is now, and mark what is not as it was made
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text",
        conflicts_with_all = ["output", "json"])]
    pub picture: Option<Drawn>,
    /// With --picture: by ASCII alone, as where the locale has no UTF-8
    #[arg(long, requires = "picture")]
    pub ascii: bool,
}

/// How a picture is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Drawn {
    /// With lines of text, 80 columns wide at most
    Text,
    /// As an SVG document
    Svg,
}

/// Of `detach`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub struct Detach {
    /// The pod
    #[arg(group = "which")]
    pub pod: Option<PodId>,
    /// Every pod of the daemon, running or not
    #[arg(long, group = "which", requires = "yes")]
    pub all: bool,
    /// With --all: yes, every pod
    #[arg(long, requires = "all")]
    pub yes: bool,
    #[command(flatten)]
    pub common: Common,
}

/// Of `forget`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct Forget {
    /// The pod
    #[arg(group = "what")]
    pub pod: Option<PodId>,
    /// Instead, a network namespace whose owner is unknown, by the name of its file
    #[arg(long, value_name = "NAME", group = "what")]
    pub namespace: Option<NetnsName>,
    #[command(flatten)]
    pub common: Common,
}

/// Of `attach`.
#[derive(Debug, Args)]
pub struct Attach {
    /// Id of the pod, also its name and its guest's host name
    #[arg(default_value = "try")]
    pub pod: PodId,
    /// Try a network configuration that is not installed, by a private daemon that ends with this command
    ///
    /// A *.conflist, *.conf or *.json, or the name of a network. Where networks and plugins are, NETCONFPATH and CNI_PATH say
    /// as for cnitool, or else the configuration of the daemon.
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// Network by name, may be repeated, in the order of the guest's NICs [default: the default network]
    #[arg(long = "network", value_name = "NAME")]
    pub networks: Vec<String>,
    /// How links and taps are joined [default: as the daemon is configured]
    #[arg(long, value_name = "PATH", value_parser = data_path())]
    pub data_path: Option<DataPath>,
    /// Most queues of a NIC, and CPUs of the guest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: Option<u16>,
    /// Let the guest use any MAC and IP address
    #[arg(long)]
    pub no_anti_spoof: bool,
    /// Port of the node that leads to the guest, such as 8080:80/tcp; may be repeated
    #[arg(long = "host-port", value_name = "[IP:]PORT:PORT[/PROTOCOL]", value_parser = ports::parse)]
    pub host_ports: Vec<HostPort>,
    /// Address that the first network is asked for, such as 10.1.2.3/24; may be repeated
    #[arg(long = "ip", value_name = "CIDR")]
    pub ips: Vec<IpNetwork>,
    /// MAC address that the first network is asked for
    #[arg(long)]
    pub mac: Option<MacAddr>,
    /// Boot a guest with its serial console here; Ctrl-A X ends it
    ///
    /// If the input is no terminal, it is a script: each line is sent when the guest prompts, and the guest is ended at
    /// the prompt after the last.
    #[arg(long)]
    pub shell: bool,
    /// Kernel and initial RAM disk of the guest
    #[arg(long, value_name = "KERNEL,INITRD", requires = "shell", conflicts_with = "disk", value_parser = pair,
        help = format!("Kernel and initial RAM disk of the guest [default: {},{}]", KERNEL, INITRD))]
    pub guest: Option<(PathBuf, PathBuf)>,
    /// Disk image of the guest, raw or qcow2; nothing is written to it
    #[arg(long, value_name = "IMAGE", requires = "shell")]
    pub disk: Option<PathBuf>,
    /// Emulate the guest's CPU even if there is /dev/kvm
    #[arg(long, requires = "shell")]
    pub no_kvm: bool,
    /// What the guest's output ends with when it takes a line of the script
    #[arg(long, value_name = "TEXT", requires = "shell", default_value = "# ")]
    pub prompt: String,
    /// How long a script may take in seconds, the guest's start included
    #[arg(long, value_name = "SECONDS", requires = "shell", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub timeout: u32,
    #[command(flatten)]
    pub common: Common,
}

// === impl Common ===

impl Common {
    /// How the result is to be printed, if that is said.
    pub(super) fn output(&self) -> Option<Output> {
        if self.json { Some(Output::Json) } else { self.output }
    }

    /// The configuration of the daemon that is meant.
    pub(super) fn config(&self) -> Result<Config, ToolError> {
        Ok(Config::load(self.config.as_deref())?)
    }
}

// === impl Attach ===

impl Attach {
    /// What is asked of the daemon.
    pub(super) fn request(&self) -> tap::Attach {
        let name = self.pod.as_str();
        let ask = |network: Option<&String>| NetworkAsk { network: network.cloned(), ..NetworkAsk::default() };
        let mut networks: Vec<NetworkAsk> = self.networks.iter().map(|name| ask(Some(name))).collect();
        if networks.is_empty() && (self.mac.is_some() || !self.ips.is_empty()) {
            networks.push(ask(None));
        }
        if let Some(first) = networks.first_mut() {
            (first.mac, first.ips) = (self.mac, self.ips.clone());
        }
        tap::Attach {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            hostname: host_name(name),
            networks,
            data_path: self.data_path,
            queues: self.queues,
            anti_spoof: self.no_anti_spoof.then_some(false),
            host_ports: self.host_ports.clone(),
            ..tap::Attach::new(self.pod.clone())
        }
    }
}

/// The id as a host name (RFC 1123 section 2.1), or none if it is not one.
fn host_name(id: &str) -> String {
    let fits = id.len() <= 63 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if fits && !id.ends_with('-') { id.to_ascii_lowercase() } else { String::new() }
}

/// Parses `KERNEL,INITRD`.
fn pair(text: &str) -> Result<(PathBuf, PathBuf), &'static str> {
    match text.split_once(',') {
        Some((kernel, initrd)) if !kernel.is_empty() && !initrd.is_empty() => Ok((kernel.into(), initrd.into())),
        _ => Err("is not KERNEL,INITRD"),
    }
}

fn data_path() -> impl clap::builder::TypedValueParser<Value = DataPath> {
    let shown = DataPath::ALL.map(|path| PossibleValue::new(path.name()));
    // What is gone is refused with advice.
    let gone = PossibleValue::new(DataPath::Ebpf.name()).hide(true);
    PossibleValuesParser::new(shown.into_iter().chain([gone])).try_map(|name| name.parse::<DataPath>())
}
