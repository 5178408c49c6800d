//! The bed's own cases: a cell is private, and the world is compared truthfully.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::netns;
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);

pub(crate) const CASES: &[Case] = &[
    Case { name: "bed::a_cell_is_private", deadline: DEADLINE, run: private },
    Case { name: "bed::what_is_left_is_found", deadline: DEADLINE, run: found },
];

fn private(bed: &Bed) -> Result<()> {
    for dir in ["/etc/virtlet", "/run/virtlet-test", "/var/lib/virtlet", "/var/lib/libvirt", "/var/log/libvirt"] {
        fs::create_dir_all(dir)?;
        fs::write(Path::new(dir).join("mark"), "")?;
    }
    for inside in ["run/virtlet-test/mark", "state/mark", "libvirt/mark", "var-log/libvirt/mark", "etc/virtlet/mark"] {
        ensure!(bed.dir.join(inside).exists(), "written elsewhere: {inside}");
    }
    let links = sh("ip -o link")?;
    ensure!(links.lines().count() == 1 && links.contains("lo:"), "links of somebody else: {links}");
    let cgroups = fs::read_to_string("/proc/self/cgroup")?;
    // Version 2 gives controllers to groups below one without processes: the bed is in a group of its own there.
    let own = |line: &str| line.ends_with(":/") || line == "0::/bed";
    ensure!(cgroups.lines().all(own), "cgroups of somebody else: {cgroups}");
    ensure!(fs::read_to_string("/proc/1/comm")?.trim() == "bash", "processes of somebody else");
    Ok(())
}

fn found(_bed: &Bed) -> Result<()> {
    let before = World::look()?;
    before.assert_same()?;

    netns::create("left")?;
    sh("ip link add left0 type veth peer name left1")?;
    sh("iptables -t nat -A POSTROUTING -s 10.0.0.1 -j MASQUERADE")?;
    fs::write("/var/lib/virtlet/left", "")?;
    fs::create_dir_all("/sys/fs/cgroup/memory/machine/left")?;
    let mut child = Command::new("sleep").arg("600").spawn()?;

    let message = before.assert_same_now().err().context("nothing was found")?.to_string();
    for thing in
        ["netns left", "link left0", "link left1", "MASQUERADE", "file /var/lib/virtlet/left", "machine/left", "sleep"]
    {
        ensure!(message.contains(thing), "`{thing}` was not found: {message}");
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}
