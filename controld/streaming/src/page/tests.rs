use futures_util::FutureExt as _;
use hyper::header::HeaderValue;
use tokio::io::{DuplexStream, duplex};

use super::*;

const SOON: Duration = Duration::from_secs(20);
/// What a pipe of these tests holds, in bytes; a chunk fits many times.
const PIPE: usize = 1 << 10;

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.expect("in time")
}

/// A client's frame; a mask of zeros is one too.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x80 | kind, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

/// The next frame of the server: its kind and its payload.
async fn next(page: &mut DuplexStream) -> (u8, Vec<u8>) {
    let head = [soon(page.read_u8()).await.expect("head"), soon(page.read_u8()).await.expect("length")];
    let len = if head[1] == 126 { soon(page.read_u16()).await.expect("length") } else { u16::from(head[1]) };
    let mut payload = vec![0; usize::from(len)];
    soon(page.read_exact(&mut payload)).await.expect("payload");
    (head[0] & 0x0f, payload)
}

/// A carried stream: the page's end, the stream's end, and how it ends.
struct Carried {
    page: DuplexStream,
    stream: DuplexStream,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<Result<Ended, PageError>>,
}

fn carried(window: Option<u64>) -> Carried {
    let (page, mut ours) = duplex(PIPE);
    let (stream, theirs) = duplex(PIPE);
    let (read, write) = split(theirs);
    let stop = CancellationToken::new();
    let terms = Terms { window, stop: stop.clone() };
    let (mut read, mut write): (Input, Output) = (Box::new(read), Box::new(write));
    let ended = tokio::spawn(async move { carry(&mut ours, &mut read, &mut write, &terms).await });
    Carried { page, stream, stop, ended }
}

#[test]
fn a_page_is_answered_if_it_asks_for_websocket() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let response = accept(&Method::GET, &headers).expect("right");
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(accept(&Method::POST, &headers).is_none());
    for lacks in ["connection", "upgrade", "sec-websocket-version", "sec-websocket-key"] {
        let mut headers = headers.clone();
        headers.remove(lacks);
        assert!(accept(&Method::GET, &headers).is_none(), "{lacks}");
    }
}

#[tokio::test]
async fn bytes_go_both_ways_and_a_page_is_told_that_we_are_there() {
    let mut carried = carried(None);
    let typed = [frame(0x2, b"l"), frame(0x9, b"first"), frame(0x9, b"there?"), frame(0x2, b"s\n")].concat();
    carried.page.write_all(&typed).await.expect("written");
    let mut heard = [0; 3];
    soon(carried.stream.read_exact(&mut heard)).await.expect("typed");
    assert_eq!(&heard, b"ls\n");
    let answered = next(&mut carried.page).await;
    // One that comes before the last was answered may go without an answer of its own.
    let answered = if answered.1 == b"first" { next(&mut carried.page).await } else { answered };
    assert_eq!(answered, (PONG, b"there?".to_vec()));
    carried.stream.write_all(b"file").await.expect("written");
    assert_eq!(next(&mut carried.page).await, (BINARY, b"file".to_vec()));
    carried.page.write_all(&frame(0x8, b"")).await.expect("written");
    assert_eq!(soon(carried.ended).await.expect("no panic").expect("right"), Ended::Page);
}

#[tokio::test]
async fn a_stream_that_ends_ends_it_and_so_does_who_may() {
    let one = carried(None);
    drop(one.stream);
    assert_eq!(soon(one.ended).await.expect("no panic").expect("right"), Ended::Stream);
    let other = carried(None);
    other.stop.cancel();
    assert_eq!(soon(other.ended).await.expect("no panic").expect("right"), Ended::Stopped);
}

#[tokio::test]
async fn what_a_page_must_not_say_ends_it() {
    for (window, said) in [
        (Some(8), frame(0x1, b"ten")),
        (Some(8), frame(0x1, b"-1")),
        (Some(8), frame(0x1, b"184467440737095516150")),
        (None, frame(0x1, b"1")),
    ] {
        let mut carried = carried(window);
        carried.page.write_all(&said).await.expect("written");
        let error = soon(carried.ended).await.expect("no panic").expect_err("refused");
        assert!(matches!(error, PageError::Text), "{said:?}: {error}");
    }
    let mut carried = carried(None);
    carried.page.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    assert!(matches!(soon(carried.ended).await.expect("no panic"), Err(PageError::Message(_))));
}

/// Writes to a stream until nobody takes any more; how many bytes were taken. Who is woken by a byte has run by the time that all
/// tasks of this thread have had several turns.
async fn filled(stream: &mut DuplexStream) -> u64 {
    let mut taken = 0;
    for turn in 0.. {
        match stream.write(&[b'x'; 64]).now_or_never() {
            Some(written) => taken += written.expect("open") as u64,
            None if turn % 16 != 15 => tokio::task::yield_now().await,
            None => {
                for _ in 0..16 {
                    tokio::task::yield_now().await;
                }
                let Some(written) = stream.write(b"x").now_or_never() else { break };
                taken += written.expect("open") as u64;
            }
        }
    }
    taken
}

#[tokio::test]
async fn a_page_that_does_not_read_is_waited_for() {
    let mut carried = carried(None);
    let taken = filled(&mut carried.stream).await;
    // Both pipes, and one chunk and its message between them.
    assert!(taken <= (2 * PIPE + 2 * CHUNK) as u64, "{taken} bytes are held");
    // Nothing is lost by that.
    drop(carried.stream);
    let mut shown = 0;
    while shown < taken {
        let (kind, bytes) = next(&mut carried.page).await;
        assert_eq!((kind, bytes.iter().all(|byte| *byte == b'x')), (BINARY, true));
        shown += bytes.len() as u64;
    }
    assert_eq!(shown, taken);
}

#[tokio::test]
async fn a_page_that_reads_and_does_not_keep_up_is_waited_for() {
    let window = 100;
    let mut carried = carried(Some(window));
    carried.stream.write_all(&[b'x'; 500]).await.expect("written");
    let mut shown = 0;
    while shown < window {
        shown += next(&mut carried.page).await.1.len() as u64;
    }
    // What was there before the last byte of the window went is one chunk at most: here, all of it.
    carried.stream.write_all(b"more").await.expect("written");
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
    let mut more = [0];
    assert!(carried.page.read(&mut more).now_or_never().is_none(), "a page that is behind gets more");
    for done in [shown - window, shown] {
        carried.page.write_all(&frame(0x1, done.to_string().as_bytes())).await.expect("written");
    }
    assert_eq!(next(&mut carried.page).await, (BINARY, b"more".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_read_is_let_go_once_it_is_to_end() {
    let mut carried = carried(None);
    filled(&mut carried.stream).await;
    carried.stop.cancel();
    assert!(matches!(carried.ended.await.expect("no panic"), Err(PageError::Lost(_))));
    // Nor does it hold up the last word.
    let (_page, ours) = duplex(1);
    close(ours, 1000, "over").await;
}

#[tokio::test]
async fn a_reason_is_cut_between_characters() {
    let (mut page, ours) = duplex(PIPE);
    let why = "ä".repeat(100);
    let (told, ()) = tokio::join!(async move { next(&mut page).await }, close(ours, 4000, &why));
    let expected = [&4000_u16.to_be_bytes()[..], "ä".repeat(60).as_bytes(), "…".as_bytes()].concat();
    assert_eq!(told, (CLOSE, expected));
    assert_eq!(cut("short"), "short");
}
