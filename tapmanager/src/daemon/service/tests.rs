//! Both edges on a fake world, without sockets.

use std::sync::Arc;
use std::time::Duration;

use common::logged::Lines;
use proto::tap::{
    Arm, Attach, CollectReport, HandoffRequest, List, MAX_MESSAGE, PodPhase, VfClaim, VfPage, VfRequest, decode_reply,
    encode_request,
};
use sriov::Sysfs;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::super::collect;
use super::super::sockets::{Control, HandOff, MAX_LASTING};
use super::*;
use crate::cni::{Leftover, Writer};
use crate::faults::Faults;
use crate::handoff::{Handler as _, Served};
use crate::journal::Journal;
use crate::pod::Operations;
use crate::pod::tests::fake::Fake;
use crate::pod::tests::{names, settings};
use crate::rpc::Handler as _;
use crate::vf::ClaimNotes;

/// For what needs no plugin.
const SOON: Duration = Duration::from_secs(10);
const QEMU: QemuUser = QemuUser { uid: 64055, gid: 993 };

struct House {
    _dir: TempDir,
    world: Arc<Fake>,
    control: Control<Arc<Fake>>,
    handoff: HandOff<Arc<Fake>>,
    config: Config,
}

impl House {
    fn new() -> Self {
        Self::of(Fake::default())
    }

    /// ADD waits.
    fn gated() -> Self {
        Self::of(Fake::gated())
    }

    fn of(world: Fake) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let config = Config {
            state_dir: dir.path().into(),
            run_dir: dir.path().into(),
            vmwrapper: std::env::current_exe().expect("exe"),
            arm_ttl: Duration::from_secs(60),
            ..Config::default()
        };
        std::fs::write(config.handoff_socket(), "").expect("stands for the socket");
        let world = Arc::new(world);
        let journal = Journal::open(dir.path()).expect("journal");
        let place = (names(), "boot".to_owned());
        let operations = Operations::new(Arc::clone(&world), journal, place, settings(), Arc::new(Faults::none()));
        let sysfs = Sysfs::new(&dir.path().join("sys"), &dir.path().join("dev"));
        let notes = ClaimNotes::open(dir.path()).expect("notes");
        let claims = Claims::load(sysfs, notes, "boot".to_owned(), Arc::new(Faults::none())).expect("claims");
        let service = Service::new(Pods::new(operations), claims, QemuAccess::load(&config), &config);
        let service = service.expect("service");
        let service = Arc::new(service);
        let (control, handoff) = (Control::new(Arc::clone(&service)), HandOff(service));
        Self { _dir: dir, world, control, handoff, config }
    }

    async fn ask(&self, request: Request) -> Result<Reply, ErrorBody> {
        let answer = self.control.answer(&encode_request(&request).expect("encodes"), 0).await;
        assert!(!answer.last && answer.fds.is_empty());
        decode_reply(&answer.bytes, 0).expect("protocol")
    }

    fn get(&self, token: Token) -> Result<(HandoffReply, usize), ErrorBody> {
        self.get_by(&me(QEMU.uid), token)
    }

    fn get_by(&self, peer: &Peer, token: Token) -> Result<(HandoffReply, usize), ErrorBody> {
        let request = encode_request(&HandoffRequest::Get { token }).expect("encodes");
        let Served { answer, pod } = self.handoff.answer(&request, 0);
        let fds = answer.fds.len();
        if let Some(pod) = pod {
            self.handoff.handed_off(pod, peer, fds);
        }
        decode_reply(&answer.bytes, fds).expect("protocol").map(|reply| (reply, fds))
    }

    async fn attach(&self) {
        self.ask(Request::Attach(request())).await.expect("attached");
    }

    async fn arm(&self) -> Token {
        match self.ask(Request::Arm(Arm { pod: pod(), qemu: None, iommufd: None })).await.expect("armed") {
            Reply::Armed { token, hostdevs: _ } => token,
            other => panic!("{other:?}"),
        }
    }

    async fn machine(&self) -> Option<ProcessId> {
        match self.ask(Request::Machine { pod: pod() }).await.expect("told") {
            Reply::Machine(process) => process,
            other => panic!("{other:?}"),
        }
    }

    async fn status(&self) -> ServerStatus {
        match self.ask(Request::Status).await.expect("status") {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }
}

