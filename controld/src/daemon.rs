//! The daemon's life: what is started in which order, and how it goes down.
//!
//! Order: directories -> CRI socket, which says what is waited for -> database -> image store -> connection to libvirt -> metrics
//! -> records against tapmanager and libvirt -> for a while, what became of starts that were cut off -> ready. libvirt or
//! tapmanager being down does not keep the daemon from starting: kubelet asks `Status` why the node is not ready, and the
//! records are compared as soon as they answer. Going down leaves every machine as it is.

pub(crate) mod agree;
mod call_thread;
pub mod describe;
pub mod dump;
pub mod flexvolume_driver;
pub mod formats;
mod memory;
pub mod metrics;
pub(crate) mod node;
mod settle;
pub mod validate;

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use common::Chain;
use common::KeyedMutex;
use common::log::journal::Journal;
use common::log::{self, Look};
use common::off_reactor;
use sd_notify::NotifyState;
use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;

use self::call_thread::CallThread;
use self::node::Node;
use crate::api::door::Opener;
use crate::api::edge::Calls;
use crate::api::sessions::Sessions;
use crate::api::verbs::Verbs;
use crate::api::{self, admin, cri};
use crate::config::{self, Config, LogConfig, LogFormat};
use crate::container::{Containers, Uses};
use crate::disks::flexvolume;
use crate::hypervisor::HvEvent;
use crate::images::mapping;
use crate::proxy::Proxy;
use crate::reporter;
use crate::sandbox::Sandboxes;
use crate::trace::Tracer;
use crate::volumes::make_dir;

/// Of the directory that we share with tapmanager. systemd sets it too, from both units.
const STATE_MODE: u32 = 0o711;
/// How long the database may take at the end to have all that is in the log.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);
/// How long the collector of traces may take meanwhile for the last spans.
const SPANS_DEADLINE: Duration = Duration::from_secs(3);
/// How long systemd, and so kubelet, waits for a first connection to the runtime that we are in front of: kubelet ends if what it asks
/// first is refused.
const RUNTIME_DEADLINE: Duration = Duration::from_secs(5);
/// How long after a step of a start that failed it is tried again, on a node whose containers go through us.
const STEP_AGAIN: Duration = Duration::from_secs(30);

/// Runs the daemon, which says that it is `version`, on a runtime of its own until a signal asks it to go down.
///
/// # Errors
/// When it cannot start.
pub fn main(config: Config, version: &'static str) -> anyhow::Result<()> {
    // Fails only if another provider was installed before, and none was.
    let _ = rustls::crypto::ring::default_provider().install_default();
    init_log(&config.log)?;
    memory::keep_little();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = signalled()?;
        run(config, version, shutdown).await
    })?;
    // Calls to libvirt that outlive their deadline must not keep us.
    runtime.shutdown_background();
    Ok(())
}

