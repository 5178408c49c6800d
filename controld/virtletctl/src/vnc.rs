//! `vnc`: the screen of a machine, at a local port until the user leaves, or as a picture. On the node the screen is a UNIX socket, which
//! no network reaches.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};

use self::screen::Screen;
use super::cli;
use super::client::Client;
use super::describe::info;
use super::error::{CtlError, Line};
use super::find::Node;
use super::interrupt::Interrupt;
use super::ready;
use super::text::shown;

mod png;
mod rfb;
mod screen;

/// For one look at a screen.
const LOOK: Duration = Duration::from_secs(20);

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
    let machine = Machine { client, container: container.id, pod: pod.name() };
    if let Some(path) = &wanted.screenshot {
        return machine.picture(path, out).await;
    }
    // Once, so that a machine that is off is told before somebody starts a viewer.
    drop(machine.reach().await?);
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), wanted.port);
    let listener = TcpListener::bind(address).await.map_err(|cause| CtlError::Listen { address, cause })?;
    writeln!(out, "Screen of {} at {}, until Ctrl-C", shown(&machine.pod), listener.local_addr()?)?;
    out.flush()?;
    loop {
        let (viewer, _) = listener.accept().await?;
        // One at a time: a second viewer waits, as VNC would send the first away.
        if let Err(error) = machine.show_to(viewer).await {
            writeln!(out, "viewer left: {}", Line(&error))?;
        }
    }
}

/// A machine that has a screen, or may have one.
struct Machine<'a> {
    client: &'a Client,
    container: String,
    pod: String,
}

impl Machine<'_> {
    /// Asks where the screen is each time: a machine that was started again has another QEMU.
    async fn reach(&self) -> Result<UnixStream, CtlError> {
        let told = self.client.container_in_full(&self.container).await?;
        let screen = match info(&told.info).get("screen") {
            None | Some(Value::Null) => return Err(CtlError::NoScreen(self.pod.clone())),
            Some(screen) => Screen::deserialize(screen),
        };
        let lacks = |_| CtlError::Answer { action: "find the screen".into(), lacks: "socket and process of it" };
        screen.map_err(lacks)?.connect(&self.pod).await
    }

    /// Writes what the screen shows to a file, or to our output if that is named `-`.
    async fn picture(&self, path: &Path, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
        let to_output = path.as_os_str() == "-";
        if to_output && io::stdout().is_terminal() {
            return Err(CtlError::Usage("a picture is nothing for a terminal; name a file".into()));
        }
        let look = async {
            let screen = self.reach().await?;
            rfb::look(screen).await.map_err(|cause| CtlError::Terminal { action: "look at the screen", cause })
        };
        let picture = ready::late(format!("a picture of the screen of `{}`", self.pod), LOOK, look).await?;
        if to_output {
            return Ok(png::write(&picture, out)?);
        }
        let failed = |cause| CtlError::File { action: "write", path: path.to_owned(), cause };
        png::write(&picture, BufWriter::new(File::create(path).map_err(failed)?)).map_err(failed)
    }

    async fn show_to(&self, mut viewer: TcpStream) -> Result<(), CtlError> {
        let mut screen = self.reach().await?;
        let carried = async {
            viewer.set_nodelay(true)?;
            copy_bidirectional(&mut viewer, &mut screen).await
        };
        carried.await.map(drop).map_err(|cause| CtlError::Terminal { action: "carry the screen to a viewer", cause })
    }
}
