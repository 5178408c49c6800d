//! Devices that the kernel finds while programs run already: its events (`NETLINK_KOBJECT_UEVENT`, `lib/kobject_uevent.c`), which say
//! each once it is in `/sys`.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};

/// The group to which the kernel itself speaks.
const KERNEL: u32 = 1;
/// More than an event has.
const EVENT: usize = 16 << 10;

/// Events from when it was made.
#[derive(Debug)]
pub(crate) struct Arrivals(OwnedFd);

impl Arrivals {
    pub(crate) fn listen() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listening = socket(AddressFamily::Netlink, SockType::Datagram, flags, SockProtocol::NetlinkKObjectUEvent)?;
        bind(listening.as_raw_fd(), &NetlinkAddr::new(0, KERNEL))?;
        Ok(Self(listening))
    }

    /// Waits for one, and takes all that there are; whether one came before the deadline.
    pub(crate) fn wait(&self, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut listening = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut listening, left) {
                Ok(0) => return Ok(false),
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut event = vec![0; EVENT];
        loop {
            match recv(self.0.as_raw_fd(), &mut event, MsgFlags::empty()) {
                // More came than the kernel keeps: that something came is all that is asked.
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
