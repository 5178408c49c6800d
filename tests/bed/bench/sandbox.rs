//! Sandboxes without the time of CNI's plugins, beside raw netlink and nothing else.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use proto::cri::{RemovePodSandboxRequest, StopPodSandboxRequest};
use tests::case::Bed;
use tests::node::Node;

use super::attach::floor;
use super::report::{Pair, Row};
use super::{baseline, p50, timed};

const ROUNDS: usize = 9;
const SANDBOXES: u32 = 15;

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let netfloor = baseline(bed, "netfloor")?;
    let scratch = Path::new("/var/lib/virtlet/bench");
    fs::create_dir(scratch)?;
    // The bridge is made by the first pod.
    life(node)?;

    let [mut creates, mut deletes, mut durable_creates, mut durable_deletes] = [const { Vec::new() }; 4];
    for _round in 0..ROUNDS {
        let (mut made, mut stopped, mut durable) = (Vec::new(), Vec::new(), Vec::new());
        for _sandbox in 0..SANDBOXES {
            let (run, stop) = life(node)?;
            made.push(run);
            stopped.push(stop);
            durable.push(timed(|| durable_write(scratch).and_then(|()| durable_write(scratch)))?.0);
        }
        let floor = floor(&netfloor, SANDBOXES)?;
        let (made, stopped, durable) = (p50(made)?, p50(stopped)?, p50(durable)?);
        creates.push(Pair { ours: made, baseline: floor.create_us });
        deletes.push(Pair { ours: stopped, baseline: floor.delete_us });
        durable_creates.push(Pair { ours: made, baseline: floor.create_us + durable });
        durable_deletes.push(Pair { ours: stopped, baseline: floor.delete_us + durable });
    }
    Ok(vec![
        Row { name: "RunPodSandbox less plugins / netlink", unit: "us", target: Some(3.0), pairs: creates },
        Row {
            name: "(RunPodSandbox less plugins / netlink + 2 durable writes)",
            unit: "us",
            target: None,
            pairs: durable_creates,
        },
        Row { name: "StopPodSandbox less plugins / netlink", unit: "us", target: Some(3.0), pairs: deletes },
        Row {
            name: "(StopPodSandbox less plugins / netlink + 2 durable writes)",
            unit: "us",
            target: None,
            pairs: durable_deletes,
        },
    ])
}

/// Runs, stops and removes a sandbox: microseconds of the first two, less the time inside plugins.
fn life(node: &Node) -> Result<(f64, f64)> {
    let pod = node.pod("bench")?;
    let (run, sandbox) = less_plugins(node, || Ok(node.cri.run_sandbox(&pod)?))?;
    let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    let (stop, _) = less_plugins(node, || {
        Ok(node.cri.call(|mut client| async move { client.stop_pod_sandbox(request).await })?)
    })?;
    let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox };
    node.cri.call(|mut client| async move { client.remove_pod_sandbox(request).await })?;
    Ok((run, stop))
}

fn less_plugins<T>(node: &Node, work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let before = node.net.status()?.plugin_micros;
    let (micros, made) = timed(work)?;
    let inside = node.net.status()?.plugin_micros - before;
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a bench")]
    Ok((micros - inside as f64, made))
}

/// The least that makes 1 KiB survive a power cut.
fn durable_write(dir: &Path) -> Result<()> {
    let (new, final_name) = (dir.join("new"), dir.join("record"));
    let mut file = File::create(&new)?;
    file.write_all(&[b'x'; 1024])?;
    file.sync_all()?;
    fs::rename(new, final_name)?;
    Ok(File::open(dir)?.sync_all()?)
}
