//! A session with a command, from its streams to its exit code.

use std::time::Duration;

use bytes::Bytes;
use streaming::client::{EndError, Resize, Session};
use streaming::{Input, Output, TermSize};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::error::CtlError;

/// How long more of the output may be on its way once the command's end was told. For whoever reads it there is no deadline.
const LAST_OUTPUT: Duration = Duration::from_secs(10);
/// Output that is read at once.
const CHUNK: usize = 32 << 10;

/// What a command reads from, and writes to, on our side.
pub(in super::super) struct Streams<O, E> {
    /// Its input, until the sender is dropped.
    pub(in super::super) input: mpsc::Receiver<Bytes>,
    pub(in super::super) out: O,
    pub(in super::super) err: E,
}

/// Carries a session until the command has ended; answers with its exit code. `resized` waits for the next size of our
/// terminal.
pub(in super::super) async fn carry<O, E>(
    session: Session,
    streams: Streams<O, E>,
    size: Option<TermSize>,
    resized: impl AsyncFnMut() -> Option<TermSize>,
) -> Result<u8, CtlError>
where
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    let Session { stdin, stdout, stderr, resize, mut end } = session;
    let Streams { input, out, err } = streams;
    let is_over = CancellationToken::new();
    let shown = async { tokio::try_join!(show(stdout, out, &is_over), show(stderr, err, &is_over)).map(drop) };
    tokio::pin!(shown);
    // The command may go on after it has closed its output; its output may come after its end was told.
    let mut is_shown = false;
    let told = {
        let ended = end.wait();
        let gives = async {
            tokio::join!(give(input, stdin), tell_sizes(resize, size, resized));
            std::future::pending::<()>().await
        };
        tokio::pin!(ended, gives);
        loop {
            tokio::select! {
                told = &mut ended => break told,
                result = &mut shown, if !is_shown => {
                    result?;
                    is_shown = true;
                }
                () = &mut gives => {}
            }
        }
    };
    is_over.cancel();
    if !is_shown {
        shown.await?;
    }
    match told {
        Ok(()) => Ok(0),
        Err(EndError::Exited(code)) => Ok(code),
        Err(cause) => Err(CtlError::Command(cause)),
    }
}

/// Copies output until it ends. What is on its way has a deadline once `is_over`.
async fn show(
    from: Option<Input>,
    mut to: impl AsyncWrite + Unpin,
    is_over: &CancellationToken,
) -> Result<(), CtlError> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; CHUNK];
    loop {
        let late = async {
            is_over.cancelled().await;
            sleep(LAST_OUTPUT).await;
        };
        let read = tokio::select! {
            biased;
            // How the session failed, if it did, is told by its end.
            read = from.read(&mut buffer) => read.unwrap_or_default(),
            () = late => return Err(CtlError::Command(EndError::Lost(None))),
        };
        if read == 0 {
            return Ok(());
        }
        to.write_all(buffer.get(..read).unwrap_or_default()).await?;
        to.flush().await?;
    }
}

/// Sends input, and that there is no more.
async fn give(mut input: mpsc::Receiver<Bytes>, to: Option<Output>) {
    let Some(mut to) = to else { return };
    while let Some(bytes) = input.recv().await {
        // A command that reads no more, or has ended.
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    // Fails only if the session is over.
    let _ = to.shutdown().await;
}

/// Tells the terminal's sizes.
async fn tell_sizes(
    resize: Option<Resize>,
    mut size: Option<TermSize>,
    mut resized: impl AsyncFnMut() -> Option<TermSize>,
) {
    let Some(mut resize) = resize else { return };
    loop {
        if let Some(size) = size
            && resize.tell(size).await.is_err()
        {
            return;
        }
        size = resized().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn output_that_is_read_slowly_is_read_to_its_end() {
        let (from, mut command) = duplex(1 << 20);
        let (mut reader, to) = duplex(16);
        let is_over = CancellationToken::new();
        let showing = tokio::spawn({
            let is_over = is_over.clone();
            async move { show(Some(Box::new(from)), to, &is_over).await }
        });
        command.write_all(&[b'x'; 1000]).await.expect("written");
        drop(command);
        is_over.cancel();
        let mut all = Vec::new();
        loop {
            sleep(3 * LAST_OUTPUT).await;
            let mut some = [0; 200];
            match reader.read(&mut some).await.expect("read") {
                0 => break,
                read => all.extend_from_slice(&some[..read]),
            }
        }
        assert_eq!(all.len(), 1000);
        showing.await.expect("no panic").expect("all of it");
    }

    #[tokio::test(start_paused = true)]
    async fn output_that_never_comes_is_an_error() {
        let (from, _command) = duplex(16);
        let is_over = CancellationToken::new();
        is_over.cancel();
        let cut = show(Some(Box::new(from)), tokio::io::sink(), &is_over).await.expect_err("it does not end");
        assert!(matches!(cut, CtlError::Command(EndError::Lost(None))), "{cut}");
    }
}
