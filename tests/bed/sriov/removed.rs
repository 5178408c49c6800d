//! `sriov_numvfs=0` while a machine has a function: the kernel waits for the machine, and the pod ends as any other.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::sriov::Card;
use tests::wait::{wait_for, wait_until};

use super::machines::boot;
use super::setup::{self, MAC, allocations, claims, plugin, tool};

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
const TOLD_WITHIN: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Case] = &[
    Case { name: "sriov::functions_that_are_removed_in_use_go_with_their_vm", deadline: DEADLINE, run: removed },
    Case { name: "iommufd::functions_that_are_removed_in_use_go_with_their_vm", deadline: DEADLINE, run: removed },
];

fn removed(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    let networks = [("pods", setup::bridge()), ("fast", plugin(&card, "10.50.0", json!({"mac": MAC})))];
    let node = setup::node(bed, &networks)?;
    let vm = boot(bed, &node, "removed", "fast")?;
    ensure!(claims()? == 1, "{} claims", claims()?);

    let file = card.folder().join("sriov_numvfs");
    let (said, removal) = std::sync::mpsc::channel();
    // Not scoped: a case that fails here would wait for it before the machine is ended.
    std::thread::spawn(move || said.send(fs::write(file, "0")));
    let trouble = || -> Result<Option<String>> {
        let listed = tool(bed, &["list"])?;
        let lines = listed["trouble"].as_array().context("no troubles")?;
        Ok(lines.first().map(ToString::to_string))
    };
    let trouble = wait_for("trouble of the card", TOLD_WITHIN, trouble)?;
    ensure!(trouble.contains("sriov_numvfs") && trouble.contains("end that machine"), "{trouble}");
    vm.info().context("the guest, whose function is being removed")?;

    node.remove_vm(&vm, GRACE)?;
    let written = wait_for("end of the removal", TOLD_WITHIN, || Ok(removal.try_recv().ok()))?;
    written.map_err(|failed| anyhow!("removal: {failed}"))?;
    ensure!((claims()?, allocations()?) == (0, 0), "{} claims, {} allocations left", claims()?, allocations()?);
    wait_until("a card without trouble", TOLD_WITHIN, || {
        tool(bed, &["list"]).is_ok_and(|listed| listed["trouble"] == json!([]) && listed["vfs"] == json!([]))
    })
}
