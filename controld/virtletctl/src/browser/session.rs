//! A stream of the machine, joined to the page over WebSocket.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use streaming::page::{Ended, Terms, carry, close};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::super::error::{CtlError, Line};
use super::super::ready::late;
use super::super::tell::tell_line;
use super::{Opened, Streams};

/// How long a stream may take to open.
const OPEN_DEADLINE: Duration = Duration::from_secs(30);
/// How long a session's end may take to say why.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of a console that a page may have and not have shown.
const WINDOW: u64 = 256 << 10;
/// What a WebSocket ends with: the standard's code for an end, and two of ours, which `page.js` has, too.
const ENDED: u16 = 1000;
const FAILED: u16 = 4000;
const TAKEN: u16 = 4001;

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Screen,
    Console,
}

/// The sessions of a page.
pub(super) struct Sessions {
    streams: Arc<dyn Streams>,
    /// Ends the session that shows the screen: there is one at a time, the newest.
    screen: Mutex<CancellationToken>,
}

impl Sessions {
    pub(super) fn new(streams: Arc<dyn Streams>) -> Self {
        Self { streams, screen: Mutex::default() }
    }

    /// Opens a stream, and joins it to a page until one of them ends.
    pub(super) async fn carry(&self, kind: Kind, mut page: impl AsyncRead + AsyncWrite + Unpin) {
        let (stop, window) = match kind {
            Kind::Screen => (self.take_screen(), None),
            Kind::Console => (CancellationToken::new(), Some(WINDOW)),
        };
        let carried = async {
            let mut opened = self.open(kind).await?;
            let terms = Terms { window, stop: stop.clone() };
            // What the page fails at is the page's matter.
            match carry(&mut page, &mut opened.read, &mut opened.write, &terms).await {
                Ok(Ended::Stream) => timeout(END_DEADLINE, opened.ended).await.unwrap_or(Ok(())),
                Ok(Ended::Page | Ended::Stopped) | Err(_) => Ok(()),
            }
        };
        let (code, why) = match carried.await {
            _ if stop.is_cancelled() => (TAKEN, "shown elsewhere".to_owned()),
            Ok(()) => (ENDED, "the machine has ended the connection".to_owned()),
            Err(error) => {
                let why = Line(&error).to_string();
                tell_line(&format!("{}: {why}", kind.name()));
                (FAILED, why)
            }
        };
        close(page, code, &why).await;
    }

    async fn open(&self, kind: Kind) -> Result<Opened, CtlError> {
        let opening = match kind {
            Kind::Screen => self.streams.screen(),
            Kind::Console => self.streams.console(),
        };
        late(format!("a connection to the {}", kind.name()), OPEN_DEADLINE, opening).await
    }

    /// Ends whoever has the screen.
    fn take_screen(&self) -> CancellationToken {
        let own = CancellationToken::new();
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *screen, own.clone()).cancel();
        own
    }
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Screen => "screen",
            Self::Console => "console",
        }
    }
}
