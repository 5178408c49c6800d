//! A real socket, and a tapmanager that does what the test says.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Chain;
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown as Both, SockFlag, SockType, UnixAddr, bind, listen, shutdown, socket,
};
use proto::tap::{Dns, PodPage, StatsPage, WireError, decode_request, encode_reply, recv, send};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

/// A tapmanager: answers `Status`, `List`, `Stats`, `Arm` and `Attach` at once, and `Detach` when a permit is there; or as it
/// is told.
pub(crate) struct Fake {
    path: PathBuf,
    facts: Arc<Facts>,
    listener: Arc<UnixListener>,
}

/// Says what is answered to a request, if it is not the usual.
type Told = Box<dyn Fn(&Request) -> Option<Reply> + Send + Sync>;

#[derive(Default)]
struct Facts {
    told: std::sync::OnceLock<Told>,
    /// By request.
    asked: Mutex<BTreeMap<&'static str, usize>>,
    connections: AtomicUsize,
    open: Mutex<Vec<Arc<UnixStream>>>,
    /// Requests that are worked on, and most at a time.
    busy: AtomicUsize,
    most_busy: AtomicUsize,
    finish: Mutex<usize>,
    finished: std::sync::Condvar,
}

impl Fake {
    fn start(dir: &TempDir) -> Self {
        let path = dir.path().join("control.sock");
        // Fails if nothing was there.
        let _ = std::fs::remove_file(&path);
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("socket");
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).expect("address")).expect("binds");
        listen(&listener, Backlog::new(64).expect("backlog")).expect("listens");
        let fake = Self { path, facts: Arc::default(), listener: Arc::new(UnixListener::from(listener)) };
        let (facts, listener) = (fake.facts.clone(), fake.listener.clone());
        std::thread::spawn(move || {
            while let Ok((line, _)) = listener.accept() {
                let line = Arc::new(line);
                facts.connections.fetch_add(1, Ordering::SeqCst);
                facts.open.lock().expect("lock").push(line.clone());
                let facts = facts.clone();
                std::thread::spawn(move || facts.talk(&line));
            }
        });
        fake
    }

    /// One at `path` that answers as it is told.
    pub(crate) fn told(dir: &TempDir, told: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let fake = Self::start(dir);
        assert!(fake.facts.told.set(Box::new(told)).is_ok(), "told once");
        fake
    }

    pub(crate) fn tap(&self) -> Tap {
        Tap::new(self.path.clone(), DEADLINE)
    }

    /// Lets so many more `Detach` end.
    fn let_finish(&self, more: usize) {
        *self.facts.finish.lock().expect("lock") += more;
        self.facts.finished.notify_all();
    }

    pub(crate) fn asked(&self, request: &str) -> usize {
        self.facts.asked.lock().expect("lock").get(request).copied().unwrap_or_default()
    }

    /// Hangs up on everybody, as a process that is killed.
    fn hang_up(&self) {
        for line in self.facts.open.lock().expect("lock").drain(..) {
            // Fails for a connection that the other side closed.
            let _ = line.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // Ends accept(2).
        let _ = shutdown(self.listener.as_raw_fd(), Both::Both);
        self.hang_up();
        self.let_finish(1 << 20);
    }
}

