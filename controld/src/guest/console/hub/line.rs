//! One machine's console while clients are attached to it: one connection to QEMU's socket, shared.
//!
//! QEMU takes one client at a time, and a client that does not read stalls the guest's serial port. So this task always
//! reads; a client that does not keep up skips output (the pod's log has all of it), and the guest never waits.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc};

/// QEMU accepts at once, or it is not there.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Chunks of output that may wait for a client.
const OUTPUT_QUEUE: usize = 256;
/// Chunks of input that may wait for the guest.
const INPUT_QUEUE: usize = 16;
const CHUNK: usize = 16 * 1024;

/// Why there is no console.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    /// QEMU does not accept.
    #[error("failed to connect to the machine's console; did it end just now?")]
    Connect(#[source] io::Error),
    /// QEMU does not answer.
    #[error("the machine's console did not accept within {} s", CONNECT_DEADLINE.as_secs())]
    Deadline,
}

/// Way to a console that is shared while it has clients.
#[derive(Debug, Clone)]
pub(super) struct Line {
    output: broadcast::WeakSender<Bytes>,
    input: mpsc::Sender<Bytes>,
}

/// A client's ends. Dropping them leaves the console.
#[derive(Debug)]
pub(super) struct Ends {
    /// What the guest prints from now on; closed when the machine ends.
    pub(super) output: broadcast::Receiver<Bytes>,
    /// What the guest is typed.
    pub(super) input: mpsc::Sender<Bytes>,
}

impl Line {
    /// Connects to the console and begins to share it; the first client's ends come with it.
    pub(super) async fn open(socket: &Path) -> Result<(Self, Ends), LineError> {
        let connected = tokio::time::timeout(CONNECT_DEADLINE, UnixStream::connect(socket)).await;
        let stream = connected.map_err(|_elapsed| LineError::Deadline)?.map_err(LineError::Connect)?;
        let (output, first) = broadcast::channel(OUTPUT_QUEUE);
        let (input, typed) = mpsc::channel(INPUT_QUEUE);
        let line = Self { output: output.downgrade(), input: input.clone() };
        tokio::spawn(share(stream, output, typed));
        Ok((line, Ends { output: first, input }))
    }

    /// The ends of another client, if the console is still shared.
    pub(super) fn join(&self) -> Option<Ends> {
        let output = self.output.upgrade()?;
        (output.receiver_count() > 0).then(|| Ends { output: output.subscribe(), input: self.input.clone() })
    }

    /// Whether it has clients.
    pub(super) fn is_shared(&self) -> bool {
        self.output.upgrade().is_some_and(|output| output.receiver_count() > 0)
    }
}

async fn share(stream: UnixStream, output: broadcast::Sender<Bytes>, mut typed: mpsc::Receiver<Bytes>) {
    let (mut from_guest, mut to_guest) = stream.into_split();
    let typing = tokio::spawn(async move {
        while let Some(keys) = typed.recv().await {
            if to_guest.write_all(&keys).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = BytesMut::with_capacity(CHUNK);
    loop {
        tokio::select! {
            read = from_guest.read_buf(&mut buffer) => {
                // The end, or an error: either way the machine is gone.
                if !matches!(read, Ok(1..)) {
                    break;
                }
                // Fails when the last client has just left, which ends the loop below.
                let _ = output.send(buffer.split().freeze());
                buffer.reserve(CHUNK);
            }
            () = output.closed() => break,
        }
    }
    typing.abort();
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn clients_share_one_connection_and_the_last_one_ends_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("console.sock");
        let qemu = UnixListener::bind(&path).expect("bind");
        let (line, mut first) = Line::open(&path).await.expect("opens");
        let (mut guest, _) = qemu.accept().await.expect("accepts");
        let mut second = line.join().expect("shared");
        guest.write_all(b"login: ").await.expect("prints");
        assert_eq!(first.output.recv().await.expect("output"), "login: ");
        assert_eq!(second.output.recv().await.expect("output"), "login: ");
        second.input.send(Bytes::from_static(b"root\r")).await.expect("typed");
        let mut typed = [0; 5];
        guest.read_exact(&mut typed).await.expect("typed");
        assert_eq!(&typed, b"root\r");
        drop(first);
        guest.write_all(b"#").await.expect("prints");
        assert_eq!(second.output.recv().await.expect("output"), "#");
        drop(second);
        assert_eq!(guest.read(&mut typed).await.expect("hung up"), 0, "nobody reads, so QEMU is let go");
        assert!(line.join().is_none());
    }

    #[tokio::test]
    async fn the_end_of_the_machine_is_the_end_of_every_client() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("console.sock");
        let qemu = UnixListener::bind(&path).expect("bind");
        let (_line, mut ends) = Line::open(&path).await.expect("opens");
        drop(qemu.accept().await.expect("accepts"));
        assert!(matches!(ends.output.recv().await, Err(broadcast::error::RecvError::Closed)));
        drop(qemu);
        std::fs::remove_file(&path).expect("removed");
        assert!(matches!(Line::open(&path).await, Err(LineError::Connect(_))));
    }
}
