//! The service for machines, called by `virtletctl pause`, `virtletctl resume`, and `virtletctl exec` for what CRI cannot say.

use std::sync::Arc;

use proto::machines::machines_server::Machines;
use proto::machines::{ExecRequest, ExecResponse, PauseRequest, PauseResponse, ResumeRequest, ResumeResponse};
use streaming::Otherwise;
use tonic::{Request, Response, Status};
use vmspec::ContainerId;
use vmspec::error::{Error, Kind, Result as Answer};

use crate::api::sessions::Sessions;
use crate::api::status::{self, finish};
use crate::api::verbs;
use crate::container::Containers;
use crate::guest::agents::Command;

/// The service behind the calls.
#[derive(Debug, Clone)]
pub struct MachineCalls {
    containers: Containers,
    sessions: Arc<Sessions>,
}

impl MachineCalls {
    /// Calls to the services.
    #[must_use]
    pub fn new(containers: Containers, sessions: Arc<Sessions>) -> Self {
        Self { containers, sessions }
    }
}

fn known(id: &str) -> Result<ContainerId, Status> {
    id.parse().map_err(|cause| status::of(&Error::because(Kind::NotFound, "no such container", cause)))
}

fn answer<T>(result: Answer<T>) -> Result<T, Status> {
    result.map_err(|error| status::of(&error))
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

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        let ExecRequest { container_id, cmd, stdin, stdout, stderr, tty, env, working_dir, user } =
            request.into_inner();
        let container = answer(self.containers.get(known(&container_id)?))?;
        let otherwise = Otherwise { env, working_dir, user };
        if verbs::is_verb(&cmd) {
            if otherwise != Otherwise::default() {
                let what =
                    format!("`{}` is not of the guest, and takes no variables, directory or user", cmd.join(" "));
                return answer(Err(Error::new(Kind::Invalid, what)));
            }
        } else {
            // What is wrong with it is said here, where the client hears it.
            let command = Command::of(&container, cmd.clone()).and_then(|command| command.otherwise(&otherwise));
            let command = answer(command)?;
            if stdin || tty {
                // A client whose terminal is a session's already could neither say what it waits for, nor leave by Ctrl-C.
                answer(self.containers.await_agent(&command).await)?;
            }
        }
        let wanted = streaming::ExecRequest { container_id, cmd, stdin, stdout, stderr, tty, otherwise };
        Ok(Response::new(ExecResponse { url: answer(self.sessions.exec_url(wanted))? }))
    }
}
