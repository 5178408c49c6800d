//! A guest without a machine: a network namespace behind a pod's tap, reached through the real `vmwrapper`.
//!
//! `vmwrapper` runs as QEMU's user and becomes "the emulator", which is `bed fake-emulator`: it copies frames between
//! the descriptor that `vmwrapper` appended and its standard input, a tap in the guest's namespace. The stack in there
//! is a real kernel's, so real DHCP clients take the lease.

use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, read, write};
use proto::tap::{Nic, PodId, Token};

use crate::case::Bed;
use crate::command::{TOOL_DEADLINE, finish, sh};
use crate::net_node::{NetNode, QEMU};
use crate::netns;
use crate::raw::{create_tap, given_descriptor, tap_header_len};
use crate::wait::wait_for;

/// First argument of the fake emulator, by which the bed knows what it is.
pub const FAKE_EMULATOR: &str = "fake-emulator";

const LINK: &str = "eth0";
const RELAYING: &str = "relaying";
const UDHCPC_SCRIPT: &str = include_str!("guest/udhcpc.sh");
const START_DEADLINE: Duration = Duration::from_secs(20);

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    name: String,
    netns: PathBuf,
    dir: PathBuf,
    emulator: Child,
}

impl Guest {
    /// Starts a guest called `name` behind the first NIC of `pod`.
    ///
    /// # Errors
    /// When the hand-off fails: the error has what `vmwrapper` said.
    pub fn start(bed: &Bed, node: &NetNode, pod: &PodId, nic: &Nic, name: &str) -> Result<Self> {
        let token = node.arm(pod)?;
        let (netns, tap) = create_client(name, nic)?;
        let log = bed.logs().join(format!("guest-{name}.log"));
        let mut emulator = vmwrapper(bed, node, &token);
        let mut emulator = emulator
            .stdin(Stdio::from(tap))
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
        let script = self.dir.join("udhcpc.sh");
        let lease = self.dir.join(format!("lease-{}", self.name));
        fs::write(&script, UDHCPC_SCRIPT)?;
        sh(&format!("chmod 0755 {}", script.display()))?;
        // -n: give up without a lease; -q: end with one; hostname and search are not asked for by default
        let line = format!(
            "env LEASE={} busybox udhcpc -f -n -q -t 5 -T 1 -i {LINK} -s {} -O staticroutes -O mtu -O search -O hostname -O dns -O router",
            lease.display(),
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

/// A command that runs `vmwrapper` as libvirt would, with the fake emulator behind it.
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
        .env("VIRTLET_NICS", "0x10")
        .uid(QEMU.uid)
        .gid(QEMU.gid);
    command
}

/// Pings three times from the namespace mounted at `netns`, or from the cell's own.
///
/// # Errors
/// When not all are answered.
pub fn ping(netns: Option<&Path>, to: IpAddr) -> Result<()> {
    let line = format!("busybox ping -c 3 -i 0.2 -W 3 {to}");
    let mut command = match netns {
        Some(netns) => netns::command_in(netns, &line),
        None => crate::command::command("busybox", line.split_whitespace().skip(1)),
    };
    let ended = finish(&mut command, TOOL_DEADLINE)?;
    ensure!(ended.code == Some(0) && ended.stdout.contains("3 packets received"), "no ping to {to}: {}", ended.stdout);
    Ok(())
}

/// The fake emulator: finds the descriptor that `vmwrapper` appended and copies frames until one side ends.
///
/// # Errors
/// When the arguments are not vmwrapper's, or a tap fails.
pub fn emulate(args: &[String]) -> Result<()> {
    use std::io::Write as _;

    let netdev = args.iter().find(|arg| arg.starts_with("tap,")).context("no `-netdev tap` among the arguments")?;
    let number = netdev.split(',').find_map(|part| part.strip_prefix("fd=")).context("`-netdev` without `fd=`")?;
    let pod = given_descriptor(number.parse()?)?;
    if let Some((name, _)) = std::env::vars_os().find(|(name, _)| name.to_string_lossy().starts_with("VIRTLET_")) {
        bail!("the emulator was given `{}`", name.display());
    }
    writeln!(std::io::stdout(), "{RELAYING}")?;
    relay(pod.as_fd(), std::io::stdin().as_fd())
}

/// Reads only after `poll`: the pod's descriptor blocks, as it comes.
fn relay(pod: BorrowedFd<'_>, client: BorrowedFd<'_>) -> Result<()> {
    let header = tap_header_len(pod)?;
    let mut buffer = vec![0; header + (1 << 16)];
    loop {
        let mut ends = [PollFd::new(pod, PollFlags::POLLIN), PollFd::new(client, PollFlags::POLLIN)];
        poll(&mut ends, PollTimeout::NONE)?;
        let [from_pod, from_client] = ends.map(|end| end.any().unwrap_or(false));
        // A frame of the pod starts with a virtio header. Ours are all zeros: no offloads are agreed on.
        if from_pod && let Some(len) = frame(read(pod, &mut buffer))? {
            delivered(write(client, buffer.get(header..len).context("a frame shorter than its header")?))?;
        }
        if from_client && let Some(len) = frame(read(client, buffer.split_at_mut(header).1))? {
            if len == 0 {
                return Ok(()); // no tap, but the end of a file: only the hand-off was wanted
            }
            buffer.split_at_mut(header).0.fill(0);
            delivered(write(pod, buffer.get(..header + len).context("a frame longer than its buffer")?))?;
        }
    }
}

fn frame(outcome: nix::Result<usize>) -> Result<Option<usize>> {
    match outcome {
        Ok(len) => Ok(Some(len)),
        Err(Errno::EAGAIN) => Ok(None),
        Err(cause) => Err(cause.into()),
    }
}

/// A link that is down, or full, loses frames, as links do.
fn delivered(outcome: nix::Result<usize>) -> Result<()> {
    match outcome {
        Ok(_) | Err(Errno::EIO | Errno::EAGAIN | Errno::ENOBUFS) => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

fn create_client(name: &str, nic: &Nic) -> Result<(PathBuf, OwnedFd)> {
    let path = netns::create(name)?;
    let tap = netns::inside(&path, || create_tap(LINK))?;
    // As virtio-net takes both from QEMU.
    netns::run_in(&path, &format!("ip link set {LINK} address {} mtu {} up", nic.mac, nic.mtu))?;
    Ok((path, tap))
}
