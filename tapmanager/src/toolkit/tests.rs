//! Tools against a daemon that is a thread with answers, and the command line alone.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use clap::Parser;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use proto::tap::{
    CheckReport, DataPath, Dns, ErrorBody, ErrorCode, Nic, NicKind, PodDetail, PodId, PodNet, PodPage, PodPhase,
    PodSummary, Reply, Request, Route, ServerStatus, Tap, decode_request, encode_reply, recv, send,
};

use super::cli::Tool;
use super::cnitool::Variables;
use super::{ToolError, Verdict, run_by};

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    tool: Tool,
}

/// Answers in order; what it was asked is joined from it.
pub(super) struct FakeDaemon {
    dir: tempfile::TempDir,
    asked: JoinHandle<Vec<Request>>,
}

impl FakeDaemon {
    pub(super) fn with(answers: Vec<Result<Reply, ErrorBody>>) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("socket");
        let address = UnixAddr::new(&dir.path().join("control.sock")).expect("path");
        bind(listener.as_raw_fd(), &address).expect("bind");
        listen(&listener, Backlog::new(8).expect("backlog")).expect("listen");
        let config = format!("run_dir = '{}'\n", dir.path().display());
        std::fs::write(dir.path().join("tapmanager.toml"), config).expect("config");
        // The type is of streams, accept(2) is the same.
        let listener = UnixListener::from(listener);
        let asked = thread::spawn(move || answers.iter().map(|answer| answer_one(&listener, answer)).collect());
        Self { dir, asked }
    }

    /// What `words` print, and how that ends, in JSON and as text.
    pub(super) fn run(&self, words: &[&str], output: &str) -> (String, Result<Verdict, ToolError>) {
        let config = self.dir.path().join("tapmanager.toml").display().to_string();
        let words = ["tapmanager"].iter().chain(words).copied().chain(["--output", output, "--config", &config]);
        let mut out = Vec::new();
        let done = run_by(&Variables::default(), parse(words).expect("parses"), &mut out);
        (String::from_utf8(out).expect("text"), done)
    }

    pub(super) fn asked(self) -> Vec<Request> {
        self.asked.join().expect("answers")
    }
}

fn answer_one(listener: &UnixListener, answer: &Result<Reply, ErrorBody>) -> Request {
    let (peer, _) = listener.accept().expect("accept");
    let packet = recv(peer.as_fd()).expect("request");
    let request = decode_request(&packet.bytes, 0).expect("request");
    let reply = encode_reply(answer.as_ref().map_err(Clone::clone), 0).expect("reply");
    send(peer.as_fd(), &reply, &[]).expect("send");
    request
}

fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Tool, clap::Error> {
    Line::try_parse_from(words).map(|line| line.tool)
}

pub(super) fn pod() -> PodId {
    "demo".parse().expect("id")
}

pub(super) fn net() -> PodNet {
    let nic = Nic {
        name: "eth0".parse().expect("name"),
        network: "mynet".into(),
        kind: NicKind::Tap(Tap { data_path: DataPath::Tc, queues: 1 }),
        mac: "02:00:00:00:00:05".parse().expect("mac"),
        mtu: 1450,
        addresses: vec!["10.22.0.5/24".parse().expect("address")],
        routes: vec![
            Route { dst: "10.22.0.0/24".parse().expect("route"), gateway: None },
            Route { dst: "0.0.0.0/0".parse().expect("route"), gateway: Some([10, 22, 0, 1].into()) },
        ],
    };
    let dns = Dns { servers: vec![[192, 0, 2, 53].into()], searches: vec!["example.org".into()], options: vec![] };
    PodNet { netns: PathBuf::from("/run/netns/virtlet-demo"), nics: vec![nic], dns }
}

pub(super) fn summary(id: &str, trouble: Option<&str>) -> PodSummary {
    PodSummary {
        pod: id.parse().expect("id"),
        namespace: "default".into(),
        name: "demo".into(),
        owner: None,
        phase: PodPhase::Attached,
        recovering: false,
        ip: Some([10, 22, 0, 5].into()),
        trouble: trouble.map(str::to_owned),
    }
}

fn refused(code: ErrorCode, message: &str) -> Result<Reply, ErrorBody> {
    Err(ErrorBody { code, message: message.to_owned() })
}

