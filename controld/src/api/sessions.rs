//! Streaming sessions of CRI: the server to whose URLs clients come, and who serves each kind of session.
//!
//! Attach goes to the consoles of machines, or to the command that a machine is for; exec to the agents in their guests, or to our own
//! [`verbs`]; port-forward to the pod's address.

mod exec;
mod forward;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use streaming::{
    AttachRequest, Backend, ExecRequest, Input, Output, PortForwardRequest, Server, Session, SessionError, UrlError,
};
use vmspec::error::{Error, Kind, Result};

use super::verbs::{self, Verbs};
use crate::config::Config;
use crate::guest::agents::Agents;
use crate::guest::console::hub::Consoles;
use crate::store::Store;

/// The streaming server.
#[derive(Debug)]
pub struct Sessions {
    server: Server,
    verbs: Verbs,
}

#[derive(Debug)]
struct Serving {
    consoles: Arc<Consoles>,
    agents: Arc<Agents>,
    store: Store,
    verbs: Verbs,
}

// === impl Sessions ===

impl Sessions {
    /// Starts the streaming server.
    ///
    /// # Errors
    /// When its address cannot be had.
    pub async fn bind(
        config: &Config,
        store: Store,
        agents: Arc<Agents>,
        consoles: Arc<Consoles>,
        verbs: Verbs,
    ) -> Result<Self> {
        let serving = Serving { consoles, agents, store, verbs: verbs.clone() };
        let tls = config.streaming.tls_files();
        let wanted = streaming::Config { tls, ..streaming::Config::at(config.streaming.address) };
        let server = Server::bind(wanted, Arc::new(serving)).await.map_err(|cause| {
            Error::because(
                Kind::Unavailable,
                "streaming server not started; see section `streaming` of the configuration",
                cause,
            )
        })?;
        tracing::info!(address = %server.address(), "streaming server listens");
        Ok(Self { server, verbs })
    }

    /// What is done for an exec without the guest.
    #[must_use]
    pub fn verbs(&self) -> &Verbs {
        &self.verbs
    }

    /// Waits for the end of the last session there is; see [`Server::all_ended`].
    pub async fn all_ended(&self) {
        self.server.all_ended().await;
    }

    /// The URL at which one client may attach to a console, soon and once.
    ///
    /// # Errors
    /// When the request makes no sense, or too many wait already.
    pub fn attach_url(&self, wanted: AttachRequest) -> Result<String> {
        self.server.attach_url(wanted).map_err(no_url)
    }

    /// The URL at which one client may have a command run in a container's guest, soon and once.
    ///
    /// # Errors
    /// When the request makes no sense, or too many wait already.
    pub fn exec_url(&self, wanted: ExecRequest) -> Result<String> {
        self.server.exec_url(wanted).map_err(no_url)
    }

    /// The URL at which one client may connect to ports of a pod, soon and once.
    ///
    /// # Errors
    /// When the request makes no sense, or too many wait already.
    pub fn port_forward_url(&self, pod_id: String, ports: &[i32]) -> Result<String> {
        let port = |port: &i32| u16::try_from(*port).ok().filter(|port| *port != 0);
        let ports = ports.iter().map(|given| port(given).ok_or(given)).collect::<std::result::Result<_, _>>();
        let ports = ports.map_err(|bad| Error::new(Kind::Invalid, format!("port {bad} is not one of 1 to 65535")))?;
        self.server.port_forward_url(PortForwardRequest { pod_id, ports }).map_err(no_url)
    }
}

fn no_url(cause: UrlError) -> Error {
    let kind = if matches!(cause, UrlError::TooMany(_)) { Kind::Exhausted } else { Kind::Invalid };
    Error::because(kind, "no URL for a streaming session", cause)
}

// === impl Serving ===

impl Serving {
    /// To the command that the machine is for, or to its console.
    async fn join(&self, id: &str, session: Session) -> std::result::Result<(), SessionError> {
        // It may have ended since the URL was given.
        let gone = || Error::new(Kind::NotFound, format!("no container `{id}`"));
        let container = id.parse().ok().and_then(|id| self.store.container(id)).ok_or_else(gone)?;
        match container.machine.guest.command {
            Some(_) => exec::join(&self.agents, &container, session).await,
            // The console is the machine's, and named by it.
            None => self.consoles.attach(&container.machine.id.to_string(), session).await,
        }
    }
}

impl Backend for Serving {
    fn attach<'a>(&'a self, id: &'a str, session: Session) -> BoxFuture<'a, std::result::Result<(), SessionError>> {
        self.join(id, session).boxed()
    }

    fn exec<'a>(
        &'a self,
        request: &'a ExecRequest,
        session: Session,
    ) -> BoxFuture<'a, std::result::Result<u8, SessionError>> {
        match verbs::is_verb(&request.cmd) {
            true => async { Ok(self.verbs.serve(request, session).await) }.boxed(),
            false => exec::serve(&self.store, &self.agents, request, session).boxed(),
        }
    }

    fn dial<'a>(
        &'a self,
        pod_id: &'a str,
        port: u16,
    ) -> BoxFuture<'a, std::result::Result<(Input, Output), SessionError>> {
        forward::dial(&self.store, pod_id, port).boxed()
    }
}
