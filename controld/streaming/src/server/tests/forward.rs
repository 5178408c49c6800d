//! Port-forward to a listener on loopback, which is the pod.

use tokio::io::AsyncRead;

use super::*;
use crate::client::{Forward, forward};
use crate::server::forward::serve as serve_far;
use crate::server::protocol::FORWARD;

#[tokio::test]
async fn connections_travel_side_by_side() {
    let (_server, session, pod) = session().await;
    let (first, second) = (session.open(80).await.expect("open"), session.open(80).await.expect("open"));
    let (mut one, _) = soon(pod.accept()).await.expect("accept");
    let (mut two, _) = soon(pod.accept()).await.expect("accept");
    // The pod sees the connections in any order.
    let mut greeted = Vec::new();
    for (mut forwarded, word) in [(first, b"first!"), (second, b"second")] {
        forwarded.write.write_all(word).await.expect("write");
        greeted.push(forwarded);
    }
    for socket in [&mut two, &mut one] {
        let mut word = [0; 6];
        soon(socket.read_exact(&mut word)).await.expect("word");
        socket.write_all(&word).await.expect("echo");
    }
    for (forwarded, word) in greeted.iter_mut().zip([b"first!", b"second"]) {
        let mut echo = [0; 6];
        soon(forwarded.read.read_exact(&mut echo)).await.expect("echo");
        assert_eq!(&echo, word);
    }
}

#[tokio::test]
async fn either_side_may_end_first() {
    let (_server, session, pod) = session().await;
    let mut forwarded = session.open(80).await.expect("open");
    let (mut socket, _) = soon(pod.accept()).await.expect("accept");
    forwarded.write.write_all(b"request").await.expect("write");
    forwarded.write.shutdown().await.expect("end");
    assert_eq!(rest(&mut socket).await, b"request", "the pod sees the end");
    socket.write_all(&vec![b'x'; 8 << 20]).await.expect("answer");
    drop(socket);
    // 8 MiB is more than the connection holds: the pod had to wait for the client, which starts to read only now.
    assert_eq!(rest(&mut forwarded.read).await.len(), 8 << 20);
    assert_eq!(soon(forwarded.reason.why_failed()).await, None);

    let mut forwarded = session.open(80).await.expect("open");
    let (mut socket, _) = soon(pod.accept()).await.expect("accept");
    socket.write_all(b"no more from here").await.expect("greeting");
    socket.shutdown().await.expect("end");
    assert_eq!(rest(&mut forwarded.read).await, b"no more from here");
    forwarded.write.write_all(b"but from there").await.expect("write");
    forwarded.write.shutdown().await.expect("end");
    assert_eq!(rest(&mut socket).await, b"but from there");
}

