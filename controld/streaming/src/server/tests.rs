use futures_util::future::BoxFuture;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::mpsc;

use super::kinds::Command;
use super::protocol::COMMAND;
use super::*;
use crate::backend::{Session, SessionError, TermSize};
use crate::client::{self, EndError, Options};
use crate::request::Otherwise;
use crate::spdy::peer::{Peer, syn};
use crate::spdy::{Frame, Headers};

mod forward;
mod tls;
mod websocket;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn what_is_typed_comes_back_until_the_input_ends() {
    let (backend, mut seen) = Fake::new(Does::Echo);
    let server = server(backend).await;
    let mut session = attach(&server, request(true, false)).await;
    let mut stdin = session.stdin.take().expect("stdin");
    let mut stdout = session.stdout.take().expect("stdout");
    stdin.write_all(b"hello").await.expect("write");
    let mut echo = [0; 5];
    stdout.read_exact(&mut echo).await.expect("read");
    assert_eq!(&echo, b"hello");
    let mut resize = session.resize.take().expect("resize");
    resize.tell(TermSize { width: 132, height: 43 }).await.expect("told");
    assert_eq!(soon(seen.recv()).await, Some(Event::Size(TermSize { width: 132, height: 43 })));
    drop(stdin);
    soon(session.end.wait()).await.expect("success");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).await.expect("a clean end");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn all_output_arrives_before_the_end() {
    let (backend, _seen) = Fake::new(Does::Print(8 << 20));
    let server = server(backend).await;
    let mut session = attach(&server, request(false, false)).await;
    let mut stdout = session.stdout.take().expect("stdout");
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        stdout.read_to_end(&mut all).await.expect("a clean end");
        all.len()
    });
    soon(session.end.wait()).await.expect("success");
    assert_eq!(soon(reading).await.expect("no panic"), 8 << 20);
}

#[tokio::test]
async fn a_failure_reaches_the_client_with_its_causes() {
    let (backend, _seen) = Fake::new(Does::Fail);
    let server = server(backend).await;
    let mut session = attach(&server, request(true, false)).await;
    let error = soon(session.end.wait()).await.expect_err("failure");
    assert!(matches!(error, EndError::Failed(_)));
    assert_eq!(error.to_string(), "Internal error occurred: console of `c1` is broken");
}

#[tokio::test]
async fn a_client_that_goes_ends_its_session() {
    for does in [Does::Nothing, Does::PrintForever] {
        let (backend, mut seen) = Fake::new(does);
        let server = server(backend).await;
        let session = attach(&server, request(true, false)).await;
        assert_eq!(soon(seen.recv()).await, Some(Event::Attached));
        drop(session);
        assert_eq!(soon(seen.recv()).await, Some(Event::Ended), "{does:?}");
    }
}

#[tokio::test]
async fn a_server_that_goes_ends_its_sessions() {
    let (backend, mut seen) = Fake::new(Does::Nothing);
    let server = server(backend).await;
    let mut session = attach(&server, request(true, false)).await;
    assert_eq!(soon(seen.recv()).await, Some(Event::Attached));
    drop(server);
    assert!(matches!(soon(session.end.wait()).await, Err(EndError::Lost(_))));
    assert_eq!(soon(seen.recv()).await, Some(Event::Ended));
}

