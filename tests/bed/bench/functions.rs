//! A claim of a virtual function, and giving it back, beside the bare sysfs and netlink operations: in an emulated node, on
//! its igb.
//!
//! Ours looks at everything again, notes each step on a disk in memory, and compares what it put back; the baseline does
//! not. Both wait for the same drivers.

#![expect(clippy::print_stdout, reason = "what the case says is how its numbers get out of the node")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde::Deserialize;
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::command::{command, run, sh};
use tests::emulated;
use tests::netns;
use tests::node::Node;
use tests::sriov::Card;

use super::baseline;
use super::report::{Pair, Row};

/// Runs in the node, and in no other run.
pub(crate) const CASE: Case = Case { name: "sriov::bench", deadline: Duration::from_secs(300), run: measure };
const PAIRS: usize = 9;
const POD: &str = "bench";
const LINK: &str = "net1";

#[derive(Deserialize)]
struct Floor {
    claim_us: f64,
    release_us: f64,
}

pub(super) fn rows(_bed: &Bed, _node: &mut Node) -> Result<Vec<Row>> {
    let said = emulated::alone(&CASE)?;
    let line = said.lines().find(|line| line.starts_with('{')).with_context(|| format!("no numbers: {said}"))?;
    let measured: Value = serde_json::from_str(line)?;
    let pairs = |of: &str| -> Result<Vec<Pair>> {
        let all: Vec<(f64, f64)> = serde_json::from_value(measured[of].clone())?;
        Ok(all.into_iter().map(|(ours, baseline)| Pair { ours, baseline }).collect())
    };
    let (claims, releases) = (pairs("claim")?, pairs("release")?);
    let both = claims
        .iter()
        .zip(&releases)
        .map(|(claim, release)| Pair { ours: claim.ours + release.ours, baseline: claim.baseline + release.baseline });
    let both = both.collect();
    Ok(vec![
        Row { name: "claim and release of a VF / sysfs and netlink", unit: "ms", target: Some(1.3), pairs: both },
        Row { name: "claim of a VF / sysfs and netlink", unit: "ms", target: Some(1.3), pairs: claims },
        Row { name: "release of a VF / sysfs and netlink", unit: "ms", target: Some(1.3), pairs: releases },
    ])
}

fn measure(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    let (vf, number, state) = (card.address(0)?, "0", bed.dir.join("claims"));
    std::fs::create_dir(&state)?;
    card.set(0, "mac 02:00:00:00:60:01")?;
    card.bind(0, None)?;
    let pod = netns::create(POD)?;
    sh(&format!("ip link set {} netns {POD} name {LINK}", card.link(0)?))?;
    netns::run_in(&pod, &format!("ip link set {LINK} up"))?;
    netns::run_in(&pod, &format!("ip address add 10.60.0.1/24 dev {LINK}"))?;
    let floor = baseline(bed, "vffloor")?;
    let pod_file = pod.display().to_string();
    let bare = || -> Result<Floor> {
        let words = [&vf, "igbvf", card.pf(), number, &pod_file, LINK];
        Ok(serde_json::from_str(&run(&mut command(&floor, words))?)?)
    };
    let ours = || tapmanager::exercise::function(&vf, &pod, LINK, Path::new(&state)).map_err(|why| anyhow!(why));
    // Not measured: modules are loaded, files are read.
    ours()?;
    bare()?;
    let (mut claims, mut releases) = (Vec::new(), Vec::new());
    for _pair in 0..PAIRS {
        let (took, floor) = (ours()?, bare()?);
        let millis = |took: Duration| took.as_secs_f64() * 1e3;
        claims.push((millis(took.claim), floor.claim_us / 1e3));
        releases.push((millis(took.release), floor.release_us / 1e3));
    }
    println!("{}", json!({"claim": claims, "release": releases}));
    netns::remove(POD)
}
