//! `vnc`: the screen of a machine, at a local port or in a browser until the user leaves, or as a picture. controld connects to it, as it
//! does for clients of Kubernetes, by its verbs `virtlet:vnc` and `virtlet:screenshot`.

use std::fs::File;
use std::future;
use std::io::{self, IsTerminal as _, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use proto::cri::ExecRequest;
use streaming::client::{EndError, Options, Session, attach};
use tokio::io::{AsyncReadExt as _, AsyncWrite, duplex, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::browser::{self, Opened, Pages};
use super::cli;
use super::client::Client;
use super::console;
use super::error::{CtlError, Line};
use super::exec::{Streams, carry};
use super::find::Node;
use super::interrupt::Interrupt;
use super::ready;
use super::text::shown;

const VIEW: &str = "virtlet:vnc";
const PICTURE: &str = "virtlet:screenshot";
/// For a picture, which controld gives up before that.
const LOOK: Duration = Duration::from_secs(100);
/// Pieces of what a viewer says that may wait for the screen.
const WAITING: usize = 16;
const CHUNK: usize = 16 << 10;
/// Bytes of what a verb says of its failure that are read.
const MAX_SAID: u64 = 16 << 10;

pub(super) async fn run(
    client: &Client,
    wanted: &cli::Vnc,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    interrupt.ends(show(client, wanted, out)).await
}

async fn show(client: &Client, wanted: &cli::Vnc, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let node = Node::read(client).await?.within(&wanted.within);
    let (pod, container) = node.find_container(&wanted.pod, wanted.container.as_deref())?;
    let machine = Machine { client: client.clone(), container: container.id, pod: pod.name(), pages: Pages::default() };
    if let Some(path) = &wanted.screenshot {
        return machine.picture(path, out).await;
    }
    if wanted.browser {
        browser::built_in()?;
    }
    // Once, so that a machine that is off, or is viewed, is told before somebody starts a viewer.
    machine.look(wanted.take).await?;
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), wanted.port);
    let listener = TcpListener::bind(address).await.map_err(|cause| CtlError::Listen { address, cause })?;
    if wanted.browser {
        let name = machine.pod.clone();
        return browser::serve(listener, &name, Arc::new(machine), out).await;
    }
    writeln!(out, "Screen of {} at {}, until Ctrl-C", shown(&machine.pod), listener.local_addr()?)?;
    out.flush()?;
    loop {
        let (viewer, _) = listener.accept().await?;
        // One at a time: a second viewer waits.
        if let Err(error) = machine.show_to(viewer).await {
            writeln!(out, "viewer left: {}", Line(&error))?;
        }
    }
}

/// A machine that has a screen, or may have one.
struct Machine {
    client: Client,
    container: String,
    pod: String,
    pages: Pages,
}

impl Machine {
    /// Begins a verb of controld's.
    async fn begin(&self, verb: &[&str], takes_input: bool) -> Result<Session, CtlError> {
        let options = Options { stdin: takes_input, stdout: true, stderr: true, tty: false };
        let Options { stdin, stdout, stderr, tty } = options;
        let cmd = verb.iter().map(|word| (*word).to_owned()).collect();
        let request = ExecRequest { container_id: self.container.clone(), cmd, tty, stdin, stdout, stderr };
        attach(&self.client.exec(request).await?, options).await.map_err(CtlError::Exec)
    }

    /// Has controld do a verb, which may take input.
    async fn have_done(
        &self,
        verb: &[&str],
        input: Option<mpsc::Receiver<Bytes>>,
        out: impl AsyncWrite + Unpin,
    ) -> Result<(), CtlError> {
        let session = self.begin(verb, input.is_some()).await?;
        let mut said = Vec::new();
        let streams = Streams { input: input.unwrap_or_else(|| mpsc::channel(1).1), out, err: &mut said };
        match carry(session, streams, None, future::pending).await? {
            0 => Ok(()),
            _ => Err(refused(&said)),
        }
    }