/// Runs the daemon until `shutdown`.
///
/// # Errors
/// When it cannot start, or its socket fails.
pub async fn run(config: Config, version: &'static str, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    tracing::info!(?config, "controld {version} starting");
    make_dirs(&config)?;
    let (socket, deadline) = (config.cri_socket(), config.shutdown_deadline);
    let _lock = api::socket::lock(&socket)?;
    let (door, opener) = api::door::shut(version);
    let stop = CancellationToken::new();
    let machines = Handle::current();
    let calls_thread = config.proxy.runtime_endpoint.is_some().then(CallThread::start).transpose()?;
    let served_by = calls_thread.as_ref().map_or(&machines, |thread| &thread.handle);
    // Pods of another runtime need nothing of what the start waits for.
    let (listener, proxy) = {
        let _there = served_by.enter();
        (api::socket::open(&socket)?, Proxy::open(&config, (&door, &machines), std::process::id()))
    };
    let (tracer, exporter) = Tracer::start(config.tracing.as_ref(), version);
    let calls = Calls::traced(tracer);
    let calls = if proxy.is_some() { calls.passing_on() } else { calls };
    // Ends with us, should the start fail.
    let mut serving = JoinSet::new();
    let told = stop.clone().cancelled_owned();
    let _telling = match &proxy {
        Some(proxy) => {
            let front = proxy.front();
            serving.spawn_on(api::serve(listener, front.clone(), calls.clone(), told, deadline), served_by);
            // kubelet comes after us, and its containers need nothing of the start.
            Some(AbortOnDropHandle::new(tokio::spawn(async move {
                let _ = tokio::time::timeout(RUNTIME_DEADLINE, front.reaches_runtime()).await;
                notify(&[NotifyState::Ready]);
            })))
        }
        None => {
            serving.spawn(api::serve(listener, door, calls.clone(), told, deadline));
            None
        }
    };
    tracing::info!(socket = %socket.display(), "listening");
    let mut shutdown = pin!(shutdown);
    let started = tokio::select! {
        started = start(config, version, &opener, (&calls, proxy.as_ref())) => started?,
        () = &mut shutdown => {
            tracing::info!("told to end amid the start");
            if proxy.is_some() {
                // Calls of containers may be under way: a start that is cut off is a container that failed.
                stop.cancel();
                serving.join_next().await;
            }
            // Fails only if somebody removed it before.
            let _ = std::fs::remove_file(&socket);
            return Ok(());
        }
    };
    let Started { node, containers, services, mut tasks, _watching, _metrics } = started;
    if let Some(proxy) = &proxy {
        let containers = node.store.containers().into_iter().map(|container| container.id.to_string());
        proxy.warn_of(node.store.sandboxes().into_iter().map(|sandbox| sandbox.id.to_string()).chain(containers));
    }
    opener.open(services);
    tracing::info!(socket = %socket.display(), "serving");
    notify(&[NotifyState::Status("")]);
    if proxy.is_none() {
        notify(&[NotifyState::Ready]);
    }
    let served = tokio::select! {
        // Without being told to: the socket has failed, and this process ends as well.
        served = serving.join_next() => {
            containers.end_checkpoints().await;
            served
        }
        () = shutdown => {
            node.images.stop_pulls();
            node.store.end_changes();
            stop.cancel();
            // No guest stays paused until there is another controld.
            tokio::join!(serving.join_next(), containers.end_checkpoints()).0
        }
    };
    tasks.abort_all();
    let last_spans = async {
        if let Some(exporter) = exporter {
            exporter.end(SPANS_DEADLINE).await;
        }
    };
    // So that the log is empty, which an earlier release does not read. Calls that outlive their deadline may still hold the store.
    let flush = tokio::time::timeout(FLUSH_DEADLINE, node.store.flush());
    match tokio::join!(flush, last_spans).0 {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = %Chain(&error), "records stay in the log; the next start takes them up")
        }
        Err(_elapsed) => {
            tracing::warn!("records not flushed within {} s; they stay in the log", FLUSH_DEADLINE.as_secs())
        }
    }
    // Fails only if somebody removed it before.
    let _ = std::fs::remove_file(&socket);
    tracing::info!("down; machines go on running");
    // There was one task.
    served.map_or(Ok(()), |served| Ok(served??))
}

/// A daemon that can answer.
struct Started {
    node: Node,
    containers: Containers,
    services: Routes,
    tasks: JoinSet<()>,
    _watching: Option<mapping::Watching>,
    _metrics: Option<metrics::Server>,
}

