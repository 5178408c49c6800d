//! Sessions over pipes, with a clock of their own.

use bytes::BytesMut;
use streaming::websocket::{BINARY, Decoder, PING, PONG, write, write_masked};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::watch::{Sender, channel};
use tokio::task::JoinHandle;

use super::super::channels::Kind;
use super::super::socket::STALLED;
use super::*;

/// How much a pipe holds.
const PIPE: usize = 4 << 10;

struct Rig {
    client: DuplexStream,
    pod: DuplexStream,
    alive: Option<Sender<()>>,
    ended: JoinHandle<End>,
}

fn rig(kind: Kind, first: &'static [u8]) -> Rig {
    let ((client, ours), (pod, theirs)) = (duplex(PIPE), duplex(PIPE));
    let (alive, stopped) = channel(());
    let ended =
        tokio::spawn(async move { join(ours, Channels::new(theirs, kind), Bytes::from_static(first), stopped).await });
    Rig { client, pod, alive: Some(alive), ended }
}

/// What a peer gets until the connection ends or so many messages have come: opcode by first byte, and payload.
async fn heard(from: &mut DuplexStream, mut decoder: Decoder, count: usize) -> Vec<Vec<u8>> {
    let (mut buffer, mut all, mut message) = (BytesMut::new(), Vec::new(), Vec::new());
    while all.len() < count {
        match decoder.decode(&mut buffer).expect("messages") {
            Some(Piece::Message { last, bytes, .. }) => {
                message.extend_from_slice(&bytes);
                if last {
                    all.push(std::mem::take(&mut message));
                }
            }
            Some(Piece::Ping(bytes)) => all.push([&b"ping "[..], &bytes].concat()),
            Some(Piece::Close(_)) => all.push(b"close".to_vec()),
            None => {
                if from.read_buf(&mut buffer).await.expect("read") == 0 {
                    break;
                }
            }
        }
    }
    all
}

fn of_client(opcode: u8, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    write_masked(opcode, &[payload], [1, 2, 3, 4], &mut out);
    out
}

fn of_pod(payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    write(BINARY, &[payload], &mut out);
    out
}

#[tokio::test]
async fn bytes_cross_both_ways_until_the_client_leaves() {
    let mut rig = rig(Kind::Command, b"first");
    rig.client.write_all(&of_client(BINARY, b"ls\n")).await.expect("written");
    assert_eq!(heard(&mut rig.pod, Decoder::default(), 1).await, [b"\0ls\n"]);
    rig.pod.write_all(&of_pod(b"\x01a b")).await.expect("written");
    assert_eq!(heard(&mut rig.client, Decoder::of_server(), 2).await, [&b"first"[..], b"a b"]);
    rig.client.write_all(&of_client(CLOSE, b"")).await.expect("written");
    assert!(matches!(rig.ended.await.expect("ended"), End::Client));
    assert_eq!(heard(&mut rig.pod, Decoder::default(), 2).await, [b"close"]);
}

#[tokio::test]
async fn why_a_command_ended_is_told() {
    let mut rig = rig(Kind::Command, b"");
    let failed = b"\x03{\"status\":\"Failure\",\"message\":\"m\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"69\"}]}}";
    rig.pod.write_all(&of_pod(b"\x02another viewer has taken the screen\n")).await.expect("written");
    rig.pod.write_all(&of_pod(failed)).await.expect("written");
    let mut told = Vec::new();
    rig.client.read_to_end(&mut told).await.expect("read");
    assert!(told.starts_with(b"\x88\x25\x03\xf3another viewer has taken the screen"), "{told:?}");
    assert!(
        matches!(rig.ended.await.expect("ended"), End::Failed(why) if why == "another viewer has taken the screen")
    );
}

#[tokio::test]
async fn a_server_that_ends_says_so() {
    let mut rig = rig(Kind::Port, b"");
    drop(rig.alive.take());
    let mut told = Vec::new();
    rig.client.read_to_end(&mut told).await.expect("read");
    assert_eq!(told.get(2..4), Some(&1001_u16.to_be_bytes()[..]));
    assert!(matches!(rig.ended.await.expect("ended"), End::Stopped));
}

#[tokio::test]
async fn a_client_that_is_no_websocket_is_left() {
    let mut rig = rig(Kind::Port, b"");
    rig.client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    assert!(matches!(rig.ended.await.expect("ended"), End::ClientLost(Lost::Message(_))));
}

