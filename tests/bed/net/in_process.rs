//! The daemon inside a process of the bed, where it can be told to fail at a step, or, in a process of its own, to die at one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use tapmanager::config::Config;
use tapmanager::daemon;
use tapmanager::faults::Faults;
use tapmanager::spawner::Spawner;
use tests::case::Bed;
use tests::cni;
use tests::daemon::Daemon;
use tests::net_node::Taps;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// First argument of a bed that is a daemon which dies at a step.
pub(crate) const DOOMED: &str = "doomed-tapmanager";

const DEATH_DEADLINE: Duration = Duration::from_secs(120);

/// A daemon that `kill -9` hits at a step of what it does.
pub(crate) struct Doomed {
    daemon: Daemon,
    step: usize,
    pub(crate) taps: Taps,
}

impl Doomed {
    pub(crate) fn start(bed: &Bed, step: usize, plugins: &Path) -> Result<Self> {
        let words = [DOOMED.into(), step.to_string().into(), bed.vmwrapper().into_os_string(), plugins.into()];
        let mut daemon = Daemon::start("doomed", bed.itself(), words, bed.logs().join("doomed.log"))?;
        let taps = Taps::default();
        taps.hello(|| daemon.still_runs())?;
        Ok(Self { daemon, step, taps })
    }

    /// Whether it lives on, `done` being whether it did all that it was asked. It does not any more then.
    ///
    /// # Errors
    /// When it ended otherwise than by a signal.
    pub(crate) fn outlived(mut self, done: bool) -> Result<bool> {
        let outlived = done && self.daemon.still_runs().is_ok();
        if outlived {
            self.daemon.kill9()?;
        } else {
            let step = self.step;
            ensure!(self.daemon.ended(DEATH_DEADLINE)?.is_none(), "step {step}: ended otherwise than by a signal");
        }
        Ok(outlived)
    }
}

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
