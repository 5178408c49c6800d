//! Real sockets, toy edges.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use proto::tap::{Client, MAX_MESSAGE, Request, decode_reply};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;

const LIMITS: Limits = Limits { connections: 3, idle: Duration::from_secs(20), send: Duration::from_secs(20) };
const DEADLINE: Duration = Duration::from_secs(20);

/// Answers any packet with its length and count; the word `hold` when a permit is there.
struct Echo {
    admits: Result<(), ErrorBody>,
    hold: Semaphore,
    answered: AtomicUsize,
}

impl Handler for Echo {
    const NAME: &'static str = "echo";

    fn admit(&self, _: &Peer) -> Result<(), ErrorBody> {
        self.admits.clone()
    }

    async fn answer(&self, bytes: &[u8], fds: usize) -> Answer {
        if bytes == b"hold" {
            self.hold.acquire().await.expect("open").forget();
        }
        self.answered.fetch_add(1, Ordering::SeqCst);
        Answer { bytes: format!("{} {fds}", bytes.len()).into_bytes(), fds: vec![], last: bytes == b"last" }
    }
}

struct House {
    dir: TempDir,
    handler: Arc<Echo>,
    shutdown: CancellationToken,
    server: JoinHandle<()>,
}

impl House {
    fn new(admits: Result<(), ErrorBody>, limits: Limits) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let listener = listen(&dir.path().join("s")).expect("binds");
        let handler = Arc::new(Echo { admits, hold: Semaphore::new(0), answered: AtomicUsize::new(0) });
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(serve(listener, Arc::clone(&handler), limits, shutdown.clone()));
        Self { dir, handler, shutdown, server }
    }

    fn connect(&self) -> Raw {
        Raw::connect(&self.dir.path().join("s"))
    }
}

/// A peer that sends what it likes.
struct Raw(Ready);

impl Raw {
    fn connect(path: &Path) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("socket");
        connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &UnixAddr::new(path).expect("address")).expect("connects");
        Self(Ready::register(socket).expect("registers"))
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), WireError> {
        self.send_with(bytes, &[]).await
    }

    async fn send_with(&self, bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) -> Result<(), WireError> {
        self.0.write(|fd| Ok(send(fd, bytes, fds))).await.expect("ready")
    }

    async fn recv(&self) -> Result<Vec<u8>, WireError> {
        let received = self.0.read(|fd| match recv(fd) {
            Err(WireError::Os(Errno::EAGAIN)) => Err(io::ErrorKind::WouldBlock.into()),
            other => Ok(other),
        });
        let packet = timeout(DEADLINE, received).await.expect("in time").expect("ready")?;
        Ok(packet.bytes)
    }

    async fn ask(&self, bytes: &[u8]) -> Result<String, WireError> {
        self.send(bytes).await?;
        Ok(String::from_utf8(self.recv().await?).expect("text"))
    }
}

fn denied() -> ErrorBody {
    refusal(ErrorCode::Denied, "not you")
}

#[tokio::test]
async fn requests_of_one_connection_are_answered_one_after_the_other() {
    let house = House::new(Ok(()), LIMITS);
    let peer = house.connect();
    for text in ["a", "bb", "ccc"] {
        assert_eq!(peer.ask(text.as_bytes()).await.expect("answer"), format!("{} 0", text.len()));
    }
    assert_eq!(peer.ask(b"last").await.expect("answer"), "4 0");
    assert!(matches!(peer.recv().await, Err(WireError::Closed)));
}

#[tokio::test]
async fn descriptors_of_a_request_are_counted_and_closed() {
    let house = House::new(Ok(()), LIMITS);
    let peer = house.connect();
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("pipe");
    peer.send_with(b"x", &[writer.as_fd()]).await.expect("sent");
    assert_eq!(peer.recv().await.expect("answer"), b"1 1");
    drop(writer);
    // The end of the pipe is seen, so nobody holds its other side.
    let mut byte = [0];
    assert_eq!(nix::unistd::read(&reader, &mut byte), Ok(0));
}

