//! An image that a person sends instead of naming a place: bytes that come once, from another task of this process.
//!
//! To the store it is a provider like any other, so what is sent is treated as what is downloaded. It is in no registry:
//! one is made for each image, and opened once.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use tokio::sync::mpsc;
use tokio::time::timeout;
use vmimage::name::IMPORT;

use super::{Answer, Caps, Provider, ProviderError, RemoteImage};
use crate::sources::net::{Artifact, Ask, Body, FetchError, Opened, Validators};

/// Pieces that may wait for the store, so that its disk holds up the sender.
const WAITING: usize = 4;
/// As a server has it that is not told otherwise.
const STALL: Duration = Duration::from_secs(60);

/// Tells uploads of the same moment apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A piece of what is sent.
#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    /// That was all. Without it, what came is cut off.
    End,
}

/// The end where bytes are put in.
#[derive(Debug)]
pub struct Feed(mpsc::Sender<Piece>);

/// The end where they come out.
#[derive(Debug)]
pub struct Upload {
    from: mpsc::Receiver<Piece>,
    length: Option<u64>,
    stall: Duration,
}

impl Upload {
    /// Both ends of an upload of so many bytes, if that is known.
    #[must_use]
    pub fn new(length: Option<u64>) -> (Feed, Self) {
        let (to, from) = mpsc::channel(WAITING);
        (Feed(to), Self { from, length, stall: STALL })
    }

    /// The same, given up when nothing comes for so long.
    pub(crate) fn within(self, stall: Duration) -> Self {
        Self { stall, ..self }
    }
}

impl Feed {
    /// Puts bytes in, as soon as there is room. Whether the other end is still there.
    pub async fn push(&self, bytes: Bytes) -> bool {
        bytes.is_empty() || self.0.send(Piece::Bytes(bytes)).await.is_ok()
    }

    /// Says that these were all. Dropped without that, what came is cut off and not taken.
    pub async fn end(self) {
        // The other end may be gone, and says why by itself.
        let _ = self.0.send(Piece::End).await;
    }
}

/// The provider of one upload.
pub(crate) struct Uploaded(Mutex<Option<Upload>>);

impl Uploaded {
    pub(crate) fn new(upload: Upload) -> Self {
        Self(Mutex::new(Some(upload)))
    }

    /// The image that is sent.
    pub(crate) fn image(&self) -> RemoteImage {
        let size = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|upload| upload.length);
        // Another one each time: nothing is shared with another upload, or gone on with.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let key = format!("{IMPORT} {now} {}", NEXT.fetch_add(1, Ordering::Relaxed));
        RemoteImage { key, shown: IMPORT.into(), size, ..RemoteImage::in_file(IMPORT, PathBuf::new()) }
    }
}

impl Provider for Uploaded {
    fn id(&self) -> &str {
        IMPORT
    }

    fn caps(&self) -> Caps {
        Caps::default()
    }

    fn open<'a>(&'a self, _image: &'a RemoteImage, _ask: &'a Ask) -> Answer<'a, Opened> {
        let upload = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let again = || ProviderError::Unsupported { provider: IMPORT.into(), what: "second copy of what was sent" };
        let opened = upload.ok_or_else(again).map(|upload| {
            Opened::Artifact(Artifact {
                length: upload.length,
                from: 0,
                delimited: true,
                web_page: false,
                resumable: false,
                validators: Validators::default(),
                body: Box::new(Sent { left: Bytes::new(), received: 0, ended: false, upload }),
            })
        });
        ready(opened).boxed()
    }
}

impl fmt::Debug for Uploaded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Uploaded")
    }
}

/// What is sent, as it comes.
struct Sent {
    upload: Upload,
    /// What came and was not handed out yet.
    left: Bytes,
    received: u64,
    ended: bool,
}

impl Body for Sent {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            while self.left.is_empty() && !self.ended {
                let Upload { from, stall, length } = &mut self.upload;
                match timeout(*stall, from.recv()).await {
                    Ok(Some(Piece::Bytes(bytes))) => {
                        if let Some(announced) = length.filter(|length| self.received + bytes.len() as u64 > *length) {
                            return Err(FetchError::Overlong { announced });
                        }
                        self.left = bytes;
                    }
                    Ok(Some(Piece::End)) if length.is_none_or(|length| self.received >= length) => self.ended = true,
                    Ok(Some(Piece::End) | None) => {
                        let (received, announced) = (self.received, *length);
                        return Err(FetchError::Interrupted { received, announced, cause: None });
                    }
                    Err(_elapsed) => return Err(FetchError::Stalled { bytes: 0, window: *stall }),
                }
            }
            let count = self.left.len().min(room.len());
            room[..count].copy_from_slice(&self.left[..count]);
            self.left.advance(count);
            self.received += count as u64;
            Ok(count)
        }
        .boxed()
    }
}
