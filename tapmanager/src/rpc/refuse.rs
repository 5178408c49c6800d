//! Turns a peer away that has no place: without a task, without a wait, and so that it reads why.
//!
//! A close with unread packets would make the kernel throw away what the peer has not read yet. So the peer is kept from
//! sending first; what it sent until then is taken off, unread, its descriptors closed by the kernel; then it is told.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use proto::tap::{ErrorBody, send};

use super::Answer;

/// Tells the peer on a connected socket why, and ends what it may say. The caller closes the socket.
pub(crate) fn refuse(socket: BorrowedFd<'_>, reason: ErrorBody) {
    // Each fails only for a peer that has gone.
    let _ = shutdown(socket.as_raw_fd(), Shutdown::Read);
    // Ends: nothing is added any more, and the peer's buffer bounds what is there.
    while matches!(recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT), Ok(1..)) {}
    let _ = send(socket, &Answer::refuse(reason, true).bytes, &[]);
}
