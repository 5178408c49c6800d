//! A guest without a machine: a network namespace behind a pod's tap, reached through the real `vmwrapper`.
//!
//! `vmwrapper` runs as QEMU's user and becomes "the emulator", which is `bed fake-emulator`: it copies frames between
//! each descriptor that `vmwrapper` appended and a tap in the guest's namespace ([`emulator`]). The stack in there is a
//! real kernel's, so real DHCP clients take the lease.

mod emulator;

use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::slice;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;
use proto::tap::{Nic, PodId, Route, Token, send};

pub use self::emulator::emulate;

use crate::case::Bed;
use crate::command::{TOOL_DEADLINE, finish, sh};
use crate::net_node::{NetNode, QEMU};
use crate::netns;
use crate::pace::stretched_seconds;
use crate::raw::create_tap;
use crate::wait::wait_for;

/// First argument of the fake emulator, by which the bed knows what it is.
pub const FAKE_EMULATOR: &str = "fake-emulator";

const LINK: &str = "eth0";
/// PCI slot of the first NIC, as controld's.
const FIRST_SLOT: usize = 0x10;
const RELAYING: &str = "relaying";
const UDHCPC_SCRIPT: &str = include_str!("guest/udhcpc.sh");
const DHCLIENT6_SCRIPT: &str = include_str!("guest/dhclient6.sh");
const START_DEADLINE: Duration = Duration::from_secs(20);
/// A guest does all that a machine does, in fewer seconds: it waits less before it asks for routers.
const HASTE: [&str; 2] =
    ["net.ipv6.conf.LINK.router_solicitation_delay=0", "net.ipv6.conf.LINK.router_solicitation_interval=1"];
const IPV6_DEADLINE: Duration = Duration::from_secs(20);

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    name: String,
    netns: PathBuf,
    dir: PathBuf,
    emulator: Child,
}

impl Guest {
    /// Starts a guest called `name` behind `nic`, the only one of `pod`.
    ///
    /// # Errors
    /// When the hand-off fails: the error has what `vmwrapper` said.
    pub fn start(bed: &Bed, node: &NetNode, pod: &PodId, nic: &Nic, name: &str) -> Result<Self> {
        Self::with_all(bed, node, pod, slice::from_ref(nic), name)
    }

