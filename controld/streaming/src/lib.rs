//! Streaming of CRI: sessions between a client and a container, over HTTP beside the CRI socket.
//!
//! CRI's `Attach`, `Exec` and `PortForward` answer with a URL ([`Server::attach_url`] and its like); the client connects to it, changes the connection to SPDY/3.1
//! or WebSocket and opens a stream for each of stdin, stdout and so on. The daemon gets plain bytes ([`Backend`]). Layers, from the
//! bottom: [`spdy`] and [`websocket`], frames and bytes; [`mux`], streams over a connection; [`ws`], how WebSocket carries them; [`remotecommand`] and [`portforward`], what Kubernetes says on those
//! streams; [`Server`] and [`client`], the two ends. [`page`] is for pages in browsers, which need no channels. Knows no libvirt and no CRI type.

pub mod backend;
pub mod client;
pub mod mux;
pub mod page;
pub mod portforward;
pub mod remotecommand;
mod request;
mod server;
pub mod spdy;
pub mod websocket;
pub mod ws;

pub use self::backend::{Backend, Input, Output, ResizeEvents, Session, SessionError, TermSize};
pub use self::request::{AttachRequest, ExecRequest, Otherwise, PortForwardRequest};
pub use self::server::{Config, Server, StartError, TlsError, TlsFiles, UrlError};
