//! The fake's service for machines.

use proto::machines::machines_server::Machines;
use proto::machines::*;
use tonic::{Request, Response, Status};

use super::Handle;

#[tonic::async_trait]
impl Machines for Handle {
    async fn pause(&self, request: Request<PauseRequest>) -> Result<Response<PauseResponse>, Status> {
        self.called("Pause", &request.into_inner().container_id, |_state| PauseResponse {})
    }

    async fn resume(&self, request: Request<ResumeRequest>) -> Result<Response<ResumeResponse>, Status> {
        self.called("Resume", &request.into_inner().container_id, |_state| ResumeResponse {})
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        let ExecRequest { container_id, cmd, env, working_dir, user, .. } = request.into_inner();
        let detail = [container_id, cmd.join("|"), env.join("|"), working_dir, user].join(" ");
        // Nobody listens there.
        self.called("Exec", &detail, |_state| ExecResponse { url: "http://127.0.0.1:1/exec/x".into() })
    }
}
