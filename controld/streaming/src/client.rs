//! The other end: comes with the URL that CRI's `Attach`, `Exec` or `PortForward` gave.
//!
//! Used by `virtletctl`. The URL leads to a server on this node.

mod forward;
mod tls;

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::{Input, Output, TermSize};
use crate::mux::{Connection, Limits, OpenError, ReadHalf, Role, Stream, WriteHalf};
use crate::remotecommand::{self, Outcome, STREAM_TYPE, Status, StreamType};
use crate::spdy::Headers;

pub use self::forward::{Forward, Forwarded, forward};

/// How long the server may take until a session begins, in each of: connecting, answering, opening the streams.
const STEP_DEADLINE: Duration = Duration::from_secs(10);
/// Longest status, and longest refusal, that is read.
const MAX_TEXT: usize = 64 << 10;

/// Which streams a session has. They must be those of the CRI request that gave the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Send to the container.
    pub stdin: bool,
    /// Receive its output.
    pub stdout: bool,
    /// Receive its errors.
    pub stderr: bool,
    /// We have a terminal, whose size we tell.
    pub tty: bool,
}

/// A session. Dropping [`Session::end`] cuts it.
pub struct Session {
    /// To the container. Shutting it down, or dropping it, says that there is no more.
    pub stdin: Option<Output>,
    /// From the container.
    pub stdout: Option<Input>,
    /// From the container.
    pub stderr: Option<Input>,
    /// Where to tell the terminal's size.
    pub resize: Option<Resize>,
    /// How the session ends.
    pub end: End,
}

/// Tells the server our terminal's size.
#[derive(Debug)]
pub struct Resize(WriteHalf);

/// The session's end.
#[derive(Debug)]
pub struct End {
    connection: Connection,
    error: ReadHalf,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The URL is not one of a streaming server.
    #[error("`{0}` is not the URL of a streaming server, such as http://127.0.0.1:1234/attach/token")]
    Url(String),
    /// The server is not there.
    #[error("failed to connect to streaming server `{server}`")]
    Connect {
        /// Its address.
        server: String,
        #[source]
        cause: io::Error,
    },
    /// The server does not speak TLS, or nobody here trusts its certificate.
    #[error(
        "no TLS with streaming server `{server}`; its certificate is to name this address and to be of an authority \
         that the node trusts, or one in a file that SSL_CERT_FILE names"
    )]
    Tls {
        /// Its address.
        server: String,
        #[source]
        cause: io::Error,
    },
    /// The server does not speak HTTP.
    #[error("request to streaming server failed")]
    Http(#[source] hyper::Error),
    /// The server does not want us.
    #[error("streaming server refused: {status}: {text}")]
    Refused {
        /// Its answer.
        status: StatusCode,
        /// Its words.
        text: String,
    },
    /// The server did not take a stream.
    #[error("failed to open stream `{stream}`")]
    Open {
        stream: &'static str,
        #[source]
        cause: OpenError,
    },
    /// The server took too long.
    #[error("streaming server did not {action} within {} s", STEP_DEADLINE.as_secs())]
    Deadline {
        /// What was waited for.
        action: &'static str,
    },
}

/// How a session failed.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The command ended with this exit code, which is not 0.
    #[error("command terminated with exit code {0}")]
    Exited(u8),
    /// The server says so.
    #[error("{0}")]
    Failed(String),
    /// The connection ended without a word.
    #[error("connection to the streaming server was lost")]
    Lost(#[source] Option<io::Error>),
    /// The server's word is none of ours.
    #[error("streaming server ended the session with a status that is not understood")]
    Status(#[source] serde_json::Error),
}

/// Begins a session.
///
/// # Errors
/// See [`AttachError`].
pub async fn attach(url: &str, options: Options) -> Result<Session, AttachError> {
    let connection = connect(url, remotecommand::PROTOCOL).await?;
    step("take the streams", open(connection, options)).await?
}

/// Connects to the server, which is to carry streams as `protocol` says.
async fn connect(url: &str, protocol: &'static str) -> Result<Connection, AttachError> {
    let bad_url = || AttachError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad_url())?;
    let with_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(bad_url()),
    };
    let server = uri.authority().ok_or_else(bad_url)?.clone();
    let host = server.host().trim_start_matches('[').trim_end_matches(']');
    let connecting = TcpStream::connect((host, server.port_u16().unwrap_or(if with_tls { 443 } else { 80 })));
    let stream = step("accept the connection", connecting)
        .await?
        .map_err(|cause| AttachError::Connect { server: server.to_string(), cause })?;
    // Only typing would be slower without it.
    let _ = stream.set_nodelay(true);
    let failed = |cause| AttachError::Tls { server: server.to_string(), cause };
    let stream: Box<dyn Transport> = if with_tls {
        Box::new(step("take up TLS", tls::connect(stream, host)).await?.map_err(failed)?)
    } else {
        Box::new(stream)
    };
    let upgraded = step("answer the request", upgrade(stream, &uri, server.as_str(), protocol)).await??;
    Ok(Connection::start(TokioIo::new(upgraded), Role::Client, Limits::default()).0)
}

