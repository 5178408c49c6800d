//! A guest that is taken over: the taps of a pod in the test's own hands, got as QEMU gets them, through `vmwrapper`.
//!
//! Used by the cases of hostile guests and by the benches of the data paths. `vmwrapper` becomes `bed give-away`, which
//! hands its descriptors to the test over its standard input and ends.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use nix::sys::time::TimeVal;
use nix::sys::uio::writev;
use nix::unistd::read;
use proto::tap::{PodId, recv, send};

use crate::case::Bed;
use crate::guest::vmwrapper_before;
use crate::net_node::NetNode;
use crate::pace::at_worst;
use crate::raw::{given_descriptor, tap_header_len};

/// First argument of the emulator that gives its taps away, by which the bed knows what it is.
pub const GIVE_AWAY: &str = "give-away";

const HANDOFF_DEADLINE: Duration = at_worst(Duration::from_secs(20));

/// One queue of a tap.
#[derive(Debug)]
pub struct TakenTap {
    tap: OwnedFd,
    header: usize,
}

impl TakenTap {
    /// The first tap of `pod`.
    ///
    /// # Errors
    /// When the hand-off fails: the error names the log of `vmwrapper`.
    pub fn of(bed: &Bed, node: &NetNode, pod: &PodId) -> Result<Self> {
        let token = node.arm(pod)?;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        setsockopt(&ours, sockopt::ReceiveTimeout, &TimeVal::new(HANDOFF_DEADLINE.as_secs().try_into()?, 0))?;
        let log = bed.logs().join(format!("taken-{pod}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let mut command = vmwrapper_before(bed, node, &token, GIVE_AWAY);
        let mut emulator = command
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            .spawn()
            .context("failed to start vmwrapper")?;
        drop(command);
        let given = recv(ours.as_fd());
        let ended = emulator.wait()?;
        let tap = given.ok().and_then(|packet| packet.fds.into_iter().next());
        let tap = tap.with_context(|| format!("no tap from vmwrapper, {ended}; see {}", log.display()))?;
        let flags = OFlag::from_bits_retain(fcntl(&tap, FcntlArg::F_GETFL)?);
        fcntl(&tap, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let header = tap_header_len(tap.as_fd())?;
        Ok(Self { tap, header })
    }

    /// Sends a frame as a guest would, with nothing left for the host to do.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn send(&self, frame: &[u8]) -> Result<(), Errno> {
        const NOTHING_TO_DO: [u8; 64] = [0; 64];
        let header = NOTHING_TO_DO.get(..self.header).ok_or(Errno::EINVAL)?;
        writev(&self.tap, &[IoSlice::new(header), IoSlice::new(frame)]).map(drop)
    }

    /// The next frame to the guest, if one comes in time.
    ///
    /// # Errors
    /// When the tap is gone.
    pub fn receive(&self, within: Duration) -> Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; self.header + (1 << 16)];
        loop {
            match read(&self.tap, &mut buffer) {
                Ok(len) => return Ok(Some(buffer.get(self.header..len).context("less than a header")?.to_vec())),
                Err(Errno::EAGAIN) => {}
                Err(cause) => return Err(cause.into()),
            }
            let timeout = PollTimeout::try_from(within)?;
            if poll(&mut [PollFd::new(self.tap.as_fd(), PollFlags::POLLIN)], timeout)? == 0 {
                return Ok(None);
            }
        }
    }

    /// The descriptor.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }

    /// Length of the header before each frame.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.header
    }
}

/// The emulator: sends the descriptors that `vmwrapper` appended over standard input.
///
/// # Errors
/// When the arguments are not vmwrapper's.
pub fn give_away(args: &[String]) -> Result<()> {
    let netdev = args.iter().find(|arg| arg.starts_with("tap,")).context("no `-netdev tap` among the arguments")?;
    let words = || netdev.split(',');
    let numbers = words().find_map(|word| word.strip_prefix("fds=").or_else(|| word.strip_prefix("fd=")));
    let numbers = numbers.context("`-netdev` without a descriptor")?;
    let taps: Vec<OwnedFd> =
        numbers.split(':').map(|number| given_descriptor(number.parse()?)).collect::<Result<_>>()?;
    ensure!(!taps.is_empty(), "no descriptor");
    let taps: Vec<BorrowedFd<'_>> = taps.iter().map(OwnedFd::as_fd).collect();
    Ok(send(std::io::stdin().as_fd(), b"taps", &taps)?)
}
