//! Settings of controld: defaults < TOML file < command line, merged here into typed values.
//!
//! Every key, its default and its unit stand in `docs/configuration.md`. An unknown key is an error.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use imagestore::net::{EnvProxies, ProxyError};
use serde::Deserialize;

pub mod images;
mod syntax;

pub use images::ImagesConfig;
pub use syntax::SyntaxError;

/// Read when no file is named; its absence means all defaults.
pub const DEFAULT_PATH: &str = "/etc/virtlet/controld.toml";

/// Environment variable that turns on translation rules by regexp.
const REGEXP_SWITCH: &str = "IMAGE_REGEXP_TRANSLATION";

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
    /// Longest wait for an answer of tapmanager, in seconds; longer than its own CNI deadline.
    pub tap_deadline_s: u64,
    /// How long calls under way hold up the daemon's end, in seconds.
    pub shutdown_deadline_s: u64,
    /// libvirt's connection URI.
    pub libvirt_uri: String,
    /// Directory where libvirt logs what each QEMU says.
    pub libvirt_log_dir: PathBuf,
    /// The real emulator.
    pub emulator: PathBuf,
    /// What libvirt runs in its place.
    pub vmwrapper: PathBuf,
    /// Runtime handlers that a pod may name beside the default one.
    pub runtime_handlers: Vec<String>,
    /// Cgroup driver that kubelet is told: `systemd` or `cgroupfs`.
    pub cgroup_driver: CgroupDriver,
    /// Machines.
    pub machine: MachineConfig,
    /// Images.
    pub images: ImagesConfig,
    /// Streaming server.
    pub streaming: StreamingConfig,
    /// Metrics.
    pub metrics: MetricsConfig,
    /// Log.
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

/// How the accelerator of new machines is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// KVM if a probe kernel reached its init under it, else emulation.
    Auto,
    /// Always KVM.
    Kvm,
    /// Always emulation (TCG).
    Qemu,
}

/// Defaults and limits of machines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineConfig {
    /// Accelerator.
    pub accel: Accel,
    /// Kernel (bzImage) that probes KVM; default the newest `/boot/vmlinuz-*`.
    pub kvm_probe_kernel: Option<PathBuf>,
    /// How long the probe kernel may take to its init, in seconds.
    pub kvm_probe_deadline_s: u64,
    /// vCPUs of a container without a CPU limit.
    pub default_vcpus: u16,
    /// Guest memory of a container without a memory limit, in MiB.
    pub default_memory_mib: u64,
    /// Least guest memory, in MiB.
    pub min_memory_mib: u64,
    /// What QEMU takes beside the guest's memory, in MiB; by formula if it is not set.
    pub overhead_mib: Option<u64>,
    /// How long vmwrapper may wait for its descriptors, in seconds.
    pub handoff_deadline_s: u64,
    /// How long libvirt may take to start a machine, in seconds.
    pub start_deadline_s: u64,
    /// While a machine is asked to stop, its power button is pressed again after this many seconds.
    pub press_interval_s: u64,
}

