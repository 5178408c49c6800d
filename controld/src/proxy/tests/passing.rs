//! What passes through as it came: fields of a newer kubelet and runtime at every level, lists as long as kubelet takes them, and what
//! both sides are told.

use super::*;
use crate::config::CgroupDriver as Configured;

/// A field that nobody here knows: number 2015, one varint.
const UNKNOWN: [u8; 3] = [0xf8, 0x7d, 5];

/// A field that is a message, in front of what nobody knows.
fn nested(number: u8, message: &[u8]) -> Vec<u8> {
    let inside = [message, &UNKNOWN].concat();
    let length = u8::try_from(inside.len()).ok().filter(|length| *length < 0x80).expect("a short message");
    [vec![number << 3 | 2, length], inside].concat()
}

#[tokio::test]
async fn what_nobody_knows_passes_at_every_level() {
    let node = Node::up().await;
    let metadata = PodSandboxMetadata { name: "a".into(), uid: "u".into(), ..Default::default() }.encode_to_vec();
    // `config`, with `metadata` in it.
    let request = [nested(1, &nested(1, &metadata)), UNKNOWN.to_vec()].concat();
    let run = RunPodSandboxRequest::decode(&*request).expect("a request");
    assert_eq!(run.config.and_then(|config| config.metadata).map(|metadata| metadata.name), Some("a".into()));
    let made = RunPodSandboxResponse { pod_sandbox_id: "ab".into() };
    let answer: Bytes = [made.encode_to_vec(), UNKNOWN.to_vec()].concat().into();
    node.default.replies("RunPodSandbox", Reply::Message(answer.clone()));
    node.lists(&[]);
    let question = Question::new("/runtime.v1.RuntimeService/RunPodSandbox", request.clone().into());
    let answered = ask::one(node.front.clone(), question).await.expect("answered").into_inner();
    assert_eq!((answered, &node.default.asked("RunPodSandbox")[0].2[5..]), (answer, &*request));

    // An item with one in it and one in its metadata, and one behind the items; ours comes behind all.
    let listed =
        [nested(1, &[sandbox("ab").encode_to_vec(), nested(2, &metadata)].concat()), UNKNOWN.to_vec()].concat();
    node.default.replies("ListPodSandbox", Reply::Message(listed.clone().into()));
    node.own.has().sandboxes = vec![sandbox("vm1")];
    let question = Question::new("/runtime.v1.RuntimeService/ListPodSandbox", Bytes::new());
    let answered = ask::one(node.front.clone(), question).await.expect("answered").into_inner();
    let ours = ListPodSandboxResponse { items: vec![sandbox("vm1")] }.encode_to_vec();
    assert_eq!(answered, [listed, ours].concat());
}

/// A default resets the stream of a call whose deadline has passed, as if it went away: each of them says that in its own way.
#[tokio::test]
async fn what_breaks_off_after_its_clients_deadline_is_late_and_before_it_broken() {
    let node = Node::up().await;
    for (reply, call) in [
        (Reply::Reset, "PullImage"),
        (Reply::Torn, "PullImage"),
        (Reply::Reset, "ContainerStatus"),
        (Reply::Torn, "HibernatePod"),
    ] {
        node.default.replies(call, reply.clone());
        let path = match call {
            "PullImage" => "/runtime.v1.ImageService/PullImage",
            "ContainerStatus" => "/runtime.v1.RuntimeService/ContainerStatus",
            _ => "/runtime.v1.RuntimeService/HibernatePod",
        };
        for (timeout, code) in [("1u", Code::DeadlineExceeded), ("60S", Code::Unavailable)] {
            let mut question = Question::new(path, Bytes::new());
            question.metadata.insert("grpc-timeout", timeout.parse().expect("a value"));
            let failed = ask::one(node.front.clone(), question).await.expect_err("no answer");
            assert_eq!(failed.code(), code, "{reply:?} to {call} within {timeout}: {failed}");
        }
        let failed = ask::one(node.front.clone(), Question::new(path, Bytes::new())).await.expect_err("no answer");
        assert_eq!(failed.code(), Code::Unavailable, "{reply:?} to {call}: {failed}");
    }
}