/// Text, then JSON, of the same answer.
pub(super) fn both(words: &[&str], answer: &Reply) -> String {
    let daemon = FakeDaemon::with(vec![Ok(answer.clone()), Ok(answer.clone())]);
    let (text, done) = daemon.run(words, "text");
    let verdict = done.expect("text");
    let (json, done) = daemon.run(words, "json");
    assert_eq!(done.expect("json"), verdict);
    format!("{verdict:?}\n{text}---\n{json}")
}

#[test]
fn attach_shows_what_the_guest_is_given() {
    insta::assert_snapshot!(both(&["attach", "demo"], &Reply::Attached(net())));
}

#[test]
fn attach_asks_for_what_the_command_line_says() {
    let daemon = FakeDaemon::with(vec![Ok(Reply::Attached(net()))]);
    let words = "attach demo --network a --network b --data-path bridge --queues 4 --no-anti-spoof \
                 --host-port 8080:80 --ip 10.1.2.3/24 --ip fd00::3/64 --mac 02:00:00:00:00:07";
    let (_, done) = daemon.run(&words.split_whitespace().collect::<Vec<_>>(), "json");
    done.expect("attached");
    insta::assert_json_snapshot!(daemon.asked());
}

#[test]
fn an_address_alone_is_of_the_default_network() {
    let tool = parse(["tapmanager", "attach", "--ip", "10.0.0.9/24"]).expect("parses");
    let Tool::Attach(attach) = tool else { panic!("attach") };
    let request = attach.request();
    assert_eq!(request.pod.as_str(), "try");
    let [ask] = request.networks.as_slice() else { panic!("one network: {:?}", request.networks) };
    assert_eq!((ask.network.as_ref(), ask.ips.len()), (None, 1));
}

#[test]
fn explain_says_what_and_why() {
    let detail = PodDetail {
        summary: summary("demo", Some("dhcp\u{1b}[31m is deaf")),
        request: proto::tap::Attach::new(pod()),
        net: Some(net()),
        explanation: vec!["network `mynet` (the node's default) on `eth0`: plugins bridge; CNI 1.0.0".into()],
    };
    insta::assert_snapshot!(both(&["explain", "demo"], &Reply::Pod(Box::new(detail))));
}

#[test]
fn a_picture_is_drawn_as_it_was_made_where_nobody_can_look() {
    let detail = PodDetail {
        summary: summary("demo", None),
        request: proto::tap::Attach::new(pod()),
        net: Some(net()),
        explanation: vec![],
    };
    let answer = Reply::Pod(Box::new(detail));
    let daemon = FakeDaemon::with(vec![Ok(answer.clone()), Ok(answer)]);
    let config = daemon.dir.path().join("tapmanager.toml").display().to_string();
    let draw = |words: &[&str]| {
        let words = ["tapmanager", "explain", "demo", "--config", &config].into_iter().chain(words.iter().copied());
        let mut out = Vec::new();
        run_by(&Variables::default(), parse(words).expect("parses"), &mut out).expect("drawn");
        String::from_utf8(out).expect("text")
    };
    let text = draw(&["--picture", "--ascii"]);
    assert!(text.contains("`/run/netns/virtlet-demo`") && text.is_ascii(), "{text}");
    assert!(draw(&["--picture=svg"]).starts_with("<svg "));
    for words in ["--ascii", "--picture -o text", "--picture --json", "--picture=png"] {
        let words = ["tapmanager", "explain", "demo"].into_iter().chain(words.split(' '));
        assert_eq!(parse(words).expect_err("does not go together").exit_code(), 2);
    }
}

#[test]
fn a_pod_is_found_by_its_name_and_by_how_its_id_begins() {
    let unknown = || refused(ErrorCode::NotFound, "no pod");
    let page = |ids: &[&str]| {
        let pods = ids.iter().map(|id| summary(id, None)).collect();
        Ok(Reply::Pods(PodPage { pods, more: false }))
    };
    let well = || Ok(Reply::Checked(CheckReport { findings: vec![], checked: vec![] }));
    let ask = |said: &str, answers: Vec<_>| {
        let daemon = FakeDaemon::with(answers);
        let (_, done) = daemon.run(&["check", said], "json");
        (daemon.asked().pop().expect("asked"), done)
    };
    for (said, answers) in [
        ("demo", vec![unknown(), page(&["3f5a77"]), well()]),
        ("3f", vec![unknown(), page(&["3f5a77", "4a"]), well()]),
        ("default/demo", vec![page(&["3f5a77"]), well()]),
    ] {
        let (asked, done) = ask(said, answers);
        done.expect(said);
        assert_eq!(asked, Request::Check { pod: "3f5a77".parse().expect("id") }, "{said}");
    }
    let (_, several) = ask("demo", vec![unknown(), page(&["3f5a77", "4a"])]);
    assert_eq!(several.expect_err("two").to_string(), "`demo` may be any of the pods 3f5a77, 4a");
    let (_, none) = ask("other/demo", vec![page(&["3f5a77"])]);
    assert_eq!(none.expect_err("none").to_string(), "no pod `other/demo`");
    let (_, none) = ask("web", vec![unknown(), page(&["3f5a77"])]);
    assert_eq!(none.expect_err("none").to_string(), "no pod");
    assert!(Line::try_parse_from(["tapmanager", "check", "a/b/c"]).is_err());
}

