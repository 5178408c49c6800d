//! A session with a command, from its streams to its exit code.

use std::time::Duration;

use bytes::Bytes;
use streaming::client::{EndError, Resize, Session};
use streaming::{Input, Output, TermSize};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::error::CtlError;

/// How long the last of the output may take after the command's end was told.
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
    let shown = async { tokio::try_join!(show(stdout, out), show(stderr, err)).map(drop) };
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
    if !is_shown {
        // Past the deadline, the rest is lost with the connection.
        timeout(LAST_OUTPUT, shown).await.unwrap_or(Ok(()))?;
    }
    match told {
        Ok(()) => Ok(0),
        Err(EndError::Exited(code)) => Ok(code),
        Err(cause) => Err(CtlError::Command(cause)),
    }
}

/// Copies output until it ends.
async fn show(from: Option<Input>, mut to: impl AsyncWrite + Unpin) -> Result<(), CtlError> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; CHUNK];
    // How the session failed, if it did, is told by its end.
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        to.write_all(buffer.get(..read).unwrap_or_default()).await?;
        to.flush().await?;
    }
    Ok(())
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
