//! `cp`: files between this node and a guest, by `tar` in the guest.

mod asked;
mod pack;
mod stream;
mod unpack;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proto::machines::ExecRequest;
use streaming::client::{EndError, Options, Session, attach};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, duplex};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use self::unpack::Unpacked;
use super::cli;
use super::client::Client;
use super::error::{CopyError, CtlError, NO_PROGRAM, not_started};
use super::exec::{self, Streams, carry};
use super::find::Node;
use super::place::{self, Place};
use super::tell::tell_line;
use super::text::shown;
use super::wait;

/// Bytes between a thread that reads or writes files and the connection.
const BUFFER: usize = 256 << 10;
/// Bytes that a tar may write behind an archive's end.
const MAX_RECORD: u64 = 1 << 20;
/// Of what tar says, which is shown if it fails.
const MAX_SAID: usize = 4 << 10;

/// A guest, in which tar is run.
struct Guest<'a> {
    client: &'a Client,
    pod: String,
    container: String,
}

pub(super) async fn run(client: &Client, wanted: cli::Cp) -> Result<(), CtlError> {
    let guest = async |pod: &str| -> Result<Guest<'_>, CtlError> {
        let node = Node::read(client).await?.within(&wanted.within);
        let (found, container) = node.find_container(pod, wanted.container.as_deref())?;
        Ok(Guest { client, pod: found.name(), container: container.id })
    };
    let (skipped, unnamed) = match (&wanted.from, &wanted.to) {
        (Place::Local(from), Place::Guest { pod, path }) => {
            let skipped = guest(pod).await?.send(from, path).await?;
            (skipped.into_iter().map(|path| path.display().to_string()).collect(), 0)
        }
        (Place::Guest { pod, path }, Place::Local(to)) => {
            let unpacked = guest(pod).await?.fetch(path, to, wanted.limit.unsigned_abs()).await?;
            (unpacked.skipped, unpacked.unnamed)
        }
        (Place::Guest { pod, path }, Place::Stream) => {
            return guest(pod).await?.archive(path, wanted.limit.unsigned_abs()).await;
        }
        (Place::Stream, Place::Guest { pod, path }) => return guest(pod).await?.extract(path).await,
        _ => return Err(CopyError::OneGuest.into()),
    };
    for path in skipped {
        // What goes wrong with it is no reason to stop.
        tell_line(&format!("skipped {}: neither a file nor a directory", shown(&path)));
    }
    if unnamed > 0 {
        tell_line(&format!("skipped {unnamed} more"));
    }
    Ok(())
}

