//! What is answered to each request. Called by [`Control`] and [`HandOff`], which the servers of the two sockets run.
//!
//! Requests become calls of [`Pods`] and [`Tokens`]; errors become a class and a line. Nothing here waits for anything
//! itself, or knows how a network is made.
//!
//! Requests that may take as long as a plugin does are counted ([`MAX_LASTING`]), so that clients that wait for their pods
//! never hold all connections: there are always some for the quick ones, by which the node is judged.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::Chain;
use proto::tap::{
    Arm, CodecError, ErrorBody, ErrorCode, Forget, Handoff, HandoffNic, HandoffReply, HandoffRequest, Hello, Nic,
    PodId, QemuUser, Reply, Request, ServerStatus, Token, decode_request, encode_reply,
};
use serde::Serialize;
use tokio::sync::Semaphore;
use tracing::{debug, error, info, warn};

use super::DaemonError;
use super::access::QemuAccess;
use crate::blocking::off_reactor;
use crate::cni::Ready;
use crate::config::Config;
use crate::handoff::{self, Served};
use crate::journal::Unreadable;
use crate::net::Opened;
use crate::pod::{Occasion, PodError, Pods, World};
use crate::rpc::{self, Answer, Executable, Peer, refusal};
use crate::tokens::Tokens;

const SERVER: &str = concat!("tapmanager ", env!("CARGO_PKG_VERSION"));
const RANDOM: &str = "/dev/urandom";
/// How long the start of a machine waits for a pod that is being recovered: some milliseconds once it is its turn.
const RECOVERED_WITHIN: Duration = Duration::from_secs(10);
/// Requests about pods that are worked on at a time, or wait for their pod: several for each pod that a node may have.
pub(super) const MAX_LASTING: usize = 768;

/// All that requests can reach.
#[derive(Debug)]
pub(super) struct Service<W> {
    pods: Pods<W>,
    access: Arc<QemuAccess>,
    vmwrapper: Executable,
    tokens: Mutex<Tokens>,
    random: File,
    /// What an operator should look at although pods can be served; may be empty.
    remark: String,
}

/// The control socket: root alone, all requests.
#[derive(Debug)]
pub(super) struct Control<W> {
    service: Arc<Service<W>>,
    lasting: Semaphore,
}

/// The hand-off socket: `vmwrapper` as QEMU's user alone, `Get` alone.
#[derive(Debug)]
pub(super) struct HandOff<W>(pub(super) Arc<Service<W>>);

// === impl Service ===

impl<W: World> Service<W> {
    pub(super) fn new(
        pods: Pods<W>,
        access: QemuAccess,
        config: &Config,
        unreadable: &[Unreadable],
    ) -> Result<Self, DaemonError> {
        let random = File::open(RANDOM).map_err(|cause| DaemonError::Permission {
            missing: format!("`{RANDOM}` cannot be opened"),
            remedy: "mount /dev for tapmanager",
            cause: Some(cause),
        })?;
        Ok(Self {
            pods,
            access: Arc::new(access),
            vmwrapper: Executable::new(&config.vmwrapper),
            tokens: Mutex::new(Tokens::new(config.arm_ttl)),
            random,
            remark: remark(unreadable),
        })
    }

    pub(super) const fn pods(&self) -> &Pods<W> {
        &self.pods
    }

    pub(super) fn access(&self) -> &QemuAccess {
        &self.access
    }