#[test]
fn check_is_silent_when_all_is_well_and_unwell_with_findings() {
    let mut report = CheckReport { findings: vec![], checked: vec!["links".into()] };
    insta::assert_snapshot!("check_well", both(&["check", "demo"], &Reply::Checked(report.clone())));
    report.findings.push("link `eth0` has lost address 10.22.0.5/24".into());
    insta::assert_snapshot!("check_findings", both(&["check", "demo"], &Reply::Checked(report)));
}

#[test]
fn status_is_unwell_while_not_ready() {
    let status = ServerStatus {
        server: "tapmanager 0.1.0".into(),
        ready: false,
        reason: "no network configuration in `/etc/cni/net.d`".into(),
        pods: 2,
        recovering: 0,
        tokens_refused: 0,
        plugin_micros: 1_234_567,
    };
    insta::assert_snapshot!(both(&["status"], &Reply::Status(status)));
}

#[test]
fn list_goes_through_all_pages() {
    let page = |id: &str, more| Ok(Reply::Pods(PodPage { pods: vec![summary(id, None)], more }));
    let daemon = FakeDaemon::with(vec![page("a", true), page("long-id", false), page("a", false)]);
    let (text, done) = daemon.run(&["list"], "text");
    done.expect("list");
    let (json, done) = daemon.run(&["list"], "json");
    done.expect("list");
    insta::assert_snapshot!(format!("{text}---\n{json}"));
    let after = |request: &Request| match request {
        Request::List(list) => list.after.as_ref().map(|pod| pod.as_str().to_owned()),
        other => panic!("{other:?}"),
    };
    assert_eq!(daemon.asked().iter().map(after).collect::<Vec<_>>(), [None, Some("a".to_owned()), None]);
}

#[test]
fn detaching_all_goes_on_after_one_that_resists() {
    let pods = vec![summary("a", None), summary("b", None), summary("c", None)];
    let daemon = FakeDaemon::with(vec![
        Ok(Reply::Pods(PodPage { pods, more: false })),
        Ok(Reply::Detached),
        refused(ErrorCode::Deadline, "plugin `bridge` did not end within 60 s"),
        Ok(Reply::Detached),
    ]);
    let (text, done) = daemon.run(&["detach", "--all", "--yes"], "text");
    assert_eq!(text, "pod a: detached\npod c: detached\n");
    let error = done.expect_err("b is left");
    assert_eq!(
        (error.exit_code(), error.line().as_str()),
        (75, "failed to detach pod `b`: plugin `bridge` did not end within 60 s")
    );
}

#[test]
fn a_daemon_that_is_not_there_is_69_and_one_out_of_reach_77() {
    let dir = tempfile::tempdir().expect("tempdir");
    let config = dir.path().join("c");
    std::fs::write(&config, format!("run_dir = '{}'", dir.path().display())).expect("write");
    let words = ["tapmanager", "status", "--config", config.to_str().expect("text")];
    let tool = parse(words).expect("parses");
    let error = run_by(&Variables::default(), tool, &mut Vec::new()).expect_err("nobody there");
    assert_eq!(error.exit_code(), 69);
    assert!(error.line().ends_with("control.sock`; is tapmanager running?: ENOENT: No such file or directory"));
    let cause = nix::errno::Errno::EACCES;
    let error = ToolError::from(proto::tap::ClientError::Connect { path: "/s".into(), cause });
    assert_eq!(error.exit_code(), 77);
    assert!(error.line().ends_with("are you root?"), "{}", error.line());
}

