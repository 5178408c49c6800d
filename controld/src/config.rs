//! Settings of controld: defaults < TOML file < command line, merged here into typed values.
//!
//! Every key, its default and its unit stand in `docs/configuration.md`. An unknown key is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use imagestore::net::{EnvProxies, ProxyError};
use serde::Deserialize;
use streaming::TlsFiles;
use vmspec::settings::{FlexvolumesConfig, Handler, MachineConfig, MachineDefaults, Problems, RawDevices, units};

mod collector;
pub mod images;
mod proxy;
mod syntax;

pub use collector::{Collector, CollectorError, TracingConfig};
pub use images::ImagesConfig;
pub use proxy::{Endpoint, ProxyConfig};
pub use syntax::SyntaxError;

/// Read when no file is named; its absence means all defaults.
pub const DEFAULT_PATH: &str = "/etc/virtlet/controld.toml";

/// Environment variable that turns on translation rules by regexp.
const REGEXP_SWITCH: &str = "IMAGE_REGEXP_TRANSLATION";

/// Environment variables that name a collector of traces, as OpenTelemetry has them; the first one that is set counts.
const COLLECTORS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What systemd says of our stderr, if journald is behind it: device and inode.
#[must_use]
pub fn journal_stream() -> Option<OsString> {
    std::env::var_os("JOURNAL_STREAM")
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of sockets and seeds; lost at a reboot.
    pub run_dir: PathBuf,
    /// Directory of the database, images, disks and console logs.
    pub state_dir: PathBuf,
    /// Socket for kubelet; default `<run_dir>/cri.sock`.
    pub cri_socket: Option<PathBuf>,
    /// tapmanager's control socket; default `<run_dir>/control.sock`.
    pub tap_socket: Option<PathBuf>,
    /// tapmanager's hand-off socket, as vmwrapper reaches it; default `<run_dir>/handoff.sock`.
    pub handoff_socket: Option<PathBuf>,
    /// Longest wait for an answer of tapmanager; longer than its own CNI deadline.
    #[serde(rename = "tap_deadline_s", deserialize_with = "units::seconds")]
    pub tap_deadline: Duration,
    /// How long calls under way hold up the daemon's end.
    #[serde(rename = "shutdown_deadline_s", deserialize_with = "units::seconds")]
    pub shutdown_deadline: Duration,
    /// libvirt's connection URI.
    pub libvirt_uri: String,
    /// Directory where libvirt logs what each QEMU says.
    pub libvirt_log_dir: PathBuf,
    /// The real emulator.
    pub emulator: PathBuf,
    /// What libvirt runs in its place.
    pub vmwrapper: PathBuf,
    /// The agent that is installed in guests whose pods ask for it.
    pub guest_agent: PathBuf,
    /// What shares volumes with guests.
    pub virtiofsd: PathBuf,
    /// What libvirt runs in its place.
    pub fswrapper: PathBuf,
    /// Runtime handlers that a pod may name beside the default one.
    pub runtime_handlers: Vec<String>,
    /// Cgroup driver that kubelet is told: `systemd` or `cgroupfs`; without it, by the node.
    pub cgroup_driver: Option<CgroupDriver>,
    /// Machines.
    pub machine: MachineConfig,
    /// Machines of the pods of runtime handlers, which a pod may name too.
    pub handlers: BTreeMap<String, MachineDefaults>,
    pub images: ImagesConfig,
    /// By which ConfigMaps and Secrets are read that annotations name; without it none are.
    pub seed_kubeconfig: Option<PathBuf>,
    /// By which the cluster is told of VMs; without it, it is not.
    pub report_kubeconfig: Option<PathBuf>,
    /// Block devices that pods may name themselves.
    pub raw_devices: RawDevices,
    pub flexvolumes: FlexvolumesConfig,
    /// Streaming server.
    pub streaming: StreamingConfig,
    pub metrics: MetricsConfig,
    /// Without it no call is traced.
    pub tracing: Option<TracingConfig>,
    pub proxy: ProxyConfig,
    pub log: LogConfig,
}

/// What kubelet manages cgroups with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriver {
    /// Through systemd.
    Systemd,
    /// Directly.
    Cgroupfs,
}

/// What is there if systemd runs the node (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

impl CgroupDriver {
    /// The one of a node that is not configured: systemd's, if systemd is who manages the node's cgroups.
    #[must_use]
    pub fn of_node() -> Self {
        if Path::new(SYSTEMD).is_dir() { Self::Systemd } else { Self::Cgroupfs }
    }
}