impl Guest<'_> {
    /// Copies a file or directory of ours to `path`, or into it if that is a directory.
    async fn send(&self, from: &Path, path: &str) -> Result<Vec<PathBuf>, CtlError> {
        let from = from.to_owned();
        let own_name = from.canonicalize().map_err(pack::failed("open", &from))?;
        let (dir, name) = match own_name.file_name() {
            Some(own_name) if self.is_directory(path).await? => (path, own_name.to_owned()),
            _ => {
                let (dir, name) = place::split(path);
                (dir, OsString::from(name))
            }
        };
        let session = self.start(&["tar", "-xmf", "-", "-C", dir], true).await?;
        let (sender, input) = mpsc::channel(4);
        let packing =
            spawn_blocking(move || pack::pack(&from, &name, io::BufWriter::with_capacity(BUFFER, Sent(sender))));
        let ended = self.finish("tar", session, input, tokio::io::sink()).await;
        match packing.await {
            // If tar has ended, it says why nobody reads.
            Ok(Err(CtlError::Output(_))) => ended.and(Err(CopyError::Archive(io::ErrorKind::BrokenPipe.into()).into())),
            Ok(packed) => packed.and_then(|skipped| ended.map(|()| skipped)),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Copies a file or directory of the guest's to `to`.
    async fn fetch(&self, path: &str, to: &Path, limit: u64) -> Result<Unpacked, CtlError> {
        let (dir, name) = place::split(path);
        let session = self.start(&["tar", "-cf", "-", "-C", dir, &format!("./{name}")], false).await?;
        let (ours, theirs) = duplex(BUFFER);
        let (name, to) = (name.to_owned(), to.to_owned());
        let mut archive = io::BufReader::with_capacity(BUFFER, Received(Handle::current(), theirs));
        let unpacking = spawn_blocking(move || {
            let unpacked = unpack::unpack(&mut archive, &name, &to, limit)?;
            // tar fills its last record, and must not find nobody who reads.
            io::copy(&mut archive.take(MAX_RECORD), &mut io::sink()).map_err(CopyError::Archive)?;
            Ok(unpacked)
        });
        let ended = self.finish("tar", session, mpsc::channel(1).1, ours).await;
        let unpacked = match unpacking.await {
            Ok(unpacked) => unpacked,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        match (unpacked, ended) {
            // It has ended early, and tar could not go on.
            (Err(error), Err(CtlError::Output(_))) => Err(error),
            // An archive that ends early is what a tar leaves that fails.
            (_, Err(error)) => Err(error),
            (Err(error), Ok(())) => Err(error),
            (Ok(unpacked), Ok(())) if unpacked.entries == 0 => Err(CopyError::NothingCopied(path.to_owned()).into()),
            (Ok(unpacked), Ok(())) => Ok(unpacked),
        }
    }

    async fn is_directory(&self, path: &str) -> Result<bool, CtlError> {
        let session = self.start(&["test", "-d", path], false).await?;
        match self.finish("test", session, mpsc::channel(1).1, tokio::io::sink()).await {
            Ok(()) => Ok(true),
            Err(CtlError::Copy(CopyError::Tar { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lacks(&self, command: &'static str) -> CtlError {
        CopyError::NoCommand { pod: self.pod.clone(), command }.into()
    }

    async fn start(&self, cmd: &[&str], stdin: bool) -> Result<Session, CtlError> {
        let options = Options { stdin, stdout: true, stderr: true, tty: false };
        let request = ExecRequest {
            container_id: self.container.clone(),
            cmd: cmd.iter().map(|&word| word.to_owned()).collect(),
            stdin,
            stdout: true,
            stderr: true,
            ..ExecRequest::default()
        };
        let url = wait::told(exec::WAITED_FOR, self.client.exec_otherwise(request)).await?;
        attach(&url, options).await.map_err(CtlError::Exec)
    }

    /// Carries a session of `command` to its end, which must be a good one.
    async fn finish(
        &self,
        command: &'static str,
        session: Session,
        input: mpsc::Receiver<Bytes>,
        out: impl AsyncWrite + Unpin,
    ) -> Result<(), CtlError> {
        let (err, said) = duplex(BUFFER);
        let listening = tokio::spawn(begin(said));
        let ended = carry(session, Streams { input, out, err }, None, std::future::pending).await;
        let said = listening.await.unwrap_or_default();
        match ended {
            Ok(0) => Ok(()),
            Ok(NO_PROGRAM) => Err(self.lacks(command)),
            Err(CtlError::Command(EndError::Failed(why))) if not_started(&why) == Some(NO_PROGRAM) => {
                Err(self.lacks(command))
            }
            Ok(code) => Err(CopyError::Tar { code, said }.into()),
            Err(error) => Err(error),
        }
    }
}

/// The beginning of what is said; the rest is read and dropped.
async fn begin(mut from: impl AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    let _ = (&mut from).take(MAX_SAID as u64).read_to_end(&mut said).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&said).trim().lines().collect::<Vec<_>>().join("; ")
}

/// Hands bytes of a thread to a session.
struct Sent(mpsc::Sender<Bytes>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_closed| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands bytes of a session to a thread.
struct Received<R>(Handle, R);

impl<R: AsyncRead + Unpin> Read for Received<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.block_on(self.1.read(buffer))
    }
}

#[cfg(test)]
mod tests;
