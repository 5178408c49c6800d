//! The daemon's configuration: a TOML file over built-in defaults, checked once. Called by `main` and by tests.
//!
//! No other module of the daemon reads the file or the environment. `NOTIFY_SOCKET` alone is read elsewhere, by the
//! `sd-notify` crate. A value of type [`Config`] that came from [`Config::load`] or passed [`Config::check`] is usable.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::tap::{DataPath, QemuUser};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Where the configuration is looked for when the command line names no file.
pub const DEFAULT_FILE: &str = "/etc/virtlet/tapmanager.toml";

/// Longest path of a socket: `sun_path` of unix(7), less the closing zero.
const MAX_SOCKET_PATH: usize = 107;
/// A pod's descriptors travel in one message, which has room for 253: those of 15 NICs, where a queue and its vhost-net
/// are two.
pub(crate) const MAX_QUEUES: u16 = 8;
/// More than there are requests about pods at a time.
const MAX_PLUGINS: u16 = 1024;
/// Each takes some 100 KiB of the kernel's memory.
const MAX_NETNS_POOL: u16 = 64;
const HOUR: Duration = Duration::from_secs(3600);
/// RFC 2131 section 3.3: all ones would be "for ever".
const MAX_LEASE: Duration = Duration::from_secs(u32::MAX as u64 - 1);

/// What systemd says of our stderr, if journald is behind it: device and inode.
#[must_use]
pub fn journal_stream() -> Option<OsString> {
    std::env::var_os("JOURNAL_STREAM")
}

/// Settings of the daemon. Every key may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of the journal. Default `/var/lib/virtlet/net`.
    pub state_dir: PathBuf,
    /// Directory of `control.sock` and `handoff.sock`. Default `/run/virtlet`.
    pub run_dir: PathBuf,
    /// Directory that network namespaces are mounted in. Default `/run/netns`.
    pub netns_dir: PathBuf,
    /// Directory of CNI network configurations. Default `/etc/cni/net.d`.
    pub cni_conf_dir: PathBuf,
    /// Directories of CNI plugins, the first that has a plugin wins. Default `/opt/cni/bin`, `/usr/lib/cni`.
    pub cni_plugin_dirs: Vec<PathBuf>,
    /// How long one CNI plugin may take, in seconds. Default 60.
    #[serde(rename = "cni_deadline_s", with = "seconds")]
    pub cni_deadline: Duration,
    /// How many CNI plugins work for pods at a time. Default: four for each processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins_at_once: Option<u16>,
    /// How long a token of the hand-off lives, in seconds. Default 120.
    #[serde(rename = "arm_ttl_s", with = "seconds")]
    pub arm_ttl: Duration,
    /// Executable that may fetch descriptors. Default `/usr/lib/virtlet/vmwrapper`.
    pub vmwrapper: PathBuf,
    /// Lease time that DHCP offers, in seconds. Default 86400.
    #[serde(rename = "dhcp_lease_s", with = "seconds")]
    pub dhcp_lease: Duration,
    /// How links and taps are joined where a pod does not say, as [`DataPath::ALL`] has it. Default `tc`.
    #[serde(deserialize_with = "data_path")]
    pub data_path: DataPath,
    /// Whether guests are held to their own MAC and IP addresses where a pod does not say. Default true.
    pub anti_spoof: bool,
    /// Most queues of a NIC, which has one for each CPU of its machine. Default 8.
    pub max_queues: u16,
    /// How many network namespaces are made ahead for pods to come; 0 is none. Default 8.
    pub netns_pool: u16,
    /// Whether machines are given vhost-net: `auto` if the node has it, or `off`. Default `auto`.
    pub vhost: Vhost,
    /// Directory that Multus keeps the results of its delegates in. Default `/var/lib/cni/multus`.
    pub multus_dir: PathBuf,
    /// Directory of the CNI result cache. Default `/var/lib/cni`.
    pub cni_cache_dir: PathBuf,
    /// Whether CNI GC is run; only right where no other runtime uses the node's networks. Default false.
    pub cni_gc: bool,
    /// How often what belongs to no pod is taken away, in seconds; 0 is only at the start and when asked. Default 600.
    #[serde(rename = "collect_every_s", with = "seconds")]
    pub collect_every: Duration,
    /// Pause after the first failure to take a pod away, in seconds; each further one is twice as long. Default 2.
    #[serde(rename = "detach_retry_s", with = "seconds")]
    pub detach_retry: Duration,
    /// How long after that failure a detach is answered all the same, in seconds. Default 300.
    #[serde(rename = "detach_give_up_s", with = "seconds")]
    pub detach_give_up: Duration,
    /// User id that QEMU runs as; with `qemu_gid` it overrides what controld says. Default: what controld says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_uid: Option<u32>,
    /// Group id that QEMU runs as. Default: what controld says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu_gid: Option<u32>,
    /// Whether the daemon filters its own system calls. Default `true`.
    pub seccomp: bool,
    /// How log lines look: `text` or `json`. Default `text`.
    pub log_format: LogFormat,
    /// Least important lines that are logged: `error`, `warn`, `info`, `debug` or `trace`. Default `info`.
    pub log_level: LogLevel,
}

