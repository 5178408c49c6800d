//! The hand-off as a peer of any kind tries it, and raw packets on either socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use proto::tap::{Client, Packet, Token, recv, send};

use crate::pace::at_worst;

const DEADLINE: Duration = at_worst(Duration::from_secs(60));
/// Of an answer.
const SILENCE: Duration = at_worst(Duration::from_secs(10));
/// Threads of a storm, and connections that each holds.
const STORMERS: usize = 4;
const HELD: usize = 32;

/// `bed get`: tries to get descriptors as whoever this process is.
///
/// # Errors
/// What the server says.
pub fn get(path: &Path, token: &str) -> Result<()> {
    let token: Token = token.parse()?;
    Client::new(path, DEADLINE).get(token)?;
    Ok(())
}

/// `bed storm`: connects as often as the server lets it, says nothing, and holds on to the latest connections, until it is
/// killed.
///
/// # Errors
/// When there is no thread.
pub fn storm(path: &Path) -> Result<()> {
    std::thread::scope(|scope| {
        for _ in 0..STORMERS {
            std::thread::Builder::new().spawn_scoped(scope, || {
                let mut held = VecDeque::new();
                loop {
                    held.extend(dial(path));
                    if held.len() > HELD {
                        held.pop_front();
                    }
                }
            })?;
        }
        Ok(())
    })
}

/// A connection to the socket at `path`, whose reads give up after a while.
///
/// # Errors
/// When nobody listens there.
pub fn dial(path: &Path) -> Result<OwnedFd> {
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(SILENCE.as_secs().try_into()?, 0))?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?).with_context(|| format!("nobody at {}", path.display()))?;
    Ok(socket)
}

/// Sends one packet, and returns the answer's text.
///
/// # Errors
/// When there is no answer.
pub fn exchange(path: &Path, packet: &[u8]) -> Result<String> {
    let socket = dial(path)?;
    send(socket.as_fd(), packet, &[])?;
    let Packet { bytes, .. } = recv(socket.as_fd())?;
    Ok(String::from_utf8(bytes)?)
}
