//! Whether our `api.proto` is the CRI of the kubelet that the other cases run: each call, message, field and value.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};

const DEADLINE: Duration = Duration::from_secs(60);
/// Ours, as a test of `proto/generate` keeps it.
const OURS: &str = include_str!("../../../proto/generate/tests/snapshots/cri__the_wire_is_pinned.snap");

pub(super) const CASES: &[Case] = &[Case { name: "cri::the_wire_is_that_of_kubelet", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let kubelets = fs::read_to_string(bed.config.peer("cri-api.txt")?)?;
    let (kubelets, ours): (BTreeSet<_>, BTreeSet<_>) = (kubelets.lines().collect(), lines(OURS).collect());
    ensure!(kubelets.len() > 800, "what kubelet's module says of itself is cut off: {} lines", kubelets.len());
    let only = |who: &str, one: &BTreeSet<&str>, other: &BTreeSet<&str>| {
        one.difference(other).map(|line| format!("\n{who} has: {line}")).collect::<String>()
    };
    let differences = only("kubelet", &kubelets, &ours) + &only("api.proto", &ours, &kubelets);
    ensure!(differences.is_empty(), "the CRI of kubelet is another:{differences}");
    Ok(())
}

/// A snapshot's, without its head.
fn lines(snapshot: &str) -> impl Iterator<Item = &str> {
    snapshot.lines().skip_while(|line| !line.starts_with("package "))
}
