//! A hand-off server that answers every token at once: the real one lets nobody but vmwrapper in, so it cannot serve
//! both sides of the row alike.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::Result;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use proto::tap::{
    Handoff, HandoffNic, HandoffReply, HandoffRequest, HandoffTap, decode_request, encode_reply, recv, send,
};

/// Serves at `path` until this process ends. Every answer is one NIC with one descriptor.
///
/// # Errors
/// When the socket cannot be made.
pub(super) fn start(path: &Path) -> Result<()> {
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&listener, Backlog::new(16)?)?;
    // Only to accept: what std knows of streams is not used of a packet socket.
    let listener = UnixListener::from(listener);
    let nic = HandoffNic::Tap(HandoffTap { mac: "02:00:00:00:00:01".parse()?, mtu: 1450, queues: 1, vhost: 0 });
    let answer = encode_reply(Ok(&HandoffReply::Nics(Handoff { nics: vec![nic], iommufd: false })), 1)?;
    let descriptor = File::open("/dev/null")?;
    // It ends with the process; a client that it fails says so.
    std::thread::spawn(move || -> Result<()> {
        loop {
            let (peer, _nameless) = listener.accept()?;
            let request = recv(peer.as_fd())?;
            let HandoffRequest::Get { .. } = decode_request(&request.bytes, request.fds.len())?;
            send(peer.as_fd(), &answer, &[descriptor.as_fd()])?;
        }
    });
    Ok(())
}
