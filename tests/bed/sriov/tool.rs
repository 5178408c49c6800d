//! `tapmanager sriov`: the card as its tool shows it, and claims by hand.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::net_node::NetNode;
use tests::sriov::{Card, VFS};

use super::setup::{self, MAC, claims, tool, tool_error};

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] =
    &[Case { name: "sriov::a_claim_by_hand_is_shown_held_and_given_back", deadline: DEADLINE, run: by_hand }];

fn by_hand(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    card.bind(3, Some("vfio-pci"))?;
    let (vf, other) = (card.address(3)?, card.address(4)?);
    let network = setup::conflist("pods", &setup::bridge()).to_string();
    let mut node = NetNode::start(bed, &network, &setup::plugins(bed)?)?;
    let before = card.snapshot()?;

    let free = tool(bed, &["explain", &vf])?;
    ensure!(free["explanation"].to_string().contains("may be handed out"), "{free:#}");
    let claim = ["claim", &vf, "--by", "a-test", "--mac", MAC, "--vlan", "100", "--spoofchk", "off"];
    tool(bed, &claim)?;
    let told = card.told(3)?;
    let settings = (&told["address"], &told["spoofchk"], &told["trust"]);
    ensure!(settings == (&json!(MAC), &json!(false), &json!(false)), "{told}");
    ensure!(told["vlan_list"].to_string().contains("100"), "{told}");
    has(&tool(bed, &["list"])?, &vf, true)?;

    for (refused, why) in [
        (&claim[..2], "by-hand:a-test"),
        (&["claim", &other], "instead of `vfio-pci`"),
        (&["claim", "0000:01:00.0"], "physical function"),
        (&["claim", "0000:00:00.0"], "no SR-IOV virtual function"),
        (&["claim", "0000:7f:1f.7"], "0000:7f:1f.7"),
    ] {
        let said = tool_error(bed, refused)?;
        ensure!(said.contains(why), "{refused:?}: {said}");
    }
    ensure!(claims()? == 1, "{} claims", claims()?);

    node.tapmanager.kill9()?;
    has(&tool(bed, &["list"])?, &vf, false)?;
    node.tapmanager.start_again()?;
    node.wait_ready()?;
    tool(bed, &["repair"])?;
    has(&tool(bed, &["list"])?, &vf, true)?;

    tool(bed, &["release", &vf])?;
    ensure!(claims()? == 0, "{} claims are left", claims()?);
    before.holds(&card.snapshot()?)
}

/// Whether the tool shows the card, and a claim of `vf` alone, as a daemon says it or as it is without one.
fn has(listed: &Value, vf: &str, by_daemon: bool) -> Result<()> {
    ensure!(listed["daemon"] == json!(by_daemon), "{listed:#}");
    let card = listed.pointer("/pfs/0").context("no card")?;
    let numbers = [&card["total"], &card["enabled"], &card["used"]];
    ensure!(numbers == [&json!(VFS), &json!(VFS), &json!(1)], "{listed:#}");
    let claimed = listed["vfs"].as_array().context("no functions")?.iter().filter(|vf| !vf["claim"].is_null());
    let claimed: Vec<_> = claimed.map(|vf| (&vf["vf"], &vf["claim"]["owner"])).collect();
    ensure!(claimed == [(&json!(vf), &json!("by-hand:a-test"))], "{listed:#}");
    Ok(())
}
