//! Tier `node`: what the kernel of the bed's machine lacks, in an emulated node with Debian's.

mod cgroups;

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};
use tests::command::sh;

/// Names of its cases start so.
pub(crate) const TIER: &str = "node::";

const DEADLINE: Duration = Duration::from_secs(480);

const CASES: &[Case] =
    &[Case { name: "node::it_has_what_the_machine_lacks", deadline: DEADLINE, run: kernel }, cgroups::CASE];

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    debug_assert!(CASES.iter().all(|case| case.name.starts_with(TIER)));
    CASES.iter().copied()
}

fn kernel(_bed: &Bed) -> Result<()> {
    let version = fs::read_to_string("/proc/version")?;
    ensure!(version.contains("Debian"), "not Debian's kernel: {version}");
    sh("ip link add dummy0 type dummy")?;
    sh("ip link add ipvlan0 link dummy0 type ipvlan mode l2")?;
    sh("ip link add vlan7 link dummy0 type vlan id 7")?;
    sh("ip link add vrf0 type vrf table 10")?;
    sh("ip link add ifb0 type ifb")?;
    sh("tc qdisc add dev dummy0 clsact")?;
    sh("tc filter add dev dummy0 ingress protocol all matchall action drop")?;
    sh("tc filter add dev dummy0 egress protocol ip flower dst_ip 10.0.0.1 action pass")?;
    sh("tc qdisc add dev dummy0 root tbf rate 1mbit burst 10k latency 10ms")?;
    ensure!(fs::exists("/dev/vhost-net")?, "no /dev/vhost-net");
    Ok(())
}
