//! What is answered to each request. Called by [`super::sockets`].
//!
//! Requests become calls of [`Pods`] and [`Tokens`]; errors become a class and a line. Nothing here waits for anything
//! itself, or knows how a network is made.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::Chain;
use proto::tap::{
    Arm, ErrorBody, ErrorCode, Forget, Handoff, HandoffNic, HandoffReply, HandoffTap, HandoffVfio, Hello, Nic, NicKind,
    PodId, ProcessId, QemuUser, Reply, Request, ServerStatus, Token,
};
use tracing::{debug, error, info, warn};

use super::access::QemuAccess;
use super::{DaemonError, vfs};
use crate::blocking::off_reactor;
use crate::cni::Ready;
use crate::config::Config;
use crate::net::Opened;
use crate::pod::{Occasion, OpenedNics, PodError, Pods, World};
use crate::rpc::{Executable, Peer, refusal};
use crate::tokens::Tokens;
use crate::vf::{Claims, Devices};

const SERVER: &str = concat!("tapmanager ", env!("CARGO_PKG_VERSION"));
const RANDOM: &str = "/dev/urandom";
/// How long the start of a machine waits for a pod that is being recovered: some milliseconds once it is its turn.
const RECOVERED_WITHIN: Duration = Duration::from_secs(10);

/// All that requests can reach.
#[derive(Debug)]
pub(super) struct Service<W> {
    pods: Pods<W>,
    claims: Claims,
    access: Arc<QemuAccess>,
    vmwrapper: Executable,
    tokens: Mutex<Tokens>,
    /// Who took a pod's descriptors last: vmwrapper's process, which goes on as QEMU.
    machines: Mutex<BTreeMap<PodId, ProcessId>>,
    random: File,
}

// === impl Service ===

impl<W: World> Service<W> {
    pub(super) fn new(pods: Pods<W>, claims: Claims, access: QemuAccess, config: &Config) -> Result<Self, DaemonError> {
        let random = File::open(RANDOM).map_err(|cause| DaemonError::Permission {
            missing: format!("`{RANDOM}` cannot be opened"),
            remedy: "mount /dev for tapmanager",
            cause: Some(cause),
        })?;
        Ok(Self {
            pods,
            claims,
            access: Arc::new(access),
            vmwrapper: Executable::new(&config.vmwrapper),
            tokens: Mutex::new(Tokens::new(config.arm_ttl)),
            machines: Mutex::default(),
            random,
        })
    }

    pub(super) const fn pods(&self) -> &Pods<W> {
        &self.pods
    }

    pub(super) fn access(&self) -> &QemuAccess {
        &self.access
    }

    pub(super) async fn control(&self, request: Request) -> Result<Reply, ErrorBody> {
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
            Request::Arm(Arm { pod, qemu, iommufd }) => {
                if let Some(user) = qemu {
                    self.adopt(user).await?;
                }
                self.arm(pod, iommufd.unwrap_or(false)).await
            }
            Request::Detach { pod } => {
                self.tokens().disarm(&pod);
                self.pods.detach(&pod).await.map_err(|error| error.body())?;
                self.machines().remove(&pod);
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
            Request::Machine { pod } => Ok(Reply::Machine(self.machines().get(&pod).copied())),
            Request::Vf(request) => vfs::answer(&self.claims, &self.pods, request).await,
        }
    }

    async fn adopt(&self, user: QemuUser) -> Result<(), ErrorBody> {
        let access = Arc::clone(&self.access);
        off_reactor(move || access.adopt(user)).await.map_err(|error| {
            error!(error = %Chain(&error), "QEMU's user was not taken up");
            refusal(ErrorCode::Internal, Chain(&error).to_string())
        })
    }

