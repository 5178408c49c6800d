//! `port-forward`: local ports that lead to ports of a pod, until the user leaves.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use streaming::client::{Forward, forward};
use streaming::mux::{ReadHalf, WriteHalf};
use streaming::spdy::Status;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::interrupt::Interrupt;
use super::ports::{Address, Ports};
use super::tell::tell_line;
use super::text::shown;

/// Connections at a time; the server has a limit of its own.
const MAX_CONNECTIONS: usize = 256;
/// After a failure to accept, such as too many open files, this long passes before the next try.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// What the kernel says of an address of a family that the node does not have.
const NO_FAMILY: [Errno; 2] = [Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT];
/// Bytes of the pod's that are copied at once.
const CHUNK: usize = 16 << 10;

pub(super) async fn run(
    client: &Client,
    wanted: &cli::PortForward,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    interrupt.ends(forward_ports(client, wanted, out)).await
}

async fn forward_ports(
    client: &Client,
    wanted: &cli::PortForward,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let pod = Node::read(client).await?.within(&wanted.within).find(&wanted.pod)?;
    pod.running()?;
    let url = client.port_forward(&pod.sandbox.id).await?;
    let session = Arc::new(forward(&url).await.map_err(CtlError::Forward)?);
    let carried = session.clone();
    let carry = move |stream, port| carry(stream, carried.clone(), port);
    let closed = session.closed().cancelled_owned();
    listen_all((&wanted.ports[..], &wanted.addresses[..]), out, carry, closed).await?;
    Err(CtlError::ForwardLost(shown(&pod.name())))
}

/// Listens on local ports, and has each connection carried to a remote port, until `closed`.
pub(super) async fn listen_all<F>(
    (all, addresses): (&[Ports], &[Address]),
    out: &mut (dyn Write + Send),
    carry: impl Fn(TcpStream, u16) -> F + Clone + Send + 'static,
    closed: impl Future<Output = ()>,
) -> Result<(), CtlError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut listening = JoinSet::new();
    for ports in all {
        for address in addresses {
            let (listeners, lacks) = listen(*address, ports.local).await?;
            if let Some(lacks) = lacks {
                tell_line(&lacks);
            }
            for listener in listeners {
                let local = listener.local_addr()?;
                writeln!(out, "Forwarding from {local} -> {}", ports.remote)?;
                let (carry, remote) = (carry.clone(), ports.remote);
                listening.spawn(accept(listener, move |stream| carry(stream, remote)));
            }
        }
    }
    out.flush()?;
    closed.await;
    Ok(())
}

/// Listens on a port of loopback, in both families if there are two, as kubectl does; or on one address. With what is to be said if the
/// second family's is not to be had.
async fn listen(address: Address, port: u16) -> Result<(Vec<TcpListener>, Option<String>), CtlError> {
    let bind = async |ip: IpAddr, port: u16| {
        let address = SocketAddr::new(ip, port);
        TcpListener::bind(address).await.map_err(|cause| CtlError::Listen { address, cause })
    };
    if let Address::Ip(ip) = address {
        return Ok((vec![bind(ip, port).await?], None));
    }
    let first = bind(Ipv4Addr::LOCALHOST.into(), port).await?;
    let local = first.local_addr()?;
    let other = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), local.port());
    match TcpListener::bind(other).await {
        Ok(second) => Ok((vec![first, second], None)),
        // The node has no such family.
        Err(error) if NO_FAMILY.contains(&Errno::from_raw(error.raw_os_error().unwrap_or_default())) => {
            Ok((vec![first], None))
        }
        Err(error) => Ok((vec![first], Some(format!("Not forwarding from {other}: {error}; {local} is forwarded")))),
    }
}

/// Takes connections, each of which is carried.
async fn accept<F>(listener: TcpListener, carry: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(carry(stream));
                }
                Err(error) => {
                    tell_line(&format!("connection not accepted: {error}"));
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries a connection to its end.
async fn carry(stream: TcpStream, session: Arc<Forward>, port: u16) {
    let (read, write, reason) = match session.open(port).await {
        Ok(forwarded) => forwarded.split(),
        Err(error) => return tell_line(&format!("no connection to port {port}: {error}")),
    };
    copy_both(stream, read, write).await;
    if let Some(why) = reason.why_failed().await {
        tell_line(&shown(&why));
    }
}

/// How the way from the pod to us ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Down {
    Whole,
    /// The pod, or the session, broke off.
    Cut,
    /// Whoever of us was connected has gone.
    Unread,
}

/// An end of either side is passed on to the other. When the pod has ended, nobody reads what else is sent.
///
/// Both halves are over then: the server waits for our end before it gives its reason, and what it sends to a half that nobody
/// reads would hold up the session's other connections.
async fn copy_both(stream: TcpStream, mut read: ReadHalf, mut write: WriteHalf) {
    // Only typing would be slower without it.
    let _ = stream.set_nodelay(true);
    let (mut from_us, mut to_us) = stream.into_split();
    let down = {
        let mut up = pin!(async {
            let copied = copy(&mut from_us, &mut write).await;
            // Fails only if the connection is over.
            let _ = write.shutdown().await;
            copied.is_ok()
        });
        let mut down = pin!(copy_down(&mut read, &mut to_us));
        tokio::select! {
            sent = &mut up => if sent { down.await } else { Down::Unread },
            down = &mut down => down,
        }
    };
    match down {
        Down::Whole => drop((to_us.shutdown().await, write.shutdown().await)),
        // Not to be taken for all that the pod had to say.
        Down::Cut => {
            let _ = to_us.as_ref().set_zero_linger();
            to_us.forget();
            write.reset(Status::CANCEL);
        }
        Down::Unread => write.reset(Status::CANCEL),
    }
}

