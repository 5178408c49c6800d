use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;
use crate::spdy::peer::{Peer, syn};
use crate::spdy::{DecodeError, Encoder, Frame};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn bytes_and_ends_travel_both_ways() {
    let (near, far) = duplex(1000);
    let (client, _) = Connection::start(near, Role::Client, Limits::default());
    let (server, mut arrivals) = Connection::start(far, Role::Server, Limits::default());
    let serving = tokio::spawn(async move {
        let arrival = arrivals.next().await.expect("a stream");
        assert_eq!(arrival.headers().get("streamtype"), Some("data"));
        let (mut read, mut write) = arrival.accept().split();
        let mut all = Vec::new();
        read.read_to_end(&mut all).await.expect("read");
        write.write_all(&all).await.expect("write");
        write.write_all(b"!").await.expect("write");
        server.finish().await;
        all.len()
    });
    let (mut read, mut write) = client.open(Headers::new().with("streamType", "data")).await.expect("open").split();
    let sent: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
    write.write_all(&sent).await.expect("write");
    write.shutdown().await.expect("shutdown");
    let mut all = Vec::new();
    read.read_to_end(&mut all).await.expect("read");
    assert_eq!(all.split_last(), Some((&b'!', &sent[..])));
    assert_eq!(write.write(b"x").await.expect_err("ended").kind(), io::ErrorKind::BrokenPipe);
    drop(client);
    assert_eq!(serving.await.expect("server"), sent.len());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_pinned() {
    let (mut peer, server, mut arrivals) = server(Limits::default());
    peer.send(&syn(1, "stdin")).await;
    peer.send(&syn(3, "stdout")).await;
    let (_in_read, _in_write) = arrivals.next().await.expect("stdin").accept().split();
    let (_, mut out) = arrivals.next().await.expect("stdout").accept().split();
    out.write_all(b"bye").await.expect("write");
    let finished = tokio::spawn(server.finish());
    let frames = peer.rest().await;
    assert_eq!(
        frames,
        [
            Frame::SynReply { id: 1, fin: false, headers: Headers::new() },
            Frame::SynReply { id: 3, fin: false, headers: Headers::new() },
            data(3, b"bye"),
            fin(1),
            fin(3),
            Frame::Goaway { last_good: 3, status: 0 },
        ]
    );
    assert_eq!(out.write(b"x").await.expect_err("over").kind(), io::ErrorKind::BrokenPipe);
    // It waits for us to close, and takes what we still send.
    peer.send(&data(1, &[0; 100_000])).await;
    assert!(!finished.is_finished());
    drop(peer);
    timeout(SOON, finished).await.expect("ends with the peer").expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_full_stream_delays_nobody_else() {
    let limits = Limits { stream: 100_000, ..Limits::default() };
    let (mut peer, _server, mut arrivals) = server(limits);
    peer.send(&syn(1, "stdin")).await;
    peer.send(&syn(3, "resize")).await;
    let (mut stdin, _w1) = arrivals.next().await.expect("stdin").accept().split();
    let (mut resize, _w2) = arrivals.next().await.expect("resize").accept().split();
    // Just as much as is kept.
    peer.send(&data(1, &[1; 99_000])).await;
    peer.send(&Frame::Ping { id: 9 }).await;
    peer.send(&data(3, b"{}")).await;
    peer.send(&fin(3)).await;
    let mut all = Vec::new();
    timeout(SOON, resize.read_to_end(&mut all)).await.expect("in time").expect("read");
    assert_eq!(all, b"{}");
    peer.until(&Frame::Ping { id: 9 }).await;

    // Now more than that: it stays in the transport, and is not lost.
    let rest = vec![2; 200_000];
    let (reading, mut writing) = tokio::io::split(peer.transport);
    let mut sending = tokio::spawn(async move {
        let mut bytes = BytesMut::new();
        Encoder::new().encode(&data(1, &rest), &mut bytes);
        Encoder::new().encode(&fin(1), &mut bytes);
        writing.write_all(&bytes).await.expect("write");
        writing
    });
    assert!(timeout(Duration::from_millis(50), &mut sending).await.is_err(), "all was taken");
    let mut all = Vec::new();
    timeout(SOON, stdin.read_to_end(&mut all)).await.expect("in time").expect("read");
    assert_eq!(all.len(), 299_000);
    assert_eq!(all.iter().filter(|byte| **byte == 2).count(), 200_000);
    drop((reading, sending.await));
}

#[tokio::test(start_paused = true)]
async fn connections_keep_no_more_than_their_budget() {
    let budget = Budget::new(100_000);
    let limits = || Limits { budget: budget.clone(), ..Limits::default() };
    let ((mut one, _first, mut of_one), (mut other, _second, mut of_other)) = (server(limits()), server(limits()));
    one.send(&syn(1, "stdin")).await;
    other.send(&syn(1, "stdin")).await;
    let (mut full, _w1) = of_one.next().await.expect("stdin").accept().split();
    let (mut stdin, _w2) = of_other.next().await.expect("stdin").accept().split();
    one.send(&data(1, &[1; 99_000])).await;
    // What the first one keeps, the other has not: the rest stays in the transport, and is not lost.
    let (reading, mut writing) = tokio::io::split(other.transport);
    let mut sending = tokio::spawn(async move {
        let mut bytes = BytesMut::new();
        Encoder::new().encode(&data(1, &[2; 1_000_000]), &mut bytes);
        Encoder::new().encode(&fin(1), &mut bytes);
        writing.write_all(&bytes).await.expect("write");
        writing
    });
    assert!(timeout(Duration::from_millis(50), &mut sending).await.is_err(), "all was taken");
    // It goes on all the same as fast as it is read from.
    let mut all = vec![0; 500_000];
    timeout(SOON, stdin.read_exact(&mut all)).await.expect("in time").expect("read");
    let mut theirs = vec![0; 99_000];
    timeout(SOON, full.read_exact(&mut theirs)).await.expect("in time").expect("read");
    timeout(SOON, stdin.read_to_end(&mut all)).await.expect("in time").expect("read");
    assert_eq!(all.iter().filter(|byte| **byte == 2).count(), 1_000_000);
    drop((reading, sending.await));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_gone_is_noticed_behind_a_full_stream() {
    let limits = Limits { stream: 1000, ..Limits::default() };
    let (mut peer, server, mut arrivals) = server(limits);
    peer.send(&syn(1, "stdin")).await;
    let _stdin = arrivals.next().await.expect("stdin").accept();
    peer.send(&data(1, &[1; 2000])).await;
    peer.until(&Frame::Ping { id: 2 }).await;
    let closed = server.closed();
    drop(peer);
    timeout(Duration::from_secs(11), closed.cancelled()).await.expect("the next ping fails");
    assert!(matches!(server.why_closed(), Some(Closed::Io(_))), "{:?}", server.why_closed());
}

#[tokio::test]
async fn a_peer_that_goes_ends_every_stream() {
    let (mut peer, server, mut arrivals) = server(Limits::default());
    peer.send(&syn(1, "stdin")).await;
    let (mut read, mut write) = arrivals.next().await.expect("stdin").accept().split();
    // Else the answer could find the peer gone first.
    peer.until(&Frame::SynReply { id: 1, fin: false, headers: Headers::new() }).await;
    peer.send(&data(1, b"last")).await;
    drop(peer);
    timeout(SOON, server.closed().cancelled()).await.expect("noticed");
    let mut all = Vec::new();
    let error = read.read_to_end(&mut all).await.expect_err("not a clean end");
    assert_eq!((all.as_slice(), error.kind()), (&b"last"[..], io::ErrorKind::ConnectionAborted));
    assert_eq!(write.write(b"x").await.expect_err("gone").kind(), io::ErrorKind::BrokenPipe);
    assert!(arrivals.next().await.is_none());
    assert!(matches!(server.open(Headers::new()).await, Err(OpenError::Closed(Closed::Peer))));
}

#[tokio::test]
async fn streams_that_break_the_rules_are_reset() {
    let (mut peer, _server, mut arrivals) = server(Limits::default());
    let reset = |id, status| Frame::RstStream { id, status };
    peer.send(&syn(2, "x")).await;
    peer.until(&reset(2, Status::PROTOCOL_ERROR)).await;
    peer.send(&syn(5, "x")).await;
    let (mut read, _write) = arrivals.next().await.expect("5").accept().split();
    peer.send(&syn(3, "x")).await;
    peer.until(&reset(3, Status::PROTOCOL_ERROR)).await;
    peer.send(&data(7, b"to nobody")).await;
    peer.until(&reset(7, Status::INVALID_STREAM)).await;
    peer.send(&fin(5)).await;
    peer.send(&data(5, b"after the end")).await;
    peer.until(&reset(5, Status::STREAM_ALREADY_CLOSED)).await;
    let mut all = Vec::new();
    assert_eq!(read.read_to_end(&mut all).await.expect("was ended before"), 0);
    // A second stream of the same id takes the first one with it.
    peer.send(&syn(9, "x")).await;
    let (mut read, _write) = arrivals.next().await.expect("9").accept().split();
    peer.send(&syn(9, "x")).await;
    peer.until(&reset(9, Status::PROTOCOL_ERROR)).await;
    assert_eq!(read.read(&mut [0; 8]).await.expect_err("reset").kind(), io::ErrorKind::ConnectionReset);
    // Late data of a stream that is over is nobody's fault.
    peer.send(&data(9, b"late")).await;
    peer.send(&Frame::Ping { id: 1 }).await;
    assert_eq!(peer.next().await, Some(Frame::Ping { id: 1 }));
}

#[tokio::test]
async fn too_many_streams_are_refused() {
    let (mut peer, _server, mut arrivals) = server(Limits { streams: 2, ..Limits::default() });
    for id in [1, 3, 5] {
        peer.send(&syn(id, "x")).await;
    }
    peer.until(&Frame::RstStream { id: 5, status: Status::REFUSED_STREAM }).await;
    let first = arrivals.next().await.expect("1").accept();
    drop(arrivals);
    peer.until(&Frame::RstStream { id: 3, status: Status::REFUSED_STREAM }).await;
    peer.send(&syn(7, "x")).await;
    peer.until(&Frame::RstStream { id: 7, status: Status::REFUSED_STREAM }).await;
    drop(first);
    peer.until(&fin(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_only_talks_is_cut_off() {
    let (mut peer, server, _arrivals) = server(Limits::default());
    let mut bytes = BytesMut::new();
    for _ in 0..100_000 {
        peer.encoder.encode(&Frame::Ping { id: 1 }, &mut bytes);
    }
    // The pipe holds less than the answers.
    let _ = timeout(SOON, peer.transport.write_all(&bytes)).await;
    timeout(SOON, server.closed().cancelled()).await.expect("cut off");
    assert!(matches!(server.why_closed(), Some(Closed::Flooded)), "{:?}", server.why_closed());
}

#[tokio::test]
async fn garbage_is_answered_with_goaway() {
    let (mut peer, server, _arrivals) = server(Limits::default());
    peer.transport.write_all(b"\x80\x02HTTP/1.1 what?").await.expect("write");
    assert_eq!(peer.next().await, Some(Frame::Goaway { last_good: 0, status: 1 }));
    assert_eq!(peer.next().await, None, "closed");
    assert!(matches!(server.why_closed(), Some(Closed::Protocol(CodecError::Spdy(DecodeError::Version(2))))));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends() {
    let (mut peer, server, _arrivals) = server(Limits { idle: Duration::from_secs(100), ..Limits::default() });
    let closed = server.closed();
    assert!(timeout(Duration::from_secs(99), closed.cancelled()).await.is_err());
    peer.send(&Frame::Ping { id: 1 }).await;
    peer.until(&Frame::Ping { id: 1 }).await;
    assert!(timeout(Duration::from_secs(99), closed.cancelled()).await.is_err(), "the ping counts");
    timeout(Duration::from_secs(2), closed.cancelled()).await.expect("idle");
    assert!(matches!(server.why_closed(), Some(Closed::Idle(_))));
}

#[tokio::test(start_paused = true)]
async fn writers_wait_for_a_peer_that_does_not_read() {
    let (mut peer, _server, mut arrivals) = server(Limits { outgoing: 10_000, ..Limits::default() });
    peer.send(&syn(1, "stdout")).await;
    let (_read, mut write) = arrivals.next().await.expect("stdout").accept().split();
    let mut written = 0;
    while let Ok(done) = timeout(Duration::from_millis(50), write.write(&[7; 5000])).await {
        written += done.expect("open");
        assert!(written < 1_000_000, "no back-pressure");
    }
    let mut read = 0;
    while read < written {
        if let Some(Frame::Data { payload, .. }) = peer.next().await {
            read += payload.len();
        }
    }
    timeout(SOON, write.write(b"x")).await.expect("goes on").expect("open");
}

#[tokio::test]
async fn a_client_hears_that_its_stream_was_not_taken() {
    let (near, far) = duplex(4000);
    let (client, _none) = Connection::start(near, Role::Client, Limits::default());
    let (_server, mut arrivals) = Connection::start(far, Role::Server, Limits::default());
    let refusing = tokio::spawn(async move {
        arrivals.next().await.expect("a stream").refuse(Status::UNSUPPORTED_VERSION);
        arrivals
    });
    let error = client.open(Headers::new()).await.expect_err("refused");
    assert!(matches!(error, OpenError::Refused(Status::UNSUPPORTED_VERSION)), "{error}");
    drop(refusing.await);
}

fn server(limits: Limits) -> (Peer<DuplexStream>, Connection, Arrivals) {
    let (near, far) = duplex(20_000);
    let (server, arrivals) = Connection::start(far, Role::Server, limits);
    (Peer::new(near), server, arrivals)
}

fn data(id: u32, bytes: &[u8]) -> Frame {
    Frame::Data { id, fin: false, payload: Bytes::copy_from_slice(bytes) }
}

fn fin(id: u32) -> Frame {
    Frame::Data { id, fin: true, payload: Bytes::new() }
}
