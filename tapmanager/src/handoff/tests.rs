//! A real socket, and processes that are admitted by what the test says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use proto::tap::{Client, ClientError, HandoffReply, Token, decode_reply, encode_reply, recv};
use tempfile::TempDir;

use super::*;

const DEADLINE: Duration = Duration::from_secs(20);
const LIMITS: Limits = Limits { places: 3, of_a_process: 2, patience: Duration::from_secs(20) };

/// Who comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    Friend,
    Stranger,
    /// One that finds a bug.
    Trouble,
    /// Whose answer takes its thread into another namespace.
    Machine,
}

/// Answers each packet with no NICs once the test lets it.
struct Toy {
    comes: Comes,
    begun: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl Handler for Toy {
    fn admit(&self, _: &Peer) -> Result<(), ErrorBody> {
        match self.comes {
            Comes::Friend | Comes::Machine => Ok(()),
            Comes::Stranger => Err(refusal(ErrorCode::Denied, "not you")),
            Comes::Trouble => panic!("as the test wants"),
        }
    }

    fn answer(&self, _: &[u8], _: usize) -> Served {
        if self.comes == Comes::Machine {
            unshare(CloneFlags::CLONE_NEWNET).expect("a namespace; the test needs root");
        }
        self.begun.lock().expect("lock").send(()).expect("the test waits");
        self.go_on.lock().expect("lock").recv_timeout(DEADLINE).expect("told to go on");
        let nothing = HandoffReply::Nics(proto::tap::Handoff { nics: vec![], iommufd: false });
        let bytes = encode_reply(Ok(&nothing), 0).expect("encodes");
        Served { answer: Answer { bytes, fds: vec![], last: true }, pod: None }
    }

    fn handed_off(&self, _: PodId, _: &Peer, _: usize) {}
}

struct House {
    dir: TempDir,
    server: Server,
    begun: Receiver<()>,
    go_on: Sender<()>,
}

impl House {
    fn new(comes: Comes, limits: Limits) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let listener = crate::rpc::bind(&dir.path().join("s")).expect("binds");
        let ((begin, begun), (go_on, wait)) = (channel(), channel());
        let toy = Toy { comes, begun: Mutex::new(begin), go_on: Mutex::new(wait) };
        let server = Server::start(listener, toy, limits).expect("starts");
        Self { dir, server, begun, go_on }
    }

    fn connect(&self) -> OwnedFd {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("socket");
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(20, 0)).expect("timeout");
        connect(socket.as_raw_fd(), &UnixAddr::new(&self.dir.path().join("s")).expect("address")).expect("connects");
        socket
    }

    fn begun(&self) {
        self.begun.recv_timeout(DEADLINE).expect("a request in time");
    }
}

fn why(socket: &OwnedFd) -> ErrorCode {
    let reply = recv(socket.as_fd()).expect("a refusal");
    decode_reply::<HandoffReply>(&reply.bytes, 0).expect("protocol").expect_err("refused").code
}

/// A process of its own with so many connections.
fn other_process(path: &Path, connections: usize) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("exe"))
        .args(["--ignored", "--exact", "--nocapture", "handoff::tests::holds_connections_in_a_process_of_its_own"])
        .env("HANDOFF_TEST", format!("{connections} {}", path.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let said = BufReader::new(child.stdout.take().expect("stdout"));
    (child, said)
}

/// The namespaces of threads that wait for peers, or serve one.
fn namespaces_of_threads() -> std::collections::BTreeSet<std::path::PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks").map(|task| task.expect("task").path());
    let name = |task: &Path| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    let ours = tasks.filter(|task| name(task).trim() == "handoff");
    // Some end while they are looked at.
    ours.filter_map(|task| std::fs::read_link(task.join("ns/net")).ok()).collect()
}