/// Whether machines are given vhost-net.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vhost {
    /// If the node has it.
    Auto,
    /// Never.
    Off,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Least important lines that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// An operation that an operator asked for failed.
    Error,
    /// Odd, still serving.
    Warn,
    /// Life of pods.
    Info,
    /// Decisions.
    Debug,
    /// Packets and netlink messages.
    Trace,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read configuration `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The file is no TOML, or has unknown keys or values of another type.
    #[error("configuration `{}`, line {line}: {problem}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// In the parser's words.
        problem: String,
    },
    /// A value cannot be used.
    #[error("configuration key `{key}` {problem}")]
    Value {
        /// As in the file.
        key: &'static str,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: "/var/lib/virtlet/net".into(),
            run_dir: "/run/virtlet".into(),
            netns_dir: "/run/netns".into(),
            cni_conf_dir: "/etc/cni/net.d".into(),
            cni_plugin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            cni_deadline: Duration::from_secs(60),
            plugins_at_once: None,
            arm_ttl: Duration::from_secs(120),
            vmwrapper: "/usr/lib/virtlet/vmwrapper".into(),
            dhcp_lease: 24 * HOUR,
            data_path: DataPath::Tc,
            anti_spoof: true,
            max_queues: 8,
            netns_pool: 8,
            vhost: Vhost::Auto,
            multus_dir: "/var/lib/cni/multus".into(),
            cni_cache_dir: "/var/lib/cni".into(),
            cni_gc: false,
            collect_every: Duration::from_secs(600),
            detach_retry: Duration::from_secs(2),
            detach_give_up: Duration::from_secs(300),
            qemu_uid: None,
            qemu_gid: None,
            seccomp: true,
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
        }
    }
}

impl Config {
    /// The configuration in `named`; without it the one in [`DEFAULT_FILE`], or the defaults if there is no such file.
    ///
    /// # Errors
    /// See [`ConfigError`]. A named file has to exist.
    pub fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = named.unwrap_or(Path::new(DEFAULT_FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(cause) if named.is_none() && cause.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(ConfigError::Read { path: path.to_owned(), cause }),
        };
        Self::parse(&text, path)
    }

    /// The configuration that `text`, read from `path`, says.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            problem: error.message().to_owned(),
        })?;
        config.check()?;
        Ok(config)
    }

    /// Checks what types alone do not say.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        let paths = [
            ("state_dir", &self.state_dir),
            ("run_dir", &self.run_dir),
            ("netns_dir", &self.netns_dir),
            ("cni_conf_dir", &self.cni_conf_dir),
            ("vmwrapper", &self.vmwrapper),
            ("multus_dir", &self.multus_dir),
            ("cni_cache_dir", &self.cni_cache_dir),
        ];
        let plugin_dirs = self.cni_plugin_dirs.iter().map(|dir| ("cni_plugin_dirs", dir));
        let times = [
            ("cni_deadline_s", self.cni_deadline, HOUR, "is not between 1 and 3600"),
            ("arm_ttl_s", self.arm_ttl, HOUR, "is not between 1 and 3600"),
            ("dhcp_lease_s", self.dhcp_lease, MAX_LEASE, "is not between 1 and 4294967294"),
            ("detach_retry_s", self.detach_retry, HOUR, "is not between 1 and 3600"),
            ("detach_give_up_s", self.detach_give_up, 24 * HOUR, "is not between 1 and 86400"),
        ];
        let refuse = |key, problem| Err(ConfigError::Value { key, problem });
        for (key, path) in paths.into_iter().chain(plugin_dirs) {
            if !path.is_absolute() {
                return refuse(key, "is not an absolute path");
            }
        }
        if self.cni_plugin_dirs.is_empty() {
            return refuse("cni_plugin_dirs", "is empty; name the directories of the CNI plugins");
        }
        for (key, time, most, problem) in times {
            if time < Duration::from_secs(1) || time > most {
                return refuse(key, problem);
            }
        }
        if self.collect_every > 24 * HOUR {
            return refuse("collect_every_s", "is not between 0 and 86400");
        }
        if !(1..=MAX_QUEUES).contains(&self.max_queues) {
            return refuse("max_queues", "is not between 1 and 8");
        }
        if self.plugins_at_once.is_some_and(|most| !(1..=MAX_PLUGINS).contains(&most)) {
            return refuse("plugins_at_once", "is not between 1 and 1024");
        }
        if self.netns_pool > MAX_NETNS_POOL {
            return refuse("netns_pool", "is not between 0 and 64");
        }
        if self.handoff_socket().as_os_str().len() > MAX_SOCKET_PATH {
            return refuse("run_dir", "is too long: a socket's path has at most 107 bytes");
        }
        match (self.qemu_uid, self.qemu_gid) {
            (Some(_), None) => refuse("qemu_uid", "is set without `qemu_gid`; set both or neither"),
            (None, Some(_)) => refuse("qemu_gid", "is set without `qemu_uid`; set both or neither"),
            _ => Ok(()),
        }
    }

    /// The file by which plugins of one pod wait for each other.
    #[must_use]
    pub fn plugin_locks(&self) -> PathBuf {
        self.state_dir.join("plugins.lock")
    }

    /// The socket for `controld`.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.run_dir.join("control.sock")
    }

    /// The socket for `vmwrapper`.
    #[must_use]
    pub fn handoff_socket(&self) -> PathBuf {
        self.run_dir.join("handoff.sock")
    }

    /// Who QEMU runs as, if the configuration overrides what controld says.
    #[must_use]
    pub fn qemu_user(&self) -> Option<QemuUser> {
        Some(QemuUser { uid: self.qemu_uid?, gid: self.qemu_gid? })
    }
}

impl LogLevel {
    /// As `tracing` calls it.
    #[must_use]
    pub const fn as_tracing(self) -> tracing::Level {
        match self {
            Self::Error => tracing::Level::ERROR,
            Self::Warn => tracing::Level::WARN,
            Self::Info => tracing::Level::INFO,
            Self::Debug => tracing::Level::DEBUG,
            Self::Trace => tracing::Level::TRACE,
        }
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

/// By its name, as everywhere where one is asked for.
fn data_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataPath, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Whole seconds in the file, a duration in the program.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(time.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests;
