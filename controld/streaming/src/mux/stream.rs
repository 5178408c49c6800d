//! The halves of a stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shared::Shared;
use crate::spdy::Status;

/// A stream that both ends have taken.
#[derive(Debug)]
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
}

/// What the peer sends. What comes after this is dropped is thrown away.
#[derive(Debug)]
pub struct ReadHalf {
    shared: Arc<Shared>,
    id: u32,
}

/// What the peer gets. Dropping it, like shutting it down, ends this direction after what was written.
#[derive(Debug)]
pub struct WriteHalf {
    shared: Arc<Shared>,
    id: u32,
}

// === impl Stream ===

impl Stream {
    pub(super) fn new(shared: &Arc<Shared>, id: u32) -> Self {
        Self { read: ReadHalf { shared: shared.clone(), id }, write: WriteHalf { shared: shared.clone(), id } }
    }

    /// Both halves.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }
}

// === impl ReadHalf ===

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let taken = ready!(self.shared.act(|state| state.poll_read(self.id, buffer.remaining(), context)))?;
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl Drop for ReadHalf {
    fn drop(&mut self) {
        self.shared.act(|state| state.drop_reader(self.id));
    }
}

// === impl WriteHalf ===

impl WriteHalf {
    /// Ends both directions of the stream at once; what was written may be lost.
    pub fn reset(&self, status: Status) {
        self.shared.act(|state| state.reset(self.id, status));
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.act(|state| state.poll_write(self.id, bytes, context))
    }

    /// What was written leaves by itself.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.act(|state| state.end_writing(self.id));
        Poll::Ready(Ok(()))
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.shared.act(|state| state.drop_writer(self.id));
    }
}