/// A thread that waits in a pod's namespace would keep it alive.
#[tokio::test(flavor = "multi_thread")]
async fn no_thread_waits_in_the_namespace_of_a_pod() {
    // A connection is counted until its thread ends, which is after the reply.
    let house = House::new(Comes::Machine, Limits { places: 4, of_a_process: 4, ..LIMITS });
    for _ in 0..4 {
        let socket = house.connect();
        send(socket.as_fd(), b"get", &[]).expect("asks");
        house.begun();
        house.go_on.send(()).expect("goes on");
        assert!(recv(socket.as_fd()).is_ok(), "no reply");
    }
    let own = std::fs::read_link("/proc/self/ns/net").expect("own namespace");
    let at_home = async {
        while namespaces_of_threads() != [own.clone()].into() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let at_home = tokio::time::timeout(DEADLINE, at_home).await;
    assert!(at_home.is_ok(), "threads in {:?}, and home is {own:?}", namespaces_of_threads());
    house.server.stop().await;
}

#[test]
#[ignore = "waits for its end; the tests around it run it"]
fn holds_connections_in_a_process_of_its_own() {
    let asked = std::env::var_os("HANDOFF_TEST").and_then(|asked| asked.into_string().ok()).expect("asked for");
    let (count, path) = asked.split_once(' ').expect("two words");
    let sockets: Vec<OwnedFd> = (0..count.parse().expect("a number"))
        .map(|_| {
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("socket");
            connect(socket.as_raw_fd(), &UnixAddr::new(path).expect("address")).expect("connects");
            socket
        })
        .collect();
    // Those that found no place have been told so; the others were accepted before.
    let last = sockets.last().expect("one at least");
    assert_eq!(why(last), ErrorCode::Unavailable);
    std::io::stdout().write_all(b"held\n").expect("told");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[tokio::test]
async fn a_process_that_takes_all_it_can_leaves_room_for_others() {
    let house = House::new(Comes::Friend, LIMITS);
    let path = house.dir.path().join("s");
    let (mut hog, said) = other_process(&path, 10);
    assert!(said.lines().map_while(Result::ok).any(|line| line.contains("held")), "the other process failed");
    house.go_on.send(()).expect("sent");
    let client = Client::new(&path, DEADLINE);
    let got = tokio::task::spawn_blocking(move || client.get(Token::from_random([1; 16]))).await.expect("no panic");
    assert!(got.expect("a place").1.is_empty());
    hog.kill().expect("killed");
    hog.wait().expect("reaped");
}

#[tokio::test]
async fn places_are_free_again_after_the_reply() {
    let house = House::new(Comes::Friend, LIMITS);
    let held = [house.connect(), house.connect()];
    let refused = house.connect();
    assert_eq!(why(&refused), ErrorCode::Unavailable);
    for socket in &held {
        send(socket.as_fd(), b"x", &[]).expect("sent");
        house.begun();
        house.go_on.send(()).expect("sent");
        recv(socket.as_fd()).expect("a reply");
        assert!(matches!(recv(socket.as_fd()), Err(WireError::Closed)), "one request for each connection");
        let next = house.connect();
        send(next.as_fd(), b"x", &[]).expect("sent");
        house.begun();
        house.go_on.send(()).expect("sent");
        recv(next.as_fd()).expect("a place and a reply");
        assert!(matches!(recv(next.as_fd()), Err(WireError::Closed)));
    }
    house.server.stop().await;
}

#[tokio::test]
async fn strangers_take_no_place_and_read_why() {
    let house = House::new(Comes::Stranger, LIMITS);
    let silent: Vec<OwnedFd> = (0..100).map(|_| house.connect()).collect();
    assert!(silent.iter().all(|socket| why(socket) == ErrorCode::Denied));
    let client = Client::new(house.dir.path().join("s"), DEADLINE);
    for _ in 0..100 {
        let refused = client.get(Token::from_random([1; 16])).expect_err("a stranger");
        assert!(matches!(&refused, ClientError::Refused(body) if body.code == ErrorCode::Denied), "{refused}");
    }
    house.server.stop().await;
}

#[tokio::test]
async fn who_sends_more_than_any_request_has_reads_why() {
    let house = House::new(Comes::Friend, LIMITS);
    let socket = house.connect();
    send(socket.as_fd(), &[b'x'; MOST + 1], &[]).expect("sent");
    assert_eq!(why(&socket), ErrorCode::BadRequest);
    house.server.stop().await;
}

#[tokio::test]
async fn who_takes_time_to_say_something_is_answered() {
    let house = House::new(Comes::Friend, LIMITS);
    let slow = house.connect();
    // One that came later and was quicker has been answered first.
    let quick = house.connect();
    for socket in [&quick, &slow] {
        send(socket.as_fd(), b"x", &[]).expect("sent");
        house.begun();
        house.go_on.send(()).expect("sent");
        recv(socket.as_fd()).expect("a reply");
    }
    house.server.stop().await;
}

#[tokio::test]
async fn who_says_nothing_is_closed() {
    let house = House::new(Comes::Friend, Limits { patience: Duration::from_millis(20), ..LIMITS });
    assert!(matches!(recv(house.connect().as_fd()), Err(WireError::Closed)));
    house.server.stop().await;
}

#[tokio::test]
async fn going_down_waits_for_replies_and_for_nobody_else() {
    let house = House::new(Comes::Friend, LIMITS);
    let (silent, busy) = (house.connect(), house.connect());
    send(busy.as_fd(), b"x", &[]).expect("sent");
    house.begun();
    let stopped = tokio::spawn(house.server.stop());
    // The one that waits for a request is closed while the other is still worked on.
    let closed = tokio::task::spawn_blocking(move || recv(silent.as_fd()));
    assert!(matches!(closed.await.expect("no panic"), Err(WireError::Closed)));
    assert!(!stopped.is_finished());
    house.go_on.send(()).expect("sent");
    recv(busy.as_fd()).expect("the reply");
    tokio::time::timeout(DEADLINE, stopped).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn a_server_that_a_bug_has_ended_says_so() {
    let house = House::new(Comes::Friend, LIMITS);
    let mut ended = Box::pin(house.server.ended());
    assert!(futures_util::poll!(&mut ended).is_pending());
    drop(ended);
    let house = House::new(Comes::Trouble, LIMITS);
    let _peers: Vec<_> = (0..WAITING).map(|_| house.connect()).collect();
    tokio::time::timeout(DEADLINE, house.server.ended()).await.expect("noticed");
}