#[tokio::test]
async fn a_failure_is_told_on_the_error_stream() {
    let (_server, session, pod) = session().await;
    drop(pod);
    let mut forwarded = session.open(80).await.expect("open");
    let error = soon(forwarded.read.read_to_end(&mut Vec::new())).await.expect_err("reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let why = soon(forwarded.reason.why_failed()).await.expect("a reason");
    assert!(why.starts_with("error forwarding port 80 to pod p1, uid : "), "{why}");
    assert!(why.contains("refused"), "{why}");
}

#[tokio::test]
async fn a_pod_that_breaks_off_ends_its_connection_and_no_other() {
    let (_server, session, pod) = session().await;
    let mut other = session.open(80).await.expect("open");
    let (mut socket_of_other, _) = soon(pod.accept()).await.expect("accept");
    let mut forwarded = session.open(80).await.expect("open");
    let (mut socket, _) = soon(pod.accept()).await.expect("accept");
    socket.write_all(b"some").await.expect("written");
    let mut some = [0; 4];
    soon(forwarded.read.read_exact(&mut some)).await.expect("some");
    socket.set_zero_linger().expect("set");
    drop(socket);
    let error = soon(forwarded.read.read_to_end(&mut Vec::new())).await.expect_err("reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(soon(forwarded.reason.why_failed()).await, None, "kubectl would end its session on any word");
    socket_of_other.write_all(b"more").await.expect("written");
    soon(other.read.read_exact(&mut some)).await.expect("it goes on");
}

#[tokio::test]
async fn the_error_stream_of_a_connection_that_breaks_ends_well() {
    let (near, far) = duplex(1 << 20);
    let (pod, backend) = pod().await;
    let request = request();
    tokio::spawn(async move { serve_far(far, &FORWARD[0], request, backend, &places(), &terms()).await });
    let mut peer = Peer::new(near);
    peer.send(&half(1, "error", "80", "a")).await;
    peer.send(&half(3, "data", "80", "a")).await;
    let (mut socket, _) = soon(pod.accept()).await.expect("accept");
    socket.write_all(b"some").await.expect("written");
    while peer.next().await.expect("what the pod says") != data(3, b"some", false) {}
    socket.set_zero_linger().expect("set");
    drop(socket);
    let mut last = Vec::new();
    while last.len() < 2 {
        let frame = peer.next().await.expect("both streams end");
        if matches!(frame, Frame::Data { .. } | Frame::RstStream { .. }) {
            last.push(frame);
        }
    }
    assert!(last.contains(&data(1, b"", true)), "{last:?}");
    assert!(last.contains(&Frame::RstStream { id: 3, status: crate::spdy::Status::CANCEL }), "{last:?}");
}

#[tokio::test]
async fn a_client_that_goes_ends_its_connections() {
    let (_server, session, pod) = session().await;
    let forwarded = session.open(80).await.expect("open");
    let (mut socket, _) = soon(pod.accept()).await.expect("accept");
    drop((session, forwarded));
    assert_eq!(soon(socket.read(&mut [0])).await.unwrap_or_default(), 0);
}

#[tokio::test]
async fn a_server_that_goes_ends_connections() {
    let (server, session, pod) = session().await;
    let _forwarded = session.open(80).await.expect("open");
    let (mut socket, _) = soon(pod.accept()).await.expect("accept");
    drop(server);
    assert_eq!(soon(socket.read(&mut [0])).await.unwrap_or_default(), 0);
    soon(session.closed().cancelled_owned()).await;
}

#[tokio::test(start_paused = true)]
async fn streams_that_make_no_pair_are_reset() {
    let (near, far) = duplex(1 << 20);
    let (pod, backend) = pod().await;
    let request = request();
    let serving = tokio::spawn(async move { serve_far(far, &FORWARD[0], request, backend, &places(), &terms()).await });
    let mut peer = Peer::new(near);
    let refused = |id| Frame::RstStream { id, status: crate::spdy::Status::PROTOCOL_ERROR };
    for (id, kind, port, request_id) in [
        (1, "error", "0", "a"),
        (3, "error", "65536", "a"),
        (5, "error", "", "a"),
        (7, "stdin", "80", "a"),
        (9, "error", "80", &"a".repeat(129)[..]),
    ] {
        peer.send(&half(id, kind, port, request_id)).await;
        assert_eq!(peer.next().await, Some(refused(id)), "{kind} {port}");
    }
    peer.send(&half(11, "error", "80", "a")).await;
    assert_eq!(peer.next().await, Some(reply(11)));
    peer.send(&half(13, "error", "80", "a")).await;
    assert_eq!(peer.next().await, Some(refused(13)), "a second half of the same kind");
    peer.send(&half(15, "data", "81", "a")).await;
    assert_eq!(peer.next().await, Some(refused(15)), "another port");
    let late = Frame::RstStream { id: 11, status: crate::spdy::Status::CANCEL };
    assert_eq!(peer.next().await, Some(late), "nothing came for too long");
    // Without a request id the numbers tell; the data stream's half may come first.
    peer.send(&half(21, "data", "80", "")).await;
    assert_eq!(peer.next().await, Some(reply(21)));
    drop((peer, pod));
    soon(serving).await.expect("no panic");
}

#[tokio::test]
async fn numbers_pair_streams_of_a_client_that_does_not() {
    let (near, far) = duplex(1 << 20);
    let (pod, backend) = pod().await;
    let request = request();
    tokio::spawn(async move { serve_far(far, &FORWARD[0], request, backend, &places(), &terms()).await });
    let mut peer = Peer::new(near);
    peer.send(&half(1, "error", "80", "")).await;
    peer.send(&half(3, "data", "80", "")).await;
    peer.send(&data(3, b"hello", true)).await;
    let (mut socket, _) = soon(pod.accept()).await.expect("accept");
    assert_eq!(rest(&mut socket).await, b"hello");
    socket.write_all(b"bye").await.expect("answer");
    drop(socket);
    assert_eq!(peer.text_of(3).await, "bye");
}

#[tokio::test]
async fn a_node_that_forwards_too_much_says_so() {
    let (near, far) = duplex(1 << 20);
    let (_pod, backend) = pod().await;
    let (request, none) = (request(), Arc::new(Semaphore::new(0)));
    tokio::spawn(async move { serve_far(far, &FORWARD[0], request, backend, &none, &terms()).await });
    let mut peer = Peer::new(near);
    peer.send(&half(1, "error", "80", "a")).await;
    peer.send(&half(3, "data", "80", "a")).await;
    assert!(peer.text_of(1).await.contains("too many connections are forwarded by this node"));
}

#[tokio::test]
async fn a_flood_of_streams_is_bounded() {
    let (near, far) = duplex(1 << 20);
    let (_pod, backend) = pod().await;
    let request = request();
    tokio::spawn(async move { serve_far(far, &FORWARD[0], request, backend, &places(), &terms()).await });
    let mut peer = Peer::new(near);
    let (mut taken, mut refused) = (0, 0);
    for n in 0..2000 {
        peer.send(&half(2 * n + 1, "error", "80", &n.to_string())).await;
        match peer.next().await.expect("an answer") {
            Frame::SynReply { .. } => taken += 1,
            Frame::RstStream { status: crate::spdy::Status::REFUSED_STREAM, .. } => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((taken, refused), (1024, 976));
}

/// A pod whose every port is this listener.
#[derive(Debug)]
pub(super) struct Pod(SocketAddr);

impl Backend for Pod {
    fn attach<'a>(&'a self, id: &'a str, _: Session) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move { Err(format!("attached to `{id}`").into()) })
    }

    fn dial<'a>(
        &'a self,
        pod_id: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<(crate::Input, crate::Output), SessionError>> {
        Box::pin(async move {
            assert_eq!((pod_id, port), ("p1", 80));
            let (read, write) = TcpStream::connect(self.0).await?.into_split();
            Ok((Box::new(read) as crate::Input, Box::new(write) as crate::Output))
        })
    }
}

pub(super) async fn pod() -> (TcpListener, Arc<Pod>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    (listener, Arc::new(Pod(address)))
}

fn request() -> PortForwardRequest {
    PortForwardRequest { pod_id: "p1".into(), ports: Vec::new() }
}

async fn session() -> (Server, Forward, TcpListener) {
    let (listener, pod) = pod().await;
    let server = Server::bind(config(), pod).await.expect("bind");
    let url = server.port_forward_url(request()).expect("url");
    assert!(url.contains("/portforward/"), "{url}");
    let session = soon(forward(&url)).await.expect("session");
    (server, session, listener)
}

async fn rest(reader: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    soon(reader.read_to_end(&mut all)).await.expect("a clean end");
    all
}

fn half(id: u32, kind: &str, port: &str, request_id: &str) -> Frame {
    let mut headers = Headers::new().with("streamtype", kind).with("port", port);
    if !request_id.is_empty() {
        headers = headers.with("requestid", request_id);
    }
    Frame::SynStream { id, associated: 0, priority: 0, fin: false, unidirectional: false, headers }
}

fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(super::super::forward::MAX_PAIRS_OF_ALL))
}
