//! Sandboxes without the time of CNI's plugins, beside raw netlink and nothing else.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow};
use proto::cri::{RemovePodSandboxRequest, StopPodSandboxRequest};
use tests::case::Bed;
use tests::node::Node;

use super::attach::{AT_ONCE, Floor, floor, floors_at_once, micros};
use super::report::{Pair, Row};
use super::{baseline, p50, timed};

const ROUNDS: usize = 9;
const SANDBOXES: u32 = 15;
const SCRATCH: &str = "/var/lib/virtlet/bench";

/// Microseconds of a sandbox, less the time inside plugins.
struct Cost {
    run: f64,
    stop: f64,
}

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let netfloor = baseline(bed, "netfloor")?;
    fs::create_dir(SCRATCH)?;
    // The bridge is made by the first pod.
    one_by_one(node, 1)?;
    let [mut alone, mut at_a_time] = [const { Vec::new() }; 2];
    for _round in 0..ROUNDS {
        let durable = p50((0..SANDBOXES).map(|_| durable_write(0)).collect::<Result<_>>()?)?;
        alone.push((one_by_one(node, SANDBOXES)?, floor(&netfloor, SANDBOXES)?, durable));
        let durable = durable_writes_at_once()?;
        at_a_time.push((at_once(node)?, floors_at_once(&netfloor)?, durable));
    }
    let run = |rounds: &[(Cost, Floor, f64)]| {
        rounds.iter().map(|(ours, floor, _)| Pair { ours: ours.run, baseline: floor.create_us }).collect()
    };
    let durable_run = |rounds: &[(Cost, Floor, f64)]| {
        let pair =
            |(ours, floor, durable): &(Cost, Floor, f64)| Pair { ours: ours.run, baseline: floor.create_us + durable };
        rounds.iter().map(pair).collect()
    };
    let durable_stop = |rounds: &[(Cost, Floor, f64)]| {
        let pair =
            |(ours, floor, durable): &(Cost, Floor, f64)| Pair { ours: ours.stop, baseline: floor.delete_us + durable };
        rounds.iter().map(pair).collect()
    };
    let row = |name, target, pairs| Row { name, unit: "us", target, pairs };
    Ok(vec![
        row("RunPodSandbox less plugins / netlink", Some(2.0), run(&alone)),
        row("(RunPodSandbox less plugins / netlink + 1 durable write)", None, durable_run(&alone)),
        row("StopPodSandbox less plugins / netlink + 1 durable write", Some(1.5), durable_stop(&alone)),
        row("RunPodSandbox less plugins / netlink, 8 at a time", Some(1.5), run(&at_a_time)),
        row("StopPodSandbox less plugins / netlink + 1 write, 8 at a time", Some(1.5), durable_stop(&at_a_time)),
    ])
}

fn one_by_one(node: &Node, sandboxes: u32) -> Result<Cost> {
    let [mut runs, mut stops] = [const { Vec::new() }; 2];
    for _sandbox in 0..sandboxes {
        let ((whole, sandbox), plugins) = beside_plugins(node, || timed(|| run(node, 0)))?;
        runs.push(whole - plugins);
        let ((whole, ()), plugins) = beside_plugins(node, || timed(|| stop(node, &sandbox)))?;
        stops.push(whole - plugins);
        remove(node, &sandbox)?;
    }
    Ok(Cost { run: p50(runs)?, stop: p50(stops)? })
}

/// The mean of the sandboxes' times less the time in plugins: which plugin was whose is not told.
fn at_once(node: &Node) -> Result<Cost> {
    let [mut runs, mut stops] = [const { Vec::new() }; 2];
    for _batch in 0..SANDBOXES.div_ceil(AT_ONCE) {
        let (made, plugins) = beside_plugins(node, || all(|n| run(node, n)))?;
        let (times, sandboxes): (Vec<f64>, Vec<String>) = made.into_iter().unzip();
        runs.push((times.iter().sum::<f64>() - plugins) / f64::from(AT_ONCE));
        let stop_one = |n: u32| sandboxes.get(n as usize).map_or(Ok(()), |sandbox| stop(node, sandbox));
        let (ended, plugins) = beside_plugins(node, || all(stop_one))?;
        stops.push((ended.iter().map(|(time, ())| time).sum::<f64>() - plugins) / f64::from(AT_ONCE));
        sandboxes.iter().try_for_each(|sandbox| remove(node, sandbox))?;
    }
    Ok(Cost { run: p50(runs)?, stop: p50(stops)? })
}

/// What `work` makes, and the microseconds inside plugins meanwhile.
fn beside_plugins<T>(node: &Node, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let before = node.net.status()?.plugin_micros;
    let made = work()?;
    Ok((made, micros(node.net.status()?.plugin_micros - before)))
}

/// `work` for each of [`AT_ONCE`] clients at the same time: its time and what it made.
fn all<T: Send>(work: impl Fn(u32) -> Result<T> + Sync) -> Result<Vec<(f64, T)>> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..AT_ONCE).map(|n| (n, &work)).collect();
        let clients: Vec<_> = clients.into_iter().map(|(n, work)| scope.spawn(move || timed(|| work(n)))).collect();
        clients.into_iter().map(|client| client.join().map_err(|_| anyhow!("a client panicked"))?).collect()
    })
}

fn run(node: &Node, n: u32) -> Result<String> {
    Ok(node.cri.run_sandbox(&node.pod(&format!("bench-{n}"))?)?)
}

fn stop(node: &Node, sandbox: &str) -> Result<()> {
    let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
    node.cri.call(|mut client| async move { client.stop_pod_sandbox(request).await })?;
    Ok(())
}

fn remove(node: &Node, sandbox: &str) -> Result<()> {
    let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
    node.cri.call(|mut client| async move { client.remove_pod_sandbox(request).await })?;
    Ok(())
}

/// Microseconds of the least that makes 1 KiB survive a power cut.
fn durable_write(n: u32) -> Result<f64> {
    let dir = Path::new(SCRATCH);
    let (new, record) = (dir.join(format!("new-{n}")), dir.join(format!("record-{n}")));
    let written = || -> Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(&[b'x'; 1024])?;
        file.sync_all()?;
        fs::rename(&new, &record)?;
        Ok(File::open(dir)?.sync_all()?)
    };
    Ok(timed(written)?.0)
}

/// As many of them as there are clients at a time, each several times: the median one.
fn durable_writes_at_once() -> Result<f64> {
    let batches: Vec<_> = (0..SANDBOXES.div_ceil(AT_ONCE)).map(|_| all(durable_write)).collect::<Result<_>>()?;
    p50(batches.into_iter().flatten().map(|(_, micros)| micros).collect())
}
