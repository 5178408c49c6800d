//! What is answered before the runtime service is there.

use proto::cri::runtime_service_server::RuntimeService;
use proto::cri::{
    ListMetricDescriptorsRequest, ListMetricDescriptorsResponse, RuntimeCondition, RuntimeStatus, StatusRequest,
    StatusResponse, VersionRequest, VersionResponse,
};
use tonic::{Request, Response, Status};

use super::metrics;

/// A runtime service that is not ready, and says why.
#[derive(Debug)]
pub(in crate::api) struct Starting {
    why: String,
    version: &'static str,
}

impl Starting {
    pub(in crate::api) fn new(why: String, version: &'static str) -> Self {
        Self { why, version }
    }
}

/// Who we are, at any time.
pub(super) fn version(ours: &str) -> VersionResponse {
    VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "virtlet".into(),
        runtime_version: ours.into(),
        runtime_api_version: "v1".into(),
    }
}

#[tonic::async_trait]
impl RuntimeService for Starting {
    async fn version(&self, _request: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(version(self.version)))
    }

    async fn status(&self, _request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        // kubelet reads handlers and features of a runtime that is ready alone.
        let conditions = ["RuntimeReady", "NetworkReady"].map(|kind| RuntimeCondition {
            r#type: kind.into(),
            status: false,
            reason: "Starting".into(),
            message: self.why.clone(),
        });
        let status = Some(RuntimeStatus { conditions: conditions.into() });
        Ok(Response::new(StatusResponse { status, ..StatusResponse::default() }))
    }

    async fn list_metric_descriptors(
        &self,
        _request: Request<ListMetricDescriptorsRequest>,
    ) -> Result<Response<ListMetricDescriptorsResponse>, Status> {
        Ok(Response::new(ListMetricDescriptorsResponse { descriptors: metrics::descriptors() }))
    }
}
