//! `port-forward`: local ports that lead to ports of a pod, until the user leaves.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use streaming::client::{Forward, Forwarded, forward};
use tokio::io::{AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::text::shown;

/// Connections at a time; the server has a limit of its own.
const MAX_CONNECTIONS: usize = 256;
/// After a failure to accept, such as too many open files, this long passes before the next try.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

pub(super) async fn run(
    client: &Client,
    wanted: &cli::PortForward,
    out: &mut (dyn Write + Send),
    interrupt: &CancellationToken,
) -> Result<(), CtlError> {
    let pod = Node::read(client).await?.find(&wanted.pod)?;
    let url = client.port_forward(&pod.sandbox.id).await?;
    let session = Arc::new(forward(&url).await.map_err(CtlError::Forward)?);
    let mut listening = JoinSet::new();
    for ports in &wanted.ports {
        for listener in listen(wanted.address, ports.local).await? {
            let local = listener.local_addr()?;
            writeln!(out, "Forwarding from {local} -> {}", ports.remote)?;
            listening.spawn(accept(listener, session.clone(), ports.remote));
        }
    }
    out.flush()?;
    tokio::select! {
        () = interrupt.cancelled() => Ok(()),
        () = session.closed().cancelled_owned() => Err(CtlError::ForwardLost(shown(&pod.name()))),
    }
}

/// Listens on a port of loopback, in both families if there are two, as kubectl does; or on one address.
async fn listen(address: Option<IpAddr>, port: u16) -> Result<Vec<TcpListener>, CtlError> {
    let bind = async |ip: IpAddr, port: u16| {
        let address = SocketAddr::new(ip, port);
        TcpListener::bind(address).await.map_err(|cause| CtlError::Listen { address, cause })
    };
    if let Some(address) = address {
        return Ok(vec![bind(address, port).await?]);
    }
    let first = bind(Ipv4Addr::LOCALHOST.into(), port).await?;
    // The same port in the other family, which a node may not have.
    let second = bind(Ipv6Addr::LOCALHOST.into(), first.local_addr()?.port()).await.ok();
    Ok([Some(first), second].into_iter().flatten().collect())
}

/// Takes connections for as long as the session lives.
async fn accept(listener: TcpListener, session: Arc<Forward>, port: u16) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(carry(stream, session.clone(), port));
                }
                Err(error) => {
                    tell(&format!("connection not accepted: {error}"));
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries a connection to its end.
async fn carry(stream: TcpStream, session: Arc<Forward>, port: u16) {
    let mut forwarded = match session.open(port).await {
        Ok(forwarded) => forwarded,
        Err(error) => return tell(&format!("no connection to port {port}: {error}")),
    };
    copy_both(stream, &mut forwarded).await;
    if let Some(why) = forwarded.why_failed().await {
        tell(&shown(&why));
    }
}

/// An end of either side is passed on to the other. When the pod has ended, nobody reads what else is sent.
async fn copy_both(stream: TcpStream, forwarded: &mut Forwarded) {
    // Only typing would be slower without it.
    let _ = stream.set_nodelay(true);
    let (mut from_us, mut to_us) = stream.into_split();
    let Forwarded { read, write, .. } = forwarded;
    let mut up = pin!(async {
        let copied = copy(&mut from_us, write).await;
        // Fails only if the connection is over.
        let _ = write.shutdown().await;
        copied.is_ok()
    });
    let mut down = pin!(async {
        // However it ends, the reason comes on another stream.
        let _ = copy(read, &mut to_us).await;
        let _ = to_us.shutdown().await;
    });
    tokio::select! {
        sent = &mut up => {
            if sent {
                down.await;
            }
        }
        () = &mut down => {}
    }
}

/// What goes wrong with it is no reason to stop.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
