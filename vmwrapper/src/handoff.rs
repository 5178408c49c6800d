//! Fetches the pod's NICs from tapmanager, and lets QEMU inherit their descriptors.
//!
//! The deadline of the environment (`VIRTLET_DEADLINE_MS`) is one for all of it: connecting, waiting for the answer, and
//! asking again while tapmanager says that it has no room. That answer comes before the token is looked at.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use proto::tap::{Client, ClientError, ErrorCode, Handoff, HandoffNic, HandoffVfio, Token, WireError};

use crate::argv::{Nic, Nics, Tap, Vfio};
use crate::env::Place;

/// Before it is asked again for the first time. Each further pause is twice as long, up to [`LONGEST_PAUSE`]: nobody tells
/// when there is room again.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

/// Why the pod's NICs did not come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandoffError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("tapmanager gave {nics} NICs, the domain has {slots} slots in `VIRTLET_NICS`")]
    Count { nics: usize, slots: usize },
    #[error("tapmanager gave NIC {0} without a queue")]
    NoQueue(usize),
    #[error("tapmanager gave NIC {nic} {vhost} vhost descriptors for {queues} queues")]
    Vhost { nic: usize, vhost: usize, queues: usize },
    #[error("tapmanager gave NIC {0} as a device and no descriptor of `/dev/iommu`")]
    NoIommufd(usize),
    #[error("tapmanager gave NIC {0} without the descriptor of its device")]
    NoDevice(usize),
}

impl HandoffError {
    /// Whether the two sides do not understand each other, rather than one of them not answering or saying no.
    pub(crate) fn is_of_protocol(&self) -> bool {
        match self {
            Self::Count { .. } | Self::NoQueue(_) | Self::Vhost { .. } | Self::NoIommufd(_) | Self::NoDevice(_) => true,
            Self::Client(ClientError::Refused(body)) => matches!(body.code, ErrorCode::Version | ErrorCode::BadRequest),
            Self::Client(ClientError::Wire { cause, .. }) => matches!(cause, WireError::Truncated),
            Self::Client(ClientError::Codec { .. } | ClientError::WrongReply) => true,
            Self::Client(ClientError::Connect { .. } | ClientError::Deadline { .. }) => false,
        }
    }

    /// What a person does about it. A refusal says so itself, as does a failed connect.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Client(ClientError::Refused(_) | ClientError::Connect { .. }) => None,
            Self::Client(ClientError::Deadline { .. } | ClientError::Wire { .. }) => Some("see tapmanager's log"),
            Self::Client(ClientError::Codec { .. } | ClientError::WrongReply)
            | Self::NoQueue(_)
            | Self::Vhost { .. }
            | Self::NoIommufd(_)
            | Self::NoDevice(_) => Some("install vmwrapper and tapmanager of one release"),
            Self::Count { .. } => Some("delete the pod, so that it is made anew"),
        }
    }
}

/// Trades `token` for the pod's NICs, which take `places` in order.
///
/// # Errors
/// See [`HandoffError`].
pub(crate) fn fetch(socket: PathBuf, deadline: Duration, token: Token, places: &[Place]) -> Result<Nics, HandoffError> {
    let (handoff, fds) = get(&Client::new(socket, deadline), deadline, &token)?;
    if handoff.nics.len() != places.len() {
        return Err(HandoffError::Count { nics: handoff.nics.len(), slots: places.len() });
    }
    // The client has seen to it that there are as many descriptors as are announced.
    let mut fds = fds.into_iter();
    let iommufd = if handoff.iommufd { fds.next() } else { None };
    let placed = |(index, (nic, &place)): (usize, (&HandoffNic, &Place))| match nic {
        HandoffNic::Tap(tap) => {
            let queues: Vec<OwnedFd> = fds.by_ref().take(tap.queues.into()).collect();
            let vhost: Vec<OwnedFd> = fds.by_ref().take(tap.vhost.into()).collect();
            if queues.is_empty() {
                return Err(HandoffError::NoQueue(index));
            }
            if !vhost.is_empty() && vhost.len() != queues.len() {
                return Err(HandoffError::Vhost { nic: index, vhost: vhost.len(), queues: queues.len() });
            }
            Ok(Nic::Tap(Tap { mac: tap.mac, mtu: tap.mtu, place, queues, vhost }))
        }
        HandoffNic::Vfio { vfio: HandoffVfio::Descriptor } => {
            if !handoff.iommufd {
                return Err(HandoffError::NoIommufd(index));
            }
            let device = fds.next().ok_or(HandoffError::NoDevice(index))?;
            Ok(Nic::Vfio(Vfio { place, device }))
        }
        HandoffNic::Vfio { vfio: HandoffVfio::Hostdev } => Ok(Nic::Hostdev),
    };
    let nics = handoff.nics.iter().zip(places).enumerate().map(placed).collect::<Result<_, _>>()?;
    Ok(Nics { iommufd, nics })
}

/// Asks until there is an answer other than that there is no room, or the deadline would pass before the next time.
fn get(client: &Client, deadline: Duration, token: &Token) -> Result<(Handoff, Vec<OwnedFd>), ClientError> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut answer = client.get(token.clone());
    while has_no_room(&answer) && started.elapsed() + pause < deadline {
        #[expect(
            clippy::disallowed_methods,
            reason = "no event tells when there is room; the deadline is the domain's"
        )]
        thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
        let left = deadline.saturating_sub(started.elapsed());
        answer = Client::new(client.path(), left).get(token.clone());
    }
    answer
}

fn has_no_room<T>(answer: &Result<T, ClientError>) -> bool {
    matches!(answer, Err(ClientError::Refused(body)) if body.code == ErrorCode::Unavailable)
}

/// Takes close-on-exec off descriptors that QEMU is to have.
///
/// # Errors
/// The kernel's, which only a bug of ours can cause.
pub(crate) fn make_inheritable(fds: &[OwnedFd]) -> nix::Result<()> {
    fds.iter().try_for_each(|fd| fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).map(drop))
}
