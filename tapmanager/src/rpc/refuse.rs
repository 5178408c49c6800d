//! Turns a peer away for which there is no place: without a task, without waiting, and such that the peer can read why.
//!
//! If packets of the peer are unread at the close, the kernel discards what the peer has not read yet. So the server
//! first shuts down the peer's sending side, then receives what the peer sent until then without reading it (the kernel
//! closes its descriptors), and then replies.

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
