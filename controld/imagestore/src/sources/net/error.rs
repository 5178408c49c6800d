//! Why a download failed.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use vmimage::error::{ErrorKind, in_seconds, of_io};

/// Why a download failed. No variant shows credentials.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The host's name.
    #[error("failed to resolve host `{host}`")]
    Resolve {
        host: String,
        #[source]
        cause: io::Error,
    },
    /// The host has no address that may be connected to.
    #[error("host `{host}` has the address {address}, to which no download may go")]
    Address {
        host: String,
        /// What it resolved to.
        address: IpAddr,
    },
    /// No connection.
    #[error("failed to connect to `{host}`")]
    Connect {
        /// The host and port.
        host: String,
        #[source]
        cause: io::Error,
    },
    /// No connection in time.
    #[error("no connection to `{host}` within {}", in_seconds(*.deadline))]
    ConnectDeadline {
        /// The host and port.
        host: String,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// The certificates to trust cannot be read.
    #[error("trusted certificates not readable from {origin}")]
    Roots {
        /// Whose they are.
        origin: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The TLS handshake failed.
    #[error("TLS handshake with `{host}` failed")]
    Tls {
        host: String,
        /// Why; from the TLS library if the server was not taken.
        #[source]
        cause: io::Error,
    },
    /// A proxy said no.
    #[error("proxy `{proxy}` answered with status {status}")]
    Proxy {
        /// The proxy's host and port.
        proxy: String,
        status: u16,
    },
    /// A proxy that broke off.
    #[error("proxy `{proxy}` made no connection")]
    Tunnel {
        /// The proxy's host and port.
        proxy: String,
        #[source]
        cause: io::Error,
    },
    /// The request took longer than its profile allows.
    #[error("request not done within the {} of its transport", in_seconds(*.limit))]
    Timeout {
        /// What the profile allows.
        limit: Duration,
    },
    /// A redirect out of where the request must stay.
    #[error("`{url}` redirects to `{target}`, out of the directory that it belongs to")]
    Confined {
        url: String,
        /// Where to.
        target: String,
    },
    /// The TLS handshake took too long.
    #[error("TLS handshake with `{host}` not done within {}", in_seconds(*.deadline))]
    TlsDeadline {
        host: String,
        /// How long it was waited for.
        deadline: Duration,
    },
    /// No scheme of ours.
    #[error("scheme `{scheme}` is not HTTP")]
    Scheme { scheme: String },
    /// A header of the request that is none.
    #[error("header `{name}` has a name or value that HTTP does not know")]
    Header { name: String },
    /// The path makes no request.
    #[error("URL makes no HTTP request")]
    Uri(#[source] hyper::http::uri::InvalidUri),
    /// The host makes no header.
    #[error("host makes no HTTP header")]
    Host(#[source] hyper::header::InvalidHeaderValue),
    /// What came is no HTTP, or the connection broke before the answer.
    #[error("no valid HTTP answer")]
    Protocol(#[source] hyper::Error),
    /// Silence, or less than a drip.
    #[error("server stalled: {bytes} bytes within {}", in_seconds(*.window))]
    Stalled {
        /// What came within the window.
        bytes: u64,
        window: Duration,
    },
    /// Not what was asked for.
    #[error("`{url}` answered with status {status}")]
    Status { url: String, status: u16 },
    /// Too many redirects.
    #[error("more than {limit} redirects")]
    Redirects { limit: u32 },
    /// A redirect to nowhere.
    #[error("`{url}` redirects without a usable location")]
    Location { url: String },
    /// A redirect of a length that no server would take as a request.
    #[error("`{url}` redirects to a URL of {length} bytes; no more than {limit} are followed")]
    LongLocation {
        url: String,
        /// Length of the other.
        length: usize,
        limit: usize,
    },
    /// A redirect to some other scheme.
    #[error("`{url}` redirects to scheme `{scheme}`")]
    RedirectScheme { url: String, scheme: String },
    /// A redirect out of encryption.
    #[error("`{url}` redirects from https to plain `{target}`, which is not followed")]
    Downgrade {
        url: String,
        /// Where to.
        target: String,
    },
    /// A body that was changed for the way.
    #[error("server encoded its answer (`{encoding}`), though asked not to; let it send the file as it is")]
    Encoded {
        /// The header that says so.
        encoding: String,
    },
    /// Not the bytes that were asked for.
    #[error("server was asked for bytes {wanted} and gave `{got}`: {why}")]
    Range {
        /// The first byte and the last.
        wanted: String,
        /// `Content-Range`, as it came.
        got: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The part that was asked for cannot be had.
    #[error("server has nothing from byte {at} on any more (status {status})")]
    RangeGone {
        /// The first byte.
        at: u64,
        status: u16,
    },
    /// An answer that should have been small.
    #[error("`{url}` answered with more than {limit} bytes")]
    TooLarge { url: String, limit: usize },
    /// An answer that should have been JSON.
    #[error("`{url}` answered with unusable JSON")]
    Json {
        url: String,
        #[source]
        cause: serde_json::Error,
    },
    /// A file of this machine.
    #[error("failed to read the file")]
    File(#[source] io::Error),
    /// Nothing in it.
    #[error("server sent an empty image")]
    Empty,
    /// The connection broke, or was closed too early.
    #[error("download broke off after {received} bytes{}", announced.map_or(String::new(), |all| format!(" of {all}")))]
    Interrupted {
        /// What came.
        received: u64,
        /// What was announced.
        announced: Option<u64>,
        /// Why, if anybody knows.
        #[source]
        cause: Option<io::Error>,
    },
    /// More than was announced.
    #[error("got more than the {announced} bytes that were announced")]
    Overlong {
        /// What was announced.
        announced: u64,
    },
}

impl FetchError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Status { status: 404 | 410, .. } => ErrorKind::NotFound,
            Self::Status { status: 401 | 403 | 407, .. }
            | Self::Proxy { status: 403 | 407, .. }
            | Self::Address { .. } => ErrorKind::Denied,
            Self::ConnectDeadline { .. } | Self::TlsDeadline { .. } | Self::Timeout { .. } | Self::Stalled { .. } => {
                ErrorKind::Deadline
            }
            Self::Connect { cause, .. } | Self::Resolve { cause, .. } => match of_io(cause) {
                ErrorKind::Deadline => ErrorKind::Deadline,
                _ => ErrorKind::Server,
            },
            Self::Roots { .. } | Self::Header { .. } => ErrorKind::Internal,
            Self::Scheme { .. } => ErrorKind::InvalidName,
            Self::TooLarge { .. } => ErrorKind::Exhausted,
            Self::File(cause) => of_io(cause),
            Self::Tls { .. }
            | Self::Proxy { .. }
            | Self::Tunnel { .. }
            | Self::Confined { .. }
            | Self::Uri(_)
            | Self::Host(_)
            | Self::Protocol(_)
            | Self::Status { .. }
            | Self::Redirects { .. }
            | Self::Location { .. }
            | Self::LongLocation { .. }
            | Self::RedirectScheme { .. }
            | Self::Downgrade { .. }
            | Self::Encoded { .. }
            | Self::Range { .. }
            | Self::RangeGone { .. }
            | Self::Json { .. }
            | Self::Empty
            | Self::Interrupted { .. }
            | Self::Overlong { .. } => ErrorKind::Server,
        }
    }

    /// Whether the server could not be reached or is down, as opposed to having answered.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::ConnectDeadline { .. }
            | Self::TlsDeadline { .. }
            | Self::Timeout { .. }
            | Self::Stalled { .. } => true,
            // Too many requests: it has not answered yet.
            Self::Status { status, .. } => *status >= 500 || *status == 429,
            _ => self.is_transient(),
        }
    }

    /// Whether the way or the moment is to blame, so that another attempt at once may have more luck.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Tunnel { .. } | Self::Interrupted { .. } => true,
            Self::Proxy { status, .. } => *status >= 500,
            Self::Tls { cause, .. } => !cause.get_ref().is_some_and(|cause| cause.is::<rustls::Error>()),
            Self::Protocol(cause) => cause.is_incomplete_message() || source_is_broken_pipe(cause),
            _ => false,
        }
    }
}

/// Whether a connection broke, rather than that nonsense came over it.
fn source_is_broken_pipe(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
        matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut | UnexpectedEof)
    })
}
