//! What the servers of the two sockets run: who may speak, and the answers of [`Service`] as packets.
//!
//! Each request is served in a span that names its pod ([`span`]). Requests that may take as long as a plugin does are
//! counted ([`MAX_LASTING`]), so that clients that wait for their pods never hold all connections: there are always
//! some for the quick ones, by which the node is judged.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use common::Chain;
use proto::tap::{
    Arm, Attach, CodecError, ErrorBody, ErrorCode, Forget, HandoffRequest, PodId, Request, Versioned, VfRequest,
    decode_request, encode_reply,
};
use serde::Serialize;
use tokio::sync::Semaphore;
use tracing::{Instrument as _, Span, error, info, warn};

use super::service::Service;
use crate::handoff::{self, Served};
use crate::pod::World;
use crate::rpc::{self, Answer, Peer, refusal};
use crate::span;

/// Requests about pods that are worked on at a time, or wait for their pod: several for each pod that a node may have.
pub(super) const MAX_LASTING: usize = 768;

/// The control socket: root alone, all requests.
#[derive(Debug)]
pub(super) struct Control<W> {
    service: Arc<Service<W>>,
    lasting: Semaphore,
}

/// The hand-off socket: `vmwrapper` as QEMU's user alone, `Get` alone.
#[derive(Debug)]
pub(super) struct HandOff<W>(pub(super) Arc<Service<W>>);

// === impl Control ===

impl<W> Control<W> {
    pub(super) const fn new(service: Arc<Service<W>>) -> Self {
        Self { service, lasting: Semaphore::const_new(MAX_LASTING) }
    }
}

impl<W: World> Control<W> {
    fn span(&self, request: &Request) -> Span {
        let pod = pod_of(request);
        let known = pod.and_then(|pod| self.service.pods().view(pod)).map(|view| view.request);
        let attach = if let Request::Attach(attach) = request { Some(attach) } else { known.as_deref() };
        span::of_request(request.name(), pod, attach)
    }

    async fn serve(&self, request: Request) -> Answer {
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
        let span = self.span(&request);
        self.serve(request).instrument(span).await
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
        | Request::Forget(_)
        | Request::Vf(VfRequest::Claim(_) | VfRequest::Release { .. } | VfRequest::Repair) => true,
        Request::Hello(_)
        | Request::Arm(_)
        | Request::Inspect { .. }
        | Request::List(_)
        | Request::Status
        | Request::Machine { .. }
        // Bounded by deadlines of some seconds.
        | Request::Vf(VfRequest::List { .. } | VfRequest::Explain { .. }) => false,
    }
}

/// The pod that a request is about.
const fn pod_of(request: &Request) -> Option<&PodId> {
    match request {
        Request::Attach(Attach { pod, .. })
        | Request::Arm(Arm { pod, .. })
        | Request::Detach { pod }
        | Request::Recover { pod }
        | Request::Check { pod }
        | Request::Inspect { pod }
        | Request::Machine { pod }
        | Request::Forget(Forget::Pod(pod)) => Some(pod),
        Request::Hello(_)
        | Request::List(_)
        | Request::Stats(_)
        | Request::Collect
        | Request::Forget(Forget::Namespace(_))
        | Request::Status
        | Request::Vf(_) => None,
    }
}

// === impl HandOff ===

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

    fn handed_off(&self, pod: PodId, peer: &Peer, fds: usize) {
        let span = self.0.pods().span(&pod);
        self.0.note_machine(pod, peer.process());
        // Whoever writes the log may block.
        span.in_scope(|| info!(fds, "descriptors handed off"));
    }
}

fn reply_with<R: Serialize + Versioned>(reply: &R, fds: Vec<OwnedFd>) -> Answer {
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