#[tokio::test(start_paused = true)]
async fn a_session_does_not_outlive_its_only_input() {
    let (backend, mut seen) = Fake::new(Does::ReadOnly);
    let (near, far) = duplex(4000);
    let once = AttachRequest { stdin_once: true, tty: false, ..request(true, false) };
    let terms = terms();
    let serving =
        tokio::spawn(async move { command::serve(far, &COMMAND[0], Command::Attach(once), &*backend, &terms).await });
    let mut peer = Peer::new(near);
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        peer.send(&syn(id, kind)).await;
    }
    assert_eq!(soon(seen.recv()).await, Some(Event::Attached));
    peer.send(&data(3, b"last words", true)).await;
    let text = peer.text_of(1).await;
    assert_eq!(text, r#"{"status":"Success"}"#);
    assert_eq!(seen.recv().await, Some(Event::Ended));
    drop(peer);
    soon(serving).await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_streams_is_sent_away() {
    let (backend, mut seen) = Fake::new(Does::Nothing);
    let (near, far) = duplex(4000);
    let terms = terms();
    let command = Command::Attach(request(true, false));
    let serving = tokio::spawn(async move { command::serve(far, &COMMAND[0], command, &*backend, &terms).await });
    let mut peer = Peer::new(near);
    peer.send(&syn(1, "error")).await;
    peer.send(&syn(3, "error")).await;
    peer.send(&syn(5, "surprise")).await;
    let frames = peer.rest().await;
    let refused = |id| Frame::RstStream { id, status: crate::spdy::Status::REFUSED_STREAM };
    assert_eq!(
        frames,
        [reply(1), refused(3), refused(5), data(1, b"", true), Frame::Goaway { last_good: 5, status: 0 }]
    );
    drop(peer);
    soon(serving).await.expect("no panic");
    assert!(seen.try_recv().is_err(), "the backend hears nothing of it");
}

/// As `crictl attach` does it, byte for byte, except that it does not wait for answers.
#[tokio::test]
async fn a_go_client_is_served() {
    let (backend, _seen) = Fake::new(Does::Print(5));
    let server = server(backend).await;
    let wanted = AttachRequest { stderr: true, tty: false, ..request(false, false) };
    let url = server.attach_url(wanted).expect("url");
    let path = url.strip_prefix(&format!("http://{}", server.address())).expect("absolute");
    let mut bytes =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n");
    for version in
        ["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"]
    {
        bytes += &format!("X-Stream-Protocol-Version: {version}\r\n");
    }
    let mut bytes = [bytes.as_bytes(), b"\r\n"].concat();
    for (id, block) in [
        (1, &b"\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x9a\x0a\x0a\x68\x00\x00\x00\x00\xff\xff"[..]),
        (3, b"\xc2\x2a\xc5\x56\x5c\x92\x92\x5f\x5a\x02\x00\x00\x00\xff\xff"),
        (5, b"\xc2\x29\x97\x5a\x54\x04\x00\x00\x00\xff\xff"),
    ] {
        bytes.extend([0x80, 3, 0, 1, 0, 0, 0, 10 + block.len() as u8, 0, 0, 0, id, 0, 0, 0, 0, 0, 0]);
        bytes.extend(block);
    }
    let mut stream = TcpStream::connect(server.address()).await.expect("connect");
    stream.write_all(&bytes).await.expect("write");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(stream.read_u8()).await.expect("head"));
    }
    let head = String::from_utf8(head).expect("text");
    let mut lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("date:")).collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "",
            "HTTP/1.1 101 Switching Protocols",
            "connection: Upgrade",
            "upgrade: SPDY/3.1",
            "x-stream-protocol-version: v4.channel.k8s.io"
        ]
    );
    let mut peer = Peer::new(stream);
    let frames = peer.rest().await;
    assert_eq!(
        frames,
        [
            reply(1),
            reply(3),
            reply(5),
            data(3, b"xxxxx", false),
            // The backend drops them in this order.
            data(3, b"", true),
            data(5, b"", true),
            data(1, br#"{"status":"Success"}"#, false),
            data(1, b"", true),
            Frame::Goaway { last_good: 5, status: 0 },
        ]
    );
}

