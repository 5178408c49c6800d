//! Packets and descriptors through a `SOCK_SEQPACKET` socket: the one place that receives descriptors.

#![expect(unsafe_code, reason = "descriptors that arrive by SCM_RIGHTS are raw numbers until they are owned here")]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recv as peek, recvmsg, sendmsg};

use super::{MAX_FDS, MAX_MESSAGE};

/// One received packet. Its descriptors are owned and close-on-exec.
#[derive(Debug)]
pub struct Packet {
    /// The message.
    pub bytes: Vec<u8>,
    /// What travelled beside it, in the sender's order.
    pub fds: Vec<OwnedFd>,
}

/// Why a packet was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The peer hung up.
    #[error("peer closed the connection")]
    Closed,
    /// The kernel cut the packet or its descriptors off; what did arrive has been closed.
    #[error("packet was cut off: larger than {MAX_MESSAGE} bytes or {MAX_FDS} descriptors")]
    Truncated,
    /// The packet was longer than who received it takes; what came beside it has been closed.
    #[error("packet has more than {most} bytes, which nothing has that is asked here")]
    TooLong {
        /// What is taken.
        most: usize,
    },
    /// The socket failed; `EAGAIN` means not ready, or that the socket's own deadline passed.
    #[error("socket failed")]
    Os(#[source] Errno),
}

impl From<Errno> for WireError {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

/// Sends one packet whole, with descriptors beside it.
///
/// # Errors
/// The socket's.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let sent =
        retry(|| sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None));
    match sent {
        // SEQPACKET sends a packet whole or not at all.
        Ok(_) => Ok(()),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(WireError::Closed),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives one packet. Every descriptor is owned before anything about the packet is checked. A socket has one receiver
/// at a time.
///
/// # Errors
/// [`WireError::Closed`] at the end of the connection, [`WireError::Truncated`] for an over-long packet, else the socket's.
pub fn recv(socket: BorrowedFd<'_>) -> Result<Packet, WireError> {
    // One byte more than allowed, so that a packet of exactly the limit is not taken for a longer one. Most packets are far
    // shorter, and so is the buffer: the kernel tells the length of the next one.
    let length = retry(|| peek(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC));
    let length = match length {
        Ok(length) => length,
        Err(Errno::ECONNRESET) => return Err(WireError::Closed),
        Err(errno) => return Err(errno.into()),
    };
    let packet = receive(socket, length.clamp(1, MAX_MESSAGE + 1), MsgFlags::empty())?;
    if packet.bytes.len() > MAX_MESSAGE { Err(WireError::Truncated) } else { Ok(packet) }
}

/// Receives a packet of at most `most` bytes that is there already, by one call of the kernel; `None` if there is none yet.
/// For a server to which only short messages are sent.
///
/// # Errors
/// As [`recv`]; [`WireError::TooLong`] for a longer one, which is lost.
pub fn try_recv_short(socket: BorrowedFd<'_>, most: usize) -> Result<Option<Packet>, WireError> {
    match receive(socket, most, MsgFlags::MSG_DONTWAIT) {
        Ok(packet) => Ok(Some(packet)),
        Err(WireError::Os(Errno::EAGAIN)) => Ok(None),
        Err(WireError::Truncated) => Err(WireError::TooLong { most }),
        Err(error) => Err(error),
    }
}

/// Receives what fits into `room` bytes.
fn receive(socket: BorrowedFd<'_>, room: usize, how: MsgFlags) -> Result<Packet, WireError> {
    let mut bytes = vec![0; room];
    let mut control = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut fds = Vec::new();
    let (len, flags) = {
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let received = retry(|| {
            let flags = MsgFlags::MSG_CMSG_CLOEXEC | how;
            recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut control), flags).map(|message| {
                for part in message.cmsgs().into_iter().flatten() {
                    if let ControlMessageOwned::ScmRights(raw) = part {
                        // SAFETY: the kernel made these descriptors for this process in this very call.
                        fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                    }
                }
                (message.bytes, message.flags)
            })
        });
        match received {
            Ok(received) => received,
            Err(Errno::ECONNRESET) => return Err(WireError::Closed),
            Err(errno) => return Err(errno.into()),
        }
    };
    if flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
        return Err(WireError::Truncated);
    }
    if len == 0 && fds.is_empty() {
        return Err(WireError::Closed);
    }
    bytes.truncate(len);
    Ok(Packet { bytes, fds })
}

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests;
