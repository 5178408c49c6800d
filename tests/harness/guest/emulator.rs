//! The fake emulator: what `vmwrapper` becomes. It copies frames between the pod's taps, whose descriptors `vmwrapper`
//! appended to the arguments, and as many taps of the guest, which come over its standard input.

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};
use proto::tap::recv;

use super::RELAYING;
use crate::raw::{given_descriptor, tap_header_len, without_offloads};

const MAX_FRAME: usize = 1 << 16;

/// Finds the descriptors that `vmwrapper` appended and copies frames for as long as it lives.
///
/// # Errors
/// When the arguments are not vmwrapper's, or a tap fails.
pub fn emulate(args: &[String]) -> Result<()> {
    let netdevs = args.iter().filter(|arg| arg.starts_with("tap,"));
    let pods = netdevs.map(|netdev| pod_tap(netdev)).collect::<Result<Vec<_>>>()?;
    ensure!(!pods.is_empty(), "no `-netdev tap` among the arguments");
    if let Some((name, _)) = std::env::vars_os().find(|(name, _)| name.to_string_lossy().starts_with("VIRTLET_")) {
        bail!("the emulator was given `{}`", name.display());
    }
    writeln!(std::io::stdout(), "{RELAYING}")?;
    if !fs::metadata("/proc/self/fd/0")?.file_type().is_socket() {
        return Ok(()); // only the hand-off was wanted
    }
    let guests = recv(std::io::stdin().as_fd())?.fds;
    ensure!(guests.len() == pods.len(), "{} taps of the guest for {} of the pod", guests.len(), pods.len());
    relay(&pods.into_iter().zip(guests).collect::<Vec<_>>())
}

fn pod_tap(netdev: &str) -> Result<OwnedFd> {
    let number = netdev.split(',').find_map(|part| part.strip_prefix("fd=")).context("`-netdev` without `fd=`")?;
    given_descriptor(number.parse()?)
}

/// Reads only after `poll`: a pod's descriptor blocks, as it comes.
fn relay(pairs: &[(OwnedFd, OwnedFd)]) -> Result<()> {
    let headers = pairs.iter().map(|(pod, _)| tap_header_len(pod.as_fd())).collect::<Result<Vec<_>>>()?;
    pairs.iter().try_for_each(|(pod, _)| without_offloads(pod.as_fd()))?;
    let mut buffer = vec![0; MAX_FRAME + headers.iter().max().copied().unwrap_or_default()];
    loop {
        let mut ends: Vec<PollFd<'_>> = pairs
            .iter()
            .flat_map(|(pod, guest)| [pod, guest])
            .map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut ends, PollTimeout::NONE)?;
        let ready: Vec<bool> = ends.iter().map(|end| end.any().unwrap_or(false)).collect();
        for (((pod, guest), header), ready) in pairs.iter().zip(&headers).zip(ready.chunks(2)) {
            copy(pod.as_fd(), guest.as_fd(), *header, ready, &mut buffer)?;
        }
    }
}

/// A frame of the pod starts with a virtio header. Ours are all zeros: no offloads are agreed on.
fn copy(pod: BorrowedFd<'_>, guest: BorrowedFd<'_>, header: usize, ready: &[bool], buffer: &mut [u8]) -> Result<()> {
    let [from_pod, from_guest] = *ready else { bail!("not two ends") };
    if from_pod && let Some(len) = frame(read(pod, &mut *buffer))? {
        delivered(write(guest, buffer.get(header..len).context("a frame shorter than its header")?))?;
    }
    if from_guest && let Some(len) = frame(read(guest, buffer.split_at_mut(header).1))? {
        buffer.split_at_mut(header).0.fill(0);
        delivered(write(pod, buffer.get(..header + len).context("a frame longer than its buffer")?))?;
    }
    Ok(())
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