    /// Starts a guest called `name` behind all NICs of `pod`, which are `eth0`, `eth1` and so on in there.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn with_all(bed: &Bed, node: &NetNode, pod: &PodId, nics: &[Nic], name: &str) -> Result<Self> {
        let token = node.arm(pod)?;
        let netns = netns::create(name)?;
        let taps = nics.iter().enumerate().map(|(place, nic)| create_client(&netns, place, nic));
        let taps = taps.collect::<Result<Vec<_>>>()?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).context("no sockets")?;
        send(ours.as_fd(), b"taps", &taps.iter().map(|tap| tap.as_fd()).collect::<Vec<_>>())?;
        let log = bed.logs().join(format!("guest-{name}.log"));
        let slots: Vec<_> = (0..nics.len()).map(|place| format!("{:#x}", FIRST_SLOT + place)).collect();
        let mut emulator = vmwrapper(bed, node, &token);
        emulator.env("VIRTLET_NICS", slots.join(","));
        let mut emulator = emulator
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(File::create(&log)?))
            .stderr(Stdio::from(File::options().append(true).open(&log)?))
            .spawn()
            .context("failed to start vmwrapper")?;
        wait_for("hand-off", START_DEADLINE, || {
            let said = fs::read_to_string(&log)?;
            if let Some(status) = emulator.try_wait()? {
                bail!("vmwrapper ended, {status}: {said}");
            }
            Ok(said.contains(RELAYING).then_some(()))
        })?;
        Ok(Self { name: name.to_owned(), netns, dir: bed.dir.clone(), emulator })
    }

    /// The guest's network namespace.
    #[must_use]
    pub fn netns(&self) -> &Path {
        &self.netns
    }

    /// Runs a line of words in the guest.
    ///
    /// # Errors
    /// When it fails.
    pub fn run(&self, line: &str) -> Result<String> {
        netns::run_in(&self.netns, line)
    }

    /// Takes a lease by busybox's client, and puts it to use; what the server said, as the client's `name=value` lines.
    ///
    /// # Errors
    /// When there is no lease.
    pub fn udhcpc(&self) -> Result<String> {
        self.udhcpc_on(LINK)
    }

    /// [`Guest::udhcpc`] on one of several NICs.
    ///
    /// # Errors
    /// When there is no lease.
    pub fn udhcpc_on(&self, link: &str) -> Result<String> {
        let lease = self.dir.join(format!("lease-{}-{link}", self.name));
        let script = self.script("udhcpc.sh", UDHCPC_SCRIPT)?;
        // -n: give up without a lease; -q: end with one; hostname and search are not asked for by default
        let line = format!(
            "env LEASE={} busybox udhcpc -f -n -q -t {} -T 1 -i {link} -s {} -O staticroutes -O mtu -O search -O hostname -O dns -O router",
            lease.display(),
            stretched_seconds(5),
            script.display()
        );
        self.run(&line)?;
        fs::read_to_string(&lease).context("udhcpc ended without a lease")
    }

    /// Takes a lease by ISC's client, and puts it to use; the lease file.
    ///
    /// # Errors
    /// When there is no lease.
    pub fn dhclient(&self) -> Result<String> {
        let leases = self.dir.join(format!("dhclient-{}.leases", self.name));
        let pid = self.dir.join(format!("dhclient-{}.pid", self.name));
        self.run(&format!("dhclient -4 -1 -v -lf {} -pf {} {LINK}", leases.display(), pid.display()))?;
        Ok(fs::read_to_string(&leases)?)
    }

    /// Takes routes from router advertisements, as the kernel does by itself, and addresses by ISC's DHCPv6 client.
    ///
    /// # Errors
    /// When there are none.
    pub fn dhclient6(&self) -> Result<()> {
        let script = self.script("dhclient6.sh", DHCLIENT6_SCRIPT)?;
        let leases = self.dir.join(format!("dhclient6-{}.leases", self.name));
        let pid = self.dir.join(format!("dhclient6-{}.pid", self.name));
        self.settled("link")?;
        // One of a network without a way out says only what is on the link.
        wait_for("router advertisement", IPV6_DEADLINE, || {
            let routes = self.run(&format!("ip -6 route show dev {LINK}"))?;
            Ok(routes.lines().any(|route| !route.starts_with("fe80::/64")).then_some(()))
        })?;
        let files = format!("-sf {} -lf {} -pf {}", script.display(), leases.display(), pid.display());
        self.run(&format!("dhclient -6 -1 {files} {LINK}"))?;
        self.settled("global")
    }

    /// Waits until there is an address of this scope, and the kernel knows that it has it alone.
    fn settled(&self, scope: &str) -> Result<()> {
        wait_for(&format!("IPv6 address of scope {scope}"), IPV6_DEADLINE, || {
            let shown = self.run(&format!("ip -6 -o addr show dev {LINK} scope {scope}"))?;
            ensure!(!shown.contains("dadfailed"), "somebody else has the address: {shown}");
            Ok((!shown.is_empty() && !shown.contains("tentative")).then_some(()))
        })
    }

    fn script(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, text)?;
        sh(&format!("chmod 0755 {}", path.display()))?;
        Ok(path)
    }

    /// Takes what its NIC has of one family without asking, as from a cloud-init network configuration.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn configure(&self, nic: &Nic, ipv6: bool) -> Result<()> {
        let (ip, nodad) = if ipv6 { ("ip -6", "nodad") } else { ("ip -4", "") };
        for address in nic.addresses.iter().filter(|address| address.is_ipv6() == ipv6) {
            self.run(&format!("{ip} addr add {address} dev {LINK} {nodad}"))?;
        }
        for Route { dst, gateway } in nic.routes.iter().filter(|route| route.dst.is_ipv6() == ipv6) {
            let via = gateway.map(|gateway| format!("via {gateway}")).unwrap_or_default();
            self.run(&format!("{ip} route add {dst} {via} dev {LINK}"))?;
        }
        Ok(())
    }

    /// Pings from the guest, three times.
    ///
    /// # Errors
    /// When not all are answered.
    pub fn ping(&self, to: IpAddr) -> Result<()> {
        ping(Some(&self.netns), to)
    }

    /// Ends the guest as a killed QEMU would.
    ///
    /// # Errors
    /// When it ended before.
    pub fn kill(mut self) -> Result<()> {
        ensure!(self.emulator.try_wait()?.is_none(), "the emulator of `{}` ended by itself", self.name);
        self.emulator.kill()?;
        self.emulator.wait()?;
        // dhclient stays to renew its lease.
        for pid in sh(&format!("ip netns pids {}", self.name))?.split_whitespace() {
            kill(Pid::from_raw(pid.parse()?), Signal::SIGKILL)?;
        }
        netns::remove(&self.name)
    }
}

/// A command that runs `vmwrapper` as libvirt would, for a machine with one NIC, and with the fake emulator behind it.
#[must_use]
pub fn vmwrapper(bed: &Bed, node: &NetNode, token: &Token) -> Command {
    vmwrapper_before(bed, node, token, FAKE_EMULATOR)
}

/// A command that runs `vmwrapper` as libvirt would, with an emulator of the bed behind it.
pub(crate) fn vmwrapper_before(bed: &Bed, node: &NetNode, token: &Token, emulator: &str) -> Command {
    let mut command = Command::new(bed.vmwrapper());
    command
        .arg(emulator)
        .env_clear()
        .env("VIRTLET_HANDOFF", node.handoff_socket())
        .env("VIRTLET_TOKEN", token.as_str())
        .env("VIRTLET_EMULATOR", bed.itself())
        .env("VIRTLET_NICS", format!("{FIRST_SLOT:#x}"))
        .uid(QEMU.uid)
        .gid(QEMU.gid);
    command
}

/// Pings three times from the namespace mounted at `netns`, or from the cell's own.
///
/// # Errors
/// When not all are answered.
pub fn ping(netns: Option<&Path>, to: IpAddr) -> Result<()> {
    let line = format!("busybox ping -c 3 -i 0.2 -W {} {to}", stretched_seconds(3));
    let mut command = match netns {
        Some(netns) => netns::command_in(netns, &line),
        None => crate::command::command("busybox", line.split_whitespace().skip(1)),
    };
    let ended = finish(&mut command, TOOL_DEADLINE)?;
    ensure!(ended.code == Some(0) && ended.stdout.contains("3 packets received"), "no ping to {to}: {}", ended.stdout);
    Ok(())
}

fn create_client(netns: &Path, place: usize, nic: &Nic) -> Result<OwnedFd> {
    let link = format!("eth{place}");
    let tap = netns::inside(netns, || create_tap(&link))?;
    for setting in HASTE {
        netns::run_in(netns, &format!("sysctl -q -w {}", setting.replace("LINK", &link)))?;
    }
    // As virtio-net takes both from QEMU.
    netns::run_in(netns, &format!("ip link set {link} address {} mtu {} up", nic.mac, nic.mtu))?;
    Ok(tap)
}