#[tokio::test]
async fn an_over_long_packet_is_refused_and_ends_the_connection() {
    let house = House::new(Ok(()), LIMITS);
    let peer = house.connect();
    // Only a privileged sender can raise its buffer that far; the kernel refuses the others itself.
    nix::sys::socket::setsockopt(&peer.0.as_fd(), nix::sys::socket::sockopt::SndBufForce, &(8 << 20)).expect("as root");
    peer.send(&vec![b'x'; MAX_MESSAGE + 1]).await.expect("sent");
    let reply = peer.recv().await.expect("refusal");
    let error = decode_reply::<()>(&reply, 0).expect("protocol").expect_err("refusal");
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(matches!(peer.recv().await, Err(WireError::Closed)));
    assert_eq!(house.handler.answered.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn one_connection_too_many_waits_until_another_ends() {
    let house = House::new(Ok(()), LIMITS);
    let mut held: Vec<Raw> = (0..LIMITS.connections).map(|_| house.connect()).collect();
    for peer in &held {
        peer.ask(b"x").await.expect("accepted");
    }
    let waiting = house.connect();
    waiting.send(b"xy").await.expect("sent");
    // The others go on, and this one is not accepted meanwhile.
    for peer in &held {
        peer.ask(b"x").await.expect("answer");
    }
    assert_eq!(house.handler.answered.load(Ordering::SeqCst), 2 * LIMITS.connections);
    drop(held.pop());
    assert_eq!(waiting.recv().await.expect("its turn"), b"2 0");
}

#[tokio::test]
async fn a_refused_peer_reads_why_whenever_it_speaks_and_holds_no_place() {
    let house = House::new(Err(denied()), LIMITS);
    // More of them than there are places; they say nothing, and stay.
    let silent: Vec<Raw> = (0..3 * LIMITS.connections).map(|_| house.connect()).collect();
    for peer in &silent {
        let reply = peer.recv().await.expect("refusal");
        assert_eq!(decode_reply::<()>(&reply, 0).expect("protocol"), Err(denied()));
    }
    // The client of the protocol speaks first, before or after it was hung up on.
    let path = house.dir.path().join("s");
    let ask = move || (0..100).map(|_| Client::new(&path, DEADLINE).call(&Request::Status)).collect::<Vec<_>>();
    for answer in tokio::task::spawn_blocking(ask).await.expect("no panic") {
        assert!(matches!(&answer, Err(proto::tap::ClientError::Refused(body)) if *body == denied()), "{answer:?}");
    }
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_cut_off() {
    let house = House::new(Ok(()), Limits { idle: Duration::from_millis(30), ..LIMITS });
    let peer = house.connect();
    assert!(matches!(peer.recv().await, Err(WireError::Closed)));
}

#[tokio::test]
async fn a_peer_that_takes_no_replies_is_cut_off() {
    let house = House::new(Ok(()), Limits { send: Duration::from_millis(30), ..LIMITS });
    let peer = house.connect();
    // The server's replies fill its buffer; then it stops reading, and closes.
    let goes_on = |sent| matches!(sent, Ok(()) | Err(WireError::Os(Errno::EAGAIN)));
    while goes_on(timeout(DEADLINE, peer.send(b"x")).await.expect("in time")) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn going_down_waits_for_answers_and_for_nobody_else() {
    let house = House::new(Ok(()), LIMITS);
    let idle = house.connect();
    idle.ask(b"x").await.expect("answer");
    let busy = house.connect();
    busy.send(b"hold").await.expect("sent");
    // The request is being worked on once the other peer, behind it, was answered.
    let behind = house.connect();
    behind.ask(b"x").await.expect("answer");
    house.shutdown.cancel();
    assert!(matches!(idle.recv().await, Err(WireError::Closed)));
    assert!(!house.server.is_finished());
    house.handler.hold.add_permits(1);
    assert_eq!(busy.recv().await.expect("answer"), b"4 0");
    timeout(DEADLINE, house.server).await.expect("in time").expect("no panic");
    assert!(matches!(busy.recv().await, Err(WireError::Closed)));
}

fn mode(path: &Path) -> (u32, u32, u32) {
    let metadata = std::fs::metadata(path).expect("there");
    (metadata.permissions().mode() & 0o7777, metadata.uid(), metadata.gid())
}

#[tokio::test]
async fn sockets_are_private_from_birth_and_replace_stale_ones() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path: PathBuf = dir.path().join("s");
    let first = bind(&path).expect("binds");
    assert_eq!(mode(&path), (0o600, 0, 0));
    open_to_group(&path, 993).expect("opened");
    assert_eq!(mode(&path), (0o660, 0, 993));
    drop(first);
    assert!(path.exists(), "a dead daemon's socket stays");
    let _second = bind(&path).expect("binds again");
    assert_eq!(mode(&path), (0o600, 0, 0));
    Raw::connect(&path);
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_not_replaced() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("s");
    std::fs::write(&path, "precious").expect("write");
    assert!(matches!(bind(&path), Err(SocketError::NoSocket { .. })));
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "precious");
    assert!(matches!(bind(&dir.path().join("none/s")), Err(SocketError::Step { .. })));
}

#[tokio::test]
async fn the_executable_is_told_by_the_file_and_not_by_its_name() {
    let dir = tempfile::tempdir().expect("tempdir");
    let me = |pid| Peer { uid: 0, pid, pidfd: None };
    let mine_is = i32::try_from(std::process::id()).ok();
    let mine = std::env::current_exe().expect("exe");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&mine, &link).expect("link");
    let copy = dir.path().join("copy");
    std::fs::copy(&mine, &copy).expect("copy");
    assert!(Executable::new(&mine).check(&me(mine_is)).is_ok());
    assert!(Executable::new(&link).check(&me(mine_is)).is_ok());
    let refusals = [
        Executable::new(&copy).check(&me(mine_is)).expect_err("another file").to_string(),
        Executable::new(&dir.path().join("none")).check(&me(mine_is)).expect_err("missing").to_string(),
        Executable::new(&mine).check(&me(None)).expect_err("unseen").to_string(),
        Executable::new(&mine).check(&me(Some(1))).expect_err("init").to_string(),
    ];
    assert!(refusals[0].contains("does not run"), "{refusals:?}");
    assert!(refusals[1].contains("none"), "{refusals:?}");
    assert!(refusals[2].contains("not visible"), "{refusals:?}");
}

#[test]
fn a_peer_that_has_ended_is_not_taken_for_who_has_its_number_now() {
    let mine = Executable::new(&std::env::current_exe().expect("exe"));
    let (ours, theirs) =
        nix::sys::socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .expect("pair");
    mine.check(&Peer::of(&ours).expect("peer")).expect("both ends are ours");
    drop(theirs);
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    let pidfd = pidfd_of(other.id());
    other.kill().expect("killed");
    other.wait().expect("reaped");
    let reused = Peer { uid: 0, pid: i32::try_from(std::process::id()).ok(), pidfd: Some(pidfd) };
    assert_eq!(mine.check(&reused).expect_err("ended").to_string(), "the peer has ended");
}

#[expect(unsafe_code, reason = "the call has no safe form")]
fn pidfd_of(pid: u32) -> OwnedFd {
    use std::os::fd::FromRawFd as _;
    // SAFETY: takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).expect("pidfd");
    // SAFETY: the kernel has just given this descriptor to nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
