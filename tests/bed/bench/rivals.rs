//! Pod sandboxes beside containerd's: the same CNI configuration, plugins and client, in the same minute.
//!
//! Two releases of it: Debian's 1.6, which is the faster one, and the newest. A sandbox of theirs has a process in it, which
//! ours does not need before its machine starts; kubelet waits for both alike.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use proto::cri::{RemovePodSandboxRequest, StatusRequest, StopPodSandboxRequest};
use tests::case::Bed;
use tests::cni;
use tests::containerd::{Containerd, Release};
use tests::cri::Cri;
use tests::node::Node;
use tests::pss::pss;

use super::memory::OURS;
use super::report::{Pair, Row};
use super::{baseline, p50, timed};

/// Most memory of both daemons with [`STANDING`] sandboxes, in KiB.
const BOUND: f64 = 40e6 / 1024.0;
const ROUNDS: usize = 5;
/// Sandboxes of a round, by how many there are at a time.
const LIVES: [(usize, usize); 3] = [(1, 8), (4, 24), (8, 32)];
/// Sandboxes that stand while memory is counted.
const STANDING: usize = 50;
const STATUSES: usize = 101;
/// Where a daemon's time is counted, with that of its children.
const ACCOUNTS: &str = "/sys/fs/cgroup/cpuacct";

/// A runtime that is measured.
struct Side<'a> {
    name: &'static str,
    cri: &'a Cri,
    node: &'a Node,
    account: PathBuf,
    /// What its processes are called: all of them count.
    programs: &'static [&'static str],
}

/// Microseconds of one round.
struct Cost {
    run: f64,
    whole: f64,
    /// Of processors, for each sandbox.
    busy: f64,
}

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let mut rows = against(bed, node, Release::Debian, &DEBIAN)?;
    rows.extend(against(bed, node, Release::Newest, &NEWEST)?);
    Ok(rows)
}

