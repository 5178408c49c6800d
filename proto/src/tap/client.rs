//! A blocking client with a deadline: for `vmwrapper` and the command line. `controld` only dials with it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    CodecError, ErrorBody, ErrorCode, Handoff, HandoffReply, HandoffRequest, List, OwnerId, Packet, PodId, PodStats,
    PodSummary, Reply, Request, Token, Versioned, VfPage, VfRequest, WireError, decode_reply, encode_request, recv,
    send,
};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("failed to connect to `{}`; is tapmanager running?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        cause: Errno,
    },
    /// The answer did not come in time.
    #[error("no answer from `{}` to `{request}` within {}", path.display(), in_seconds(*deadline))]
    Deadline {
        /// The socket.
        path: PathBuf,
        /// What was asked.
        request: &'static str,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// The connection failed.
    #[error("connection to `{}` failed", path.display())]
    Wire {
        /// The socket.
        path: PathBuf,
        /// How.
        #[source]
        cause: WireError,
    },
    /// The answer is not of the protocol.
    #[error("answer from `{}` not understood", path.display())]
    Codec {
        /// The socket.
        path: PathBuf,
        /// How.
        #[source]
        cause: CodecError,
    },
    /// tapmanager refused, and says why.
    #[error("tapmanager: {0}")]
    Refused(ErrorBody),
    /// The answer belongs to another question.
    #[error("tapmanager answered another question")]
    WrongReply,
}

impl ClientError {
    /// The class of the failure, as if tapmanager had named it.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(body) => body.code,
            Self::Connect { .. } => ErrorCode::Unavailable,
            // A daemon that goes down in the middle of a call is as good as not there.
            Self::Wire { .. } => ErrorCode::Unavailable,
            Self::Deadline { .. } => ErrorCode::Deadline,
            Self::Codec { .. } | Self::WrongReply => ErrorCode::Internal,
        }
    }
}

/// Where tapmanager listens, and how long an answer may take. Each call has a connection of its own, so a daemon
/// that was restarted in between is not noticed.
#[derive(Debug, Clone)]
pub struct Client {
    path: PathBuf,
    deadline: Duration,
}

impl Client {
    /// A client of the socket at `path`. Connects at each call.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, deadline: Duration) -> Self {
        Self { path: path.into(), deadline }
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks `tapmanager` over its control socket.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn call(&self, request: &Request) -> Result<Reply, ClientError> {
        let (reply, _no_fds) = self.exchange(request, request.name())?;
        Ok(reply)
    }

    /// All pods, page by page, or those of one owner.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn pods(&self, owner: Option<&OwnerId>) -> Result<Vec<PodSummary>, ClientError> {
        self.pages(
            |after| Request::List(List { after, owner: owner.cloned(), pod: None }),
            |pod: &PodSummary| &pod.pod,
            |reply| match reply {
                Reply::Pods(page) => Some((page.pods, page.more)),
                _ => None,
            },
        )
    }

    /// Counters of all pods that have a network, page by page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stats(&self) -> Result<Vec<PodStats>, ClientError> {
        self.pages(
            |after| Request::Stats(List { after, ..List::default() }),
            |pod: &PodStats| &pod.pod,
            |reply| match reply {
                Reply::Stats(page) => Some((page.pods, page.more)),
                _ => None,
            },
        )
    }

    /// All PFs and VFs of the node, page by page, as one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn vfs(&self) -> Result<VfPage, ClientError> {
        let mut all = VfPage::default();
        loop {
            let after = all.vfs.last().map(|last| last.vf);
            let Reply::Vfs(page) = self.call(&Request::Vf(VfRequest::List { after }))? else {
                return Err(ClientError::WrongReply);
            };
            // An empty page that promises more would go on for ever.
            let more = page.more && !page.vfs.is_empty();
            all.pfs.extend(page.pfs);
            all.vfs.extend(page.vfs);
            all.trouble.extend(page.trouble);
            if !more {
                return Ok(all);
            }
        }
    }

    fn pages<T>(
        &self,
        request: impl Fn(Option<PodId>) -> Request,
        id: impl Fn(&T) -> &PodId,
        page: impl Fn(Reply) -> Option<(Vec<T>, bool)>,
    ) -> Result<Vec<T>, ClientError> {
        let mut all: Vec<T> = Vec::new();
        loop {
            let after = all.last().map(|last| id(last).clone());
            let (pods, more) = page(self.call(&request(after))?).ok_or(ClientError::WrongReply)?;
            // An empty page that promises more would go on for ever.
            let more = more && !pods.is_empty();
            all.extend(pods);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Trades a token for descriptors over the hand-off socket.
    ///
    /// # Errors
    /// See [`ClientError`]; also when the descriptors are not as many as the NICs say.
    pub fn get(&self, token: Token) -> Result<(Handoff, Vec<OwnedFd>), ClientError> {
        let (HandoffReply::Nics(handoff), fds) = self.exchange(&HandoffRequest::Get { token }, "get")?;
        let announced = handoff.descriptors();
        if announced != fds.len() {
            let cause = CodecError::FdCount { announced, received: fds.len() };
            return Err(ClientError::Codec { path: self.path.clone(), cause });
        }
        Ok((handoff, fds))
    }

    fn exchange<Q: Serialize + Versioned, A: DeserializeOwned>(
        &self,
        request: &Q,
        name: &'static str,
    ) -> Result<(A, Vec<OwnedFd>), ClientError> {
        let wire = |cause| match cause {
            WireError::Os(Errno::EAGAIN) => {
                ClientError::Deadline { path: self.path.clone(), request: name, deadline: self.deadline }
            }
            cause => ClientError::Wire { path: self.path.clone(), cause },
        };
        let codec = |cause| ClientError::Codec { path: self.path.clone(), cause };
        let started = Instant::now();
        let packet = encode_request(request).map_err(codec)?;
        let socket = self.dial()?;
        match send(socket.as_fd(), &packet, &[]) {
            // Who refuses a peer before it has spoken leaves the reason to be read.
            Ok(()) | Err(WireError::Closed) => {}
            Err(cause) => return Err(wire(cause)),
        }
        let left = self.deadline.saturating_sub(started.elapsed());
        setsockopt(&socket, sockopt::ReceiveTimeout, &timeval(left)).map_err(|errno| wire(errno.into()))?;
        let Packet { bytes, fds } = recv(socket.as_fd()).map_err(wire)?;
        match decode_reply(&bytes, fds.len()).map_err(codec)? {
            Ok(reply) => Ok((reply, fds)),
            Err(body) => Err(ClientError::Refused(body)),
        }
    }

    /// A connection of its own, for whoever sends and receives by himself; it waits in both for the deadline at most.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn dial(&self) -> Result<OwnedFd, ClientError> {
        let failed = |cause| ClientError::Connect { path: self.path.clone(), cause };
        let address = UnixAddr::new(&self.path).map_err(failed)?;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).map_err(failed)?;
        // Also bounds connect(), which waits for room in the listener's backlog.
        setsockopt(&socket, sockopt::SendTimeout, &timeval(self.deadline)).map_err(failed)?;
        connect(socket.as_raw_fd(), &address).map_err(failed)?;
        Ok(socket)
    }
}

/// The kernel takes zero for "no deadline": a deadline that has passed is a microsecond.
fn timeval(duration: Duration) -> TimeVal {
    let micros = duration.as_micros().max(1);
    let seconds = i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX);
    TimeVal::new(seconds, i64::try_from(micros % 1_000_000).unwrap_or(0))
}

fn in_seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