    async fn arm(&self, pod: PodId, by_descriptor: bool) -> Result<Reply, ErrorBody> {
        self.pods.soon_usable(&pod, RECOVERED_WITHIN).await.map_err(|error| error.body())?;
        let hostdevs = self.pods.hand_out(&pod, by_descriptor).await.map_err(|error| {
            error!(error = %Chain(&error), "virtual functions not handed out");
            error.body()
        })?;
        let mut random = [0; 16];
        (&self.random).read_exact(&mut random).map_err(|error| no_random(&error))?;
        // The next to come is another one.
        self.machines().remove(&pod);
        debug!("armed");
        Ok(Reply::Armed { token: self.tokens().arm(pod, random, Instant::now()), hostdevs })
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
        reasons.extend(self.pods.failed_adds());
        if ready {
            reasons.extend(remark(&self.pods.unread()));
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

    /// The token's pod and its descriptors.
    pub(super) fn hand_off(&self, token: &Token) -> Result<(PodId, HandoffReply, Vec<OwnedFd>), ErrorBody> {
        let redeemed = self.tokens().redeem(token, Instant::now());
        let pod = redeemed.map_err(|refused| {
            warn!("token refused");
            refusal(ErrorCode::Denied, refused.to_string())
        })?;
        match self.open_nics(&pod) {
            Ok((reply, fds)) => Ok((pod, reply, fds)),
            Err(error) => {
                self.pods.span(&pod).in_scope(|| error!(error = %Chain(&error), "hand-off failed"));
                Err(error.body())
            }
        }
    }

    /// Keeps which process took the pod's descriptors. Of pods that are on record no more, nothing is kept either.
    pub(super) fn note_machine(&self, pod: PodId, process: Option<ProcessId>) {
        let mut machines = self.machines();
        match process {
            Some(process) => drop(machines.insert(pod, process)),
            None => drop(machines.remove(&pod)),
        }
        machines.retain(|pod, _| self.pods.view(pod).is_some());
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<PodId, ProcessId>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_nics(&self, pod: &PodId) -> Result<(HandoffReply, Vec<OwnedFd>), PodError> {
        let OpenedNics { net, taps, devices } = self.pods.open_nics(pod)?;
        let (iommufd, devices) = match devices {
            Some(Devices { iommufd, devices }) => (Some(iommufd), devices),
            None => (None, Vec::new()),
        };
        let vfio = if iommufd.is_some() { HandoffVfio::Descriptor } else { HandoffVfio::Hostdev };
        let nics = net.nics.iter().zip(&taps).map(|(nic, opened)| of_machine(nic, opened, vfio)).collect();
        let handoff = Handoff { nics, iommufd: iommufd.is_some() };
        let mut fds: Vec<OwnedFd> = iommufd.into_iter().collect();
        let mut devices = devices.into_iter();
        for (nic, Opened { queues, vhost }) in net.nics.iter().zip(taps) {
            match nic.kind {
                NicKind::Tap(_) => fds.extend(queues.into_iter().chain(vhost)),
                NicKind::Vfio(_) => fds.extend(devices.next()),
            }
        }
        Ok((HandoffReply::Nics(handoff), fds))
    }

    /// Whether the peer is `vmwrapper`, run as QEMU's user. It is told which of the two it is not: both are plain to it.
    pub(super) fn may_fetch(&self, peer: &Peer) -> Result<(), ErrorBody> {
        let denied = |why: String| Err(refusal(ErrorCode::Denied, why));
        let Some(user) = self.access.user() else {
            return denied("it is not known yet who QEMU runs as; start controld, or set `qemu_uid`".to_owned());
        };
        if peer.uid != user.uid {
            return denied(format!("uid {} may not fetch descriptors; QEMU's is {}", peer.uid, user.uid));
        }
        self.vmwrapper.check(peer).or_else(|error| denied(Chain(&error).to_string()))
    }

    pub(super) fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_machine(nic: &Nic, opened: &Opened, vfio: HandoffVfio) -> HandoffNic {
    // A message has room for some hundreds.
    let count = |fds: &[OwnedFd]| u16::try_from(fds.len()).unwrap_or(u16::MAX);
    match nic.kind {
        NicKind::Tap(_) => HandoffNic::Tap(HandoffTap {
            mac: nic.mac,
            mtu: nic.mtu,
            queues: count(&opened.queues),
            vhost: count(&opened.vhost),
        }),
        NicKind::Vfio(_) => HandoffNic::Vfio { vfio },
    }
}

fn no_random(error: &io::Error) -> ErrorBody {
    error!(%error, "no randomness for a token");
    refusal(ErrorCode::Internal, format!("failed to read `{RANDOM}`: {error}"))
}

/// What an operator should look at although pods can be served: why records are not understood.
fn remark(unread: &[Arc<str>]) -> Option<String> {
    let (first, others) = unread.split_first()?;
    let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
    Some(format!("{first}{more}"))
}

/// What a peer calls itself, short and on one line.
fn printable(text: &str) -> String {
    common::shown(text, 64)
}

#[cfg(test)]
mod tests;