/// A connection, plain or not.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

async fn upgrade(
    stream: Box<dyn Transport>,
    uri: &Uri,
    host: &str,
    protocol: &str,
) -> Result<hyper::upgrade::Upgraded, AttachError> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(AttachError::Http)?;
    // Ends with the connection, or hands it over.
    tokio::spawn(connection.with_upgrades());
    let path = uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().map_err(|_| AttachError::Url(uri.to_string()))?;
    for (name, value) in [
        (HOST.as_str(), host),
        (CONNECTION.as_str(), "Upgrade"),
        (UPGRADE.as_str(), remotecommand::UPGRADE),
        (remotecommand::PROTOCOL_HEADER, protocol),
    ] {
        let value = value.parse().map_err(|_| AttachError::Url(uri.to_string()))?;
        let name: hyper::header::HeaderName = name.parse().map_err(|_| AttachError::Url(uri.to_string()))?;
        request.headers_mut().insert(name, value);
    }
    let response = sender.send_request(request).await.map_err(AttachError::Http)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(response).await);
    }
    hyper::upgrade::on(response).await.map_err(AttachError::Http)
}

async fn refused(response: Response<hyper::body::Incoming>) -> AttachError {
    let status = response.status();
    let text = Limited::new(response.into_body(), MAX_TEXT).collect().await;
    let text = text.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    AttachError::Refused { status, text }
}

async fn open(connection: Connection, options: Options) -> Result<Session, AttachError> {
    let open = async |wanted: bool, kind: StreamType| {
        if !wanted {
            return Ok(None);
        }
        let headers = Headers::new().with(STREAM_TYPE, kind.as_str());
        let opened = connection.open(headers).await.map(Stream::split);
        opened.map(Some).map_err(|cause| AttachError::Open { stream: kind.as_str(), cause })
    };
    let error = open(true, StreamType::Error).await?;
    let stdin = open(options.stdin, StreamType::Stdin).await?;
    let stdout = open(options.stdout, StreamType::Stdout).await?;
    let stderr = open(options.stderr, StreamType::Stderr).await?;
    let resize = open(options.tty, StreamType::Resize).await?;
    // Always opened; its error is returned above.
    let Some((error, _)) = error else { return Err(AttachError::Deadline { action: "take the streams" }) };
    Ok(Session {
        stdin: stdin.map(|(_, write)| Box::new(write) as Output),
        stdout: stdout.map(|(read, _)| Box::new(read) as Input),
        stderr: stderr.map(|(read, _)| Box::new(read) as Input),
        resize: resize.map(|(_, write)| Resize(write)),
        end: End { connection, error },
    })
}

async fn step<T>(action: &'static str, work: impl Future<Output = T>) -> Result<T, AttachError> {
    timeout(STEP_DEADLINE, work).await.map_err(|_| AttachError::Deadline { action })
}

// === impl Resize ===

impl Resize {
    /// Tells a size.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn tell(&mut self, size: TermSize) -> io::Result<()> {
        self.0.write_all(format!("{}\n", remotecommand::resize_json(size)).as_bytes()).await
    }
}

// === impl End ===

impl End {
    /// Waits until the server ends the session. What it sent before is to be read at the same time.
    ///
    /// # Errors
    /// See [`EndError`].
    pub async fn wait(&mut self) -> Result<(), EndError> {
        let mut text = Vec::new();
        let mut limited = (&mut self.error).take(MAX_TEXT as u64);
        limited.read_to_end(&mut text).await.map_err(|cause| EndError::Lost(Some(cause)))?;
        if text.is_empty() {
            return Err(EndError::Lost(None));
        }
        match Status::read(&text).map_err(EndError::Status)? {
            Outcome::Success => Ok(()),
            Outcome::Exited(code) => Err(EndError::Exited(code)),
            Outcome::Failed(why) => Err(EndError::Failed(why)),
        }
    }

    /// Leaves: what was written is sent, then the connection is closed.
    pub async fn leave(self) {
        self.connection.finish().await;
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("end", &self.end).finish_non_exhaustive()
    }
}
