//! Attach that fails after each of its steps in turn, on the real kernel with real plugins: nothing is left, and the
//! next Attach of the same pod succeeds. The daemon runs in this process, told where to fail.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tapmanager::config::Config;
use tapmanager::daemon;
use tapmanager::faults::Faults;
use tapmanager::spawner::Spawner;
use tests::case::{Bed, Case};
use tests::cni::{self, Kind, Network};
use tests::net_node::{Taps, pod_id};
use tests::world::World;
use tokio_util::sync::CancellationToken;

/// Some twenty steps, each with two attaches; ptp waits seconds for the addresses of each.
const DEADLINE: Duration = Duration::from_secs(400);
/// An Attach has fewer steps than this, or the loop would never end.
const TOO_MANY: usize = 100;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "net::a_failure_at_any_step_is_undone_bridge",
        deadline: DEADLINE,
        run: |bed| every_step(bed, Kind::Bridge),
    },
    Case {
        name: "net::a_failure_at_any_step_is_undone_ptp",
        deadline: DEADLINE,
        run: |bed| every_step(bed, Kind::Ptp),
    },
];

fn every_step(bed: &Bed, kind: Kind) -> Result<()> {
    let network = Network { kind, masquerade: true, hairpin: false };
    cni::install(&network.conflist().to_string())?;
    let pod = pod_id(1)?;
    let steps = steps_of_an_attach(bed)?;
    ensure!((4..TOO_MANY).contains(&steps), "an Attach has {steps} steps");
    for step in 1..=steps {
        let daemon = InProcess::start(bed, Faults::after_step(step))?;
        let before = World::settled()?;
        let failed = daemon.taps.attach(&pod).err().with_context(|| format!("step {step} did not fail"))?;
        let failed = failed.to_string();
        ensure!(failed.contains("injected after step"), "step {step} failed by itself: {failed}");
        before.assert_same().with_context(|| format!("after: {failed}"))?;
        daemon.taps.attach(&pod).with_context(|| format!("next Attach after: {failed}"))?;
        daemon.taps.detach(&pod)?;
        before.assert_same().with_context(|| format!("after the Detach that followed: {failed}"))?;
        daemon.stop()?;
    }
    Ok(())
}

fn steps_of_an_attach(bed: &Bed) -> Result<usize> {
    let daemon = InProcess::start(bed, Faults::none())?;
    let pod = pod_id(1)?;
    daemon.taps.attach(&pod)?;
    let steps = daemon.faults.steps_seen();
    daemon.taps.detach(&pod)?;
    daemon.stop()?;
    Ok(steps)
}

struct InProcess {
    faults: Arc<Faults>,
    taps: Taps,
    shutdown: CancellationToken,
    thread: JoinHandle<Result<()>>,
}

impl InProcess {
    fn start(bed: &Bed, faults: Faults) -> Result<Self> {
        let faults = Arc::new(faults);
        let shutdown = CancellationToken::new();
        let config =
            Config { cni_plugin_dirs: vec![cni::debian_plugins()], vmwrapper: bed.vmwrapper(), ..Config::default() };
        let (told, injected) = (shutdown.clone(), Arc::clone(&faults));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let spawner = Spawner::in_process(&config.cni_plugin_dirs, &config.plugin_locks())?;
            runtime.block_on(daemon::run(config, spawner, injected, told.cancelled_owned()))?;
            Ok(())
        });
        let taps = Taps::default();
        taps.hello(|| if thread.is_finished() { Err(anyhow!("the daemon ended")) } else { Ok(()) })?;
        Ok(Self { faults, taps, shutdown, thread })
    }

    fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        self.thread.join().map_err(|_| anyhow!("the daemon panicked"))?
    }
}