/// Opens all that calls need, and begins what goes on beside them.
async fn start(
    config: Config,
    version: &'static str,
    opener: &Opener,
    edges: (&Calls, Option<&Proxy>),
) -> anyhow::Result<Started> {
    let step = Step { opener, again: edges.1.map(|_| STEP_AGAIN) };
    let config = Arc::new(config);
    let (node, events) = step.made(|| Node::open(config.clone(), |what| opener.waits_for(what))).await?;
    opener.waits_for("the image mappings of the cluster");
    let watching = mapping::start(&config.images, node.images.mappings()).await;
    opener.waits_for("a first look at the emulator");
    node.accel.refresh_wrapper(&config).await;
    let metrics = match config.metrics.address {
        Some(address) => Some(step.made(|| metrics::start(address, node.for_metrics(version), edges)).await?),
        None => None,
    };
    opener.waits_for("the removal of what earlier lives left");
    node.orphans.sweep().await;
    let mutex = KeyedMutex::default();
    let uses = node.for_containers();
    let containers = Containers::new(uses.clone(), mutex.clone());
    let sandboxes = Sandboxes::new(node.for_sandboxes(), containers.clone(), mutex);

    let mut tasks = JoinSet::new();
    tasks.spawn(listen(uses, containers.clone(), events));
    opener.waits_for(format!("its streaming server at `{}`", config.streaming.address));
    let verbs = Verbs::new(containers.clone());
    let bind =
        || Sessions::bind(&config, node.store.clone(), node.agents.clone(), node.consoles.clone(), verbs.clone());
    let sessions = Arc::new(step.made(bind).await?);
    tasks.spawn(node.tap.clone().keep_watch());
    tasks.spawn(give_memory_back(sessions.clone()));
    tasks.spawn(containers.clone().forget_warm_starts_with_images());
    tasks.spawn(reporter::keep(node.config.clone(), node.store.clone(), node.agents.clone(), node.hypervisor.clone()));
    let changes = node.store.changes();
    tasks.spawn(agree::with_tapmanager(sandboxes.clone(), node.tap.clone(), changes, agree::ANEW));
    let accel = node.accel.clone();
    tasks.spawn(async move {
        accel.keep_trying().await;
    });
    opener.waits_for("libvirt, which knows how starts came out that were cut off");
    settle::cut_off_starts(&node.store).await;
    let services = api::services(
        cri::runtime::Runtime::new(node.for_calls(sessions.clone(), version), sandboxes, containers.clone()),
        cri::image::ImageCalls::new(node.images.clone()).noting(node.store.moments().clone()),
        api::Own {
            images: admin::AdminCalls::new(node.images.clone()),
            machines: admin::machines::MachineCalls::new(containers.clone(), sessions),
            orphans: admin::orphans::OrphanCalls::new(node.orphans.clone()),
        },
    );
    Ok(Started { node, containers, services, tasks, _watching: watching, _metrics: metrics })
}

/// Where the start is, as calls are told.
#[derive(Debug, Clone, Copy)]
struct Step<'a> {
    opener: &'a Opener,
    /// How long after a step that failed it is tried again. Else the start fails with it.
    again: Option<Duration>,
}

impl Step<'_> {
    /// Makes a step of the start. Containers of the runtime that we are in front of need none of them: for them we stay, as a process
    /// that ends takes their CRI with it.
    async fn made<T, E: Into<anyhow::Error>>(self, mut step: impl AsyncFnMut() -> Result<T, E>) -> anyhow::Result<T> {
        loop {
            let error: anyhow::Error = match step().await {
                Ok(made) => return Ok(made),
                Err(error) => error.into(),
            };
            let Some(again) = self.again else { return Err(error) };
            let again_s = again.as_secs();
            tracing::error!(
                error = format!("{error:#}"),
                again_s,
                "VMs are not served yet; a step of the start failed and is tried again"
            );
            self.opener.waits_for(format!("a step that failed and is tried again every {again_s} s: {error:#}"));
            // For `systemctl status`.
            notify(&[NotifyState::Status(&format!("VMs are not served yet: {error:#}"))]);
            tokio::time::sleep(again).await;
        }
    }
}

