//! The server as a browser meets it, byte for byte.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::sync::mpsc;

use super::files::File;
use super::*;

const SOON: Duration = Duration::from_secs(20);
const PIPE: usize = 1 << 10;

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.expect("in time")
}

/// A machine whose streams' other ends are the test's.
#[derive(Debug)]
struct Fake(mpsc::UnboundedSender<(Kind, DuplexStream)>);

impl Fake {
    fn opened(&self, kind: Kind, ended: Result<(), CtlError>) -> BoxFuture<'_, Result<Opened, CtlError>> {
        let (theirs, ours) = duplex(PIPE);
        let (read, write) = split(ours);
        let sent = self.0.send((kind, theirs)).map_err(|_| CtlError::Verb("VMI is not running".into()));
        let ended = Box::pin(std::future::ready(ended));
        Box::pin(async move { sent.map(|()| Opened { read: Box::new(read), write: Box::new(write), ended }) })
    }
}

impl Streams for Fake {
    fn screen(&self) -> BoxFuture<'_, Result<Opened, CtlError>> {
        self.opened(Kind::Screen, Ok(()))
    }

    fn console(&self) -> BoxFuture<'_, Result<Opened, CtlError>> {
        self.opened(Kind::Console, Err(CtlError::NotRunning("default/web".into())))
    }
}

struct Served {
    address: SocketAddr,
    cookie: String,
    /// What the page's paths begin with.
    place: String,
    machine: mpsc::UnboundedReceiver<(Kind, DuplexStream)>,
    _server: JoinSet<()>,
}

async fn served() -> Served {
    served_with(MAX_CONNECTIONS).await
}

/// A server for so many connections whose token is spent.
async fn served_with(most: usize) -> Served {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let address = listener.local_addr().expect("an address");
    static NONE: &[File] = &[];
    let site = Arc::new(Site::new("default/web", address.port(), NONE));
    let (sender, machine) = mpsc::unbounded_channel();
    let url = site.url();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let _ = accept(listener, site, Arc::new(Sessions::new(Arc::new(Fake(sender)))), most).await;
    });
    let path = url.strip_prefix(&format!("http://{address}")).expect("our address").to_owned();
    let answer = asked(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")).await;
    let cookie = answer.split_once("set-cookie: ").and_then(|(_, rest)| rest.split(';').next()).expect("a cookie");
    let place = answer.split_once("url=").and_then(|(_, rest)| rest.split_once("/\"")).expect("goes on").0;
    Served { address, cookie: cookie.to_owned(), place: place.to_owned(), machine, _server: server }
}

async fn asked(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.expect("read");
    answer
}

impl Served {
    /// A page's WebSocket, and the machine's end of its stream.
    async fn joined(&mut self, path: &str) -> (TcpStream, DuplexStream) {
        let address = self.address;
        let mut page = TcpStream::connect(address).await.expect("connected");
        let request = format!(
            "GET {}{path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nCookie: {}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.place, self.cookie
        );
        page.write_all(request.as_bytes()).await.expect("written");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(page.read_u8()).await.expect("head"));
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        let (kind, machine) = soon(self.machine.recv()).await.expect("it is opened");
        assert_eq!(path, format!("/{}", kind.name()));
        (page, machine)
    }
}

/// A page's frame; a mask of zeros is one too.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x80 | kind, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

/// The payload of the next frame, of this kind.
async fn next(page: &mut TcpStream, kind: u8) -> Vec<u8> {
    let head = [soon(page.read_u8()).await.expect("head"), soon(page.read_u8()).await.expect("length")];
    let len = if head[1] == 126 { soon(page.read_u16()).await.expect("length") } else { u16::from(head[1]) };
    let mut payload = vec![0; usize::from(len)];
    soon(page.read_exact(&mut payload)).await.expect("payload");
    assert_eq!(head[0], 0x80 | kind, "{payload:?}");
    payload
}

/// The code and the reason that a page is told at the end, after which nothing comes.
async fn over(page: &mut TcpStream) -> (u16, String) {
    let payload = next(page, 8).await;
    let (code, why) = payload.split_first_chunk::<2>().expect("a code");
    assert_eq!(soon(page.read(&mut [0])).await.expect("read"), 0, "more after the end");
    (u16::from_be_bytes(*code), String::from_utf8(why.to_vec()).expect("text"))
}

