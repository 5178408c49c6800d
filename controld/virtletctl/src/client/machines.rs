//! Calls to the service for machines.

use proto::cri;
use proto::machines::{ExecRequest, PauseRequest, ResumeRequest};

use super::super::error::CtlError;
use super::{Client, look, work};

impl Client {
    pub(crate) async fn pause(&self, container: &str) -> Result<(), CtlError> {
        let mut machines = self.machines.clone();
        let request = PauseRequest { container_id: container.to_owned() };
        work("pause the machine", machines.pause(request)).await.map(drop)
    }

    pub(crate) async fn resume(&self, container: &str) -> Result<(), CtlError> {
        let mut machines = self.machines.clone();
        let request = ResumeRequest { container_id: container.to_owned() };
        work("resume the machine", machines.resume(request)).await.map(drop)
    }

    /// The URL of a command's session. What CRI can say goes by CRI, which any controld knows.
    pub(crate) async fn exec_otherwise(&self, request: ExecRequest) -> Result<String, CtlError> {
        if !request.env.is_empty() || !request.working_dir.is_empty() || !request.user.is_empty() {
            let mut machines = self.machines.clone();
            return Ok(look("start the command", machines.exec(request)).await?.url);
        }
        let ExecRequest { container_id, cmd, stdin, stdout, stderr, tty, .. } = request;
        self.exec(cri::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr }).await
    }
}
