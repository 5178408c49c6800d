//! Starts that take long: in waiting for their turn, and in libvirt's own call.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use proto::cri::ContainerState;
use tests::case::{Bed, Case};
use tests::controld_metrics::{self, ADDRESS};
use tests::cri;
use tests::libvirt::running_domains;
use tests::node::Node;
use tests::pace;
use tests::wait::wait_until;
use tests::world::World;

use super::stand_in;

const DEADLINE: Duration = Duration::from_secs(480);
/// Until a start has come to vmwrapper.
const START: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(30);
/// How many machines libvirt is asked to start at a time.
const TURNS: usize = 4;
/// How long a token is good here, in seconds on a quiet machine: enough for a start that does not wait.
const TOKEN: u32 = 10;

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_start_gets_its_token_when_it_has_its_turn", deadline: DEADLINE, run: long_wait },
    Case { name: "vm::a_stop_ends_a_start_that_hangs", deadline: DEADLINE, run: hanging_start },
];

fn long_wait(bed: &Bed) -> Result<()> {
    let (arrived, go) = (meeting_place(bed)?, bed.dir.join("go"));
    let body = format!(
        "touch {}/$$\nwhile [ ! -e {} ]; do sleep 0.1; done\nexec \"$real\" \"$@\"",
        arrived.display(),
        go.display()
    );
    let mut node = stand_in::node(bed, &body, &format!("metrics.address = '{ADDRESS}'"))?;
    let life = pace::stretched(Duration::from_secs(TOKEN.into()));
    short_tokens(&mut node, life)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let pods = (0..=TURNS).map(|n| {
        let pod = node.pod(&format!("turn-{n}"))?;
        let sandbox = node.cri.run_sandbox(&pod)?;
        let container = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod)?;
        Ok((sandbox, container))
    });
    let pods = pods.collect::<Result<Vec<_>>>()?;
    let ((_, last), held) = pods.split_last().context("no pods")?;

    std::thread::scope(|scope| {
        let held: Vec<_> = held.iter().map(|(_, held)| scope.spawn(|| node.cri.start(held))).collect();
        wait_until("starts that have come to vmwrapper", START, || {
            fs::read_dir(&arrived).is_ok_and(|seen| seen.count() == TURNS)
        })?;
        let all_armed = Instant::now();
        let waiting = scope.spawn(|| node.cri.start(last));
        wait_until("one start more", START, || starting() == Some(TURNS + 1))?;
        wait_until("end of the tokens' life", life + GRACE, || all_armed.elapsed() > life + Duration::from_secs(1))?;
        let seeds = fs::read_dir("/run/virtlet/seed")?.count();
        fs::write(&go, "")?;
        ensure!(seeds == TURNS, "{seeds} seeds lay there for {TURNS} machines");
        for held in held {
            let refused = joined(held).err().context("a token was good for longer than it may be")?;
            ensure!(refused.message().contains("lapsed"), "{refused}");
        }
        joined(waiting).context("the start that waited")
    })?;
    ensure!(node.cri.state(last)? == ContainerState::ContainerRunning, "it does not run");
    for (sandbox, container) in &pods {
        node.cri.stop(container, Duration::ZERO)?;
        node.cri.remove(container)?;
        node.cri.remove_sandbox(sandbox)?;
    }
    Ok(())
}

fn hanging_start(bed: &Bed) -> Result<()> {
    let arrived = meeting_place(bed)?;
    let body = format!("touch {}/$$\nexec sleep 1000", arrived.display());
    // Longer than the case.
    let node = stand_in::node(bed, &body, "machine.start_deadline_s = 3600")?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let pod = node.pod("hangs")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let container = node.cri.create(&sandbox, &cri::container(&image, [].into()), &pod)?;
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| node.cri.start(&container));
        wait_until("start that has come to vmwrapper", START, || {
            fs::read_dir(&arrived).is_ok_and(|seen| seen.count() == 1)
        })?;
        node.cri.stop(&container, GRACE)?;
        let refused = joined(starting).err().context("a machine of `sleep` was started")?;
        ensure!(refused.message().contains("stopped while it was being started"), "{refused}");
        anyhow::Ok(())
    })?;
    ensure!(node.cri.state(&container)? == ContainerState::ContainerExited, "stopped and not ended");
    ensure!(running_domains()?.is_empty(), "a domain runs");
    node.cri.remove(&container)?;
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same()
}

/// A directory in which QEMU's user may leave a mark.
fn meeting_place(bed: &Bed) -> Result<PathBuf> {
    let dir = bed.dir.join("arrived");
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
    Ok(dir)
}

fn short_tokens(node: &mut Node, life: Duration) -> Result<()> {
    node.net.tapmanager.terminate()?;
    let mut config = OpenOptions::new().append(true).open("/etc/virtlet/tapmanager.toml")?;
    writeln!(config, "arm_ttl_s = {}", life.as_secs())?;
    node.net.tapmanager.start_again()?;
    node.net.wait_ready()?;
    node.wait_ready()
}

/// How many machines are being started, as the node's metrics say.
fn starting() -> Option<usize> {
    let page = controld_metrics::page().ok()?;
    let figure = page.lines().find_map(|line| line.strip_prefix("virtlet_machines{state=\"starting\"} "))?;
    figure.parse().ok()
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
