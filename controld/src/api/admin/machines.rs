//! The service for machines, called by `virtletctl pause` and `virtletctl resume`.

use proto::machines::machines_server::Machines;
use proto::machines::{PauseRequest, PauseResponse, ResumeRequest, ResumeResponse};
use tonic::{Request, Response, Status};

use crate::api::status::{self, finish};
use crate::container::Containers;
use crate::model::ContainerId;
use crate::model::error::{Error, Kind};

/// The service behind the calls.
#[derive(Debug, Clone)]
pub struct MachineCalls {
    containers: Containers,
}

impl MachineCalls {
    /// Calls to the service.
    #[must_use]
    pub fn new(containers: Containers) -> Self {
        Self { containers }
    }
}

fn known(id: &str) -> Result<ContainerId, Status> {
    id.parse().map_err(|cause| status::of(&Error::because(Kind::NotFound, "no such container", cause)))
}

#[tonic::async_trait]
impl Machines for MachineCalls {
    async fn pause(&self, request: Request<PauseRequest>) -> Result<Response<PauseResponse>, Status> {
        let (containers, id) = (self.containers.clone(), known(&request.into_inner().container_id)?);
        finish(async move { containers.pause(id).await }).await?;
        Ok(Response::new(PauseResponse {}))
    }

    async fn resume(&self, request: Request<ResumeRequest>) -> Result<Response<ResumeResponse>, Status> {
        let (containers, id) = (self.containers.clone(), known(&request.into_inner().container_id)?);
        finish(async move { containers.resume(id).await }).await?;
        Ok(Response::new(ResumeResponse {}))
    }
}
