//! Consoles that clients are attached to.
//!
//! `Attach` of CRI asks for a URL; the client that comes to it joins the console's [`line`], which is opened for the first
//! client and let go by the last. A session ends with the machine, with the client, or, for a container that wants it
//! so, with the client's input.

mod line;

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use streaming::{Input, Output, Session, SessionError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, broadcast, mpsc};

use self::line::{Ends, Line, LineError};
use super::writers::Writers;
use crate::config::Config;

/// Bytes of input that are taken at once.
const INPUT_CHUNK: usize = 4096;

/// The consoles of all machines.
#[derive(Debug)]
pub struct Consoles {
    dir: PathBuf,
    lines: Mutex<HashMap<String, Line>>,
    writers: Writers,
}

/// Directory of the consoles' sockets.
#[must_use]
pub fn console_dir(config: &Config) -> PathBuf {
    config.run_dir.join("console")
}

// === impl Consoles ===

impl Consoles {
    /// The consoles of this node's machines.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::of(console_dir(config))
    }

    /// Consoles whose sockets are in `dir`.
    pub(super) fn of(dir: PathBuf) -> Self {
        Self { dir, lines: Mutex::default(), writers: Writers::default() }
    }

    /// Who else writes their logs.
    pub(super) const fn writers(&self) -> &Writers {
        &self.writers
    }

    /// What a console prints from now on, until its machine ends; `None` if it cannot be heard. Who does not keep up misses output.
    pub(super) async fn listen(&self, id: &str) -> Option<broadcast::Receiver<Bytes>> {
        self.join(id).await.ok().map(|ends| ends.output)
    }

    /// Joins a client to a console until the machine ends, or the client's only input.
    ///
    /// # Errors
    /// When the console cannot be connected to.
    pub async fn attach(&self, id: &str, session: Session) -> Result<(), SessionError> {
        let Ends { output, input } = self.join(id).await?;
        let shown = show(output, session.stdout);
        let typed = async {
            match session.stdin {
                Some(stdin) => type_in(stdin, input).await,
                None => std::future::pending().await,
            }
            if !session.stdin_once {
                // The rest of the output is still wanted.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = shown => {}
            () = typed => {}
        }
        Ok(())
    }

    async fn join(&self, id: &str) -> Result<Ends, LineError> {
        let mut lines = self.lines.lock().await;
        if let Some(ends) = lines.get(id).and_then(Line::join) {
            return Ok(ends);
        }
        // Lines that nobody uses any more are only forgotten here, where one is added: there are never more of them than
        // machines had clients at a time.
        lines.retain(|_, line| line.is_shared());
        let (line, ends) = Line::open(&self.dir.join(format!("{id}.sock"))).await?;
        lines.insert(id.to_owned(), line);
        Ok(ends)
    }
}

/// Copies output to a client until the machine ends or the client does not take it any more.
async fn show(mut output: broadcast::Receiver<Bytes>, stdout: Option<Output>) {
    let mut stdout = stdout;
    loop {
        match output.recv().await {
            Ok(bytes) => {
                let Some(stdout) = &mut stdout else { continue };
                if stdout.write_all(&bytes).await.is_err() || stdout.flush().await.is_err() {
                    return;
                }
            }
            Err(RecvError::Lagged(chunks)) => tracing::debug!(chunks, "a client did not keep up with its console"),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Copies a client's input to the guest until either ends.
async fn type_in(mut stdin: Input, guest: mpsc::Sender<Bytes>) {
    let mut buffer = vec![0; INPUT_CHUNK];
    while let Ok(read @ 1..) = stdin.read(&mut buffer).await {
        let keys = Bytes::copy_from_slice(buffer.get(..read).unwrap_or_default());
        if guest.send(keys).await.is_err() {
            return;
        }
    }
}
