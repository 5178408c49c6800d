//! The kernel's notifications about links of a namespace.
//!
//! Called by [`crate::vf`], which awaits a VF's netdev. Who awaits a link opens this first and looks for the link
//! afterwards: what comes after the look is told here.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::link::{self, Link};
use super::netlink::NetlinkError;

/// The group of notifications (`RTNLGRP_LINK`), as a bit.
const LINK_GROUP: u32 = 1;
/// One notification is about one link, without its VFs.
const CAPACITY: usize = 32 << 10;
/// The kernel's clock of `poll` has no smaller part.
const TICK: Duration = Duration::from_millis(1);

/// A socket that hears of every link of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct LinkEvents {
    socket: Socket,
}

impl LinkEvents {
    /// Begins to listen in this thread's namespace.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(NetlinkError::Open)?;
        socket.bind(&SocketAddr::new(0, LINK_GROUP)).map_err(NetlinkError::Open)?;
        Ok(Self { socket })
    }

    /// Waits until a link that `matters` was made or changed, or notifications were lost: then it is time to look again.
    /// `false` if neither was until the deadline.
    pub(crate) fn wait(&self, until: Instant, matters: impl Fn(&Link) -> bool) -> Result<bool, NetlinkError> {
        let mut notification = Vec::with_capacity(CAPACITY);
        while self.readable(until).map_err(|errno| NetlinkError::Hear(errno.into()))? {
            notification.clear();
            match self.socket.recv(&mut notification, libc::MSG_DONTWAIT) {
                Ok(_) if links(&notification)?.iter().any(&matters) => return Ok(true),
                // The kernel had more to tell than the socket holds.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(true),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(NetlinkError::Hear(error)),
            }
        }
        Ok(false)
    }

    /// Whether there is something to be received before the deadline.
    fn readable(&self, until: Instant) -> nix::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let timeout = PollTimeout::try_from(left + TICK).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// The links that a datagram tells of.
fn links(mut rest: &[u8]) -> Result<Vec<Link>, NetlinkError> {
    let mut links = Vec::new();
    while !rest.is_empty() {
        let header = NetlinkBuffer::new_checked(rest).map_err(NetlinkError::Malformed)?;
        let len = header.length() as usize;
        let (this, next) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        rest = next.get(len.next_multiple_of(4) - len..).unwrap_or_default();
        let message = NetlinkMessage::deserialize(this).map_err(NetlinkError::Malformed)?;
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) = message.payload {
            links.extend(link::link_of(message));
        }
    }
    Ok(links)
}
