//! Archives that go through as they are: from a guest to our output, and from our input into a guest.

use std::io::{self, IsTerminal as _};

use tokio::io::{AsyncReadExt as _, copy, duplex};
use tokio::sync::mpsc;

use super::super::error::{CopyError, CtlError};
use super::super::{place, terminal};
use super::{BUFFER, Guest};

impl Guest<'_> {
    /// Writes an archive of a file or directory of the guest's to the standard output.
    /// Of at most `limit` bytes: what a guest sends may have no end.
    pub(super) async fn archive(&self, path: &str, limit: u64) -> Result<(), CtlError> {
        if io::stdout().is_terminal() {
            let what =
                "an archive is nothing for a terminal; send it to a file or to `tar -x`, or name a directory for `-`";
            return Err(CtlError::Usage(what.into()));
        }
        let (dir, name) = place::split(path);
        let session = self.start(&["tar", "-cf", "-", "-C", dir, &format!("./{name}")], false).await?;
        let (ours, theirs) = duplex(BUFFER);
        let limited = async {
            // One more than is allowed tells that there is more.
            let written = copy(&mut theirs.take(limit.saturating_add(1)), &mut tokio::io::stdout()).await?;
            if written > limit { Err(CtlError::from(CopyError::TooMuch { limit })) } else { Ok(()) }
        };
        let carried = self.finish("tar", session, mpsc::channel(1).1, ours);
        match tokio::join!(limited, carried) {
            (Err(error @ CtlError::Copy(CopyError::TooMuch { .. })), _) => Err(error),
            (written, carried) => carried.and(written),
        }
    }

    /// Has an archive from the standard input extracted in a directory of the guest.
    pub(super) async fn extract(&self, dir: &str) -> Result<(), CtlError> {
        if io::stdin().is_terminal() {
            let what = "nobody types an archive; send one by `tar -c`, or name a file for `-`";
            return Err(CtlError::Usage(what.into()));
        }
        let session = self.start(&["tar", "-xmf", "-", "-C", dir], true).await?;
        let input = terminal::keys().map_err(terminal::no_keys)?;
        self.finish("tar", session, input, tokio::io::sink()).await
    }
}
