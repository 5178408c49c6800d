//! The wire protocols, as a table: what a client asks for by name, and how that carries the streams of a session.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::mux::{Arrivals, Connection, Limits, Role};
use crate::portforward;

/// A row: one way to carry the streams of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocol {
    /// What the client calls it, in the header of [`Upgrade`].
    pub(super) name: &'static str,
    pub(super) upgrade: Upgrade,
    /// How the end of a command is told.
    pub(super) status: StatusForm,
    /// Whether there is a stream for the sizes of the client's terminal.
    pub(super) resize: bool,
}

/// What the HTTP connection becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upgrade {
    Spdy,
}

/// What is on the error stream at the end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusForm {
    /// An object, be it success or not.
    Json,
    /// The text of a failure.
    Text,
}

/// Of attach and exec.
pub(super) const COMMAND: &[Protocol] = &[
    spdy("v4.channel.k8s.io", StatusForm::Json, true),
    spdy("v3.channel.k8s.io", StatusForm::Text, true),
    spdy("v2.channel.k8s.io", StatusForm::Text, false),
    spdy("channel.k8s.io", StatusForm::Text, false),
];

/// Of port-forward.
pub(super) const FORWARD: &[Protocol] = &[spdy(portforward::PROTOCOL, StatusForm::Text, false)];

const fn spdy(name: &'static str, status: StatusForm, resize: bool) -> Protocol {
    Protocol { name, upgrade: Upgrade::Spdy, status, resize }
}

impl Protocol {
    /// Takes over a connection that has become what the row says.
    pub(super) fn start<T>(&self, transport: T, limits: Limits) -> (Connection, Arrivals)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        match self.upgrade {
            Upgrade::Spdy => Connection::start(transport, Role::Server, limits),
        }
    }
}
