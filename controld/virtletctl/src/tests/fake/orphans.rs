//! The fake's service for what is on no record: a list that changes.

use proto::orphans::orphans_server::Orphans;
use proto::orphans::*;
use tonic::{Request, Response, Status};

use super::Handle;

#[tonic::async_trait]
impl Orphans for Handle {
    async fn list(&self, _request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        Ok(Response::new(ListResponse { orphans: self.state().orphans.clone() }))
    }

    async fn forget(&self, request: Request<ForgetRequest>) -> Result<Response<ForgetResponse>, Status> {
        let ForgetRequest { kind, id } = request.into_inner();
        self.called("Forget", &id.clone(), |state| {
            state.orphans.retain(|orphan| (orphan.kind, &orphan.id) != (kind, &id));
            ForgetResponse {}
        })
    }
}
