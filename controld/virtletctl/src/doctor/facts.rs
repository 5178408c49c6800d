//! What programs, sockets and daemons answer, asked once and all at the same time, before any check judges it.
//!
//! Each answer is there or the reason why it is not; a check of what is not there is a warning that says the reason.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use proto::cri::{StatusResponse, VersionResponse};
use serde::Deserialize;

use super::program::{self, ProgramError, Said};
use crate::cli;
use crate::client::Client;
use crate::error::Line;

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
pub(super) type Told<T> = Result<T, ProgramError>;

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
    /// Of systemctl.
    pub(super) units: Told<Said>,
}

/// Of `controld describe settings`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Settings {
    pub(super) run_dir: PathBuf,
    pub(super) state_dir: PathBuf,
    pub(super) images_dir: PathBuf,
    pub(super) images_reserve: u64,
    pub(super) cri_socket: PathBuf,
    pub(super) tap_socket: PathBuf,
    pub(super) handoff_socket: PathBuf,
    pub(super) libvirt_uri: String,
    pub(super) emulator: PathBuf,
    pub(super) vmwrapper: PathBuf,
    pub(super) fswrapper: PathBuf,
    pub(super) virtiofsd: PathBuf,
    pub(super) accel: String,
    pub(super) cgroup_driver: String,
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
        let settings = program::ask("controld", &["describe", "settings"], controld, &[], program::json, FILES);
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
            let settings: Told<Settings> = settings.await;
            let emulator = match &settings {
                Ok(settings) => program::run(&settings.emulator, &["--version"], EMULATOR).await,
                Err(_) => Err(ProgramError::Failed { code: None, said: NO_SETTINGS.to_owned() }),
            };
            (settings, emulator)
        };
        let ((controld, emulator), libvirt, tapmanager, networks, tap, pods, units, cri) =
            tokio::join!(with_emulator, libvirt, of_taps, networks, status, pods, units, answers(socket));
        Self { controld, tapmanager, networks, libvirt, emulator, tap, pods, cri_socket: socket.to_owned(), cri, units }
    }
}

/// Why checks that need controld's settings are not made.
pub(super) const NO_SETTINGS: &str = "controld's settings are not known";
/// Why checks that need tapmanager's are not.
pub(super) const NO_TAP_SETTINGS: &str = "tapmanager's settings are not known";

fn toml_of(text: &str) -> Result<TapSettings, String> {
    toml::from_str(text).map_err(|error| error.message().to_owned())
}

async fn units() -> Told<Said> {
    let mut words = vec!["show", "--property=Id,LoadState,ActiveState,SubState,UnitFileState,FragmentPath"];
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