    async fn control(&self, request: Request) -> Result<Reply, ErrorBody> {
        match request {
            Request::Hello(Hello { client, qemu }) => {
                info!(client = printable(&client), ?qemu, "hello");
                if let Some(user) = qemu {
                    self.adopt(user).await?;
                }
                // It is told who QEMU is, at times before each start: nothing is asked for that.
                Ok(Reply::Status(self.status(self.pods.known_ready())))
            }
            Request::Attach(attach) => {
                let net = self.pods.attach(attach).await.map_err(|error| error.body())?;
                Ok(Reply::Attached(net.as_ref().clone()))
            }
            Request::Arm(Arm { pod, qemu }) => {
                if let Some(user) = qemu {
                    self.adopt(user).await?;
                }
                Ok(Reply::Armed { token: self.arm(pod).await? })
            }
            Request::Detach { pod } => {
                self.tokens().disarm(&pod);
                self.pods.detach(&pod).await.map_err(|error| error.body())?;
                Ok(Reply::Detached)
            }
            Request::List(list) => Ok(Reply::Pods(self.pods.page(&list))),
            Request::Recover { pod } => {
                let net = self.pods.take_up(&pod).await.map_err(|error| error.body())?;
                Ok(Reply::Attached(net.as_ref().clone()))
            }
            Request::Check { pod } => Ok(Reply::Checked(self.pods.check(&pod).await.map_err(|error| error.body())?)),
            Request::Inspect { pod } => {
                Ok(Reply::Pod(Box::new(self.pods.inspect(&pod).await.map_err(|error| error.body())?)))
            }
            Request::Stats(list) => Ok(Reply::Stats(self.pods.stats(&list).await)),
            Request::Collect => Ok(Reply::Collected(self.pods.collect(Occasion::Asked).await)),
            Request::Forget(Forget::Pod(pod)) => {
                Ok(Reply::Collected(self.pods.forget(&pod).await.map_err(|error| error.body())?))
            }
            Request::Forget(Forget::Namespace(name)) => {
                Ok(Reply::Collected(self.pods.forget_namespace(&name).await.map_err(|error| error.body())?))
            }
            Request::Status => Ok(Reply::Status(self.status(self.pods.ready().await))),
        }
    }

    async fn adopt(&self, user: QemuUser) -> Result<(), ErrorBody> {
        let access = Arc::clone(&self.access);
        off_reactor(move || access.adopt(user)).await.map_err(|error| {
            error!(error = %Chain(&error), "QEMU's user was not taken up");
            refusal(ErrorCode::Internal, Chain(&error).to_string())
        })
    }

    async fn arm(&self, pod: PodId) -> Result<Token, ErrorBody> {
        self.pods.soon_usable(&pod, RECOVERED_WITHIN).await.map_err(|error| error.body())?;
        let mut random = [0; 16];
        (&self.random).read_exact(&mut random).map_err(|error| no_random(&error))?;
        debug!(pod = pod.as_str(), "armed");
        Ok(self.tokens().arm(pod, random, Instant::now()))
    }

    fn status(&self, Ready { outcome, unanswered }: Ready) -> ServerStatus {
        let ready = outcome.is_ok();
        let mut reasons: Vec<String> = outcome.err().map(|error| Chain(&error).to_string()).into_iter().collect();
        if let Some(waited) = unanswered {
            let waited = waited.as_secs();
            reasons.push(format!(
                "the CNI plugins have not answered STATUS for {waited} s, and this is what they said before"
            ));
        }
        if ready && !self.remark.is_empty() {
            reasons.push(self.remark.clone());
        }
        ServerStatus {
            server: SERVER.to_owned(),
            ready,
            reason: reasons.join("; "),
            pods: self.pods.count().try_into().unwrap_or(u64::MAX),
            recovering: self.pods.recovering().try_into().unwrap_or(u64::MAX),
            tokens_refused: self.tokens().refused(),
            plugin_micros: self.pods.plugin_micros(),
        }
    }

    fn hand_off(&self, token: &Token) -> Result<(PodId, HandoffReply, Vec<OwnedFd>), ErrorBody> {
        let redeemed = self.tokens().redeem(token, Instant::now());
        let pod = redeemed.map_err(|refused| {
            warn!("token refused");
            refusal(ErrorCode::Denied, refused.to_string())
        })?;
        match self.open_taps(&pod) {
            Ok((reply, fds)) => Ok((pod, reply, fds)),
            Err(error) => {
                error!(pod = pod.as_str(), error = %Chain(&error), "hand-off failed");
                Err(error.body())
            }
        }
    }

    fn open_taps(&self, pod: &PodId) -> Result<(HandoffReply, Vec<OwnedFd>), PodError> {
        let (net, opened) = self.pods.open_taps(pod)?;
        let nics = net.nics.iter().zip(&opened).map(|(nic, opened)| of_machine(nic, opened)).collect();
        let fds: Vec<OwnedFd> = opened.into_iter().flat_map(|nic| nic.queues.into_iter().chain(nic.vhost)).collect();
        Ok((HandoffReply::Nics(Handoff { nics }), fds))
    }