/// Tells systemd, if it started us.
fn notify(states: &[NotifyState<'_>]) {
    // Only with systemd is there somebody to tell.
    let _ = sd_notify::notify(states);
}

/// Where the records are.
fn database(config: &Config) -> PathBuf {
    config.state_dir.join("meta.redb")
}

/// Where pods' disks are.
fn volumes_dir(config: &Config) -> PathBuf {
    config.state_dir.join("volumes")
}

/// Hands libvirt's events to the containers.
async fn listen(uses: Arc<Uses>, containers: Containers, mut events: Receiver<HvEvent>) {
    loop {
        let event = match events.recv().await {
            Ok(event) => event,
            // Missed events are made up for by looking at every machine.
            Err(RecvError::Lagged(_)) => HvEvent::Resync,
            Err(RecvError::Closed) => return,
        };
        if matches!(event, HvEvent::Resync) {
            tokio::spawn(greet(uses.clone()));
            tokio::spawn(look_for_orphans(uses.clone()));
            tokio::spawn(forget_keys(uses.clone()));
        }
        containers.hear(&event);
    }
}

/// Sessions keep much in small pieces, and what lives on was put between them.
async fn give_memory_back(sessions: Arc<Sessions>) {
    loop {
        sessions.all_ended().await;
        off_reactor(memory::give_back).await;
    }
}

/// Asks libvirt who QEMU runs as, which takes it seconds the first time, and tells tapmanager, before a pod has to wait for
/// it. A start does the same again, so a failure only costs that time.
async fn greet(uses: Arc<Uses>) {
    let greeted = async {
        let user = uses.qemu_user().await?;
        uses.tap.hello(Some(user)).await
    };
    if let Err(error) = greeted.await {
        tracing::warn!(error = %Chain(&error), "tapmanager not told who QEMU runs as yet");
    }
}

/// Machines that are on no record are nobody's to remove; somebody is to know of them.
async fn look_for_orphans(uses: Arc<Uses>) {
    if let Err(error) = uses.orphans.look().await {
        tracing::warn!(error = %Chain(&error), "machines not listed; the next connection tries again");
    }
}

/// Keys that a start has left at libvirt which was cut off.
async fn forget_keys(uses: Arc<Uses>) {
    let Err(error) = flexvolume::sweep(&uses.disks).await else { return };
    let what = "keys that a start may have left at libvirt not looked for; the next connection tries again";
    // A libvirt that knows no secrets will do for all other machines.
    if uses.config.flexvolumes.enabled {
        tracing::warn!(error = %Chain(&error), "{what}");
    } else {
        tracing::debug!(error = %Chain(&error), "{what}");
    }
}

fn make_dirs(config: &Config) -> anyhow::Result<()> {
    for (dir, mode) in [
        // QEMU's user passes through most of these to its disks and to tapmanager.
        (config.run_dir.clone(), 0o755),
        // But all machines have that user: libvirt binds their sockets itself, and none reaches another's.
        (config.run_dir.join("console"), 0o700),
        (config.run_dir.join("seed"), 0o711),
        (config.run_dir.join("share"), 0o700),
        (config.state_dir.clone(), STATE_MODE),
        (config.state_dir.join("console"), 0o711),
    ] {
        make_dir(&dir, mode)?;
    }
    Ok(())
}

fn signalled() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn init_log(config: &LogConfig) -> anyhow::Result<()> {
    // kube tells every failed request as an error of its own; the watch tells once what it means.
    let filter = tracing_subscriber::EnvFilter::try_new(format!("kube_client=off,{}", config.level))?;
    let look = match config.format {
        LogFormat::Text => Look::Text,
        LogFormat::Json => Look::Json,
    };
    log::start(filter, look, Journal::of_stderr(config::journal_stream().as_deref(), "controld")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::STATE_MODE;

    #[test]
    fn systemd_gives_the_state_directory_the_mode_that_we_do() {
        for unit in [include_str!("../../deploy/controld.service"), include_str!("../../deploy/tapmanager.service")] {
            let modes: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("StateDirectoryMode=")).collect();
            assert_eq!(modes, [format!("{STATE_MODE:04o}")], "without a mode systemd opens it to everybody:\n{unit}");
        }
    }
}