/// The names of the rows beside one release, and what they are to reach; only Debian's, the faster one, sets targets.
struct Names {
    run: [&'static str; 3],
    whole: [&'static str; 3],
    busy: &'static str,
    memory: &'static str,
    status: &'static str,
    targets: Option<Targets>,
}

struct Targets {
    run: [f64; 3],
    whole: [f64; 3],
    busy: f64,
    memory: f64,
    status: f64,
}

const DEBIAN: Names = Names {
    run: [
        "RunPodSandbox / containerd 1.6",
        "RunPodSandbox / containerd 1.6, 4 at a time",
        "RunPodSandbox / containerd 1.6, 8 at a time",
    ],
    whole: [
        "Run, Stop, Remove / containerd 1.6",
        "Run, Stop, Remove / containerd 1.6, 4 at a time",
        "Run, Stop, Remove / containerd 1.6, 8 at a time",
    ],
    busy: "processor time for a sandbox / containerd 1.6",
    memory: "PSS with 50 sandboxes / containerd 1.6",
    status: "Status / containerd 1.6",
    targets: Some(Targets {
        run: [0.18, 0.15, 0.15],
        whole: [0.22, 0.16, 0.16],
        busy: 0.16,
        memory: 0.15,
        status: 0.8,
    }),
};

const NEWEST: Names = Names {
    run: [
        "(RunPodSandbox / containerd 2.4)",
        "(RunPodSandbox / containerd 2.4, 4 at a time)",
        "(RunPodSandbox / containerd 2.4, 8 at a time)",
    ],
    whole: [
        "(Run, Stop, Remove / containerd 2.4)",
        "(Run, Stop, Remove / containerd 2.4, 4 at a time)",
        "(Run, Stop, Remove / containerd 2.4, 8 at a time)",
    ],
    busy: "(processor time for a sandbox / containerd 2.4)",
    memory: "(PSS with 50 sandboxes / containerd 2.4)",
    status: "(Status / containerd 2.4)",
    targets: None,
};

fn against(bed: &Bed, node: &Node, release: Release, names: &Names) -> Result<Vec<Row>> {
    let rival = Containerd::start(bed, release, &cni::debian_plugins(), &baseline(bed, "pause")?)?;
    let ours = Side {
        name: "ours",
        cri: &node.cri,
        node,
        account: account("ours", &[node.controld.pid()?, node.net.tapmanager.pid()?])?,
        programs: OURS,
    };
    let theirs = Side {
        name: "theirs",
        cri: &rival.cri,
        node,
        account: account("theirs", &[rival.daemon.pid()?])?,
        programs: &["containerd", "containerd-shim", "pause"],
    };
    let mut rows = Vec::new();
    for side in [&ours, &theirs] {
        // The first makes what stays: bridge, connections, caches.
        side.lives(1, 2)?;
    }
    let mut busy = Vec::new();
    for (place, (at_once, lives)) in LIVES.into_iter().enumerate() {
        let [mut runs, mut wholes] = [const { Vec::new() }; 2];
        for _round in 0..ROUNDS {
            let (mine, other) = (ours.lives(at_once, lives)?, theirs.lives(at_once, lives)?);
            runs.push(Pair { ours: mine.run, baseline: other.run });
            wholes.push(Pair { ours: mine.whole, baseline: other.whole });
            busy.push(Pair { ours: mine.busy, baseline: other.busy });
        }
        let target = |of: fn(&Targets) -> &[f64; 3]| names.targets.as_ref().and_then(|all| of(all).get(place).copied());
        for (names, target, pairs) in
            [(&names.run, target(|all| &all.run), runs), (&names.whole, target(|all| &all.whole), wholes)]
        {
            let name = names.get(place).context("a row without a name")?;
            rows.push(Row { name, unit: "us", target, pairs });
        }
    }
    let target = |of: fn(&Targets) -> f64| names.targets.as_ref().map(of);
    rows.push(Row { name: names.busy, unit: "us", target: target(|all| all.busy), pairs: busy });
    let memory = Pair { ours: ours.memory()?, baseline: theirs.memory()? };
    if names.targets.is_some() {
        let bound = Pair { ours: memory.ours, baseline: BOUND };
        rows.push(Row { name: "PSS with 50 sandboxes / 40 MB", unit: "KiB", target: Some(1.0), pairs: vec![bound] });
    }
    rows.push(Row { name: names.memory, unit: "KiB", target: target(|all| all.memory), pairs: vec![memory] });
    let mut statuses = Vec::new();
    for _round in 0..ROUNDS {
        statuses.push(Pair { ours: ours.status()?, baseline: theirs.status()? });
    }
    rows.push(Row { name: names.status, unit: "us", target: target(|all| all.status), pairs: statuses });
    rival.stop()?;
    Ok(rows)
}

impl Side<'_> {
    /// Runs, stops and removes `lives` sandboxes, `at_once` at a time: the median ones.
    fn lives(&self, at_once: usize, lives: usize) -> Result<Cost> {
        let before = self.busy()?;
        let times: Vec<(f64, f64)> = thread::scope(|scope| {
            let lane = |lane: usize| {
                let mine = (lane..lives).step_by(at_once);
                scope.spawn(move || mine.map(|n| self.life(n)).collect::<Result<Vec<_>>>())
            };
            let lanes: Vec<_> = (0..at_once).map(lane).collect();
            let ended = lanes.into_iter().map(|lane| lane.join().map_err(|_| anyhow!("a client panicked"))?);
            ended.collect::<Result<Vec<_>>>().map(|times| times.concat())
        })?;
        #[expect(clippy::cast_precision_loss, reason = "a count of a bench")]
        let busy = (self.busy()? - before) / lives as f64;
        let (run, whole): (Vec<_>, Vec<_>) = times.into_iter().unzip();
        Ok(Cost { run: p50(run)?, whole: p50(whole)?, busy })
    }

    fn life(&self, n: usize) -> Result<(f64, f64)> {
        let (run, sandbox) = timed(|| self.run(n))?;
        let (rest, ()) = timed(|| self.remove(&sandbox))?;
        Ok((run, run + rest))
    }

    fn run(&self, n: usize) -> Result<String> {
        let pod = self.node.pod(&format!("{}-{n}", self.name))?;
        Ok(self.cri.run_sandbox(&pod)?)
    }

    fn remove(&self, sandbox: &str) -> Result<()> {
        let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.cri.call(|mut client| async move { client.stop_pod_sandbox(request).await })?;
        let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.cri.call(|mut client| async move { client.remove_pod_sandbox(request).await })?;
        Ok(())
    }

    /// Microseconds of processors so far.
    fn busy(&self) -> Result<f64> {
        busy(&self.account)
    }

    /// KiB of memory that its processes take while sandboxes stand, shared pages divided by those who share them.
    fn memory(&self) -> Result<f64> {
        let standing: Vec<String> = (0..STANDING).map(|n| self.run(n)).collect::<Result<_>>()?;
        let sum = pss(self.programs)?;
        standing.iter().try_for_each(|sandbox| self.remove(sandbox))?;
        Ok(sum)
    }

    fn status(&self) -> Result<f64> {
        let one = || self.cri.call(|mut client| async move { client.status(StatusRequest::default()).await });
        p50((0..STATUSES).map(|_| Ok(timed(one)?.0)).collect::<Result<_>>()?)
    }
}

/// Microseconds of processors that an account has so far.
pub(super) fn busy(account: &Path) -> Result<f64> {
    let text = fs::read_to_string(account.join("cpuacct.usage"))?;
    Ok(text.trim().parse::<f64>()? / 1e3)
}

/// An account of processor time for the processes and all that they start from now on.
pub(super) fn account(name: &str, processes: &[u32]) -> Result<PathBuf> {
    let group = Path::new(ACCOUNTS).join(format!("bench-{name}"));
    if !group.exists() {
        fs::create_dir(&group).with_context(|| format!("failed to make {}", group.display()))?;
    }
    for process in processes.iter().copied().chain(children(processes)?) {
        fs::write(group.join("cgroup.procs"), process.to_string())?;
    }
    Ok(group)
}

/// Processes that were started before: tapmanager's spawner.
fn children(of: &[u32]) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for process in of {
        let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
        found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(found)
}