/// kubelet takes 16 MiB.
#[tokio::test]
async fn a_list_of_15_mib_is_whole() {
    const MIB: usize = 1 << 20;
    let node = Node::up().await;
    let long = |number: u32| {
        let annotations = [("long".to_owned(), "x".repeat(MIB))].into();
        PodSandbox { annotations, ..sandbox(&format!("{number:02x}")) }
    };
    let items: Vec<_> = (0..15).map(long).collect();
    let ids: Vec<_> = items.iter().map(|item| item.id.clone()).chain(["vm1".into()]).collect();
    node.default.says("ListPodSandbox", &ListPodSandboxResponse { items });
    node.own.has().sandboxes = vec![sandbox("vm1")];
    let mut runtime = node.runtime().max_decoding_message_size(16 * MIB);
    for _ in 0..2 {
        let list = runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.expect("a list").into_inner();
        assert!(list.items.iter().map(|item| &item.id).eq(&ids) && list.encoded_len() > 15 * MIB);
        // Then it is the last good one.
        node.default.kill();
        node.is_down().await;
    }
}

#[tokio::test]
async fn both_are_told_of_a_pod_cidr_and_the_default_answers() {
    let node = Node::up().await;
    let network_config = Some(NetworkConfig { pod_cidr: "10.1.0.0/24".into() });
    let request = UpdateRuntimeConfigRequest { runtime_config: Some(RuntimeConfig { network_config }) };
    node.default.replies("UpdateRuntimeConfig", Reply::Failed(Status::internal("no such plugin")));
    let refused = node.runtime().update_runtime_config(request.clone()).await.expect_err("refused");
    assert_eq!(refused.message(), "no such plugin");
    node.default.says("UpdateRuntimeConfig", &UpdateRuntimeConfigResponse {});
    node.runtime().update_runtime_config(request).await.expect("answered");
    assert_eq!(node.own.has().asked, ["UpdateRuntimeConfig 10.1.0.0/24"; 2]);
    assert_eq!(node.default.asked("UpdateRuntimeConfig").len(), 2);
}

/// kubelet manages cgroups by the default's word.
#[tokio::test]
async fn under_another_cgroup_driver_no_machine_is_made_and_containers_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let (default, own, (door, opener)) = (Fake::new(dir.path().join("x.sock")), OwnSide::default(), door::shut("1"));
    opener.open(own.routes());
    let endpoint = format!("unix://{}", default.socket.display());
    let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    config.proxy.runtime_endpoint = Some(endpoint.try_into().expect("an endpoint"));
    config.cgroup_driver = Some(Configured::Systemd);
    let linux = Some(LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs.into() });
    default.says("RuntimeConfig", &RuntimeConfigResponse { linux });
    default.says("ListPodSandbox", &ListPodSandboxResponse::default());
    default.says("RunPodSandbox", &RunPodSandboxResponse { pod_sandbox_id: "ab".into() });
    let proxy = Proxy::open_with(&config, (&door, &Handle::current()), 0, PATIENT).expect("configured");
    default.start();
    let front = proxy.front();
    until(|| front.0.state.driver_differs().is_some()).await;
    let mut runtime = RuntimeServiceClient::with_origin(front, Uri::from_static("http://localhost"));
    let run = |handler: &str| RunPodSandboxRequest { runtime_handler: handler.into(), ..Default::default() };
    let refused = runtime.run_pod_sandbox(run("virtlet")).await.expect_err("refused");
    assert!(refused.code() == Code::FailedPrecondition && refused.message().contains("`cgroup_driver`"), "{refused}");
    assert_eq!(own.has().asked.len(), 0, "ours was not asked");
    assert_eq!(runtime.run_pod_sandbox(run("")).await.expect("made").into_inner().pod_sandbox_id, "ab");
}
