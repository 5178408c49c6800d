//! Connections to ports of a pod.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;

use super::{AttachError, MAX_TEXT, connect, step};
use crate::mux::{Connection, ReadHalf, Stream, WriteHalf};
use crate::portforward::{PORT, PROTOCOL, REQUEST_ID, STREAM_TYPE, StreamType};
use crate::spdy::Headers;

/// A session of port-forward. Dropping it cuts all its connections.
#[derive(Debug)]
pub struct Forward {
    connection: Connection,
    next: AtomicU64,
}

/// A connection to a port.
#[derive(Debug)]
pub struct Forwarded {
    /// From the pod. A pod that breaks off resets it.
    pub read: ReadHalf,
    /// To the pod. Shutting it down says that there is no more.
    pub write: WriteHalf,
    /// Why the pod did not take it, if it did not.
    pub reason: Reason,
}

/// The server's word of why there is no connection.
#[derive(Debug)]
pub struct Reason(ReadHalf);

/// Begins a session.
///
/// # Errors
/// See [`AttachError`].
pub async fn forward(url: &str) -> Result<Forward, AttachError> {
    Ok(Forward { connection: connect(url, PROTOCOL).await?, next: AtomicU64::new(0) })
}

// === impl Forward ===

impl Forward {
    /// Connects to a port. Whether the pod takes the connection shows later: see [`Forwarded::why_failed`].
    ///
    /// # Errors
    /// See [`AttachError`].
    pub async fn open(&self, port: u16) -> Result<Forwarded, AttachError> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let open = async |kind: StreamType| {
            let headers = Headers::new()
                .with(STREAM_TYPE, kind.as_str())
                .with(PORT, port.to_string())
                .with(REQUEST_ID, request.to_string());
            let opened = step("take the streams", self.connection.open(headers)).await?;
            opened.map(Stream::split).map_err(|cause| AttachError::Open { stream: kind.as_str(), cause })
        };
        // We say nothing on it.
        let (reason, _) = open(StreamType::Error).await?;
        let (read, write) = open(StreamType::Data).await?;
        Ok(Forwarded { read, write, reason: Reason(reason) })
    }

    /// Fires when the session is over.
    #[must_use]
    pub fn closed(&self) -> CancellationToken {
        self.connection.closed()
    }
}

// === impl Forwarded ===

impl Forwarded {
    /// Both halves, and how it ends.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf, Reason) {
        (self.read, self.write, self.reason)
    }
}

// === impl Reason ===

impl Reason {
    /// Waits for the connection's end: the server's reason if the pod did not take it. To be asked when both halves are over.
    pub async fn why_failed(mut self) -> Option<String> {
        let mut text = Vec::new();
        // What was lost with the connection is told by the session.
        let _ = (&mut self.0).take(MAX_TEXT as u64).read_to_end(&mut text).await;
        (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}
