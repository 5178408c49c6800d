//! A full disk under the journal: an Attach fails with the reason, a Detach succeeds, and with room again all goes on.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::tap::{ErrorCode, Request};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::sh;
use tests::net_node::{NetNode, attach, pod_id};
use tests::world::World;

const STATE: &str = "/var/lib/virtlet/net";

pub(super) const CASES: &[Case] =
    &[Case { name: "net::a_full_disk_fails_attach_and_no_detach", deadline: Duration::from_secs(480), run }];

fn run(bed: &Bed) -> Result<()> {
    fs::create_dir_all(STATE)?;
    sh(&format!("mount -t tmpfs -o size=64k,mode=700 small {STATE}"))?;
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let (one, two) = (pod_id(1)?, pod_id(2)?);
    let before = World::look()?;
    node.attach(&one)?;
    let ballast = Path::new(STATE).join("ballast");
    let full = fs::write(&ballast, vec![0; 1 << 20]).map_err(|failed| failed.kind());
    ensure!(full == Err(ErrorKind::StorageFull), "the disk is not full: {full:?}");

    let refused =
        node.client().call(&Request::Attach(attach(&two))).err().context("there is no room for its intent")?;
    ensure!(refused.code() == ErrorCode::Exhausted && refused.to_string().contains("No space left"), "{refused}");
    node.detach(&one).context("on a full disk")?;
    ensure!(node.status()?.pods == 0, "a pod on record");

    fs::remove_file(&ballast)?;
    before.assert_same()?;
    node.attach(&two).context("with room again")?;
    node.detach(&two)?;
    before.assert_same()
}
