//! `tapmanager` alone: Attach and Detach without the time of CNI's plugins, beside raw netlink; the same with many pods
//! on the node.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use proto::tap::PodId;
use serde::Deserialize;
use tests::case::Bed;
use tests::cni::{self, Network};
use tests::command::{command, run};
use tests::net_node::{Taps, pod_id};
use tests::node::Node;

use super::report::{Pair, Row};
use super::{baseline, p50, timed};

const ROUNDS: usize = 5;
/// Pods of a round, one after another.
const PODS: u32 = 16;
/// Pods of a round that are attached, then detached, all at once.
pub(super) const AT_ONCE: u32 = 8;
/// Pods on a node that has few, and on one that has many.
const FEW: u32 = 10;
const MANY: u32 = 500;
/// Attaches by which a node with that many pods is judged.
const PROBES: u32 = 31;
/// What is promised for each pod's share of the daemon's memory.
const PROMISED_RSS: f64 = 60.0 * 1024.0;

/// What `netfloor` prints.
#[derive(Debug, Deserialize)]
pub(super) struct Floor {
    pub(super) create_us: f64,
    pub(super) delete_us: f64,
}

/// Microseconds of one pod's Attach and Detach, less its share of the time in plugins.
#[derive(Debug, Clone, Copy)]
struct Cost {
    attach: f64,
    detach: f64,
}

/// How many are attached at a time, of [`CROWD`]. The last is the most that is asked of a node at once.
const WIDTHS: [u32; 6] = [1, 4, 8, 16, 32, CROWD];
const CROWD: u32 = 64;
const CROWDS: usize = 5;
/// What is promised: this much of the best rate.
const KEPT: f64 = 0.95;

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let netfloor = baseline(bed, "netfloor")?;
    let taps = &Taps::clone(&node.net);
    // The bridge is made by the first pod.
    one_by_one(taps, 0..1)?;
    let [mut attaches, mut detaches, mut attaches_at_once, mut detaches_at_once] = [const { Vec::new() }; 4];
    for _round in 0..ROUNDS {
        let ours = one_by_one(taps, 0..PODS)?;
        let least = floor(&netfloor, PODS)?;
        attaches.push(Pair { ours: ours.attach, baseline: least.create_us });
        detaches.push(Pair { ours: ours.detach, baseline: least.delete_us });
        let ours = at_once(taps)?;
        let least = floors_at_once(&netfloor)?;
        attaches_at_once.push(Pair { ours: ours.attach, baseline: least.create_us });
        detaches_at_once.push(Pair { ours: ours.detach, baseline: least.delete_us });
    }
    let mut rows = crowds(taps)?;
    cni::install(&wide()?)?;
    let crowd = crowd(node, &netfloor)?;
    cni::install(&Network::BRIDGE.conflist().to_string())?;
    let promise = |name, unit, target, pairs| Row { name, unit, target: Some(target), pairs };
    rows.extend([
        promise("Attach less plugins / netlink", "us", 2.0, attaches),
        promise("Detach less plugins / netlink", "us", 2.0, detaches),
        promise("Attach less plugins / netlink, 8 at a time", "us", 2.0, attaches_at_once),
        promise("Detach less plugins / netlink, 8 at a time", "us", 2.0, detaches_at_once),
        // The kernel itself takes longer with as many namespaces and links: what we grow beyond that.
        promise("Attach less plugins: at 500 pods / at 10, beyond the floor's", "x", 1.2, vec![crowd.growth()]),
        Row { name: "(Attach less plugins: at 500 pods / at 10)", unit: "us", target: None, pairs: vec![crowd.attach] },
        Row { name: "(netlink alone: at 500 pods / at 10)", unit: "us", target: None, pairs: vec![crowd.floor] },
        promise("tapmanager's RSS per pod / 60 KiB", "B", 1.0, vec![crowd.rss]),
    ]);
    Ok(rows)
}

/// Time for each pod of a crowd, plugins included, by how many are worked on at a time. The best of several widths is better
/// than each of them by chance alone, so it is the medians of the rounds that are compared.
fn crowds(taps: &Taps) -> Result<Vec<Row>> {
    let [mut attaches, mut detaches] = [const { [const { Vec::new() }; WIDTHS.len()] }; 2];
    for _round in 0..CROWDS {
        for (place, width) in WIDTHS.into_iter().enumerate() {
            attaches[place].push(crowd_of(width, |pod| taps.attach(pod).map(drop))?);
            detaches[place].push(crowd_of(width, |pod| taps.detach(pod))?);
        }
    }
    let names = [
        ["(a pod's Attach, 1 at a time / 64)", "(a pod's Detach, 1 at a time / 64)"],
        ["(a pod's Attach, 4 at a time / 64)", "(a pod's Detach, 4 at a time / 64)"],
        ["(a pod's Attach, 8 at a time / 64)", "(a pod's Detach, 8 at a time / 64)"],
        ["(a pod's Attach, 16 at a time / 64)", "(a pod's Detach, 16 at a time / 64)"],
        ["(a pod's Attach, 32 at a time / 64)", "(a pod's Detach, 32 at a time / 64)"],
    ];
    let [narrower @ .., widest] = attaches.clone().map(p50);
    let mut best = f64::INFINITY;
    for time in narrower {
        best = best.min(time?);
    }
    let row = |name, target, pairs| Row { name, unit: "ms", target, pairs };
    let judged = vec![Pair { ours: widest?, baseline: best }];
    let mut rows = vec![row("a pod's Attach, 64 at a time / best of 1 to 32", Some(1.0 / KEPT), judged)];
    for (of, times) in [attaches, detaches].into_iter().enumerate() {
        let [narrower @ .., widest] = times;
        for (names, times) in names.into_iter().zip(narrower) {
            let pairs = times.into_iter().zip(&widest).map(|(ours, baseline)| Pair { ours, baseline: *baseline });
            rows.push(row(names[of], None, pairs.collect()));
        }
    }
    Ok(rows)
}

