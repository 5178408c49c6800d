//! The daemon from start to end: checks what it needs, locks its state, takes over its pods, listens, serves, and ends.
//!
//! Called by `main` and, in process, by tests. The order of the start is fixed. Permissions and directories are checked
//! first, so that a daemon that cannot work says so before it changes anything. The lock comes next, since one daemon
//! alone may write the journal. Then every pod on record gets its actor ([`crate::pod`] recovers them while others are
//! served); then the sockets open; then readiness is reported. All pods stay as they are when the daemon ends.

mod access;
pub mod records;
mod service;
mod sockets;
mod startup;
mod vfs;

use std::future::Future;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, Reason};
use futures_util::future::{join, join_all};
use proto::tap::QemuUser;
use sriov::Sysfs;
use tokio::net::UnixListener;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::durable::DurableError;
use crate::faults::Faults;
use crate::handoff;
use crate::instance::InstanceError;
use crate::journal::{Journal, JournalError, Unreadable};
use crate::pod::{Kernel, NetnsNames, Occasion, Operations, Pods, RetryPolicy, Settings, World};
use crate::rpc::{self, Limits, SocketError};
use crate::spawner::Spawner;
use crate::sys::netns::{self, NetnsError};
use crate::vf::{ClaimNotes, Claims};
use access::QemuAccess;
use service::Service;
use sockets::{Control, HandOff, MAX_LASTING};
use startup::StateLock;

/// Where PCI devices are shown, and their files.
pub(crate) const SYSFS: &str = "/sys";
pub(crate) const DEV: &str = "/dev";
/// How long going down waits for requests that are being worked on. Plugins that run end without us, and what is half made
/// then is taken up by the next start, without which no pod gets a network.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(3);
/// And after that for what goes on behind the answers.
const PODS_END_WITHIN: Duration = Duration::from_secs(1);

/// Root's clients keep their connections. There are more than requests that last.
const CONTROL_LIMITS: Limits =
    Limits { connections: MAX_LASTING + 256, idle: Duration::from_secs(3600), send: Duration::from_secs(5) };
