//! Packet sockets on taps: how the pod's DHCP server hears its guest and nobody else.
//!
//! Opened inside a namespace by [`crate::net`], read and written by `addressing::serve` on the one runtime. With
//! `ETH_P_ALL` the socket sees the guest's frames before the tap's filters drop them, so nothing has to leave the pod
//! to be answered. What it sends goes to the guest and nowhere else.
//!
//! The order of opening matters: a socket made with protocol 0 hears nothing until it is bound, so the filter is there
//! before the first frame, and binding an idle socket costs 0.03 ms instead of 15. Closing one waits 10 to 16 ms for
//! the kernel's readers; hence [`PacketSocket::close_off_reactor`].

#![expect(unsafe_code, reason = "an option of packet sockets and bind, which neither nix nor socket2 has")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socket};
use socket2::{SockFilter, SockRef};

use super::bpf::Program;
use crate::blocking::aside;
use common::Ready;

/// What the guest's frames may take of the kernel's memory before they are read, as the kernel counts: a few dozen frames.
/// The default is 16 times that, for each of a node's guests that floods its server.
const RECEIVE_BUFFER: usize = 16 << 10;

/// A bound packet socket of one link.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    ready: Ready,
}

impl PacketSocket {
    /// Opens a socket that hears the frames coming in on the link `ifindex` of this thread's namespace that `filter`
    /// gives other than 0 for. Must be called in the context of the runtime.
    pub(crate) fn open(ifindex: u32, filter: &Program) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        // Without this it would also hear all that goes to the guest.
        ignore_outgoing(&socket)?;
        // The kernel doubles it, for its own books.
        SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
        attach_filter(&socket, filter)?;
        bind(&socket, ifindex)?;
        Ok(Self { ready: Ready::register(socket)? })
    }

    /// Receives one Ethernet frame, cut off at the end of `buf`. `ENETDOWN` comes once when the link goes down or away;
    /// the socket hears again if it comes up.
    pub(crate) async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.ready.read(|fd| Ok(recv(fd.as_raw_fd(), buf, MsgFlags::empty())?)).await
    }

    /// Sends one Ethernet frame out of the link, that is to the guest. A guest that is not there, or does not read its
    /// queue, hears nothing; that is no error.
    pub(crate) async fn send(&self, frame: &[u8]) -> io::Result<()> {
        match self.ready.write(|fd| Ok(send(fd.as_raw_fd(), frame, MsgFlags::empty())?)).await {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENETDOWN)) => Ok(()),
            sent => sent.map(|_| ()),
        }
    }

    /// Closes the socket where the 10 to 16 ms that this takes hurt nobody. Must be called in the context of the
    /// runtime, and does not wait.
    pub(crate) fn close_off_reactor(self) {
        let fd = self.ready.into_inner();
        drop(aside(move || drop(fd)));
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

pub(super) fn attach_filter(socket: &OwnedFd, filter: &Program) -> io::Result<()> {
    let code: Vec<_> = filter.instructions().iter().map(|i| SockFilter::new(i.code, i.jt, i.jf, i.k)).collect();
    attach(socket, &code)
}

/// socket2 tells the kernel the lower 16 bits of how many instructions there are, and the kernel would take the beginning of a longer
/// program for one of its own.
fn attach(socket: &OwnedFd, code: &[SockFilter]) -> io::Result<()> {
    u16::try_from(code.len()).map_err(|_| Errno::E2BIG)?;
    SockRef::from(socket).attach_filter(code)
}

fn ignore_outgoing(socket: &OwnedFd) -> io::Result<()> {
    let (yes, len) = (1_i32, libc::socklen_t::try_from(size_of::<i32>()).map_err(|_| Errno::EINVAL)?);
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING);
    // SAFETY: points to an integer, which is what this option takes, that outlives the call, on an open descriptor.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const yes).cast(), len) };
    Errno::result(result)?;
    Ok(())
}

fn bind(socket: &OwnedFd, ifindex: u32) -> io::Result<()> {
    let index = i32::try_from(ifindex).map_err(|_| Errno::ENODEV)?;
    let family = u16::try_from(libc::AF_PACKET).map_err(|_| Errno::EAFNOSUPPORT)?;
    let protocol = u16::try_from(libc::ETH_P_ALL).map_err(|_| Errno::EPROTONOSUPPORT)?.to_be();
    let address = libc::sockaddr_ll {
        sll_family: family,
        sll_protocol: protocol,
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: points to a whole sockaddr_ll that outlives the call, on an open descriptor.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives this many bytes of a frame (`BPF_RET | BPF_K`).
    const RETURN: u16 = 0x06;

    #[test]
    fn no_beginning_of_a_program_is_attached_for_the_whole() {
        let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        let program = |len: usize| (0..len).map(|_| SockFilter::new(RETURN, 0, 0, 0)).collect::<Vec<_>>();
        attach(&socket, &program(1)).expect("a program");
        let refused = attach(&socket, &program((1 << 16) + 1)).expect_err("of one instruction, as 16 bits have it");
        assert_eq!(refused.raw_os_error(), Some(libc::E2BIG));
    }
}
