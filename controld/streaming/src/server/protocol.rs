//! The wire protocols, as a table: what a client asks for by name, and how that carries the streams of a session.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::mux::{Arrivals, Connection, Limits, Role};
use crate::portforward;
use crate::ws::{self, Channels, Coding};

/// A row: one way to carry the streams of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocol {
    /// What the client calls it, in the header that goes with [`Upgrade`].
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
    WebSocket(Messages),
}

/// What WebSocket messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Messages {
    /// The first byte says which stream the rest is of.
    Channels(Coding),
    /// SPDY, cut anywhere.
    Tunnel,
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
    websocket("v5.channel.k8s.io", V5, StatusForm::Json),
    websocket("v4.channel.k8s.io", BINARY, StatusForm::Json),
    websocket("v4.base64.channel.k8s.io", BASE64, StatusForm::Json),
    websocket("channel.k8s.io", BINARY, StatusForm::Text),
    websocket("base64.channel.k8s.io", BASE64, StatusForm::Text),
    // Of a client that names none.
    websocket("", BINARY, StatusForm::Text),
];

/// Of port-forward.
pub(super) const FORWARD: &[Protocol] = &[
    spdy(portforward::PROTOCOL, StatusForm::Text, false),
    Protocol {
        name: "SPDY/3.1+portforward.k8s.io",
        upgrade: Upgrade::WebSocket(Messages::Tunnel),
        status: StatusForm::Text,
        resize: false,
    },
    websocket("v4.channel.k8s.io", BINARY, StatusForm::Text),
    websocket("v4.base64.channel.k8s.io", BASE64, StatusForm::Text),
    websocket("", BINARY, StatusForm::Text),
];

const BINARY: Coding = Coding { base64: false, half_close: false };
const BASE64: Coding = Coding { base64: true, half_close: false };
const V5: Coding = Coding { base64: false, half_close: true };

const fn spdy(name: &'static str, status: StatusForm, resize: bool) -> Protocol {
    Protocol { name, upgrade: Upgrade::Spdy, status, resize }
}

const fn websocket(name: &'static str, coding: Coding, status: StatusForm) -> Protocol {
    Protocol { name, upgrade: Upgrade::WebSocket(Messages::Channels(coding)), status, resize: true }
}

impl Protocol {
    /// Takes over a connection that has become what the row says. `channels` are the streams of the session, for a protocol
    /// in which the client does not open them.
    pub(super) fn start<T>(
        &self,
        transport: T,
        limits: Limits,
        channels: impl FnOnce() -> Channels,
    ) -> (Connection, Arrivals)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let codec = match self.upgrade {
            Upgrade::Spdy => return Connection::start(transport, Role::Server, limits),
            Upgrade::WebSocket(Messages::Channels(coding)) => ws::channels(coding, channels()),
            Upgrade::WebSocket(Messages::Tunnel) => ws::tunnel(),
        };
        Connection::start_with(codec, transport, Role::Server, limits)
    }

    /// Whether the streams are those of the request, in channels: the client opens none, and cannot say that one ends.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self.upgrade, Upgrade::WebSocket(Messages::Channels(_)))
    }

    pub(super) fn is_websocket(&self) -> bool {
        matches!(self.upgrade, Upgrade::WebSocket(_))
    }
}