#[tokio::test]
async fn bytes_go_both_ways() {
    let mut served = served().await;
    for path in ["/screen", "/console"] {
        let (mut page, mut machine) = served.joined(path).await;
        page.write_all(&frame(2, b"typed")).await.expect("written");
        let mut typed = [0; 5];
        soon(machine.read_exact(&mut typed)).await.expect("typed");
        assert_eq!(&typed, b"typed");
        machine.write_all(b"shown").await.expect("written");
        assert_eq!(next(&mut page, 2).await, b"shown");
    }
}

#[tokio::test]
async fn a_page_is_told_why_a_stream_has_ended() {
    let mut served = served().await;
    let (mut page, machine) = served.joined("/screen").await;
    drop(machine);
    assert_eq!(over(&mut page).await, (1000, "the machine has ended the connection".into()));
    let (mut page, machine) = served.joined("/console").await;
    drop(machine);
    let (code, why) = over(&mut page).await;
    assert_eq!(code, 4000);
    assert!(why.starts_with("machine of pod `default/web` does not run"), "{why}");
}

#[tokio::test]
async fn a_stream_that_does_not_open_is_told() {
    let mut served = served().await;
    served.machine.close();
    let request = format!(
        "GET {2}/screen HTTP/1.1\r\nHost: {0}\r\nOrigin: http://{0}\r\nCookie: {1}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        served.address, served.cookie, served.place
    );
    let mut page = TcpStream::connect(served.address).await.expect("connected");
    page.write_all(request.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(page.read_u8()).await.expect("head"));
    }
    let (code, why) = over(&mut page).await;
    assert_eq!(code, 4000);
    assert!(why == "VMI is not running", "{why}");
}

#[tokio::test]
async fn one_page_at_a_time_has_the_screen_and_several_have_consoles() {
    let mut served = served().await;
    let (mut console, mut first_console) = served.joined("/console").await;
    let _second_console = served.joined("/console").await;
    let (mut first, _machine) = served.joined("/screen").await;
    let (mut second, mut machine) = served.joined("/screen").await;
    assert_eq!(over(&mut first).await, (4001, "shown elsewhere".into()));
    machine.write_all(b"shown").await.expect("written");
    assert_eq!(next(&mut second, 2).await, b"shown");
    first_console.write_all(b"login:").await.expect("written");
    assert_eq!(next(&mut console, 2).await, b"login:");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let served = served().await;
    let begun = format!("GET / HTTP/1.1\r\nHost: {}\r\nX: ", served.address);
    // As much as is read of it: what is left unread may cost us the answer.
    let long = format!("{begun}{}", "x".repeat(MAX_HEAD - begun.len()));
    let answer = asked(served.address, &long).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn there_are_only_so_many_connections() {
    let mut served = served_with(2).await;
    let one = served.joined("/console").await;
    let _other = served.joined("/console").await;
    let mut more = TcpStream::connect(served.address).await.expect("the kernel takes it");
    more.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", served.address).as_bytes()).await.expect("written");
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
    assert!(more.try_read(&mut [0]).is_err(), "one more is answered");
    drop(one);
    assert_eq!(soon(more.read_u8()).await.expect("an answer"), b'H');
}

#[tokio::test]
async fn connections_of_strangers_make_room() {
    let mut served = served().await;
    let (_page, _machine) = served.joined("/screen").await;
    let mut idle = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        idle.push(TcpStream::connect(served.address).await.expect("the kernel takes it"));
    }
    let (mut page, mut machine) = served.joined("/console").await;
    let oldest = timeout(HEAD_DEADLINE / 2, idle[0].read(&mut [0])).await.expect("it has made room");
    assert!(matches!(oldest, Ok(0) | Err(_)), "{oldest:?}");
    machine.write_all(b"login:").await.expect("written");
    assert_eq!(next(&mut page, 2).await, b"login:");
    assert!(idle[MAX_CONNECTIONS - 1].try_read(&mut [0]).is_err(), "the newest is ended");
}
