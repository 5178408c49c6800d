//! What the emulated card does, and what its kernel's VFIO has: what other cases of these tiers stand on.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::capture::{self, Capture};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::netns;
use tests::sriov::{Card, VFS};
use tests::wait::wait_for;

const DEADLINE: Duration = Duration::from_secs(480);
/// Of frames that are sent again and again.
const ARRIVAL: Duration = Duration::from_secs(60);
const FRAMES: usize = 5;

pub(super) const CASES: &[Case] = &[
    Case { name: "sriov::each_function_is_alone_in_its_iommu_group", deadline: DEADLINE, run: groups },
    Case { name: "iommufd::each_function_is_alone_in_its_iommu_group", deadline: DEADLINE, run: groups },
    Case { name: "sriov::what_is_set_on_the_card_is_read_back", deadline: DEADLINE, run: settings },
    Case { name: "iommufd::what_is_set_on_the_card_is_read_back", deadline: DEADLINE, run: settings },
    Case { name: "sriov::a_function_that_vfio_gave_back_is_as_before", deadline: DEADLINE, run: there_and_back },
    Case { name: "iommufd::a_function_that_vfio_gave_back_is_as_before", deadline: DEADLINE, run: there_and_back },
    Case { name: "sriov::qemus_card_takes_spoof_check_and_lets_frames_through", deadline: DEADLINE, run: spoofed },
    Case { name: "sriov::vfio_has_groups_alone", deadline: DEADLINE, run: groups_alone },
    Case { name: "iommufd::vfio_has_a_file_for_each_function", deadline: DEADLINE, run: files },
];

fn groups(_bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    let mut groups = BTreeSet::new();
    for vf in 0..VFS {
        ensure!(card.driver(vf)?.as_deref() == Some("igbvf"), "VF {vf} is bound to {:?}", card.driver(vf)?);
        groups.insert(card.group(vf)?);
        let members = fs::read_dir(card.function(vf)?.join("iommu_group/devices"))?.count();
        ensure!(members == 1, "VF {vf} shares its group: {members} devices");
    }
    ensure!(groups.len() == VFS, "{groups:?}");
    card.make(0)?;
    ensure!(card.address(0).is_err(), "a function without functions");
    Ok(())
}

fn settings(_bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    let before = card.told(0)?;
    let set = |words: &str, key: &str, is: Value| -> Result<()> {
        card.set(0, words)?;
        let told = card.told(0)?;
        ensure!(told[key] == is, "after `{words}`, {key} is {}, not {is}", told[key]);
        Ok(())
    };
    let nothing = json!([{}]);
    set("mac 02:00:00:00:50:02", "address", json!("02:00:00:00:50:02"))?;
    set("vlan 100 qos 3", "vlan_list", json!([{"vlan": 100, "qos": 3}]))?;
    set("vlan 0", "vlan_list", nothing.clone())?;
    set("spoofchk off", "spoofchk", json!(false))?;
    set("spoofchk on", "spoofchk", json!(true))?;
    set("trust on", "trust", json!(true))?;
    set("trust off", "trust", json!(false))?;
    set("max_tx_rate 100", "rate", json!({"max_tx": 100, "min_tx": 0}))?;
    set("max_tx_rate 0", "rate", json!({"max_tx": 0, "min_tx": 0}))?;
    // The address that its driver chose is not one that was set; and only the first kernel tells it as none.
    set("mac 00:00:00:00:00:00", "address", json!("00:00:00:00:00:00"))?;
    for refused in ["state enable", "state auto", "vlan 100 proto 802.1ad", "min_tx_rate 10", "mac 01:00:00:00:00:01"] {
        ensure!(card.set(0, refused).is_err(), "the card takes `{refused}`");
    }
    let but_address = |mut told: Value| {
        told["address"].take();
        told
    };
    let (before, after) = (but_address(before), but_address(card.told(0)?));
    ensure!(before == after, "was {before}, is {after}");
    Ok(())
}

