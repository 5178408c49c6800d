//! `bed bench`: what we cost beside the least that the same work can cost, in one private cell.
//!
//! A row is an odd number of pairs (ours, baseline) measured right after one another, because the machine's speed drifts;
//! what is reported is the pair whose ratio is the median one. `docs/benchmarks.md` says what each row measures.
//! The daemons log as they do on a node, not as they do for the other cases.

mod attach;
mod calls;
mod checkpoint;
mod conformance;
mod datapath;
mod exec_client;
mod functions;
mod handoff;
mod handoff_server;
mod images;
mod memory;
mod objects;
mod peer;
mod proxy;
mod pull;
mod report;
mod rivals;
mod sandbox;
mod sessions;
mod start;
mod subresources;
mod volumes;
mod warm;
mod wrapper;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::config::Config;
use tests::node::Node;
use tests::runner;

use self::report::{Report, Row};

/// All rows take about twelve minutes on a busy machine of two cores.
const DEADLINE: Duration = Duration::from_secs(1800);
type Group = fn(&Bed, &mut Node) -> Result<Vec<Row>>;
const GROUPS: [(&str, Group); 18] = [
    ("vmwrapper", wrapper::rows),
    ("attach", attach::rows),
    ("handoff", handoff::rows),
    ("functions", functions::rows),
    ("sandbox", sandbox::rows),
    ("rivals", rivals::rows),
    ("critest", conformance::rows),
    ("proxy", proxy::rows),
    ("objects", objects::rows),
    ("calls", calls::rows),
    ("start", start::rows),
    ("checkpoint", checkpoint::rows),
    ("warm", warm::rows),
    ("volumes", volumes::rows),
    ("sessions", sessions::rows),
    ("pull", pull::rows),
    ("images", images::rows),
    ("datapath", datapath::rows),
];

/// What is measured in an emulated node.
pub(crate) const IN_NODE: [Case; 1] = [functions::CASE];

/// `bed bench [--strict] [GROUP]`. With a group, nothing is written; with `--strict`, a missed target is a failure.
///
/// # Errors
/// When something cannot be measured.
pub(crate) fn bench(words: &[&str]) -> Result<ExitCode> {
    match words {
        ["gets", socket] => handoff::spend(Path::new(socket))?,
        ["reflector", kubeconfig] => objects::reflect(Path::new(kubeconfig))?,
        ["inside", dir] => inside(dir, "")?,
        ["inside", group, dir] => inside(dir, group)?,
        ["--strict"] => {
            runner::in_view(&["bench", "inside"], DEADLINE)?;
            if Report::read(&report_path(&Config::from_env())?)?.has_missed() {
                return Ok(ExitCode::FAILURE);
            }
        }
        [] => runner::in_view(&["bench", "inside"], DEADLINE)?,
        [group] if GROUPS.iter().any(|(name, _)| name == group) => {
            runner::in_view(&["bench", "inside", group], DEADLINE)?
        }
        other => bail!(
            "not an option of `bench`: `{}`; it takes `--strict`, or one of {:?}",
            other.join(" "),
            GROUPS.map(|(name, _)| name)
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn inside(dir: &str, group: &str) -> Result<()> {
    runner::inside(Path::new(dir), |bed| {
        let mut node = quiet_node(bed)?;
        let mut report = Report::default();
        for (name, rows) in GROUPS.iter().filter(|(name, _)| group.is_empty() || *name == group) {
            for row in rows(bed, &mut node).with_context(|| format!("failed to measure `{name}`"))? {
                report.add(row)?;
            }
        }
        if group.is_empty() { report.write(&report_path(&bed.config)?) } else { Ok(()) }
    })
}

fn report_path(config: &Config) -> Result<PathBuf> {
    Ok(bench_dir(config)?.join("report.json"))
}

/// Where the Makefile puts what only the benches need: beside the programs under test.
fn bench_dir(config: &Config) -> Result<PathBuf> {
    Ok(config.dist()?.parent().context("programs in the root directory")?.join("bench"))
}

/// One of the static programs in C.
fn baseline(bed: &Bed, name: &str) -> Result<PathBuf> {
    let path = bench_dir(&bed.config)?.join(name);
    path.exists().then_some(path).with_context(|| format!("no `{name}`; run `make bench`"))
}

/// A node on a plain bridge, whose daemons log what they log by default.
fn quiet_node(bed: &Bed) -> Result<Node> {
    let mut node = Node::start(bed)?;
    cni::install(&Network::BRIDGE.conflist().to_string())?;
    for (file, debug, quiet) in [
        ("/etc/virtlet/tapmanager.toml", "log_level = 'debug'", ""),
        ("/etc/virtlet/controld.toml", "log.level = 'info,controld=debug,imagestore=debug,streaming=debug'", ""),
    ] {
        let config = fs::read_to_string(file)?;
        let changed = config.replace(debug, quiet);
        ensure!(changed != config, "{file} does not ask for debug messages any more");
        fs::write(file, changed)?;
    }
    for daemon in [&mut node.net.tapmanager, &mut node.controld] {
        daemon.kill9()?;
        daemon.start_again()?;
    }
    node.net.wait_ready()?;
    node.wait_ready()?;
    Ok(node)
}

/// Microseconds that `work` takes, and what it makes.
fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(f64, T), E> {
    let started = Instant::now();
    let made = work()?;
    Ok((started.elapsed().as_secs_f64() * 1e6, made))
}

/// KiB of a process's memory.
fn rss(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// The median of what was sampled.
fn p50(mut samples: Vec<f64>) -> Result<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().context("nothing was sampled")
}
