//! critest's own benchmark of pods, of us and of containerd, in turn: what the client's language and connections cost is in both.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::cni;
use tests::command::{command, finish};
use tests::containerd::{Containerd, Release};
use tests::node::{CRI_SOCKET, Node};

use super::report::{Pair, Row};
use super::{DEADLINE, baseline, p50};

const ROUNDS: usize = 5;
/// Rows, and the pods of a round, by how many there are at a time.
const ROWS: [(&str, usize, usize); 4] = [
    ("critest's pods / containerd 1.6", 1, 8),
    ("critest's pods / containerd 1.6, 2 at a time", 2, 12),
    ("critest's pods / containerd 1.6, 4 at a time", 4, 24),
    ("critest's pods / containerd 1.6, 8 at a time", 8, 32),
];
/// Of a pod: create, status, stop, remove.
const STEPS: usize = 4;

pub(super) fn rows(bed: &Bed, _node: &mut Node) -> Result<Vec<Row>> {
    let rival = Containerd::start(bed, Release::Debian, &cni::debian_plugins(), &baseline(bed, "pause")?)?;
    let sides = [Path::new(CRI_SOCKET), rival.socket()];
    for socket in sides {
        // The first makes what stays.
        pods(bed, socket, 1, 2)?;
    }
    let mut rows = Vec::new();
    for (name, at_once, count) in ROWS {
        let mut pairs = Vec::new();
        for _round in 0..ROUNDS {
            let [ours, baseline] = sides.map(|socket| pods(bed, socket, at_once, count));
            pairs.push(Pair { ours: ours?, baseline: baseline? });
        }
        rows.push(Row { name, unit: "us", target: Some(1.0), pairs });
    }
    rival.stop()?;
    Ok(rows)
}

/// Microseconds of the four steps of the pod in the middle.
fn pods(bed: &Bed, socket: &Path, at_once: usize, count: usize) -> Result<f64> {
    let (params, figures) = (bed.dir.join("params.yaml"), bed.dir.join("figures"));
    fs::create_dir_all(&figures)?;
    // JSON is YAML.
    fs::write(&params, json!({"podsNumber": count, "podsNumberParallel": at_once}).to_string())?;
    let endpoint = format!("unix://{}", socket.display());
    let mut critest = command(bed.config.peer("critest")?, ["-benchmark", "--ginkgo.no-color"]);
    critest.args(["--runtime-endpoint", &endpoint, "--image-endpoint", &endpoint]);
    critest.arg("--benchmarking-params-file").arg(&params).arg("--benchmarking-output-dir").arg(&figures);
    critest.args(["--ginkgo.focus", "lifecycle of PodSandbox", "--ginkgo.skip", "Image|Container|from scratch"]);
    let ended = finish(&mut critest, DEADLINE)?;
    ensure!(ended.code == Some(0), "critest: {}", ended.stdout);
    let file = figures.join("pod_benchmark_data.json");
    let text = fs::read(&file).with_context(|| format!("no {}", file.display()))?;
    fs::remove_file(&file)?;
    let data: Value = serde_json::from_slice(&text)?;
    let points = data["datapoints"].as_array().context("no data")?;
    ensure!(points.len() == count, "{} of {count} pods: {data}", points.len());
    let took = points.iter().map(|point| {
        let steps = point["operationsDurationsNs"].as_array().context("no durations")?;
        ensure!(steps.len() == STEPS, "a pod of {} steps: {point}", steps.len());
        steps.iter().map(|ns| ns.as_f64().map(|ns| ns / 1e3).context("no number")).sum()
    });
    p50(took.collect::<Result<_>>()?)
}
