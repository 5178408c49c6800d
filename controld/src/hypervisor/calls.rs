//! One call to libvirt: its turn, its deadline, and what its failure means.

use std::sync::Arc;
use std::time::Duration;

use vmspec::error::{Error, Kind, Result};

use super::ffi::{Connection, LibvirtError, NO_DOMAIN, OPERATION_INVALID};
use super::link::{Answer, Lane, Lines, Link, Turn};
use super::{Hypervisor, meaning};
use crate::trace;

/// Whom calls are made to, in traces.
pub(super) const PEER: &str = "libvirt";
pub(super) const QUICK_DEADLINE: Duration = Duration::from_secs(15);
pub(super) const DEFINE_DEADLINE: Duration = Duration::from_secs(30);
/// libvirt starts an emulator that it does not know twice: where a node has just booted and all its pods start, that takes most of a
/// minute. kubelet waits two for `CreateContainer`.
pub(super) const OFFER_DEADLINE: Duration = Duration::from_secs(90);
/// How long a call waits for its turn behind others.
const TURN_DEADLINE: Duration = Duration::from_secs(30);
/// How long a call waits for a connection that is being opened.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(5);

/// A call that had no turn.
#[derive(Debug, thiserror::Error)]
#[error("libvirt was busy with calls about other machines for {} s; see its log", deadline.as_secs())]
pub(super) struct Busy {
    pub(super) deadline: Duration,
}

/// A call that did not end.
#[derive(Debug, thiserror::Error)]
#[error("libvirt did not {what} within {} s", deadline.as_secs())]
struct Late {
    what: &'static str,
    deadline: Duration,
}

impl Hypervisor {
    pub(super) async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        deadline: Duration,
        work: impl FnOnce(&Connection) -> Result<T, LibvirtError> + Send + 'static,
    ) -> Result<T> {
        self.call_in(Lane::Quick, what, deadline, work).await
    }

    pub(super) async fn call_in<T: Send + 'static>(
        &self,
        lane: Lane,
        what: &'static str,
        deadline: Duration,
        work: impl FnOnce(&Connection) -> Result<T, LibvirtError> + Send + 'static,
    ) -> Result<T> {
        let called = async {
            let (lines, turn) = self.turn(what, lane, TURN_DEADLINE).await?;
            finished(what, deadline, lines.run(turn, work)).await
        };
        trace::step(PEER, what, called).await
    }

    /// A turn to call. One of a connection that was lost meanwhile is not taken: there is another connection to wait for.
    pub(super) async fn turn(&self, what: &'static str, lane: Lane, deadline: Duration) -> Result<(Arc<Lines>, Turn)> {
        let had = async {
            loop {
                let lines = self.lines().await?;
                let turn = lines.turn(lane).await;
                if matches!(&*self.shared.link.borrow(), Link::Up(now) if Arc::ptr_eq(now, &lines)) {
                    return Ok((lines, turn));
                }
            }
        };
        let late = |_elapsed| Error::because(Kind::Deadline, format!("failed to {what}"), Busy { deadline });
        tokio::time::timeout(deadline, had).await.map_err(late)?
    }

    pub(super) async fn lines(&self) -> Result<Arc<Lines>> {
        let mut link = self.shared.link.clone();
        if let Link::Up(lines) = &*link.borrow() {
            return Ok(lines.clone());
        }
        self.shared.wanted.notify_one();
        let up = tokio::time::timeout(CONNECTION_DEADLINE, link.wait_for(|link| matches!(link, Link::Up(_)))).await;
        match up {
            Ok(Ok(link)) => match &*link {
                Link::Up(lines) => Ok(lines.clone()),
                Link::Down { cause, .. } => Err(self.not_connected(cause.clone())),
            },
            _ => Err(self.ready().err().unwrap_or_else(|| self.not_connected(None))),
        }
    }

    pub(super) fn not_connected(&self, cause: Option<LibvirtError>) -> Error {
        let what = format!("no connection to libvirt at `{}`; is libvirtd running?", self.shared.uri);
        match cause {
            Some(cause) => Error::because(Kind::Unavailable, what, cause),
            None => Error::new(Kind::Unavailable, what),
        }
    }
}

/// The value that a call ends with, in time.
pub(super) async fn finished<T>(
    what: &'static str,
    deadline: Duration,
    run: impl Future<Output = Result<Answer<T>, tokio::task::JoinError>>,
) -> Result<T> {
    match tokio::time::timeout(deadline, run).await {
        Err(_elapsed) => Err(Error::because(Kind::Deadline, format!("failed to {what}"), Late { what, deadline })),
        Ok(Err(_cancelled)) => Err(Error::new(Kind::Unavailable, "controld is shutting down")),
        Ok(Ok(Answer { result: Ok(value), .. })) => Ok(value),
        Ok(Ok(Answer { result: Err(cause), alive })) => Err(failed(what, cause, alive)),
    }
}

fn failed(what: &'static str, cause: LibvirtError, alive: bool) -> Error {
    let mut action = format!("failed to {what}");
    if meaning::is_start_forbidden(&cause.message) {
        action.push_str(
            ": AppArmor, SELinux or a file's mode forbids to start vmwrapper; `virtletctl doctor` says which, and what mends it",
        );
    }
    if let Some(error) = meaning::wrapper_line_of(&cause.message) {
        // EX_UNAVAILABLE of sysexits: vmwrapper could not reach tapmanager, or was refused.
        let kind = if error.code == 69 { Kind::Unavailable } else { Kind::Internal };
        return Error::because(kind, action, error);
    }
    let kind = match cause.code {
        _ if !alive => Kind::Unavailable,
        NO_DOMAIN => Kind::NotFound,
        OPERATION_INVALID => Kind::State,
        _ => Kind::Internal,
    };
    Error::because(kind, action, cause)
}
