//! The service for what is on no record, called by `virtletctl orphans` and `virtletctl forget`.

use proto::orphans as wire;
use proto::orphans::orphans_server::Orphans;
use tonic::{Request, Response, Status};
use vmspec::error::{Error, Kind};

use crate::api::status;
use crate::api::status::finish;
use crate::orphans::{self, Orphan, OrphanKind};

/// The service behind the calls.
#[derive(Debug, Clone)]
pub struct OrphanCalls {
    orphans: orphans::Orphans,
}

impl OrphanCalls {
    /// Calls to the service.
    #[must_use]
    pub fn new(orphans: orphans::Orphans) -> Self {
        Self { orphans }
    }
}

#[tonic::async_trait]
impl Orphans for OrphanCalls {
    async fn list(&self, _request: Request<wire::ListRequest>) -> Result<Response<wire::ListResponse>, Status> {
        let orphans = self.orphans.list().await;
        Ok(Response::new(wire::ListResponse { orphans: orphans.into_iter().map(shown).collect() }))
    }

    async fn forget(&self, request: Request<wire::ForgetRequest>) -> Result<Response<wire::ForgetResponse>, Status> {
        let request = request.into_inner();
        let kind = known(request.kind())
            .ok_or_else(|| status::of(&Error::new(Kind::Invalid, "a thing of unknown owner has a kind")))?;
        let orphans = self.orphans.clone();
        finish(async move { orphans.forget(kind, &request.id).await }).await?;
        Ok(Response::new(wire::ForgetResponse {}))
    }
}

fn shown(orphan: Orphan) -> wire::Orphan {
    let Orphan { kind, id, pod, since, why, bytes, runs } = orphan;
    let kind = match kind {
        OrphanKind::Machine => wire::Kind::Machine,
        OrphanKind::Disk => wire::Kind::Disk,
        OrphanKind::Network => wire::Kind::Network,
        OrphanKind::Console => wire::Kind::Console,
        OrphanKind::Lease => wire::Kind::Lease,
        OrphanKind::Record => wire::Kind::Record,
    };
    wire::Orphan {
        kind: kind.into(),
        id,
        pod_uid: pod.uid,
        pod_namespace: pod.namespace,
        pod_name: pod.name,
        since,
        why,
        bytes,
        runs,
    }
}

fn known(kind: wire::Kind) -> Option<OrphanKind> {
    Some(match kind {
        wire::Kind::Unspecified => return None,
        wire::Kind::Machine => OrphanKind::Machine,
        wire::Kind::Disk => OrphanKind::Disk,
        wire::Kind::Network => OrphanKind::Network,
        wire::Kind::Console => OrphanKind::Console,
        wire::Kind::Lease => OrphanKind::Lease,
        wire::Kind::Record => OrphanKind::Record,
    })
}