async fn copy_down(read: &mut ReadHalf, to_us: &mut OwnedWriteHalf) -> Down {
    let mut buffer = vec![0; CHUNK];
    loop {
        match read.read(&mut buffer).await {
            Ok(0) => return Down::Whole,
            Ok(len) => {
                if to_us.write_all(buffer.get(..len).unwrap_or_default()).await.is_err() {
                    return Down::Unread;
                }
            }
            Err(_) => return Down::Cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use streaming::{Backend, Config, Input, Output, PortForwardRequest, Server, Session, SessionError};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A pod with one port.
    #[derive(Debug)]
    struct Pod(SocketAddr);

    impl Backend for Pod {
        fn attach<'a>(&'a self, _: &'a str, _: Session) -> BoxFuture<'a, Result<(), SessionError>> {
            Box::pin(async { Err("no console".into()) })
        }

        fn dial<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Result<(Input, Output), SessionError>> {
            Box::pin(async move {
                let (read, write) = TcpStream::connect(self.0).await?.into_split();
                Ok((Box::new(read) as Input, Box::new(write) as Output))
            })
        }
    }

    /// Forwards a local port to one at which `serve` is what happens to each connection.
    async fn forwarded<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> (Server, SocketAddr)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let pod = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = pod.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = pod.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        let config = Config::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let server = Server::bind(config, Arc::new(Pod(address))).await.expect("it serves");
        let request = PortForwardRequest { pod_id: "p".into(), ports: Vec::new() };
        let url = server.port_forward_url(request).expect("a URL");
        let session = Arc::new(forward(&url).await.expect("a session"));
        let local = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = local.local_addr().expect("an address");
        tokio::spawn(accept(local, move |stream| carry(stream, session.clone(), 80)));
        (server, address)
    }

    #[tokio::test]
    async fn a_port_that_another_has_in_one_family_is_told() {
        let other = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.expect("this test needs IPv6 on loopback");
        let taken = other.local_addr().expect("an address");
        let (listeners, lacks) = listen(Address::Loopback, taken.port()).await.expect("the other family's is free");
        let local = listeners[0].local_addr().expect("an address");
        assert_eq!((listeners.len(), local.ip()), (1, Ipv4Addr::LOCALHOST.into()));
        let lacks = lacks.expect("told");
        assert!(lacks.starts_with(&format!("Not forwarding from {taken}: Address already in use")), "{lacks}");
        assert!(lacks.ends_with(&format!("; {local} is forwarded")), "{lacks}");
        drop((other, listeners));
        let (listeners, lacks) = listen(Address::Loopback, taken.port()).await.expect("both are free");
        assert_eq!((listeners.len(), lacks), (2, None));
    }

    #[tokio::test]
    async fn connections_that_the_pod_ends_take_no_place() {
        let (_server, at) = forwarded(|mut stream| async move {
            let _ = stream.write_all(b"all of it").await;
        })
        .await;
        // They stay open at our end, as those of clients do that wait for more.
        let mut open = Vec::new();
        for n in 0..MAX_CONNECTIONS + 40 {
            let mut client = TcpStream::connect(at).await.expect("connected");
            let mut said = Vec::new();
            timeout(SOON, client.read_to_end(&mut said))
                .await
                .unwrap_or_else(|_| panic!("connection {n}"))
                .expect("read");
            assert_eq!(said, b"all of it", "connection {n}");
            open.push(client);
        }
    }

    #[tokio::test]
    async fn a_pod_that_breaks_off_is_not_taken_for_one_that_ends() {
        let (_server, at) = forwarded(|mut stream| async move {
            let _ = stream.write_all(b"half of it").await;
            let _ = stream.read(&mut [0]).await;
            let _ = stream.set_zero_linger();
        })
        .await;
        // The session goes on.
        for n in 0..3 {
            let mut client = TcpStream::connect(at).await.expect("connected");
            let mut half = [0; 10];
            timeout(SOON, client.read_exact(&mut half)).await.expect("in time").expect("half of it");
            client.write_all(b"x").await.expect("written");
            let ended = timeout(SOON, client.read(&mut half)).await.expect("in time");
            assert_eq!(ended.expect_err("cut off").kind(), std::io::ErrorKind::ConnectionReset, "connection {n}");
        }
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_holds_up_no_other() {
        let (_server, at) = forwarded(|mut stream| async move {
            let chunk = vec![b'x'; 64 << 10];
            while stream.write_all(&chunk).await.is_ok() {}
        })
        .await;
        for n in 0..8 {
            let mut client = TcpStream::connect(at).await.expect("connected");
            let mut some = vec![0; 1 << 20];
            timeout(SOON, client.read_exact(&mut some))
                .await
                .unwrap_or_else(|_| panic!("connection {n}"))
                .expect("read");
        }
    }
}
