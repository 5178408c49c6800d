//! Calls to the service for machines.

use std::time::Duration;

use proto::cri;
use proto::machines::{ExecRequest, PauseRequest, ResumeRequest};
use tonic::Code;

use super::super::error::CtlError;
use super::{Client, call, work};

/// A guest that boots has 100 s at controld.
const AGENT_DEADLINE: Duration = Duration::from_secs(130);

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

    /// The URL of a command's session. What takes our agent waits for it here, where we can say so. What CRI can say goes by CRI
    /// with a controld that knows nothing else.
    pub(crate) async fn exec_otherwise(&self, request: ExecRequest) -> Result<String, CtlError> {
        let is_otherwise = !request.env.is_empty() || !request.working_dir.is_empty() || !request.user.is_empty();
        if is_otherwise || request.stdin || request.tty {
            let mut machines = self.machines.clone();
            match call("run the command", AGENT_DEADLINE, machines.exec(request.clone())).await {
                Err(error) if error.code() == Some(Code::Unimplemented) && !is_otherwise => {}
                answered => return Ok(answered?.url),
            }
        }
        let ExecRequest { container_id, cmd, stdin, stdout, stderr, tty, .. } = request;
        self.exec(cri::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr }).await
    }
}