/// Streaming server for attach.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamingConfig {
    /// Address to listen on. Its requests carry no authentication but a one-shot token: keep it on loopback.
    pub address: SocketAddr,
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
        /// The file.
        path: PathBuf,
        /// The system's word.
        #[source]
        cause: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("configuration `{}` is not valid; keys and units are listed in docs/configuration.md", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, key and reason.
        #[source]
        cause: SyntaxError,
    },
    /// A value is out of its range.
    #[error("configuration key `{key}` {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with its value, and what would be right.
        problem: Cow<'static, str>,
    },
    /// A proxy in the environment. To go without it would be to talk to whom nobody meant.
    #[error("environment names an unusable proxy")]
    Proxy(#[source] ProxyError),
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
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, SyntaxError> {
        toml::from_str(text).map_err(|cause| SyntaxError::new(text, &cause))
    }

    fn checked(self) -> Result<Self, ConfigError> {
        let refuse = |key, problem: &'static str| Err(ConfigError::Value { key, problem: problem.into() });
        for (key, path) in [
            ("run_dir", Some(&self.run_dir)),
            ("state_dir", Some(&self.state_dir)),
            ("cri_socket", self.cri_socket.as_ref()),
            ("tap_socket", self.tap_socket.as_ref()),
            ("handoff_socket", self.handoff_socket.as_ref()),
            ("emulator", Some(&self.emulator)),
            ("libvirt_log_dir", Some(&self.libvirt_log_dir)),
            ("vmwrapper", Some(&self.vmwrapper)),
            ("images.dir", self.images.dir.as_ref()),
            ("images.kubeconfig", self.images.kubeconfig.as_ref()),
            ("images.translations_dir", Some(&self.images.translations_dir)),
        ] {
            if path.is_some_and(|path| !path.is_absolute()) {
                return refuse(key, "is not an absolute path");
            }
        }
        if has_password(&self.libvirt_uri) {
            return refuse(
                "libvirt_uri",
                "has a password in it; name a file with it by the URI's parameter `authfile`",
            );
        }
        let machine = &self.machine;
        for (key, value) in [
            ("tap_deadline_s", self.tap_deadline_s),
            ("shutdown_deadline_s", self.shutdown_deadline_s),
            ("machine.kvm_probe_deadline_s", machine.kvm_probe_deadline_s),
            ("machine.handoff_deadline_s", machine.handoff_deadline_s),
            ("machine.start_deadline_s", machine.start_deadline_s),
            ("machine.press_interval_s", machine.press_interval_s),
            ("images.stall_deadline_s", self.images.stall_deadline_s),
        ] {
            if !(1..=3600).contains(&value) {
                return refuse(key, "is not within 1 to 3600 seconds");
            }
        }
        if !(1..=255).contains(&machine.default_vcpus) {
            return refuse("machine.default_vcpus", "is not within 1 to 255");
        }
        if machine.min_memory_mib < 16 || machine.default_memory_mib < machine.min_memory_mib {
            return refuse("machine.default_memory_mib", "is below machine.min_memory_mib, or that is below 16");
        }
        self.images.check()?;
        Ok(self)
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
    pub fn handlers(&self) -> BTreeSet<String> {
        let described = self.images.handlers.keys().chain([&self.images.default_handler]);
        self.runtime_handlers.iter().chain(described).cloned().collect()
    }

    /// Root of the image store.
    #[must_use]
    pub fn images_dir(&self) -> PathBuf {
        self.images.dir.clone().unwrap_or_else(|| self.state_dir.join("images"))
    }
}

impl MachineConfig {
    /// See the field.
    #[must_use]
    pub fn press_interval(&self) -> Duration {
        Duration::from_secs(self.press_interval_s)
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
            tap_deadline_s: 180,
            shutdown_deadline_s: 10,
            libvirt_uri: "qemu:///system".into(),
            libvirt_log_dir: "/var/log/libvirt/qemu".into(),
            emulator: "/usr/bin/qemu-system-x86_64".into(),
            vmwrapper: "/usr/lib/virtlet/vmwrapper".into(),
            runtime_handlers: vec!["virtlet".into()],
            cgroup_driver: CgroupDriver::Systemd,
            machine: MachineConfig::default(),
            images: ImagesConfig::default(),
            streaming: StreamingConfig::default(),
            metrics: MetricsConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            accel: Accel::Auto,
            kvm_probe_kernel: None,
            kvm_probe_deadline_s: 20,
            default_vcpus: 1,
            default_memory_mib: 1024,
            min_memory_mib: 64,
            overhead_mib: None,
            handoff_deadline_s: 10,
            start_deadline_s: 60,
            press_interval_s: 5,
        }
    }
}