fn pod() -> PodId {
    "p1".parse().expect("pod id")
}

fn request() -> Attach {
    Attach { namespace: "default".into(), name: "vm".into(), hostname: "vm".into(), ..Attach::new(pod()) }
}

fn me(uid: u32) -> Peer {
    Peer { uid, pid: i32::try_from(std::process::id()).ok(), pidfd: None }
}

#[tokio::test]
async fn a_token_buys_descriptors_once() {
    let house = House::new();
    house.attach().await;
    let token = house.arm().await;
    let (HandoffReply::Nics(handoff), fds) = house.get(token.clone()).expect("descriptors");
    assert_eq!((handoff.nics.len(), fds), (1, 1));
    assert_eq!(house.get(token).expect_err("used").code, ErrorCode::Denied);
    assert_eq!(house.status().await.tokens_refused, 1);
}

#[tokio::test]
async fn who_took_the_descriptors_is_told_until_the_pod_is_detached() {
    let house = House::new();
    house.attach().await;
    assert_eq!(house.machine().await, None, "nobody has come");
    house.get(house.arm().await).expect("descriptors");
    let stat = procfs::process::Process::myself().and_then(|process| process.stat()).expect("own figures");
    assert_eq!(house.machine().await, Some(ProcessId { pid: stat.pid, started: stat.starttime }));
    let gone = Peer { pid: None, ..me(QEMU.uid) };
    house.get_by(&gone, house.arm().await).expect("descriptors");
    assert_eq!(house.machine().await, None, "nor is one that cannot be seen");
    house.get(house.arm().await).expect("descriptors");
    house.ask(Request::Detach { pod: pod() }).await.expect("detached");
    assert_eq!(house.machine().await, None, "its machine is gone");
}

#[tokio::test]
async fn a_token_is_spent_even_if_the_taps_do_not_open() {
    let house = House::new();
    house.attach().await;
    let token = house.arm().await;
    house.world.fail("open_taps", &[]);
    let error = house.get(token.clone()).expect_err("fails");
    assert_eq!(error.message, "failed to open the NICs of pod `p1`: open_taps fails as the test wants");
    assert_eq!(house.get(token).expect_err("used").code, ErrorCode::Denied);
    house.get(house.arm().await).expect("armed anew");
}