#[tokio::test]
async fn a_command_ends_with_its_exit_code() {
    for code in [0, 3, 255] {
        let server = server(Fake::new(Does::Exit(code)).0).await;
        let url = server.exec_url(command(&["sh", "-c", "exit"])).expect("url");
        assert!(url.contains("/exec/"), "{url}");
        let options = Options { stdin: false, stdout: true, stderr: true, tty: false };
        let mut session = soon(client::attach(&url, options)).await.expect("session");
        let mut said = String::new();
        session.stderr.take().expect("stderr").read_to_string(&mut said).await.expect("a clean end");
        assert_eq!(said, "sh -c exit");
        match soon(session.end.wait()).await {
            Ok(()) => assert_eq!(code, 0),
            Err(EndError::Exited(exited)) => assert_eq!(exited, code),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn an_older_client_is_told_a_failure_in_words() {
    for (version, does, expected) in [
        (1, Does::Exit(0), ""),
        (2, Does::Exit(3), "command terminated with non-zero exit code: 3"),
        (3, Does::Fail, "Internal error occurred: no agent"),
    ] {
        let (near, far) = duplex(4000);
        let serving = tokio::spawn(async move {
            let wanted = Command::Exec(ExecRequest { tty: version < 3, ..command(&["ls"]) });
            command::serve(far, &COMMAND[version], wanted, &*Fake::new(does).0, &terms()).await;
        });
        let mut peer = Peer::new(near);
        for (id, kind) in [(1, "error"), (3, "stdout"), (5, "stderr")] {
            peer.send(&syn(id, kind)).await;
        }
        if COMMAND[version].resize && version < 3 {
            peer.send(&syn(7, "resize")).await;
        }
        assert_eq!(peer.text_of(1).await, expected, "{}", COMMAND[version].name);
        drop(peer);
        soon(serving).await.expect("no panic");
    }
}

#[tokio::test]
async fn requests_that_are_not_right_do_not_use_up_the_url() {
    let (backend, _seen) = Fake::new(Does::Echo);
    let server = server(backend).await;
    let url = server.attach_url(request(true, false)).expect("url");
    let path = url.rsplit_once(':').and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..])).expect("path");
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    for (line, headers, expected) in [
        ("POST /attach/AAAAAAAA", "", "404"),
        ("GET /", "", "404"),
        (&format!("POST /exec{}", path.replace("attach/", ""))[..], "", "404"),
        (&format!("POST {path}")[..], "", "400"),
        (&format!("POST {path}")[..], upgrade, "400"),
        (&format!("POST {path}")[..], &format!("{upgrade}X-Stream-Protocol-Version: v1\r\n"), "403"),
        (&format!("DELETE {path}")[..], upgrade, "405"),
        ("?? /", "", "400"),
    ] {
        let mut stream = TcpStream::connect(server.address()).await.expect("connect");
        let text = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(text.as_bytes()).await.expect("write");
        let mut answer = [0; 12];
        soon(stream.read_exact(&mut answer)).await.expect("answer");
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {expected}"), "{text}");
    }
    let options = Options { stdin: true, stdout: true, stderr: false, tty: true };
    drop(soon(client::attach(&url, options)).await.expect("still good"));
    let again = soon(client::attach(&url, options)).await.expect_err("used");
    let client::AttachError::Refused { status, .. } = &again else { panic!("{again}") };
    assert_eq!(*status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn connections_that_say_nothing_make_room_for_clients() {
    let (backend, mut seen) = Fake::new(Does::Nothing);
    let server = Server::with(config(), backend, Places::new(4)).await.expect("bind");
    let session = attach(&server, request(true, false)).await;
    assert_eq!(soon(seen.recv()).await, Some(Event::Attached));
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(TcpStream::connect(server.address()).await.expect("connect"));
    }
    // Those that came first are closed, long before they had to say something.
    for mut first in silent.drain(..2) {
        let closed = timeout(REQUEST_DEADLINE / 2, first.read(&mut [0])).await.expect("in time");
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    }
    timeout(REQUEST_DEADLINE / 2, attach(&server, request(false, false))).await.expect("let in");
    // Neither session had to go, and who is still connected is answered.
    let last = silent.last_mut().expect("connected");
    last.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("write");
    let mut answer = [0; 12];
    soon(last.read_exact(&mut answer)).await.expect("answer");
    assert_eq!(&answer, b"HTTP/1.1 404");
    drop(session);
}

#[tokio::test]
async fn a_container_has_so_many_sessions_and_the_next_is_told_so() {
    let (backend, mut seen) = Fake::new(Does::Nothing);
    let config = Config { max_sessions: 3, max_sessions_of_one: 2, ..config() };
    let server = Server::bind(config, backend).await.expect("bind");
    let wanted = |id: &str| AttachRequest { container_id: id.to_owned(), ..request(true, false) };
    let options = Options { stdin: true, stdout: true, stderr: false, tty: true };
    let (first, _second) = (attach(&server, wanted("c1")).await, attach(&server, wanted("c1")).await);
    let url = server.attach_url(wanted("c1")).expect("url");
    let error = soon(client::attach(&url, options)).await.expect_err("refused").to_string();
    assert!(error.contains("429") && error.contains("this pod's ports, have 2 sessions; end some"), "{error}");
    let _other = attach(&server, wanted("c2")).await;
    let third = server.attach_url(wanted("c3")).expect("url");
    let error = soon(client::attach(&third, options)).await.expect_err("refused").to_string();
    assert!(error.contains("the pods of this node have 3 sessions; end some"), "{error}");
    // The place of one that has ended is another's, whose URL is still good.
    drop(first);
    while soon(seen.recv()).await != Some(Event::Ended) {}
    soon(client::attach(&url, options)).await.expect("free");
}

#[tokio::test]
async fn urls_are_only_for_what_can_be_attached() {
    let (backend, _seen) = Fake::new(Does::Echo);
    let server = Server::bind(Config { max_tokens: 1, ..config() }, backend).await.expect("bind");
    let nothing = AttachRequest { stdin: false, stdout: false, ..request(true, false) };
    assert_eq!(server.attach_url(nothing), Err(UrlError::NoStream("attach")));
    assert_eq!(server.attach_url(request(true, true)), Err(UrlError::TtyWithStderr("attach")));
    let nobody = AttachRequest { container_id: String::new(), ..request(true, false) };
    assert_eq!(server.attach_url(nobody), Err(UrlError::NoContainer("attach")));
    assert_eq!(server.exec_url(command(&[])), Err(UrlError::NoCommand));
    assert_eq!(server.exec_url(ExecRequest { tty: true, ..command(&["ls"]) }), Err(UrlError::TtyWithStderr("exec")));
    let url = server.attach_url(request(true, false)).expect("url");
    assert!(url.starts_with(&format!("http://127.0.0.1:{}/attach/", server.address().port())), "{url}");
    assert_eq!(server.attach_url(request(true, false)), Err(UrlError::TooMany(1)));
    let taken = Server::bind(Config::at(server.address()), Fake::new(Does::Echo).0).await.expect_err("taken");
    assert!(taken.to_string().starts_with("failed to listen on `127.0.0.1:"), "{taken}");
}

#[tokio::test]
async fn a_client_says_what_is_wrong_with_its_url() {
    let options = Options { stdin: false, stdout: true, stderr: false, tty: false };
    for url in ["", "127.0.0.1:80/attach/x", "ftp://127.0.0.1/attach/x", "/attach/x"] {
        assert!(matches!(client::attach(url, options).await, Err(client::AttachError::Url(_))), "{url}");
    }
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("bind").local_addr().expect("address");
    let error = client::attach(&format!("http://{gone}/attach/x"), options).await.expect_err("nobody");
    assert!(matches!(error, client::AttachError::Connect { .. }), "{error}");
}

// The container's end.

#[derive(Debug, Clone, Copy)]
enum Does {
    Echo,
    Print(usize),
    PrintForever,
    Fail,
    Nothing,
    Exit(u8),
    /// Reads its input to the end, and stays.
    ReadOnly,
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Attached,
    Size(TermSize),
    Ended,
}

#[derive(Debug)]
struct Fake {
    does: Does,
    events: mpsc::UnboundedSender<Event>,
}

struct Ending(mpsc::UnboundedSender<Event>);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Ended);
    }
}