/// Streaming server for attach.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamingConfig {
    /// Address to listen on. Its requests carry no authentication but a one-shot token: keep it on loopback.
    pub address: SocketAddr,
    /// Certificate of the server in PEM, which speaks TLS then, and those between it and its authority's.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// Metrics for Prometheus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Address to listen on; nobody listens if it is not set. Whoever reaches it reads all: keep it to those who may.
    pub address: Option<SocketAddr>,
}

/// Log output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `text` or `json`.
    pub format: LogFormat,
    /// Filter as of `tracing_subscriber::EnvFilter`, e.g. `info` or `controld=debug`.
    pub level: String,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors.
    Json,
}

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read configuration `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("configuration `{}` is not valid; keys and units are listed in docs/configuration.md", path.display())]
    Parse {
        path: PathBuf,
        /// Line, key and reason.
        #[source]
        cause: SyntaxError,
    },
    #[error("{0}")]
    Values(Problems),
    /// A proxy in the environment. To go without it would be to talk to whom nobody meant.
    #[error("environment names an unusable proxy")]
    Proxy(#[source] ProxyError),
    /// A collector in the environment.
    #[error("environment variable `{variable}` names no collector of traces that can be used")]
    Collector {
        variable: &'static str,
        #[source]
        cause: CollectorError,
    },
}

// === impl Config ===

impl Config {
    /// Reads `path`, or the default file if there is one.
    ///
    /// # Errors
    /// See [`ConfigError`]. A file that was named must exist.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let (path, must_exist) = path.map_or((Path::new(DEFAULT_PATH), false), |path| (path, true));
        let config = match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|cause| ConfigError::Parse { path: path.to_owned(), cause })?,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound && !must_exist => Self::default(),
            Err(cause) => return Err(ConfigError::Read { path: path.to_owned(), cause }),
        };
        let mut config = config.checked()?;
        // Virtlet's own switch, which existing deployments set.
        config.images.regexp_translations |= std::env::var_os(REGEXP_SWITCH).is_some_and(|value| !value.is_empty());
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        config.images.proxies = EnvProxies::from_vars(variable).map_err(ConfigError::Proxy)?;
        config.trace_by(variable)?;
        Ok(config)
    }

    /// Traces calls for the collector that these environment variables name, if they do, rather than for that of the file.
    fn trace_by(&mut self, variable: impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        let named =
            COLLECTORS.into_iter().find_map(|name| Some((name, variable(name).filter(|value| !value.is_empty())?)));
        if let Some((variable, value)) = named {
            let endpoint = Collector::try_from(value).map_err(|cause| ConfigError::Collector { variable, cause })?;
            self.tracing.get_or_insert_default().endpoint = endpoint;
        }
        Ok(())
    }

    pub(crate) fn parse(text: &str) -> Result<Self, SyntaxError> {
        toml::from_str(text).map_err(|cause| SyntaxError::new(text, &cause))
    }

    pub(crate) fn checked(self) -> Result<Self, ConfigError> {
        let mut problems = Problems::default();
        for (key, path) in [
            ("run_dir", Some(&self.run_dir)),
            ("state_dir", Some(&self.state_dir)),
            ("cri_socket", self.cri_socket.as_ref()),
            ("tap_socket", self.tap_socket.as_ref()),
            ("handoff_socket", self.handoff_socket.as_ref()),
            ("emulator", Some(&self.emulator)),
            ("libvirt_log_dir", Some(&self.libvirt_log_dir)),
            ("vmwrapper", Some(&self.vmwrapper)),
            ("guest_agent", Some(&self.guest_agent)),
            ("virtiofsd", Some(&self.virtiofsd)),
            ("fswrapper", Some(&self.fswrapper)),
            ("seed_kubeconfig", self.seed_kubeconfig.as_ref()),
            ("report_kubeconfig", self.report_kubeconfig.as_ref()),
            ("images.dir", self.images.dir.as_ref()),
            ("images.kubeconfig", self.images.kubeconfig.as_ref()),
            ("images.translations_dir", Some(&self.images.translations_dir)),
            ("images.catalogue_dir", Some(&self.images.catalogue_dir)),
            ("streaming.certificate", self.streaming.certificate.as_ref()),
            ("streaming.key", self.streaming.key.as_ref()),
        ] {
            problems.unless(path.is_none_or(|path| path.is_absolute()), key, "is not an absolute path");
        }
        problems.unless(
            !has_password(&self.libvirt_uri),
            "libvirt_uri",
            "has a password in it; name a file with it by the URI's parameter `authfile`",
        );
        let streaming = &self.streaming;
        problems.unless(
            streaming.key.is_some() || streaming.certificate.is_none(),
            "streaming.key",
            "is not set, but `streaming.certificate` is",
        );
        problems.unless(
            streaming.certificate.is_some() || streaming.key.is_none(),
            "streaming.certificate",
            "is not set, but `streaming.key` is",
        );
        let machine = &self.machine;
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(3600));
        for (key, value) in [
            ("tap_deadline_s", self.tap_deadline),
            ("shutdown_deadline_s", self.shutdown_deadline),
            ("machine.kvm_probe_deadline_s", machine.kvm_probe_deadline),
            ("machine.handoff_deadline_s", machine.handoff_deadline),
            ("machine.start_deadline_s", machine.start_deadline),
            ("machine.press_interval_s", machine.press_interval),
            ("images.stall_deadline_s", self.images.stall_deadline),
        ] {
            problems.unless((least..=most).contains(&value), key, "is not within 1 to 3600 seconds");
        }
        let rate = self.tracing.as_ref().map_or(0, |tracing| tracing.sampling_rate_per_million);
        problems.unless(rate <= 1_000_000, "tracing.sampling_rate_per_million", "is more than 1000000");
        machine.check(&mut problems);
        for (name, handler) in &self.handlers {
            handler.check(name, machine, &mut problems);
        }
        self.images.check(&mut problems);
        self.raw_devices.check(&mut problems);
        self.proxy.check(&self.cri_socket(), &mut problems);
        if problems.is_empty() { Ok(self) } else { Err(ConfigError::Values(problems)) }
    }

    /// Socket for kubelet.
    #[must_use]
    pub fn cri_socket(&self) -> PathBuf {
        self.cri_socket.clone().unwrap_or_else(|| self.run_dir.join("cri.sock"))
    }

    /// tapmanager's control socket.
    #[must_use]
    pub fn tap_socket(&self) -> PathBuf {
        self.tap_socket.clone().unwrap_or_else(|| self.run_dir.join("control.sock"))
    }

    /// tapmanager's hand-off socket.
    #[must_use]
    pub fn handoff_socket(&self) -> PathBuf {
        self.handoff_socket.clone().unwrap_or_else(|| self.run_dir.join("handoff.sock"))
    }

    /// Every runtime handler that a pod may name.
    #[must_use]
    pub fn handler_names(&self) -> BTreeSet<String> {
        let described = self.handlers.keys().chain(self.images.handlers.keys()).chain([&self.images.default_handler]);
        self.runtime_handlers.iter().chain(described).cloned().collect()
    }

    /// The runtime handler of a pod that names this one; the default one's if it names none.
    #[must_use]
    pub fn handler(&self, named: &str) -> Handler {
        let name = if named.is_empty() { &self.images.default_handler } else { named };
        Handler { name: name.to_owned(), defaults: self.handlers.get(name).cloned().unwrap_or_default() }
    }

    /// Root of the image store.
    #[must_use]
    pub fn images_dir(&self) -> PathBuf {
        self.images.dir.clone().unwrap_or_else(|| self.state_dir.join("images"))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            run_dir: "/run/virtlet".into(),
            state_dir: "/var/lib/virtlet".into(),
            cri_socket: None,
            tap_socket: None,
            handoff_socket: None,
            tap_deadline: Duration::from_secs(180),
            shutdown_deadline: Duration::from_secs(10),
            libvirt_uri: "qemu:///system".into(),
            libvirt_log_dir: "/var/log/libvirt/qemu".into(),
            emulator: "/usr/bin/qemu-system-x86_64".into(),
            vmwrapper: "/usr/lib/virtlet/vmwrapper".into(),
            guest_agent: "/usr/lib/virtlet/virtlet-agent".into(),
            virtiofsd: "/usr/libexec/virtiofsd".into(),
            fswrapper: "/usr/lib/virtlet/fswrapper".into(),
            runtime_handlers: vec!["virtlet".into()],
            cgroup_driver: None,
            machine: MachineConfig::default(),
            handlers: BTreeMap::new(),
            images: ImagesConfig::default(),
            seed_kubeconfig: None,
            report_kubeconfig: None,
            raw_devices: RawDevices::default(),
            flexvolumes: FlexvolumesConfig::default(),
            streaming: StreamingConfig::default(),
            metrics: MetricsConfig::default(),
            tracing: None,
            proxy: ProxyConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for StreamingConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), certificate: None, key: None }
    }
}

impl StreamingConfig {
    /// The files of the server's TLS, if it is to speak it.
    #[must_use]
    pub fn tls_files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { certificate: self.certificate.clone()?, key: self.key.clone()? })
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".into() }
    }
}

/// Whether the user part of a URI has a password.
fn has_password(uri: &str) -> bool {
    let authority = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests;
