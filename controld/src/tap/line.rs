//! One connection to tapmanager: a request, its answer, the next request.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use nix::errno::Errno;
use proto::tap::{Client, ClientError, Packet, Reply, Request, WireError, decode_reply, encode_request, recv, send};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// An open connection. One that a request failed on is to be dropped.
#[derive(Debug)]
pub(super) struct Line {
    // A stream by its type alone: it keeps packets apart.
    socket: UnixStream,
}

impl Line {
    /// Connects.
    pub(super) async fn dial(client: &Client) -> Result<Self, ClientError> {
        let failed = |cause: Errno| ClientError::Connect { path: client.path().to_owned(), cause };
        let dialled = client.clone();
        // connect(2) waits for room in the listener's backlog, and there is no event for that.
        let socket = tokio::task::spawn_blocking(move || dialled.dial()).await;
        let socket = socket.unwrap_or_else(|_cancelled| Err(failed(Errno::ECANCELED)))?;
        let os = |cause: io::Error| failed(cause.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw));
        let socket = StdStream::from(socket);
        socket.set_nonblocking(true).map_err(os)?;
        Ok(Self { socket: UnixStream::from_std(socket).map_err(os)? })
    }

    /// Asks, and waits for the answer until `deadline`.
    pub(super) async fn ask(
        &mut self,
        client: &Client,
        request: &Request,
        deadline: Duration,
    ) -> Result<Reply, ClientError> {
        let path = || client.path().to_owned();
        let codec = |cause| ClientError::Codec { path: path(), cause };
        let packet = encode_request(request).map_err(codec)?;
        let exchanged = timeout(deadline, async {
            self.when(Interest::WRITABLE, |fd| send(fd, &packet, &[])).await?;
            self.when(Interest::READABLE, recv).await
        });
        let Packet { bytes, fds } = match exchanged.await {
            Ok(received) => received.map_err(|cause| ClientError::Wire { path: path(), cause })?,
            Err(_elapsed) => return Err(ClientError::Deadline { path: path(), request: request.name(), deadline }),
        };
        decode_reply(&bytes, fds.len()).map_err(codec)?.map_err(ClientError::Refused)
    }

    /// Waits until the other side hangs up; it says nothing unasked.
    pub(super) async fn closed(&self) {
        // Whatever it is that can be read now: there is no question that it could answer.
        let _ = self.when(Interest::READABLE, recv).await;
    }

    async fn when<T>(
        &self,
        interest: Interest,
        operation: impl Fn(BorrowedFd<'_>) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let done = self.socket.async_io(interest, || match operation(self.socket.as_fd()) {
            Err(WireError::Os(Errno::EAGAIN)) => Err(io::ErrorKind::WouldBlock.into()),
            done => Ok(done),
        });
        let failed = |cause: io::Error| cause.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
        done.await.unwrap_or_else(|cause| Err(failed(cause).into()))
    }
}
