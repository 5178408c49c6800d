//! Where a client finds its exec, attach or port-forward session: what is wrong with one is said here, where the client hears it.

use proto::cri::{AttachRequest, ExecRequest, PortForwardRequest};
use streaming::Otherwise;
use vmspec::error::{Error, Kind, Result};

use super::Runtime;
use crate::api::verbs;
use crate::guest::agents;
use crate::model::{ContainerState, SandboxState};

impl Runtime {
    pub(super) fn exec_url(&self, request: ExecRequest) -> Result<String> {
        let ExecRequest { container_id, cmd, tty, stdin, stdout, stderr } = request;
        let id = self.container_id(&container_id)?;
        let container = self.containers.get(id)?;
        // What is wrong with a verb its own output says.
        if !verbs::is_verb(&cmd) {
            agents::Command::of(&container, cmd.clone())?;
        }
        let (container_id, otherwise) = (id.to_string(), Otherwise::default());
        self.uses.sessions.exec_url(streaming::ExecRequest { container_id, cmd, stdin, stdout, stderr, tty, otherwise })
    }

    pub(super) fn attach_url(&self, request: AttachRequest) -> Result<String> {
        let AttachRequest { container_id, stdin, stdout, stderr, tty } = request;
        let id = self.container_id(&container_id)?;
        let container = self.containers.get(id)?;
        if container.state != ContainerState::Running {
            return Err(Error::new(Kind::State, format!("container `{id}` does not run, so nobody can attach to it")));
        }
        let (container_id, stdin_once) = (id.to_string(), container.config.stdin_once);
        self.uses.sessions.attach_url(streaming::AttachRequest { container_id, stdin, stdout, stderr, tty, stdin_once })
    }

    pub(super) fn port_forward_url(&self, request: PortForwardRequest) -> Result<String> {
        let id = self.sandbox_id(&request.pod_sandbox_id)?;
        if self.uses.store.sandbox(&id).is_none_or(|sandbox| sandbox.state != SandboxState::Ready) {
            return Err(Error::new(Kind::State, format!("sandbox `{id}` is not ready, so it has no ports")));
        }
        self.uses.sessions.port_forward_url(id.to_string(), &request.port)
    }
}