    /// Whether the screen speaks; then it is left in order, so that it is free for a viewer.
    async fn look(&self, take: bool) -> Result<(), CtlError> {
        let (input, keys) = mpsc::channel(1);
        let (mut seen, out) = duplex(CHUNK);
        let verb: &[&str] = if take { &[VIEW, "--take"] } else { &[VIEW] };
        let leave = async {
            // Its end, too, is seen.
            let _ = seen.read_u8().await;
            drop(input);
            let _ = tokio::io::copy(&mut seen, &mut sink()).await;
        };
        tokio::join!(self.have_done(verb, Some(keys), out), leave).0
    }

    /// Writes what the screen shows to a file, or to our output if that is named `-`.
    async fn picture(&self, path: &Path, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
        let to_output = path.as_os_str() == "-";
        if to_output && io::stdout().is_terminal() {
            return Err(CtlError::Usage("a picture is nothing for a terminal; name a file".into()));
        }
        let mut picture = Vec::new();
        let looked = self.have_done(&[PICTURE], None, &mut picture);
        ready::late(format!("a picture of the screen of `{}`", self.pod), LOOK, looked).await?;
        if to_output {
            out.write_all(&picture)?;
            return Ok(out.flush()?);
        }
        let failed = |cause| CtlError::File { action: "write", path: path.to_owned(), cause };
        File::create(path).and_then(|mut file| file.write_all(&picture)).map_err(failed)
    }

    async fn show_to(&self, viewer: TcpStream) -> Result<(), CtlError> {
        viewer.set_nodelay(true)?;
        let (mut says, sees) = viewer.into_split();
        let (input, keys) = mpsc::channel(WAITING);
        let said = async move {
            let mut chunk = BytesMut::new();
            loop {
                chunk.reserve(CHUNK);
                // The end, an error, or a screen that is gone.
                if !matches!(says.read_buf(&mut chunk).await, Ok(1..))
                    || input.send(chunk.split().freeze()).await.is_err()
                {
                    break;
                }
            }
            // The verb ends with its input.
            drop(input);
            future::pending().await
        };
        tokio::select! {
            shown = self.have_done(&[VIEW], Some(keys), sees) => shown,
            never = said => never,
        }
    }
}

impl browser::Streams for Machine {
    fn screen(&self) -> BoxFuture<'_, Result<Opened, CtlError>> {
        Box::pin(async {
            // From a page of ours that is about to leave it, or has just left; from nobody else.
            let verb: &[&str] = if self.pages.may_have_it() { &[VIEW, "--take"] } else { &[VIEW] };
            let Session { stdin, stdout, stderr, mut end, .. } = self.begin(verb, true).await?;
            let seat = self.pages.seat();
            let (read, write) = stdout.zip(stdin).ok_or_else(|| no_streams("show the screen"))?;
            // In a task: that somebody else has taken it is to be known also while a page takes nothing.
            let ending = AbortOnDropHandle::new(tokio::spawn(async move {
                let mut said = Vec::new();
                if let Some(stderr) = stderr {
                    // What is lost of it is told by the session's end.
                    let _ = stderr.take(MAX_SAID).read_to_end(&mut said).await;
                }
                let ended = match end.wait().await {
                    Ok(()) => Ok(()),
                    Err(EndError::Exited(_)) => Err(refused(&said)),
                    Err(lost) => return (Err(lost.into()), end),
                };
                seat.ends();
                (ended, end)
            }));
            // The connection is cut with its `end`, so not before all of the screen is read. There is no other failure than a panic's.
            let ended = Box::pin(async move { ending.await.map_or(Ok(()), |(ended, _end)| ended) });
            Ok(Opened { read, write, ended })
        })
    }

    fn console(&self) -> BoxFuture<'_, Result<Opened, CtlError>> {
        Box::pin(async {
            let Session { stdin, stdout, mut end, .. } = console::join(&self.client, &self.container).await?;
            let (read, write) = stdout.zip(stdin).ok_or_else(|| no_streams("attach to the console"))?;
            Ok(Opened { read, write, ended: Box::pin(async move { Ok(end.wait().await?) }) })
        })
    }
}

/// What controld says of a verb that it does not do.
fn refused(said: &[u8]) -> CtlError {
    CtlError::Verb(String::from_utf8_lossy(said).lines().next().unwrap_or_default().to_owned())
}

fn no_streams(action: &str) -> CtlError {
    CtlError::Answer { action: action.into(), lacks: "streams" }
}