    /// Whether the peer is `vmwrapper`, run as QEMU's user. It is told which of the two it is not: both are plain to it.
    fn may_fetch(&self, peer: &Peer) -> Result<(), ErrorBody> {
        let denied = |why: String| Err(refusal(ErrorCode::Denied, why));
        let Some(user) = self.access.user() else {
            return denied("it is not known yet who QEMU runs as; start controld, or set `qemu_uid`".to_owned());
        };
        if peer.uid != user.uid {
            return denied(format!("uid {} may not fetch descriptors; QEMU's is {}", peer.uid, user.uid));
        }
        self.vmwrapper.check(peer).or_else(|error| denied(Chain(&error).to_string()))
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_machine(nic: &Nic, opened: &Opened) -> HandoffNic {
    // A message has room for some hundreds.
    let count = |fds: &[OwnedFd]| u16::try_from(fds.len()).unwrap_or(u16::MAX);
    HandoffNic { mac: nic.mac, mtu: nic.mtu, queues: count(&opened.queues), vhost: count(&opened.vhost) }
}

// === edges ===

impl<W> Control<W> {
    pub(super) const fn new(service: Arc<Service<W>>) -> Self {
        Self { service, lasting: Semaphore::const_new(MAX_LASTING) }
    }
}

/// Whether the answer may wait for a plugin, for other requests about the pod, or for all pods.
const fn lasts(request: &Request) -> bool {
    match request {
        Request::Attach(_)
        | Request::Detach { .. }
        | Request::Recover { .. }
        | Request::Check { .. }
        | Request::Stats(_)
        | Request::Collect
        | Request::Forget(_) => true,
        Request::Hello(_) | Request::Arm(_) | Request::Inspect { .. } | Request::List(_) | Request::Status => false,
    }
}

impl<W: World> rpc::Handler for Control<W> {
    const NAME: &'static str = "control";

    fn admit(&self, peer: &Peer) -> Result<(), ErrorBody> {
        if peer.uid == 0 {
            return Ok(());
        }
        warn!(uid = peer.uid, "peer refused");
        Err(refusal(ErrorCode::Denied, format!("uid {} may not control tapmanager; only root may", peer.uid)))
    }

    async fn answer(&self, bytes: &[u8], fds: usize) -> Answer {
        let request: Request = match decode_request(bytes, fds) {
            Ok(request) => request,
            Err(error) => return not_understood(&error),
        };
        let place = if lasts(&request) { self.lasting.try_acquire().map(Some) } else { Ok(None) };
        let answered = match place {
            Ok(_place) => self.service.control(request).await,
            Err(_) => {
                warn!(limit = MAX_LASTING, "too many requests about pods are waiting");
                Err(refusal(ErrorCode::Unavailable, "too many requests about pods are waiting; ask again later"))
            }
        };
        match answered {
            Ok(reply) => reply_with(&reply, Vec::new()),
            Err(error) => Answer::refuse(error, false),
        }
    }
}

impl<W: World> handoff::Handler for HandOff<W> {
    fn admit(&self, peer: &Peer) -> Result<(), ErrorBody> {
        self.0.may_fetch(peer).inspect_err(|_| self.0.tokens().turned_away())
    }

    fn answer(&self, bytes: &[u8], fds: usize) -> Served {
        let nothing = |answer| Served { answer, pod: None };
        match decode_request(bytes, fds) {
            Ok(HandoffRequest::Get { token }) => match self.0.hand_off(&token) {
                Ok((pod, reply, fds)) => Served { answer: reply_with(&reply, fds), pod: Some(pod) },
                Err(error) => nothing(Answer::refuse(error, false)),
            },
            Err(error) => nothing(not_understood(&error)),
        }
    }
}

fn reply_with<R: Serialize>(reply: &R, fds: Vec<OwnedFd>) -> Answer {
    match encode_reply(Ok(reply), fds.len()) {
        Ok(bytes) => Answer { bytes, fds, last: false },
        Err(error) => {
            error!(error = %Chain(&error), "reply cannot be sent");
            Answer::refuse(refusal(ErrorCode::Internal, Chain(&error).to_string()), false)
        }
    }
}

fn not_understood(error: &CodecError) -> Answer {
    warn!(error = %Chain(error), "request not understood");
    Answer::refuse(refusal(error.code(), Chain(error).to_string()), true)
}

fn no_random(error: &io::Error) -> ErrorBody {
    error!(%error, "no randomness for a token");
    refusal(ErrorCode::Internal, format!("failed to read `{RANDOM}`: {error}"))
}

fn remark(unreadable: &[Unreadable]) -> String {
    let Some(first) = unreadable.first() else { return String::new() };
    let others = unreadable.len() - 1;
    let more = if others == 0 { String::new() } else { format!(" (and {others} more)") };
    format!("{}{more}", Chain(first))
}

/// What a peer calls itself, short and on one line.
fn printable(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
