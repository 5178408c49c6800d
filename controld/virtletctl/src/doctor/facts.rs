//! What programs, sockets and daemons answer, asked once and all at the same time, before any check judges it.
//!
//! Each answer is there or the reason why it is not; a check of what is not there is a warning that says the reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::Chain;
use proto::cri::{StatusResponse, VersionResponse};
use serde::Deserialize;

use super::program::{self, ProgramError, Said};
use crate::cli;
use crate::client::{Client, Runtime};
use crate::error::{CtlError, Line};

/// Our programs answer from files in milliseconds, on a node that is well.
const FILES: Duration = Duration::from_secs(10);
/// libvirtd may ask its emulators first.
const LIBVIRT: Duration = Duration::from_secs(20);
/// tapmanager may ask its plugins for their STATUS.
const TAPMANAGER: Duration = Duration::from_secs(15);
/// As controld has it.
const EMULATOR: Duration = Duration::from_secs(5);
/// controld answers `Status` after a few seconds at most, also while it starts.
const CONTROLD: Duration = Duration::from_secs(15);
/// All that the other container runtime is asked.
const RUNTIME: Duration = Duration::from_secs(10);
/// How endpoints are written.
const UNIX: &str = "unix://";
/// Units that are looked at: ours, and those of a monolithic and of a modular libvirt.
const UNITS: [&str; 8] = [
    "tapmanager.service",
    "controld.service",
    "virtlogd.service",
    "virtlogd.socket",
    "libvirtd.service",
    "libvirtd.socket",
    "virtqemud.service",
    "virtqemud.socket",
];

/// An answer, or why there is none.
pub(crate) type Told<T> = Result<T, ProgramError>;

/// All answers.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) controld: Told<Settings>,
    pub(super) tapmanager: Told<TapSettings>,
    pub(super) networks: Told<Networks>,
    pub(super) libvirt: Told<Libvirt>,
    pub(super) emulator: Told<Said>,
    /// What the control socket answers.
    pub(super) tap: Told<TapStatus>,
    pub(super) pods: Told<OnRecord>,
    /// controld's socket, as the command line has it.
    pub(super) cri_socket: PathBuf,
    /// What it answers.
    pub(super) cri: Result<Answers, String>,
    /// What the other container runtime answers at its own socket; `None` if controld is in front of none.
    pub(super) runtime: Option<Result<Runtime, String>>,
    /// Of systemctl.
    pub(super) units: Told<Said>,
}

/// Of `controld describe settings`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Settings {
    pub(super) run_dir: PathBuf,
    pub(super) state_dir: PathBuf,
    pub(super) images_dir: PathBuf,
    pub(super) images_reserve: u64,
    pub(crate) cri_socket: PathBuf,
    pub(super) tap_socket: PathBuf,
    pub(super) handoff_socket: PathBuf,
    pub(super) libvirt_uri: String,
    pub(super) emulator: PathBuf,
    pub(super) vmwrapper: PathBuf,
    pub(super) fswrapper: PathBuf,
    pub(super) virtiofsd: PathBuf,
    pub(super) accel: String,
    pub(super) cgroup_driver: String,
    // An earlier release tells none of these.
    /// Whether the configuration says so; else it is the node's.
    #[serde(default)]
    pub(crate) cgroup_driver_set: bool,
    /// Names of all runtime handlers.
    #[serde(default)]
    pub(crate) handlers: BTreeSet<String>,
    /// Of the other container runtime, as it is written.
    #[serde(default)]
    pub(crate) runtime_endpoint: Option<String>,
}

impl Settings {
    /// controld's socket as kubelet names it.
    pub(crate) fn endpoint(&self) -> String {
        format!("{UNIX}{}", self.cri_socket.display())
    }

    /// Those of our handlers that the other container runtime has, too.
    pub(crate) fn shared(&self, runtime: &Runtime) -> Vec<String> {
        self.handlers.intersection(&runtime.handlers).filter(|name| !name.is_empty()).cloned().collect()
    }

    /// controld's cgroup driver and the other container runtime's, if VMs are refused since they differ.
    pub(crate) fn drivers_apart<'a>(&'a self, runtime: &'a Runtime) -> Option<(&'a str, &'a str)> {
        let theirs = runtime.cgroup_driver?;
        (self.cgroup_driver_set && self.cgroup_driver != theirs).then_some((self.cgroup_driver.as_str(), theirs))
    }
}

/// Of `tapmanager check-config`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TapSettings {
    pub(super) data_path: String,
    pub(super) vhost: String,
    pub(super) vmwrapper: PathBuf,
    pub(super) run_dir: PathBuf,
}

/// Of `tapmanager networks`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Networks {
    pub(super) networks: Vec<Network>,
    pub(super) broken: Vec<String>,
    pub(super) trouble: Option<String>,
}

/// A network of a node; the first is the default one.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) plugins: Vec<Plugin>,
    /// Those that give addresses; an earlier release does not tell them.
    #[serde(default)]
    pub(super) ipam: Vec<Plugin>,
    /// Where `host-local` keeps its addresses, if it gives them; an earlier release does not tell.
    #[serde(default)]
    pub(super) leases: Vec<PathBuf>,
}

