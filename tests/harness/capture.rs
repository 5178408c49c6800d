//! Records the frames of a link while a case does something.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::write;

use crate::netns::inside;
use crate::raw::packet_socket;

/// How long the recorder waits before it looks whether it is to end.
const LOOK_MS: u16 = 20;

/// A recorder that runs until it is stopped.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    recorder: JoinHandle<Result<Vec<Vec<u8>>>>,
}

impl Capture {
    /// Records `link` of the namespace mounted at `netns`, or of the cell's own.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn start(netns: Option<&Path>, link: &str) -> Result<Self> {
        let socket = open(netns, link)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let recorder = std::thread::spawn(move || record(&socket, &stopped));
        Ok(Self { stop, recorder })
    }

    /// The frames, in their order.
    ///
    /// # Errors
    /// When recording failed on the way, e.g. since the link went away.
    pub fn stop(self) -> Result<Vec<Vec<u8>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.recorder.join().map_err(|_| anyhow!("the recorder panicked"))?
    }
}

/// Sends one frame out of `link` of the namespace mounted at `netns`.
///
/// # Errors
/// When there is no such link, or it is down.
pub fn send(netns: &Path, link: &str, frame: &[u8]) -> Result<()> {
    write(open(Some(netns), link)?, frame)?;
    Ok(())
}

fn open(netns: Option<&Path>, link: &str) -> Result<OwnedFd> {
    match netns {
        Some(netns) => inside(netns, || packet_socket(link)),
        None => packet_socket(link),
    }
}

fn record(socket: &OwnedFd, stop: &AtomicBool) -> Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(len) => frames.push(buffer.iter().take(len).copied().collect()),
            // All that came before the stop was read.
            Err(Errno::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(frames),
            Err(Errno::EAGAIN) => {
                poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::from(LOOK_MS))?;
            }
            Err(cause) => return Err(cause.into()),
        }
    }
}