impl Facts {
    fn talk(&self, line: &UnixStream) {
        while let Ok(packet) = recv(line.as_fd()) {
            let request: Request = decode_request(&packet.bytes, 0).expect("a request");
            *self.asked.lock().expect("lock").entry(request.name()).or_default() += 1;
            let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_busy.fetch_max(busy, Ordering::SeqCst);
            let told = self.told.get().and_then(|told| told(&request));
            let reply = told.unwrap_or_else(|| self.usual(request));
            self.busy.fetch_sub(1, Ordering::SeqCst);
            let packet = encode_reply(Ok(&reply), 0).expect("encoded");
            match send(line.as_fd(), &packet, &[]) {
                Ok(()) => {}
                Err(WireError::Closed) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn usual(&self, request: Request) -> Reply {
        match request {
            Request::Status => Reply::Status(status()),
            Request::List(_) => Reply::Pods(PodPage { pods: Vec::new(), more: false }),
            Request::Stats(_) => Reply::Stats(StatsPage { pods: Vec::new(), more: false }),
            Request::Attach(_) => {
                Reply::Attached(PodNet { netns: "/run/netns/x".into(), nics: Vec::new(), dns: Dns::default() })
            }
            Request::Arm(_) => Reply::Armed { token: Token::from_random([7; 16]), hostdevs: Vec::new() },
            Request::Detach { .. } => {
                let mut finish = self.finish.lock().expect("lock");
                while *finish == 0 {
                    finish = self.finished.wait(finish).expect("lock");
                }
                *finish -= 1;
                Reply::Detached
            }
            other => panic!("not for this server: {other:?}"),
        }
    }
}

fn status() -> ServerStatus {
    ServerStatus {
        server: "fake".into(),
        ready: true,
        reason: String::new(),
        pods: 0,
        recovering: 0,
        tokens_refused: 0,
        plugin_micros: 0,
    }
}

fn pod(n: usize) -> PodId {
    format!("pod-{n}").parse().expect("pod id")
}

pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let waited = timeout(DEADLINE, async {
        while !so() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_elapsed| panic!("{what}: not in time"));
}

#[tokio::test]
async fn many_at_once_queue_here_and_other_sorts_do_not_wait_for_them() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fake = Fake::start(&dir);
    let tap = fake.tap();
    let many = ENDS + 44;
    let calls: Vec<_> = (0..many)
        .map(|n| {
            let tap = tap.clone();
            tokio::spawn(async move { tap.detach(pod(n)).await })
        })
        .collect();
    until("as many as there are places", || fake.asked("detach") == ENDS).await;
    let others = async {
        tap.attach(Attach::new(pod(1000))).await.expect("a network of another pod");
        tap.arm(pod(1001), QemuUser { uid: 64055, gid: 993 }, None).await.expect("a machine starts");
        assert!(tap.stats(None).await.expect("counters").is_empty());
        assert!(tap.pods(None).await.expect("a list").is_empty());
    };
    timeout(DEADLINE, others).await.expect("not behind those that hang");
    assert_eq!(fake.asked("detach"), ENDS, "more than its places");
    fake.let_finish(many);
    for call in calls {
        call.await.expect("no panic").expect("none is refused");
    }
    assert!(fake.facts.most_busy.load(Ordering::SeqCst) <= ENDS + 1);
    assert!(fake.facts.connections.load(Ordering::SeqCst) <= ENDS + 4, "connections are kept");
}

#[tokio::test]
async fn a_kept_connection_that_went_stale_is_dialled_anew() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fake = Fake::start(&dir);
    let tap = fake.tap();
    tap.pods(None).await.expect("first");
    tap.pods(None).await.expect("over the same connection");
    assert_eq!(fake.facts.connections.load(Ordering::SeqCst), 1);
    fake.hang_up();
    tap.pods(None).await.expect("over a new connection");
    assert_eq!((fake.facts.connections.load(Ordering::SeqCst), fake.asked("list")), (2, 3));
}

#[tokio::test]
async fn an_arm_says_who_qemu_is_and_is_one_request() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fake = Fake::start(&dir);
    fake.tap().arm(pod(1), QemuUser { uid: 64055, gid: 993 }, None).await.expect("armed");
    let asked = fake.facts.asked.lock().expect("lock").clone();
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), [("arm", 1)]);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up_and_its_connection_with_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let fake = Fake::start(&dir);
    let tap = Tap::new(fake.path.clone(), Duration::from_secs(1));
    let error = tap.detach(pod(1)).await.expect_err("nobody lets it finish");
    assert_eq!(error.kind(), Kind::Deadline);
    let said = Chain(&error).to_string();
    assert!(said.contains("to `detach` within 1 s"), "{said}");
    // The late answer is nobody's.
    fake.let_finish(2);
    tap.detach(pod(2)).await.expect("asked over another connection");
}

#[tokio::test]
async fn the_end_of_tapmanager_is_known_without_asking_and_its_return_is_a_new_connection() {
    let dir = tempfile::tempdir().expect("tempdir");
    let tap = Tap::new(dir.path().join("control.sock"), DEADLINE);
    let watching = tokio::spawn(tap.clone().keep_watch());
    assert!(matches!(tap.state().await, State::Down(_)), "nobody is there yet");

    let fake = Fake::start(&dir);
    let first = timeout(DEADLINE, tap.connected(0)).await.expect("in time");
    let State::Up(said) = tap.state().await else { panic!("it is up") };
    assert_eq!(said, status());
    // Known already: nothing is asked for it.
    let asked = fake.asked("status");
    for _ in 0..100 {
        tap.state().await;
    }
    assert!(fake.asked("status") <= asked + 1);

    drop(fake);
    let refused = tap.pods(None).await.expect_err("nobody is there");
    assert_eq!(refused.kind(), Kind::Unavailable);
    assert!(matches!(tap.state().await, State::Up(_)), "it is about to return");
    let _fake = Fake::start(&dir);
    let second = timeout(DEADLINE, tap.connected(first)).await.expect("in time");
    assert_ne!(first, second);
    watching.abort();
}
