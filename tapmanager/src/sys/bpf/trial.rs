//! Asks the kernel what a program says about a frame, without a link or a privilege: the program filters one end of a pair
//! of local sockets. For tests.

use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

use super::Program;
use crate::sys::packet::attach_filter;

/// A program that the kernel has taken.
#[derive(Debug)]
pub(crate) struct Trial {
    sender: OwnedFd,
    receiver: OwnedFd,
}

impl Trial {
    /// Fails if the kernel refuses the program.
    pub(crate) fn of(program: &Program) -> std::io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (sender, receiver) = socketpair(AddressFamily::Unix, SockType::Datagram, None, flags)?;
        attach_filter(&receiver, program)?;
        Ok(Self { sender, receiver })
    }

    /// How many bytes of `frame` the kernel lets through, which is what the program gives, and the whole frame at most.
    pub(crate) fn run(&self, frame: &[u8]) -> usize {
        let mut kept = vec![0; frame.len() + 1];
        match send(self.sender.as_raw_fd(), frame, MsgFlags::empty()) {
            // A local socket tells its sender so.
            Err(Errno::EPERM) => return 0,
            sent => assert_eq!(sent, Ok(frame.len())),
        }
        match recv(self.receiver.as_raw_fd(), &mut kept, MsgFlags::empty()) {
            Err(Errno::EAGAIN) => 0,
            received => received.expect("received"),
        }
    }
}