/// A plugin of a network.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Plugin {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) trouble: Option<String>,
}

/// Of `controld describe libvirt`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Libvirt {
    pub(super) libvirt: String,
    pub(super) qemu: Option<String>,
    pub(super) lacks: Vec<String>,
}

/// Of `tapmanager status`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TapStatus {
    pub(super) server: String,
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) reason: String,
}

/// Of `tapmanager list`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct OnRecord {
    pub(super) pods: Vec<PodLine>,
    /// Before it was asked: what it did not know by then is no pod's of before.
    #[serde(skip, default = "SystemTime::now")]
    pub(super) asked: SystemTime,
}

/// A pod that tapmanager has on record.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PodLine {
    pub(super) pod: String,
}

/// Of controld.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    pub(super) version: VersionResponse,
    pub(super) status: StatusResponse,
}

impl Facts {
    /// Asks all.
    pub(super) async fn gather(wanted: &cli::Doctor, socket: &Path) -> Self {
        let controld = wanted.controld_config.as_deref();
        let tapmanager = wanted.tapmanager_config.as_deref();
        let libvirt = program::ask("controld", &["describe", "libvirt"], controld, &[], program::json, LIBVIRT);
        let of_taps = program::ask("tapmanager", &["check-config"], tapmanager, &[], toml_of, FILES);
        // Exit code 1: what is told is that something is not well.
        let networks = ["networks", "--output", "json"];
        let networks = program::ask("tapmanager", &networks, tapmanager, &[1], program::json, FILES);
        let status = ["status", "--output", "json"];
        let status = program::ask("tapmanager", &status, tapmanager, &[1], program::json, TAPMANAGER);
        let pods = async {
            let asked = SystemTime::now();
            let list: Told<OnRecord> =
                program::ask("tapmanager", &["list", "--output", "json"], tapmanager, &[], program::json, TAPMANAGER)
                    .await;
            list.map(|list| OnRecord { asked, ..list })
        };
        let units = units();
        let with_emulator = async {
            let settings = settings(controld).await;
            let emulator = async {
                match &settings {
                    Ok(settings) => program::run(&settings.emulator, &["--version"], EMULATOR).await,
                    Err(_) => Err(ProgramError::Failed { code: None, said: NO_SETTINGS.to_owned() }),
                }
            };
            let other = async {
                let endpoint = settings.as_ref().ok()?.runtime_endpoint.as_deref()?;
                Some(runtime(socket_of(endpoint)).await)
            };
            let (emulator, other) = tokio::join!(emulator, other);
            (settings, emulator, other)
        };
        let ((controld, emulator, runtime), libvirt, tapmanager, networks, tap, pods, units, cri) =
            tokio::join!(with_emulator, libvirt, of_taps, networks, status, pods, units, answers(socket));
        let cri_socket = socket.to_owned();
        Self { controld, tapmanager, networks, libvirt, emulator, tap, pods, cri_socket, cri, runtime, units }
    }
}

/// What controld's configuration comes to.
pub(crate) async fn settings(config: Option<&Path>) -> Told<Settings> {
    program::ask("controld", &["describe", "settings"], config, &[], program::json, FILES).await
}

/// What the container runtime at a socket answers, or why it does not.
pub(crate) async fn runtime(socket: &Path) -> Result<Runtime, String> {
    let asked = async { Client::connect(socket).await?.runtime().await };
    match tokio::time::timeout(RUNTIME, asked).await {
        Ok(Ok(runtime)) => Ok(runtime),
        // The text of this one is about controld.
        Ok(Err(CtlError::Connect { cause, .. })) => Err(cause.to_string()),
        Ok(Err(error)) => Err(Chain(&error).to_string()),
        Err(_elapsed) => Err(format!("no answer within {} s", RUNTIME.as_secs())),
    }
}

/// The path of an endpoint.
pub(crate) fn socket_of(endpoint: &str) -> &Path {
    Path::new(endpoint.strip_prefix(UNIX).unwrap_or(endpoint))
}

/// Why checks that need controld's settings are not made.
pub(super) const NO_SETTINGS: &str = "controld's settings are not known";
/// Why checks that need tapmanager's are not.
pub(super) const NO_TAP_SETTINGS: &str = "tapmanager's settings are not known";

fn toml_of(text: &str) -> Result<TapSettings, String> {
    toml::from_str(text).map_err(|error| error.message().to_owned())
}

async fn units() -> Told<Said> {
    let mut words =
        vec!["show", "--property=Id,LoadState,ActiveState,SubState,UnitFileState,FragmentPath,After,Before"];
    words.extend(UNITS);
    program::run(Path::new("systemctl"), &words, FILES).await
}

async fn answers(socket: &Path) -> Result<Answers, String> {
    let asked = async {
        let client = Client::connect(socket).await?;
        Ok(Answers { version: client.version().await?, status: client.status().await? })
    };
    match tokio::time::timeout(CONTROLD, asked).await {
        Ok(answered) => answered.map_err(|error| Line(&error).to_string()),
        Err(_elapsed) => Err(format!("no answer within {} s", CONTROLD.as_secs())),
    }
}
