//! Who reaches the sockets of a machine: all machines of a node run as one user, and none of them is to reach another's.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tests::case::Bed;
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::libvirt::{running_domains, virsh};
use tests::net_node::QEMU;

/// The bed's own word for [`connect`].
pub(crate) const CONNECT: &str = "connect";

/// The console and the agents' ports of the only machine: root connects, QEMU's user does not.
pub(super) fn are_roots(bed: &Bed) -> Result<()> {
    let xml = virsh(&format!("dumpxml {}", running_domains()?.concat()))?;
    let bound = xml.lines().filter(|line| line.contains("<source mode='bind'"));
    // libvirt shows a serial port as a console once more.
    let sockets: BTreeSet<&str> = bound.filter_map(|line| line.split("path='").nth(1)?.split('\'').next()).collect();
    ensure!(sockets.len() == 3, "not a console and two agents: {sockets:?}");
    for socket in sockets {
        connect(Path::new(socket))?;
        let other = finish(command(bed.itself(), [CONNECT, socket]).uid(QEMU.uid).gid(QEMU.gid), TOOL_DEADLINE)?;
        ensure!(
            other.code == Some(1) && other.stderr.contains("Permission denied"),
            "as QEMU's user, {socket}: {other:?}"
        );
    }
    Ok(())
}

/// Connects to a socket and hangs up.
///
/// # Errors
/// When nobody listens there, or it is not for the caller.
pub(crate) fn connect(socket: &Path) -> Result<()> {
    UnixStream::connect(socket).map(drop).with_context(|| format!("failed to connect to `{}`", socket.display()))
}