impl Fake {
    fn new(does: Does) -> (Arc<Self>, mpsc::UnboundedReceiver<Event>) {
        let (events, seen) = mpsc::unbounded_channel();
        (Arc::new(Self { does, events }), seen)
    }

    async fn run_command(&self, request: &ExecRequest, mut session: Session) -> Result<u8, SessionError> {
        let mut stderr = session.stderr.take().expect("stderr");
        stderr.write_all(request.cmd.join(" ").as_bytes()).await?;
        match self.does {
            Does::Exit(code) => Ok(code),
            _ => Err("no agent".into()),
        }
    }

    async fn run(&self, id: &str, mut session: Session) -> Result<(), SessionError> {
        let _ending = Ending(self.events.clone());
        let mut stdout = session.stdout.take().expect("stdout");
        match self.does {
            Does::Echo => {
                let mut stdin = session.stdin.take().expect("stdin");
                let mut resize = session.resize.take().expect("resize");
                let echo = tokio::io::copy(&mut stdin, &mut stdout);
                let sizes = async {
                    while let Some(size) = resize.next().await {
                        self.events.send(Event::Size(size)).expect("test runs");
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    echoed = echo => drop(echoed?),
                    () = sizes => {}
                }
            }
            Does::Print(len) => stdout.write_all(&vec![b'x'; len]).await?,
            Does::PrintForever => {
                self.events.send(Event::Attached)?;
                loop {
                    stdout.write_all(&[b'x'; 1000]).await?;
                }
            }
            Does::Fail => return Err(format!("console of `{id}` is broken").into()),
            Does::Nothing | Does::Exit(_) => {
                self.events.send(Event::Attached)?;
                std::future::pending::<()>().await;
            }
            Does::ReadOnly => {
                self.events.send(Event::Attached)?;
                session.stdin.take().expect("stdin").read_to_end(&mut Vec::new()).await?;
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }
}

impl Backend for Fake {
    fn attach<'a>(&'a self, id: &'a str, session: Session) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(self.run(id, session))
    }

    fn exec<'a>(&'a self, request: &'a ExecRequest, session: Session) -> BoxFuture<'a, Result<u8, SessionError>> {
        Box::pin(self.run_command(request, session))
    }
}

fn config() -> Config {
    Config::at(([127, 0, 0, 1], 0).into())
}

fn terms() -> Terms {
    Terms::new(&config())
}

async fn server(backend: Arc<Fake>) -> Server {
    Server::bind(config(), backend).await.expect("bind")
}

fn request(stdin: bool, stderr: bool) -> AttachRequest {
    AttachRequest { container_id: "c1".into(), stdin, stdout: true, stderr, tty: true, stdin_once: false }
}

fn command(cmd: &[&str]) -> ExecRequest {
    let cmd = cmd.iter().map(|&word| word.to_owned()).collect();
    let otherwise = Otherwise::default();
    ExecRequest { container_id: "c1".into(), cmd, stdin: false, stdout: true, stderr: true, tty: false, otherwise }
}

async fn attach(server: &Server, request: AttachRequest) -> client::Session {
    let options = Options { stdin: request.stdin, stdout: request.stdout, stderr: request.stderr, tty: request.tty };
    let url = server.attach_url(request).expect("url");
    soon(client::attach(&url, options)).await.expect("attach")
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.expect("in time")
}

fn reply(id: u32) -> Frame {
    Frame::SynReply { id, fin: false, headers: Headers::new() }
}

fn data(id: u32, bytes: &[u8], fin: bool) -> Frame {
    Frame::Data { id, fin, payload: Bytes::copy_from_slice(bytes) }
}
