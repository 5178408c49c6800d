//! An output that has something done when the first byte comes, and keeps what came of it until it is dropped.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// The output.
#[derive(Debug)]
pub(super) struct First<W, F, T> {
    out: W,
    act: Option<F>,
    kept: Option<T>,
}

impl<W, F: FnOnce() -> io::Result<T>, T> First<W, F, T> {
    /// Does `act` before the first byte goes to `out`.
    pub(super) fn new(out: W, act: F) -> Self {
        Self { out, act: Some(act), kept: None }
    }
}

impl<W: AsyncWrite + Unpin, F: FnOnce() -> io::Result<T> + Unpin, T: Unpin> AsyncWrite for First<W, F, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(act) = self.act.take() {
            self.kept = Some(act()?);
        }
        Pin::new(&mut self.out).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.out).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.out).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn it_is_done_once_and_kept_until_the_output_is_dropped() {
        let times = Rc::new(Cell::new(0));
        let kept = Rc::new(());
        let mut out = First::new(Vec::new(), || {
            times.set(times.get() + 1);
            Ok(kept.clone())
        });
        out.flush().await.expect("flushed");
        assert_eq!(times.get(), 0, "nothing came yet");
        for bytes in [b"a", b"b"] {
            out.write_all(bytes).await.expect("written");
        }
        assert_eq!((times.get(), Rc::strong_count(&kept), out.out.as_slice()), (1, 2, &b"ab"[..]));
        drop(out);
        assert_eq!(Rc::strong_count(&kept), 1);
    }

    #[tokio::test]
    async fn what_fails_then_fails_the_output() {
        let mut out = First::new(Vec::new(), || Err::<(), _>(io::ErrorKind::NotConnected.into()));
        let error = out.write_all(b"a").await.expect_err("no terminal");
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    }
}
