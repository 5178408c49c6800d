//! The task of a connection: reads frames into the state, writes frames out of it, and ends both.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{sleep_until, timeout};

use super::Closed;
use super::codec::{Codec, Decode, Decoded, Encode};
use super::shared::Shared;
use super::state::{Batch, State};

/// Buffers that are read into, and how little room in one is worth a read.
const READ_LEN: usize = 32 << 10;
const MIN_READ_LEN: usize = 4 << 10;
/// While nothing is read because a stream is full, the peer is pinged this often.
const PING_WHILE_FULL: Duration = Duration::from_secs(10);
/// How long a peer that broke the protocol may take to be told so.
const LAST_WORDS_DEADLINE: Duration = Duration::from_secs(1);
/// How long a peer that was told everything may take to close its end. Closing ours with its bytes unread would make the
/// kernel reset the connection and with it lose what the peer has not read yet.
const LINGER_DEADLINE: Duration = Duration::from_secs(5);

/// Statuses of GOAWAY.
const OK: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;

/// Whatever ends the task, no stream waits for it after that.
struct CloseAtEnd(Arc<Shared>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close(Closed::Dropped);
    }
}

pub(super) async fn drive(shared: Arc<Shared>, transport: impl AsyncRead + AsyncWrite, codec: Codec) {
    let _close = CloseAtEnd(shared.clone());
    let (reader, writer) = tokio::io::split(transport);
    let (decoder, encoder) = codec;
    let mut reading = pin!(read(&shared, reader, decoder));
    let mut writing = pin!(write(&shared, writer, encoder));
    tokio::select! {
        (why, last_word) = &mut reading => {
            shared.close(why);
            if let Some(status) = last_word {
                shared.act(|state| state.give_up(status));
                // It may well not listen.
                let _ = timeout(LAST_WORDS_DEADLINE, writing).await;
            }
        }
        done = &mut writing => {
            match done {
                Ok(()) => shared.close(Closed::Finished),
                Err(error) => return shared.close(Closed::Io(Arc::new(error))),
            }
            let _ = timeout(LINGER_DEADLINE, reading).await;
        }
        why = idle(&shared) => shared.close(why),
    }
}

/// Reads until the connection is over: why it is, and the status that the peer is to be told.
async fn read(
    shared: &Shared,
    mut reader: impl AsyncRead + Unpin,
    mut decoder: Box<dyn Decode>,
) -> (Closed, Option<u32>) {
    let mut buffer = BytesMut::new();
    loop {
        // First, since a codec may have something to say before the peer does.
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Decoded::Frame(frame)) => {
                    if let Err(why) = shared.act(|state| state.receive(frame)) {
                        return (why, Some(PROTOCOL_ERROR));
                    }
                }
                Ok(Decoded::More) => break,
                Ok(Decoded::End) => return (Closed::Peer, Some(OK)),
                Err(error) => return (Closed::Protocol(error), Some(PROTOCOL_ERROR)),
            }
        }
        until_room(shared).await;
        if buffer.capacity() - buffer.len() < MIN_READ_LEN {
            buffer.reserve(READ_LEN);
        }
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return (Closed::Peer, None),
            Ok(_) => shared.lock().touch(),
            Err(error) => return (Closed::Io(Arc::new(error)), None),
        }
    }
}

/// Waits until more may be taken from the peer.
async fn until_room(shared: &Shared) {
    while shared.lock().is_full() {
        let freed = shared.lock().freed();
        let mut freed = pin!(freed.notified());
        // From here on nothing that others give back is missed.
        freed.as_mut().enable();
        if !shared.lock().is_full() {
            return;
        }
        let room = async {
            tokio::select! {
                () = shared.room() => {}
                () = freed => {}
            }
        };
        if timeout(PING_WHILE_FULL, room).await.is_err() {
            shared.act(State::ping);
        }
    }
}

async fn write(shared: &Shared, mut writer: impl AsyncWrite + Unpin, mut encoder: Box<dyn Encode>) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    loop {
        let batch = shared.lock().take();
        match batch {
            Batch::Frames { frames, data } => {
                bytes.clear();
                for frame in &frames {
                    encoder.encode(frame, &mut bytes);
                }
                writer.write_all(&bytes).await?;
                writer.flush().await?;
                shared.lock().sent(data);
            }
            Batch::Wait => shared.to_write().await,
            Batch::End => return writer.shutdown().await,
        }
    }
}

async fn idle(shared: &Shared) -> Closed {
    loop {
        let (at, why) = {
            let state = shared.lock();
            (state.idle_at(), state.idle())
        };
        if tokio::time::Instant::now() >= at {
            return why;
        }
        sleep_until(at).await;
    }
}