fn there_and_back(_bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    // Else its driver chooses another one each time.
    card.set(2, "mac 02:00:00:00:50:04")?;
    card.bind(2, None)?;
    let before = card.snapshot()?;
    before.holds(&card.snapshot()?)?;

    card.bind(2, Some("vfio-pci"))?;
    let group = Path::new("/dev/vfio").join(card.group(2)?);
    ensure!(fs::metadata(&group)?.file_type().is_char_device(), "{} is no device", group.display());
    let taken = before.changes(&card.snapshot()?);
    let of_it = |what: &str| taken.iter().any(|change| change.starts_with(&format!("VF 2 {what}: was ")));
    ensure!(["driver", "driver_override", "link"].into_iter().all(of_it), "{taken:?}");
    ensure!(taken.iter().all(|change| change.starts_with("VF 2 ")), "{taken:?}");

    card.bind(2, None)?;
    before.holds(&card.snapshot()?)?;
    ensure!(!group.exists(), "{} is left", group.display());
    Ok(())
}

/// What this card shows of anti-spoofing is that it was told: the frames of a function that lies about its address arrive all the
/// same. Cards of hardware drop them.
fn spoofed(_bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    card.set(4, "mac 02:00:00:00:50:06")?;
    card.bind(4, None)?;
    ensure!(card.told(4)?["spoofchk"] == json!(true), "{}", card.told(4)?);
    let (link, netns) = (card.link(4)?, netns::create("spoofer")?);
    sh(&format!("ip link set {link} netns spoofer name eth0"))?;
    netns::run_in(&netns, "ip link set eth0 up")?;
    let frame = |from: [u8; 6]| [&[0xff; 6][..], &from, &[0x88, 0xb5], &[0x5a; 46]].concat();
    let (own, lie) = (frame([2, 0, 0, 0, 0x50, 6]), frame([2, 0, 0, 0, 0x66, 6]));
    let heard = |frame: &[u8]| -> Result<bool> {
        let capture = Capture::start(None, card.pf())?;
        // The first ones may come before the function has its link.
        for _again in 0..FRAMES {
            capture::send(&netns, "eth0", frame)?;
            netns::run_in(&netns, "ip link show dev eth0")?;
        }
        Ok(capture.stop()?.iter().any(|seen| seen == frame))
    };
    wait_for("the function's own frames at the card", DEADLINE, || Ok(heard(&own)?.then_some(())))?;
    // What QEMU's thread has still to carry over comes after a look.
    wait_for("frames of another address at the card", ARRIVAL, || Ok(heard(&lie)?.then_some(())))
        .context("QEMU's igb enforces spoof checks now: have docs/sriov.md and this case say so")?;
    netns::remove("spoofer")?;
    Ok(())
}

fn groups_alone(_bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    card.bind(0, Some("vfio-pci"))?;
    ensure!(!fs::exists("/dev/iommu")? && !fs::exists("/dev/vfio/devices")?, "this kernel has IOMMUFD");
    // Its folder is there, without a number to make a file of.
    let number = card.function(0)?.join("vfio-dev").join(card.vfio_device(0)?).join("dev");
    ensure!(!number.exists(), "{} is there", number.display());
    Ok(())
}

fn files(_bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    let mut names = BTreeSet::new();
    for vf in 0..VFS {
        card.bind(vf, Some("vfio-pci"))?;
        let name = card.vfio_device(vf)?;
        let file = Path::new("/dev/vfio/devices").join(&name);
        ensure!(fs::metadata(&file)?.file_type().is_char_device(), "{} is no device", file.display());
        names.insert(name);
    }
    ensure!(names.len() == VFS, "{names:?}");
    sh("modprobe iommufd")?;
    ensure!(fs::metadata("/dev/iommu")?.file_type().is_char_device(), "/dev/iommu is no device");
    Ok(())
}
