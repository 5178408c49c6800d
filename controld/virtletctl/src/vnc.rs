//! `vnc`: the screen of a machine, at a local port until the user leaves. On the node the screen is a UNIX socket, which no network reaches.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::cli;
use super::client::Client;
use super::describe::info;
use super::error::CtlError;
use super::find::Node;
use super::interrupt::Interrupt;
use super::text::shown;

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
    let told = client.container_in_full(&container.id).await?;
    let screen = info(&told.info).get("screen").and_then(Value::as_str).map(str::to_owned);
    let screen = screen.ok_or_else(|| CtlError::NoScreen(shown(&pod.name())))?;
    // Once, so that a machine that is off is told before somebody starts a viewer.
    drop(connect(Path::new(&screen)).await?);
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), wanted.port);
    let listener = TcpListener::bind(address).await.map_err(|cause| CtlError::Listen { address, cause })?;
    writeln!(out, "Screen of {} at {}, until Ctrl-C", shown(&pod.name()), listener.local_addr()?)?;
    out.flush()?;
    loop {
        let (viewer, _) = listener.accept().await?;
        // One at a time: a second viewer waits, as VNC would send the first away.
        if let Err(error) = carry(viewer, Path::new(&screen)).await {
            writeln!(out, "viewer left: {error}")?;
        }
    }
}

async fn connect(screen: &Path) -> Result<UnixStream, CtlError> {
    UnixStream::connect(screen)
        .await
        .map_err(|cause| CtlError::Terminal { action: "reach the screen; does the machine run?", cause })
}

async fn carry(mut viewer: TcpStream, screen: &Path) -> std::io::Result<()> {
    viewer.set_nodelay(true)?;
    let mut machine = UnixStream::connect(screen).await?;
    copy_bidirectional(&mut viewer, &mut machine).await.map(drop)
}