#[tokio::test]
async fn a_line_of_the_log_names_the_pod_of_its_request() {
    let (lines, _logs) = Lines::of_this_thread();
    let house = House::new();
    house.attach().await;
    let token = house.arm().await;
    lines.assert_line(r#" request{request="arm" namespace="default" name="vm" pod="p1"}: "#, "armed");
    house.world.fail("open_taps", &[]);
    house.get(token).expect_err("fails");
    lines.assert_line(r#" pod{namespace="default" name="vm" pod="p1"}: "#, "hand-off failed");
}

#[tokio::test]
async fn only_attached_pods_are_armed_and_a_detach_voids_the_token() {
    let house = House::new();
    let error = house.ask(Request::Arm(Arm { pod: pod(), qemu: None, iommufd: None })).await.expect_err("unknown");
    assert_eq!(error.code, ErrorCode::NotFound);
    house.attach().await;
    let token = house.arm().await;
    assert_eq!(house.ask(Request::Detach { pod: pod() }).await, Ok(Reply::Detached));
    assert_eq!(house.get(token).expect_err("void").code, ErrorCode::Denied);
}

#[tokio::test]
async fn a_detach_that_fails_leaves_a_pod_that_cannot_be_armed() {
    let house = House::new();
    house.attach().await;
    house.world.fail("del", &[(0, false)]);
    assert_eq!(house.ask(Request::Detach { pod: pod() }).await.expect_err("fails").code, ErrorCode::Internal);
    let error = house.ask(Request::Arm(Arm { pod: pod(), qemu: None, iommufd: None })).await.expect_err("detaching");
    assert_eq!((error.code, &*error.message), (ErrorCode::Conflict, "pod `p1` is being detached; attach it first"));
    let Ok(Reply::Pods(page)) = house.ask(Request::List(List::default())).await else { panic!("no list") };
    assert_eq!(page.pods[0].phase, PodPhase::Detaching);
}

#[tokio::test]
async fn only_root_controls() {
    let house = House::new();
    assert_eq!(house.control.admit(&me(0)), Ok(()));
    assert_eq!(house.control.admit(&me(QEMU.uid)).expect_err("refused").code, ErrorCode::Denied);
}

#[tokio::test]
async fn only_vmwrapper_as_qemus_user_fetches_and_strangers_spend_no_token() {
    let mut house = House::new();
    let refused = house.handoff.admit(&me(QEMU.uid)).expect_err("nobody known yet");
    assert!(refused.message.contains("not known yet"), "{refused}");
    let hello = Hello { client: "controld\n0.1".into(), qemu: Some(QEMU) };
    house.ask(Request::Hello(hello)).await.expect("hello");
    house.attach().await;
    let token = house.arm().await;
    assert_eq!(house.handoff.admit(&me(0)).expect_err("root is not QEMU").code, ErrorCode::Denied);
    assert!(house.handoff.admit(&Peer { uid: QEMU.uid, pid: None, pidfd: None }).is_err());
    let other = Peer { uid: QEMU.uid, pid: Some(1), pidfd: None };
    assert!(house.handoff.admit(&other).is_err(), "another executable");
    assert_eq!(house.handoff.admit(&me(QEMU.uid)), Ok(()));
    assert_eq!(house.status().await.tokens_refused, 4);
    house.get(token).expect("the token is still good");
    house.config.vmwrapper = "/nonexistent".into();
}

#[tokio::test]
async fn status_says_why_pods_cannot_be_served() {
    let house = House::new();
    house.attach().await;
    let status = house.status().await;
    assert_eq!((status.ready, &*status.reason, status.pods, status.plugin_micros), (true, "", 1, 7));
    assert!(status.server.starts_with("tapmanager "));
    house.world.state().failed_adds = vec!["the last ADD failed".to_owned()];
    let status = house.status().await;
    assert_eq!((status.ready, &*status.reason), (true, "the last ADD failed"), "STATUS cannot know");
    house.world.fail("ready", &[]);
    let status = house.status().await;
    assert_eq!((status.ready, &*status.reason), (false, "ready fails as the test wants; the last ADD failed"));
}

#[tokio::test]
async fn status_tells_of_a_record_that_is_not_understood_until_it_is_forgotten() {
    let house = House::new();
    for pod in ["p1", "p2"] {
        std::fs::write(house.config.state_dir.join(format!("pods/{pod}.json")), "junk").expect("written");
    }
    let journal = Journal::open(&house.config.state_dir).expect("journal");
    house.handoff.0.pods().take_over(journal.load().expect("loaded"));
    let told = house.status().await;
    assert!(told.ready && told.reason.contains("/pods/p1.json` is not understood"), "{}", told.reason);
    assert!(told.reason.ends_with(" (and 1 more)"), "{}", told.reason);
    house.ask(Request::Forget(Forget::Pod(pod()))).await.expect("forgotten");
    let told = house.status().await.reason;
    assert!(told.contains("/pods/p2.json` is not understood") && !told.contains("more"), "{told}");
    house.ask(Request::Forget(Forget::Pod("p2".parse().expect("pod id")))).await.expect("forgotten");
    assert_eq!(house.status().await.reason, "");
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_ends_the_connection() {
    let house = House::new();
    let long = vec![b' '; MAX_MESSAGE + 1];
    let bad: [(&[u8], usize, ErrorCode); 9] = [
        (b"", 0, ErrorCode::BadRequest),
        (b"junk", 0, ErrorCode::BadRequest),
        (b"{\"v\":3,\"body\":\"status\"", 0, ErrorCode::BadRequest),
        (b"{\"v\":3,\"body\":\"unheard_of\"}", 0, ErrorCode::BadRequest),
        (b"{\"v\":3,\"body\":{\"arm\":{\"pod\":\"../x\"}}}", 0, ErrorCode::BadRequest),
        (b"{\"v\":3,\"body\":{\"arm\":{\"pod\":\"p1\",\"x\":1}}}", 0, ErrorCode::BadRequest),
        (b"{\"v\":1,\"body\":\"status\"}", 0, ErrorCode::Version),
        (b"{\"v\":3,\"body\":\"status\"}", 1, ErrorCode::BadRequest),
        (&long, 0, ErrorCode::BadRequest),
    ];
    for (bytes, fds, code) in bad {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        for answer in [house.control.answer(bytes, fds).await, house.handoff.answer(bytes, fds).answer] {
            assert!(answer.last, "{text}");
            let error = decode_reply::<()>(&answer.bytes, 0).expect("protocol").expect_err("refusal");
            assert_eq!(error.code, code, "{text}");
        }
    }
    // Requests of the one socket mean nothing on the other.
    let get = encode_request(&HandoffRequest::Get { token: Token::from_random([1; 16]) }).expect("encodes");
    assert!(house.control.answer(&get, 0).await.last);
    assert!(house.handoff.answer(&encode_request(&Request::Status).expect("encodes"), 0).answer.last);
}

#[tokio::test]
async fn pods_that_wait_leave_room_for_what_the_node_is_judged_by() {
    let house = House::gated();
    let pods = (0..MAX_LASTING).map(|n| Attach { pod: format!("p{n}").parse().expect("pod id"), ..request() });
    let waiting: Vec<_> = pods.map(|attach| Box::pin(house.ask(Request::Attach(attach)))).collect();
    let mut waiting = futures_util::future::join_all(waiting);
    // Each has been begun once it was polled.
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let one_more = house.ask(Request::Detach { pod: pod() }).await.expect_err("no room");
    assert_eq!(one_more.code, ErrorCode::Unavailable);
    assert!(house.status().await.ready);
    house.ask(Request::List(List::default())).await.expect("a quick one");
    house.world.open_gate_for(MAX_LASTING);
    assert!(waiting.await.iter().all(Result::is_ok));
    house.ask(Request::Detach { pod: pod() }).await.expect("room again");
}

#[tokio::test]
async fn a_collection_that_hangs_does_not_hold_the_daemons_end_up() {
    let house = House::new();
    let pod: PodId = "stray".parse().expect("pod id");
    let netns = "/run/netns/virtlet-0123abcd-stray".into();
    let ifname = "eth0".parse().expect("name");
    house.world.state().hanging.insert("del stray".to_owned());
    house.world.state().leftovers = vec![Leftover { network: "net".into(), pod, ifname, netns, writer: Writer::Here }];
    let going_down = CancellationToken::new();
    let collecting = tokio::spawn(collect(house.handoff.0, Duration::ZERO, going_down.clone()));
    let hangs = async {
        while !house.world.state().log.iter().any(|line| line == "hangs del stray") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, hangs).await.expect("it hangs");
    going_down.cancel();
    tokio::time::timeout(SOON, collecting).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn a_node_without_virtual_functions_says_so() {
    let house = House::new();
    std::fs::create_dir_all(house.config.state_dir.join("sys/bus/pci/devices")).expect("made");
    let ask = |request| house.ask(Request::Vf(request));
    let vf = "0000:3b:02.1".parse().expect("address");
    let page = ask(VfRequest::List { after: None }).await.expect("listed");
    assert_eq!(page, Reply::Vfs(VfPage::default()));
    let error = ask(VfRequest::Explain { vf }).await.expect_err("none");
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::BadRequest, "no PCI device `0000:3b:02.1` on this node")
    );
    let nothing = Reply::Collected(CollectReport { removed: Vec::new(), kept: Vec::new() });
    assert_eq!(ask(VfRequest::Release { vf, force: false }).await.expect("fine"), nothing);
    assert_eq!(ask(VfRequest::Repair).await.expect("fine"), nothing);
}

#[tokio::test]
async fn a_claim_by_hand_is_checked_before_anything_is_done() {
    let house = House::new();
    let claim = |by: &str, vlan| VfClaim {
        vf: "0000:3b:02.1".parse().expect("address"),
        by: by.to_owned(),
        vlan: Some(vlan),
        mac: None,
        vlan_qos: None,
        spoofchk: None,
        trust: None,
        link_state: None,
        max_tx_rate: None,
    };
    for (claim, why) in [
        (claim("me", 4095), "VLAN id is 4095, the highest is 4094"),
        (claim("a:b", 1), "`a:b` is no name for who claims"),
        (claim("me", 1), "no PCI device `0000:3b:02.1`"),
    ] {
        let error = house.ask(Request::Vf(VfRequest::Claim(claim))).await.expect_err("refused");
        assert_eq!(error.code, ErrorCode::BadRequest);
        assert!(error.message.starts_with(why), "{}", error.message);
    }
}