#[test]
fn each_class_of_refusal_has_its_exit_code() {
    let codes = [
        (ErrorCode::Version, 76),
        (ErrorCode::BadRequest, 65),
        (ErrorCode::NotFound, 66),
        (ErrorCode::Conflict, 75),
        (ErrorCode::Denied, 77),
        (ErrorCode::Unavailable, 69),
        (ErrorCode::Deadline, 75),
        (ErrorCode::Exhausted, 71),
        (ErrorCode::Internal, 70),
    ];
    for (code, exit) in codes {
        // Who is not found may be meant by a name.
        let nobody = Reply::Pods(PodPage { pods: vec![], more: false });
        let daemon = FakeDaemon::with(vec![refused(code, "no\u{7}"), Ok(nobody)]);
        let (out, done) = daemon.run(&["check", "demo"], "json");
        let error = done.expect_err("refused");
        assert_eq!((out.as_str(), error.exit_code()), ("", exit), "{code:?}");
        assert!(error.line().starts_with("no "), "{}", error.line());
    }
}

#[test]
fn an_answer_to_another_question_is_of_another_release() {
    let daemon = FakeDaemon::with(vec![Ok(Reply::Detached)]);
    let (_, done) = daemon.run(&["status"], "json");
    assert_eq!(done.expect_err("wrong").exit_code(), 76);
}

#[test]
fn what_does_not_go_together_is_refused() {
    for words in [
        "detach",
        "detach --all",
        "detach --yes",
        "detach demo --all --yes",
        "check",
        "attach -x",
        "attach a/b",
        "attach --guest k,i",
        "attach --shell --guest k",
        "attach --shell --guest k,i --disk d",
        "attach --disk d",
        "attach --no-kvm",
        "attach --data-path ipvlan",
        "attach --queues 0",
        "attach --host-port 80",
        "attach --ip 10.0.0.256/24",
        "attach --mac ff:ff:ff:ff:ff:ff",
        "list --output yaml",
    ] {
        let error = parse(["tapmanager"].into_iter().chain(words.split(' '))).expect_err(words);
        assert_eq!(error.exit_code(), 2, "{words}");
    }
    parse(["tapmanager", "attach", "--shell", "--guest", "k,i", "--no-kvm"]).expect("goes together");
    for words in ["list -o json", "list --json", "list -o text", "status -o wide"] {
        parse(["tapmanager"].into_iter().chain(words.split(' '))).expect(words);
    }
    assert_eq!([2, 15].map(|signal| ToolError::Interrupted(signal).exit_code()), [130, 143]);
}

#[test]
fn the_data_path_that_is_gone_is_refused_with_advice_and_not_shown() {
    let error = parse(["tapmanager", "attach", "--data-path", "ebpf"]).expect_err("refused").to_string();
    assert!(error.contains("data path `ebpf` is no longer supported; use `tc`"), "{error}");
    let error = parse(["tapmanager", "attach", "--data-path", "ovs"]).expect_err("refused").to_string();
    assert!(error.contains("[possible values: tc, bridge, macvtap]"), "{error}");
    for path in DataPath::ALL {
        parse(["tapmanager", "attach", "--data-path", path.name()]).expect("taken");
    }
}

#[test]
fn networks_are_told_without_a_daemon() {
    let dir = tempfile::tempdir().expect("tempdir");
    let config = dir.path().join("tapmanager.toml");
    let text = format!("cni_conf_dir = '{0}/net.d'\ncni_plugin_dirs = ['{0}/bin']\n", dir.path().display());
    std::fs::write(&config, text).expect("config");
    std::fs::create_dir(dir.path().join("net.d")).expect("directory");
    let list = r#"{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge"}]}"#;
    std::fs::write(dir.path().join("net.d/10-net.conflist"), list).expect("written");
    let words =
        ["tapmanager", "networks", "--output", "text", "--config", &config.display().to_string()].map(str::to_owned);
    let mut out = Vec::new();
    let done = run_by(&Variables::default(), parse(words.iter().map(String::as_str)).expect("parses"), &mut out);
    assert!(matches!(done, Ok(Verdict::Unwell)), "{done:?}");
    let told = String::from_utf8(out).expect("text").replace(&dir.path().display().to_string(), "DIR");
    insta::assert_snapshot!(told, @r"
    network net (default)
      plugin bridge; it is in none of the plugin directories (DIR/bin); install it there
    ");
}