/// Every VM that starts makes one connection and asks at once.
const HANDOFF_LIMITS: handoff::Limits =
    handoff::Limits { places: 128, of_a_process: 2, patience: Duration::from_secs(5) };

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something of the system is not there for us.
    #[error("{missing}; {remedy}")]
    Permission {
        /// What is missing.
        missing: String,
        /// What to do.
        remedy: &'static str,
        /// The kernel's word, if it gave one.
        #[source]
        cause: Option<std::io::Error>,
    },
    /// A directory cannot be used.
    #[error("failed to prepare directory `{}`", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        cause: std::io::Error,
    },
    /// There is another one.
    #[error("another tapmanager runs on `{}`; stop it, or set another `state_dir`", path.display())]
    Locked {
        /// The state directory.
        path: PathBuf,
    },
    /// The journal, or a note beside it, cannot be used.
    #[error("failed to use the state directory")]
    State(#[source] StateError),
    /// A newer release has written it. Nothing was changed.
    #[error("the state directory is a newer release's; install that release again, or remove its pods by it first")]
    Newer(#[source] NewerError),
    /// Namespaces of pods cannot be mounted.
    #[error("failed to prepare the directory of namespaces")]
    Namespaces(#[from] NamespaceError),
    /// A socket could not be made.
    #[error("failed to listen")]
    Socket(#[source] ListenError),
    /// Nothing starts CNI plugins any more.
    #[error("the process that starts CNI plugins has ended; start tapmanager again, which costs no pod anything")]
    Spawner,
    /// Machines cannot fetch their descriptors.
    #[error("the hand-off socket is not served; start tapmanager again, which costs no pod anything")]
    HandOff(#[source] Option<std::io::Error>),
}

/// What is wrong with the state directory.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StateError(StateCause);

#[derive(Debug, thiserror::Error)]
enum StateCause {
    #[error(transparent)]
    Claims(#[from] Reason),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Note(#[from] DurableError),
    #[error(transparent)]
    Instance(#[from] InstanceError),
}

/// A file of a newer release.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NewerError(NewerCause);

#[derive(Debug, thiserror::Error)]
enum NewerCause {
    #[error(transparent)]
    Journal(Unreadable),
    #[error(transparent)]
    Instance(InstanceError),
}

/// What is wrong with the directory of namespaces.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NamespaceError(NetnsError);

/// What is wrong with a socket.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ListenError(#[from] SocketError);

/// A daemon that has taken over its pods and listens. Peers may connect; they are answered by [`Daemon::serve`].
#[derive(Debug)]
pub struct Daemon {
    service: Arc<Service<Kernel>>,
    control: UnixListener,
    handoff: StdListener,
    sockets: [PathBuf; 2],
    collect_every: Duration,
    _lock: StateLock,
}

/// Starts the daemon, tells systemd, and serves until `shutdown`.
///
/// # Errors
/// When it cannot start, or has lost its spawner or its hand-off socket; see [`DaemonError`]. What else fails later is logged and answered.
pub async fn run(
    config: Config,
    spawner: Spawner,
    faults: Arc<Faults>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DaemonError> {
    let daemon = Daemon::start(config, spawner.clone(), faults).await?;
    tell_systemd(sd_notify::NotifyState::Ready);
    let mut lost = false;
    let ending = async {
        tokio::select! {
            () = shutdown => {}
            () = spawner.gone() => {
                error!("the process that starts CNI plugins has ended");
                lost = true;
            }
        }
    };
    daemon.serve(ending).await?;
    if lost { Err(DaemonError::Spawner) } else { Ok(()) }
}

/// Who QEMU runs as by the configuration, or as controld has told the daemon. Needs no daemon and changes nothing.
#[must_use]
pub fn qemu_user(config: &Config) -> Option<QemuUser> {
    QemuAccess::load(config).user()
}

impl Daemon {
    /// Comes up as far as listening.
    ///
    /// # Errors
    /// See [`DaemonError`].
    #[expect(clippy::unused_async, reason = "it starts tasks, so a runtime has to run it")]
    pub async fn start(config: Config, spawner: Spawner, faults: Arc<Faults>) -> Result<Self, DaemonError> {
        config.check()?;
        info!(config = ?config, "starting");
        startup::probe()?;
        let lock = startup::prepare(&config)?;
        let journal = Journal::open(&config.state_dir)?;
        let (loaded, (instance, unkept)) = startup::read_state(&journal, &config.state_dir)?;
        journal.sweep()?;
        netns::share(&config.netns_dir).map_err(NamespaceError)?;
        for file in &loaded.unreadable {
            error!(error = %Chain(file), "a pod is not recovered");
        }
        if let Some(error) = &unkept {
            error!(error = %Chain(error), "namespaces of pods carry a name that does not last");
        }
        let boot = startup::boot_id()?;
        let notes = ClaimNotes::open(&config.state_dir).map_err(|error| DaemonError::State(error.into()))?;
        let sysfs = Sysfs::new(Path::new(SYSFS), Path::new(DEV));
        let claims = Claims::load(sysfs, notes, boot.clone(), Arc::clone(&faults));
        let claims = claims.map_err(|error| DaemonError::State(error.into()))?;
        let world = Kernel::new(&config, &instance, spawner, claims.clone());
        info!(%instance, "namespaces of pods carry this name");
        let place = (NetnsNames::new(config.netns_dir.clone(), &instance), boot);
        let operations = Operations::new(world, journal, place, settings(&config), faults);
        let access = QemuAccess::load(&config);
        let service = Arc::new(Service::new(Pods::new(operations), claims, access, &config)?);
        service.pods().take_over(loaded);
        let sockets = [config.control_socket(), config.handoff_socket()];
        let daemon = Self {
            control: rpc::listen(&sockets[0]).map_err(ListenError::from)?,
            handoff: rpc::bind(&sockets[1]).map_err(ListenError::from)?,
            service,
            sockets,
            collect_every: config.collect_every,
            _lock: lock,
        };
        daemon.service.access().open_socket().map_err(ListenError::from)?;
        Ok(daemon)
    }

    /// Answers until `shutdown`, then finishes what is being worked on and closes the sockets.
    ///
    /// # Errors
    /// When machines cannot fetch their descriptors, or cannot any more: nothing of this can be mended from within.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), DaemonError> {
        let Self { service, control, handoff, sockets, collect_every, _lock } = self;
        let going_down = CancellationToken::new();
        let control_edge = Arc::new(Control::new(Arc::clone(&service)));
        let handoff = handoff::Server::start(handoff, HandOff(Arc::clone(&service)), HANDOFF_LIMITS);
        let handoff = handoff.map_err(|cause| DaemonError::HandOff(Some(cause)))?;
        let servers = [
            tokio::spawn(rpc::serve(control, control_edge, CONTROL_LIMITS, going_down.clone())),
            tokio::spawn(watch_recovery(Arc::clone(&service), going_down.clone())),
            tokio::spawn(collect(Arc::clone(&service), collect_every, going_down.clone())),
            tokio::spawn(look_after(Arc::clone(&service), collect_every, going_down.clone())),
        ];
        info!("serving");
        let outcome = tokio::select! {
            () = shutdown => Ok(()),
            () = handoff.ended() => {
                error!("machines cannot fetch their descriptors any more, which is a bug");
                Err(DaemonError::HandOff(None))
            }
        };
        info!("going down; pods stay as they are");
        tell_systemd(sd_notify::NotifyState::Stopping);
        going_down.cancel();
        // Gone rather than dead: a client is told at once that nobody is there.
        for socket in &sockets {
            let _ = std::fs::remove_file(socket);
        }
        if timeout(REQUESTS_END_WITHIN, join(handoff.stop(), join_all(servers))).await.is_err() {
            warn!("requests were still being worked on");
        }
        service.pods().close(PODS_END_WITHIN).await;
        outcome
    }
}

/// Tells when the pods of an earlier life of the daemon are recovered.
async fn watch_recovery(service: Arc<Service<Kernel>>, going_down: CancellationToken) {
    let pods = service.pods().recovering();
    if pods > 0 {
        info!(pods, "recovering");
        if going_down.run_until_cancelled(service.pods().recovered()).await.is_some() {
            info!("recovered");
        }
    }
}

/// Collects at the start and from time to time until the daemon goes down. What is cut off then is begun anew by the next
/// daemon.
async fn collect<W: World>(service: Arc<Service<W>>, every: Duration, going_down: CancellationToken) {
    let work = async {
        service.pods().collect(Occasion::Routine).await;
        let Some(mut times) = from_time_to_time(every) else { return };
        loop {
            times.tick().await;
            service.pods().collect(Occasion::Routine).await;
        }
    };
    going_down.run_until_cancelled(work).await;
}

/// Looks after the pods that stand from time to time until the daemon goes down.
async fn look_after(service: Arc<Service<Kernel>>, every: Duration, going_down: CancellationToken) {
    let work = async {
        let Some(mut times) = from_time_to_time(every) else { return };
        loop {
            times.tick().await;
            service.pods().look_after().await;
        }
    };
    going_down.run_until_cancelled(work).await;
}

fn from_time_to_time(every: Duration) -> Option<Interval> {
    if every.is_zero() {
        return None;
    }
    let mut times = interval_at(Instant::now() + every, every);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(times)
}

fn settings(config: &Config) -> Settings {
    Settings {
        data_path: config.data_path,
        anti_spoof: config.anti_spoof,
        max_queues: config.max_queues,
        retry: RetryPolicy { first_pause: config.detach_retry, give_up: config.detach_give_up },
        cni_gc: config.cni_gc,
    }
}

/// Without systemd this does nothing.
fn tell_systemd(state: sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!(%error, "systemd was not told");
    }
}

impl From<JournalError> for DaemonError {
    fn from(error: JournalError) -> Self {
        Self::State(StateError(error.into()))
    }
}

impl From<Reason> for StateError {
    fn from(error: Reason) -> Self {
        Self(error.into())
    }
}

impl From<InstanceError> for DaemonError {
    fn from(error: InstanceError) -> Self {
        Self::State(StateError(error.into()))
    }
}

impl From<DurableError> for DaemonError {
    fn from(error: DurableError) -> Self {
        Self::State(StateError(error.into()))
    }
}

impl From<ListenError> for DaemonError {
    fn from(error: ListenError) -> Self {
        Self::Socket(error)
    }
}