/// Milliseconds of each pod of a crowd that is worked on `width` at a time.
fn crowd_of(width: u32, work: impl Fn(&PodId) -> Result<()> + Sync) -> Result<f64> {
    let (micros, ()) = timed(|| each(0..CROWD, width, work))?;
    Ok(micros / f64::from(CROWD) / 1e3)
}

/// The bridge with room for more pods than a /24 has.
pub(super) fn wide() -> Result<String> {
    let plain = Network::BRIDGE.conflist().to_string();
    let wide = plain.replace("10.77.0.0/24", "10.78.0.0/16").replace("cni0", "crowd0");
    ensure!(wide != plain, "the network is another: {plain}");
    Ok(wide)
}

fn one_by_one(taps: &Taps, pods: std::ops::Range<u32>) -> Result<Cost> {
    let [mut attaches, mut detaches] = [const { Vec::new() }; 2];
    for n in pods {
        let pod = pod_id(n)?;
        attaches.push(less_plugins(taps, || taps.attach(&pod).map(drop))?);
        detaches.push(less_plugins(taps, || taps.detach(&pod))?);
    }
    Ok(Cost { attach: p50(attaches)?, detach: p50(detaches)? })
}

fn at_once(taps: &Taps) -> Result<Cost> {
    Ok(Cost {
        attach: all_at_once(taps, |taps, pod| taps.attach(pod).map(drop))?,
        detach: all_at_once(taps, Taps::detach)?,
    })
}

/// The mean of the pods' times less the time in plugins: which plugin was whose is not told.
fn all_at_once(taps: &Taps, work: impl Fn(&Taps, &PodId) -> Result<()> + Sync) -> Result<f64> {
    let before = taps.status()?.plugin_micros;
    let times: Vec<f64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|n| {
                let work = &work;
                scope.spawn(move || timed(|| work(taps, &pod_id(n)?)).map(|(micros, ())| micros))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?)
            .collect::<Result<_>>()
    })?;
    let whole: f64 = times.iter().sum();
    Ok((whole - micros(taps.status()?.plugin_micros - before)) / f64::from(AT_ONCE))
}

fn less_plugins(taps: &Taps, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = taps.status()?.plugin_micros;
    let (whole, ()) = timed(work)?;
    Ok(whole - micros(taps.status()?.plugin_micros - before))
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a bench")]
pub(super) const fn micros(count: u64) -> f64 {
    count as f64
}

/// `netfloor` on `pods` pods, in namespaces of its own.
pub(super) fn floor(netfloor: &Path, pods: u32) -> Result<Floor> {
    let script = format!("mount -t tmpfs none /run && mkdir /run/netns && exec {} {pods}", netfloor.display());
    let said = run(&mut command("unshare", ["--net", "--mount", "sh", "-c", &script]))?;
    serde_json::from_str(&said).with_context(|| format!("netfloor said `{said}`"))
}

/// As many of it as there are clients at a time; the medians of what they say.
pub(super) fn floors_at_once(netfloor: &Path) -> Result<Floor> {
    let floors: Vec<Floor> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| floor(netfloor, PODS))).collect();
        workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a floor panicked"))?).collect::<Result<_>>()
    })?;
    Ok(Floor {
        create_us: p50(floors.iter().map(|floor| floor.create_us).collect())?,
        delete_us: p50(floors.iter().map(|floor| floor.delete_us).collect())?,
    })
}

struct Crowd {
    attach: Pair,
    floor: Pair,
    rss: Pair,
}

impl Crowd {
    /// How many times as long an Attach takes at many pods, beside how many times as long the floor does.
    fn growth(&self) -> Pair {
        Pair { ours: self.attach.ours / self.attach.baseline, baseline: self.floor.ours / self.floor.baseline }
    }
}

fn crowd(node: &Node, netfloor: &Path) -> Result<Crowd> {
    let taps: &Taps = &node.net;
    let fill = |pods: std::ops::Range<u32>| -> Result<()> { each(pods, AT_ONCE, |pod| taps.attach(pod).map(drop)) };
    // Beyond the pods that stay.
    let probe = || -> Result<(f64, f64)> {
        Ok((one_by_one(taps, MANY..MANY + PROBES)?.attach, floor(netfloor, PROBES)?.create_us))
    };
    fill(0..FEW)?;
    let ((few, floor_at_few), small) = (probe()?, rss(node)?);
    fill(FEW..MANY)?;
    let ((many, floor_at_many), large) = (probe()?, rss(node)?);
    each(0..MANY, AT_ONCE, |pod| taps.detach(pod))?;
    ensure!(large > small, "{} pods more took no memory: {small} and {large} bytes", MANY - FEW);
    Ok(Crowd {
        attach: Pair { ours: many, baseline: few },
        floor: Pair { ours: floor_at_many, baseline: floor_at_few },
        rss: Pair { ours: (large - small) / f64::from(MANY - FEW), baseline: PROMISED_RSS },
    })
}

/// `work` on each pod, so many at a time.
fn each(pods: std::ops::Range<u32>, at_once: u32, work: impl Fn(&PodId) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once)
            .map(|worker| {
                let (work, pods) = (&work, pods.clone());
                scope.spawn(move || {
                    pods.skip(worker as usize).step_by(at_once as usize).try_for_each(|n| work(&pod_id(n)?))
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?)
    })
}

/// Resident bytes of the daemon, its spawner not counted.
fn rss(node: &Node) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", node.net.tapmanager.pid()?))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS is no number")?;
    Ok(kib * 1024.0)
}