#[tokio::test(start_paused = true)]
async fn a_client_need_not_answer_and_a_pod_that_is_silent_is_gone() {
    // It reads nothing and says nothing, as `virtctl vnc --proxy-only` without a viewer.
    let mut rig = rig(Kind::Port, b"first");
    let mut pong = BytesMut::new();
    write(PONG, &[], &mut pong);
    for _ in 0..100 {
        assert_eq!(heard(&mut rig.pod, Decoder::default(), 1).await, [b"ping "]);
        rig.pod.write_all(&pong).await.expect("written");
    }
    // The last of them was answered; the next one is not.
    let since = Instant::now();
    assert!(matches!(rig.ended.await.expect("ended"), End::Silent));
    let silent = since.elapsed();
    assert!(silent >= ASK + SILENT && silent < SILENT + 2 * ASK + 2 * FAREWELL, "{silent:?}");
    let told = heard(&mut rig.client, Decoder::of_server(), usize::MAX).await;
    assert_eq!(told.first().map(Vec::as_slice), Some(&b"first"[..]));
    assert_eq!(told.last().map(Vec::as_slice), Some(&b"close"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_nothing_has_not_been_asked() {
    let mut rig = rig(Kind::Port, b"");
    let typed = of_client(BINARY, &[7; 1000]);
    let client = tokio::spawn(async move { while rig.client.write_all(&typed).await.is_ok() {} });
    let since = Instant::now();
    let ended = rig.ended.await.expect("ended");
    assert!(matches!(ended, End::PodLost(Lost::Stalled)), "{ended:?}");
    assert!(since.elapsed() >= STALLED, "{:?}", since.elapsed());
    client.await.expect("ended");
    drop(rig.pod);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_slow_client_is_not_silent_and_not_for_ever() {
    let mut rig = rig(Kind::Command, b"");
    let message = of_pod(&[&[1_u8][..], &[7; 1000]].concat());
    let pod = tokio::spawn(async move { while rig.pod.write_all(&message).await.is_ok() {} });
    // The client reads nothing.
    let since = Instant::now();
    let ended = rig.ended.await.expect("ended");
    assert!(matches!(ended, End::ClientLost(Lost::Stalled)), "{ended:?}");
    assert!(since.elapsed() >= STALLED, "{:?}", since.elapsed());
    pod.await.expect("ended");
    drop(rig.client);
}

#[tokio::test]
async fn questions_of_a_client_are_answered_and_make_no_queue() {
    let mut rig = rig(Kind::Port, b"");
    for nth in 0..100_u8 {
        rig.client.write_all(&of_client(PING, &[nth])).await.expect("written");
    }
    rig.client.write_all(&of_client(CLOSE, b"")).await.expect("written");
    let mut told = Vec::new();
    rig.client.read_to_end(&mut told).await.expect("read");
    // Any number of answers, none of which is larger than its question, and the end.
    let pongs = told.chunks(3).filter(|chunk| chunk.starts_with(&[0x80 | PONG, 1])).count();
    assert!(pongs <= 100 && told.len() <= 100 * 3 + 4, "{told:?}");
    assert!(matches!(rig.ended.await.expect("ended"), End::Client));
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_back_the_pod() {
    let mut rig = rig(Kind::Command, b"");
    let message = of_pod(&[&[1_u8][..], &[7; 1000]].concat());
    let mut sent = 0;
    // Nothing else is to be done by anybody once this waits.
    loop {
        let mut write = pin(rig.pod.write_all(&message));
        let mut turns = 0;
        let waits = std::future::poll_fn(|context| {
            if write.as_mut().poll(context).is_ready() {
                return std::task::Poll::Ready(false);
            }
            turns += 1;
            context.waker().wake_by_ref();
            if turns > 100 { std::task::Poll::Ready(true) } else { std::task::Poll::Pending }
        })
        .await;
        drop(write);
        if waits {
            break;
        }
        sent += message.len();
        tokio::task::yield_now().await;
    }
    // Both pipes, and what is on the way.
    assert!(sent < 2 * PIPE + (48 << 10), "{sent}");
    // What it types crosses meanwhile.
    rig.client.write_all(&of_client(BINARY, b"\x03")).await.expect("written");
    assert_eq!(heard(&mut rig.pod, Decoder::default(), 1).await, [b"\0\x03"]);
}

fn pin<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
    Box::pin(future)
}