impl Default for StreamingConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)) }
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
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_all_defaults_and_valid() {
        let config = Config::parse("").expect("parses").checked().expect("valid");
        assert_eq!(config, Config::default());
        assert_eq!(config.cri_socket(), Path::new("/run/virtlet/cri.sock"));
        assert_eq!(config.images_dir(), Path::new("/var/lib/virtlet/images"));
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_named() {
        for (text, wanted) in [
            ("run_dri = '/x'", "run_dri"),
            ("[machine]\nacel = 'kvm'", "acel"),
            ("[machine]\naccel = 'xen'", "xen"),
            ("[machine]\ndefault_vcpus = -1", "default_vcpus"),
            ("[images]\nprotocol = 'ftp'", "ftp"),
            ("[streaming]\naddress = 'localhost'", "address"),
            ("[metrics]\naddress = ':9500'", "address"),
            ("run_dir = 1", "run_dir"),
        ] {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (text, key) in [
            ("run_dir = 'run'", "run_dir"),
            ("tap_deadline_s = 0", "tap_deadline_s"),
            ("shutdown_deadline_s = 0", "shutdown_deadline_s"),
            ("libvirt_uri = 'qemu+tcp://user:PW@host/system'", "libvirt_uri"),
            ("[machine]\ndefault_vcpus = 256", "machine.default_vcpus"),
            ("[machine]\ndefault_memory_mib = 32", "machine.default_memory_mib"),
            ("[machine]\nstart_deadline_s = 3601", "machine.start_deadline_s"),
            ("[images]\npinned = ['No Name']", "images.pinned"),
            ("[images]\nlocal_roots = ['x']", "images.local_roots"),
            ("[images]\nvirt_builder_repos = ['repos.d']", "images.virt_builder_repos"),
            ("[images]\nstrip_prefixes = ['/']", "images.strip_prefixes"),
            ("[images.handlers.a]\nmachine = 'virt'", "images.handlers.<name>.machine"),
            ("[images.handlers.a]\nfirmware = 'uefi'", "images.handlers.<name>.firmware"),
        ] {
            let error = Config::parse(text).expect("parses").checked().expect_err(text);
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    /// What is logged at the start.
    #[test]
    fn secrets_in_addresses_are_never_shown() {
        let text = "
            [[images.providers]]
            id = 'lago'
            type = 'lago'
            uri = 'http://host/repo.metadata?token=PW#PW'
            transport = { proxy = 'http://proxy/?token=PW' }
            [[images.providers]]
            id = 'vb'
            type = 'virt-builder'
            uri = 'http://host/index.asc?token=PW'
            insecure = true
            [[images.providers]]
            id = 'streams'
            type = 'simplestreams'
            uri = 'http://host/?token=PW'
            insecure = true
            [[images.providers]]
            id = 'corp'
            type = 'glance'
            endpoint = 'http://host/?token=PW'
            auth_url = 'http://host/v3?token=PW'
            username = 'u'
            password_file = '/p'
            project = 'p'
        ";
        let mut config = Config::parse(text).expect("parses").checked().expect("valid");
        let proxies = |name: &str| (name == "HTTP_PROXY").then(|| "http://user:PW@proxy:3128".to_owned());
        config.images.proxies = EnvProxies::from_vars(proxies).expect("proxies");
        let shown = format!("{config:?}");
        assert!(shown.contains("http://host/index.asc") && shown.contains("proxy:3128"), "{shown}");
        assert!(!shown.contains("PW"), "{shown}");
        // A login in any of these is refused, with not a word of it.
        let url = "http://user:PW@host/";
        let with_login = text.lines().filter(|line| line.contains("token=PW")).map(|line| {
            let (from, to) = (line.find("'http").expect("a URL") + 1, line.rfind('\'').expect("its end"));
            text.replace(line, &line.replace(&line[from..to], url))
        });
        let broken = [
            format!("x = '{url}"),
            format!("libvirt_uri {url}"),
            format!("images.network = '{url}'"),
            format!("images.protocol = '{url}'"),
            format!("images.providers = ['{url}']"),
            format!("images.providers = [{{ id = 'a', type = 'lago', uri = '{url}' }}]"),
            format!("images.providers = [{{ id = 'a', type = 'lago', uri = 'http://h/', transport = '{url}' }}]"),
            format!("images.providers = [{{ id = 'a', type = 'lago', uri = 'http://h/', more = '{url}'"),
        ];
        let mut refused = 0;
        for text in with_login.chain(broken) {
            let error = Config::parse(&text).expect_err(&text);
            let problem = format!("{error} {error:?}");
            assert!(!problem.contains("PW") && problem.contains("line "), "{text}: {problem}");
            refused += usize::from(problem.contains("has a login in it"));
        }
        assert_eq!(refused, 7);
    }

    #[test]
    fn settings_of_images_that_mean_nothing_say_what_would() {
        for (text, wanted) in [
            ("max_virtual_size_gib = 0", "`images.max_virtual_size_gib` is not within 1 to 1048576 GiB"),
            ("max_virtual_size_gib = 1048577", "`images.max_virtual_size_gib` is not within 1 to 1048576 GiB"),
            ("limits.artifact_gib = 0", "`images.limits.artifact_gib` is not within 1 to 1048576 GiB"),
            ("limits.artifact_gib = 1048577", "`images.limits.artifact_gib` is not within 1 to 1048576 GiB"),
            ("limits.unpacked_gib = 0", "`images.limits.unpacked_gib` is not within 1 to 1048576 GiB"),
            ("limits.ratio = 0", "`images.limits.ratio` is not within 1 to 1000000"),
            ("limits.ratio_from_gib = 1048577", "`images.limits.ratio_from_gib` is not within 0 to 1048576 GiB"),
            ("limits.downloads = 0", "`images.limits.downloads` is not within 1 to 1000"),
            ("limits.downloads = 1001", "`images.limits.downloads` is not within 1 to 1000"),
            ("limits.partial_ttl_s = 31536001", "`images.limits.partial_ttl_s` is not within 0 to 31536000 seconds"),
            ("limits.partial_quota_gib = 1048577", "`images.limits.partial_quota_gib` is not within 0 to 1048576 GiB"),
            ("limits.reserve_gib = 1048577", "`images.limits.reserve_gib` is not within 0 to 1048576 GiB"),
            ("kube_namespace = 'Kube_System'", "`images.kube_namespace` is no name of a namespace: 1 to 63 lower-case"),
            ("kube_namespace = ''", "`images.kube_namespace` is no name of a namespace"),
            ("kube_namespace = 'a-'", "`images.kube_namespace` is no name of a namespace"),
            ("handlers.a.formats = []", "`images.handlers.<name>.formats` is empty for handler `a`"),
            (
                "handlers.a.translations = ['x/y.yaml']",
                "`images.handlers.<name>.translations` has `x/y.yaml` for handler",
            ),
            ("handlers.a.translations = ['']", "`images.handlers.<name>.translations` has `` for handler `a`"),
            ("handlers.a.architecture = 'amd46'", "`images.handlers.<name>.architecture` is `amd46` for handler `a`"),
            ("handlers.a.architecture = 'amd46'", "must be one of 386, aarch64, amd64, arm, arm64, armel, "),
            ("handlers.a.architecture = ''", "`images.handlers.<name>.architecture` is `` for handler `a`"),
        ] {
            let config = Config::parse(&format!("[images]\n{text}")).expect("parses");
            let error = config.checked().expect_err(text).to_string();
            assert!(error.starts_with("configuration key ") && error.contains(wanted), "{error}");
        }
        for text in [
            "max_virtual_size_gib = 1048576",
            "kube_namespace = 'a-1'",
            "limits.partial_quota_gib = 0\nlimits.partial_ttl_s = 0\nlimits.reserve_gib = 0\nlimits.ratio_from_gib = 0",
            "handlers.a.architecture = 'AArch64'",
            "handlers.a.formats = ['raw']",
            "handlers.a.translations = ['x.yaml']",
        ] {
            Config::parse(&format!("[images]\n{text}")).expect("parses").checked().expect(text);
        }
    }

    #[test]
    fn a_named_file_must_exist() {
        let error = Config::load(Some(Path::new("/nonexistent/controld.toml"))).expect_err("absent");
        assert!(matches!(error, ConfigError::Read { .. }), "{error}");
    }

    #[test]
    fn the_document_has_every_key_with_its_default() {
        let document = include_str!("../../docs/configuration.md");
        let (_, chapter) = document.split_once("\n## controld").expect("a chapter");
        // What follows is of kinds of providers, which a test of `images` compares.
        let (chapter, _) = chapter.split_once("\n### ").expect("its sections");
        let mut sections: std::collections::BTreeMap<&str, String> = std::collections::BTreeMap::new();
        let mut keys = Vec::new();
        for line in chapter.lines().filter(|line| line.starts_with("| `")) {
            let mut cells = line.split('|').skip(1).map(str::trim);
            let (key, default) = (cells.next().expect("a key"), cells.next().expect("a default"));
            let (section, key) = key.trim_matches('`').rsplit_once('.').unwrap_or(("", key.trim_matches('`')));
            keys.push(key);
            let said = default.trim_matches('`');
            // What is made of other settings has none of its own in the file.
            if said.contains('<') || section.contains('<') || said.starts_with("newest") || said == "none" {
                continue;
            }
            let is_bare = said.parse::<u64>().is_ok() || matches!(said, "true" | "false") || said.starts_with('[');
            let value = if is_bare { said.to_owned() } else { format!("'{said}'") };
            *sections.entry(section).or_default() += &format!("{key} = {value}\n");
        }
        let text: String = sections
            .iter()
            .map(|(section, body)| if section.is_empty() { body.clone() } else { format!("[{section}]\n{body}") })
            .collect();
        assert_eq!(Config::parse(&text).expect("parses").checked().expect("valid"), Config::default());
        for key in known_keys() {
            assert!(keys.contains(&key.as_str()), "`{key}` is not in the document");
        }
    }

    /// What serde says it expects, section by section.
    fn known_keys() -> Vec<String> {
        let unknown = [
            "no_such = 1",
            "[machine]\nno_such = 1",
            "[images]\nno_such = 1",
            "[images.network]\nno_such = 1",
            "[images.limits]\nno_such = 1",
            "[images.handlers.x]\nno_such = 1",
            "[streaming]\nno_such = 1",
            "[metrics]\nno_such = 1",
            "[log]\nno_such = 1",
        ];
        let expected = unknown.map(|text| Config::parse(text).expect_err("unknown").problem);
        let names = expected.iter().flat_map(|said| said.split('`').skip(3).step_by(2));
        let sections =
            ["machine", "images", "network", "limits", "handlers", "providers", "streaming", "metrics", "log"];
        names.filter(|name| !sections.contains(name)).map(str::to_owned).collect()
    }
}
