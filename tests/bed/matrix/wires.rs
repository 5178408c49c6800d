//! What a network stands on besides its plugins: links of the node, and whoever is at their far end.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tests::case::Bed;
use tests::command::sh;
use tests::daemon::Daemon;
use tests::netns;
use tests::wait::wait_until;

/// The far end, and the gateway of every shape.
pub(super) const FAR4: &str = "10.77.0.1";
pub(super) const FAR6: &str = "fd00:77::1";
/// The same station's address in a network that the routes lead to through the gateway.
pub(super) const BEYOND4: &str = "10.99.3.4";
pub(super) const BEYOND6: &str = "fd00:99::4";

/// How the node is wired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wiring {
    /// Not at all: the far end is the node itself.
    None,
    /// Neither is there a gateway: the far end is the node itself by addresses of its loopback, and the pod's plugin is
    /// [`tests::cni::ROUTED`].
    Routed,
    /// Link `up0` of the node leads to the far end.
    Uplink,
    /// The same, and the far end speaks VLAN 7 alone.
    Tagged,
    /// The same as [`Wiring::Uplink`], with a DHCP server at the far end, and the daemon of the `dhcp` plugin.
    Dhcp,
}

impl Wiring {
    /// Whether the far end is the node itself.
    const fn is_node(self) -> bool {
        matches!(self, Self::None | Self::Routed)
    }
}

/// The wires; their programs end with the cell.
#[derive(Debug)]
pub(super) struct Wires {
    wiring: Wiring,
    _programs: Vec<Daemon>,
}

const OUTSIDE: &str = "outside";

impl Wires {
    pub(super) fn lay(bed: &Bed, wiring: Wiring, plugins: &Path) -> Result<Self> {
        if wiring.is_node() {
            let far: &[&str] = if wiring == Wiring::Routed { &[FAR4, FAR6] } else { &[] };
            for own in [BEYOND4, BEYOND6].iter().chain(far) {
                sh(&format!("ip addr add {own} dev lo"))?;
            }
            return Ok(Self { wiring, _programs: Vec::new() });
        }
        let outside = netns::create(OUTSIDE)?;
        sh("ip link add up0 type veth peer name up1 netns outside")?;
        sh("ip link set up0 up")?;
        netns::run_in(&outside, "ip link set up1 up")?;
        let far = if wiring == Wiring::Tagged { "up1.7" } else { "up1" };
        if wiring == Wiring::Tagged {
            netns::run_in(&outside, "ip link add link up1 name up1.7 type vlan id 7")?;
            netns::run_in(&outside, "ip link set up1.7 up")?;
        }
        netns::run_in(&outside, &format!("ip addr add {FAR4}/24 dev {far}"))?;
        netns::run_in(&outside, &format!("ip addr add {FAR6}/64 dev {far} nodad"))?;
        for beyond in [BEYOND4, BEYOND6] {
            netns::run_in(&outside, &format!("ip addr add {beyond} dev lo"))?;
        }
        let programs = if wiring == Wiring::Dhcp { dhcp(bed, &outside, plugins)? } else { Vec::new() };
        Ok(Self { wiring, _programs: programs })
    }

    /// Namespace of the far end; `None` is the node's own.
    pub(super) fn far(&self) -> Option<PathBuf> {
        (!self.wiring.is_node()).then(|| Path::new("/run/netns").join(OUTSIDE))
    }

    /// Whether all of it is there, and up, as it was laid.
    pub(super) fn stand(&self) -> Result<bool> {
        if self.wiring.is_node() {
            return Ok(true);
        }
        // The `host-device` plugin gives the link back as it took it, but down.
        sh("ip link set up0 up")?;
        Ok(sh("ip -o link show dev up0")?.contains("up0"))
    }
}

fn dhcp(bed: &Bed, outside: &Path, plugins: &Path) -> Result<Vec<Daemon>> {
    let (config, leases, socket) = (bed.dir.join("udhcpd.conf"), bed.dir.join("udhcpd.leases"), "/run/cni/dhcp.sock");
    fs::write(&leases, "")?;
    fs::create_dir_all("/run/cni")?;
    let text = format!(
        "start 10.77.0.10\nend 10.77.0.90\ninterface up1\nlease_file {}\npidfile {}\n\
         opt subnet 255.255.255.0\nopt router {FAR4}\nopt lease 3600\n",
        leases.display(),
        bed.dir.join("udhcpd.pid").display()
    );
    fs::write(&config, text)?;
    let netns = format!("--net={}", outside.display());
    let words = ["--", "busybox", "udhcpd", "-f"].map(str::to_owned);
    let args = std::iter::once(netns).chain(words).chain([config.display().to_string()]);
    let server = Daemon::start("udhcpd", "nsenter", args, bed.logs().join("udhcpd.log"))?;
    let client = Daemon::start("dhcp", plugins.join("dhcp"), ["daemon"], bed.logs().join("cni-dhcp.log"))?;
    wait_until("socket of the dhcp plugin", std::time::Duration::from_secs(20), || {
        UnixStream::connect(socket).is_ok()
    })?;
    Ok(vec![server, client])
}
