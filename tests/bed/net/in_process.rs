//! The daemon inside the bed's own process, where it can be told to fail at a step, or to die at one.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use tapmanager::config::Config;
use tapmanager::daemon;
use tapmanager::faults::Faults;
use tapmanager::spawner::Spawner;
use tests::case::Bed;
use tests::cni;
use tests::net_node::Taps;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// First argument of a bed that is a daemon which dies at a step.
pub(crate) const DOOMED: &str = "doomed-tapmanager";

/// A daemon of this process.
pub(super) struct InProcess {
    pub(super) faults: Arc<Faults>,
    pub(super) taps: Taps,
    shutdown: CancellationToken,
    thread: JoinHandle<Result<()>>,
}

impl InProcess {
    pub(super) fn start(bed: &Bed, faults: Faults) -> Result<Self> {
        let faults = Arc::new(faults);
        let shutdown = CancellationToken::new();
        let (config, told, injected) = (config(bed.vmwrapper()), shutdown.clone(), Arc::clone(&faults));
        let thread = std::thread::spawn(move || serve(config, injected, told));
        let taps = Taps::default();
        taps.hello(|| if thread.is_finished() { Err(anyhow!("the daemon ended")) } else { Ok(()) })?;
        Ok(Self { faults, taps, shutdown, thread })
    }

    pub(super) fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        self.thread.join().map_err(|_| anyhow!("the daemon panicked"))?
    }
}

/// Serves until the `step`-th step kills this process.
///
/// # Errors
/// When the daemon does not start.
pub(crate) fn serve_until(step: &str, vmwrapper: &str, plugins: &str) -> Result<()> {
    let config = Config { cni_plugin_dirs: vec![plugins.into()], ..config(vmwrapper.into()) };
    serve(config, Arc::new(Faults::die_at_step(step.parse()?)), CancellationToken::new())
}

fn config(vmwrapper: PathBuf) -> Config {
    Config { cni_plugin_dirs: vec![cni::debian_plugins()], vmwrapper, ..Config::default() }
}

fn serve(config: Config, faults: Arc<Faults>, shutdown: CancellationToken) -> Result<()> {
    let runtime = Runtime::new()?;
    let spawner = Spawner::in_process(&config.cni_plugin_dirs, &config.plugin_locks())?;
    runtime.block_on(daemon::run(config, spawner, faults, shutdown.cancelled_owned()))?;
    Ok(())
}
