//! The proxy between a client and two runtimes of tests: one at a socket ([`fake`]), one behind the door ([`own`]).

mod counted;
mod descriptors;
mod events;
mod fake;
mod image_calls;
mod keeper;
mod lists;
mod own;
mod passing;
mod pods;
mod silence;
mod statuses;
mod unread_answers;

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use prost::Message;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::*;
use tempfile::TempDir;
use tonic::Code;
use tonic::codegen::http::Uri;

use self::fake::{Fake, Reply};
use self::own::OwnSide;
use super::ask::Question;
use super::*;
use crate::api::door::{self, Opener};

/// Of a side that a test is about the lateness of. Lists have five times as long over a connection as new as those here are.
const DEADLINE: Duration = Duration::from_millis(200);
/// Of a side that is in time, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(10);
/// Whatever a test waits for has come by then, however busy the machine is.
const LONG: Duration = Duration::from_secs(60);

struct Node {
    dir: TempDir,
    default: Fake,
    own: OwnSide,
    front: Front,
    opener: Opener,
    _proxy: Proxy,
}

impl Node {
    /// A node whose default does not run yet, and whose services of our own do.
    fn new() -> Self {
        Self::with(PATIENT, PATIENT)
    }

    /// [`Self::new`] with these deadlines: of lists and all else that the default is asked, and of our part of other answers.
    fn with(lists: Duration, ours: Duration) -> Self {
        Self::on(&Handle::current(), (lists, ours))
    }

    /// [`Self::with`], whose own services work on another runtime.
    fn on(runtime: &Handle, deadlines: (Duration, Duration)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let default = Fake::new(dir.path().join("runtime.sock"));
        let own = OwnSide::default();
        let (door, opener) = door::shut("1.2.3");
        opener.open(own.routes());
        let front = Self::open_with(&dir, &default, (&door, runtime), deadlines);
        Self { front: front.front(), dir, default, own, opener, _proxy: front }
    }

    fn open(dir: &TempDir, default: &Fake, door: &Door) -> Proxy {
        Self::open_with(dir, default, (door, &Handle::current()), (PATIENT, PATIENT))
    }

    fn open_with(dir: &TempDir, default: &Fake, own: (&Door, &Handle), (lists, ours): (Duration, Duration)) -> Proxy {
        let endpoint = format!("unix://{}", default.socket.display());
        let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
        config.proxy.runtime_endpoint = Some(endpoint.try_into().expect("an endpoint"));
        config.proxy.list_deadline = lists;
        // Of no process, as the default of these tests is in ours.
        Proxy::open_with(&config, own, 0, ours).expect("configured")
    }

    /// With a default that runs.
    async fn up() -> Self {
        Self::new().started().await
    }

    /// [`Self::up`], where the default is soon late, and either side in lists.
    async fn hasty() -> Self {
        Self::with(DEADLINE, PATIENT).started().await
    }

    /// [`Self::up`], where our part of other answers is soon late.
    async fn hasty_with_ours() -> Self {
        Self::with(PATIENT, DEADLINE).started().await
    }

    async fn started(self) -> Self {
        self.default.start();
        self.is_up().await;
        self
    }

    async fn is_up(&self) {
        tokio::time::timeout(LONG, self.front.reaches_runtime()).await.expect("connected");
    }

    async fn is_down(&self) {
        until(|| self.front.0.backend.away().is_some()).await;
    }

    fn runtime(&self) -> RuntimeServiceClient<Front> {
        RuntimeServiceClient::with_origin(self.front.clone(), Uri::from_static("http://localhost"))
    }

    fn image_calls(&self) -> ImageServiceClient<Front> {
        ImageServiceClient::with_origin(self.front.clone(), Uri::from_static("http://localhost"))
    }

    fn lists(&self, ids: &[&str]) {
        self.default
            .says("ListPodSandbox", &ListPodSandboxResponse { items: ids.iter().map(|id| sandbox(id)).collect() });
    }

    /// Ids as kubelet lists them.
    async fn listed(&self) -> Result<Vec<String>, Status> {
        let list = self.runtime().list_pod_sandbox(ListPodSandboxRequest::default()).await?.into_inner();
        Ok(list.items.into_iter().map(|sandbox| sandbox.id).collect())
    }
}

async fn until(mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LONG, "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn sandbox(id: &str) -> PodSandbox {
    PodSandbox { id: id.into(), ..Default::default() }
}

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: image.into(), ..Default::default() })
}

#[tokio::test]
async fn an_id_leads_to_its_side_and_what_is_unknown_to_the_default_as_it_is() {
    let node = Node::up().await;
    node.default.says("PodSandboxStatus", &PodSandboxStatusResponse { timestamp: 7, ..Default::default() });
    let ask = |id: &str| PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose: true };
    assert_eq!(node.runtime().pod_sandbox_status(ask("ab")).await.expect("answered").into_inner().timestamp, 7);
    assert_eq!(node.runtime().pod_sandbox_status(ask("vm01")).await.expect("answered").into_inner().timestamp, 0);
    assert_eq!(node.own.has().asked, ["PodSandboxStatus vm01"]);

    // A method of a newer kubelet, with bytes that nobody here understands, and what was said besides.
    node.default.replies("HibernatePod", Reply::Message(Bytes::from_static(&[0xff, 0xff, 1])));
    let mut question = Question::new("/runtime.v1.RuntimeService/HibernatePod", Bytes::from_static(&[9, 9, 0xff]));
    question.metadata.insert("x-trace", "17".parse().expect("a value"));
    question.metadata.insert("grpc-timeout", "5S".parse().expect("a value"));
    let answer = ask::one(node.front.clone(), question).await.expect("answered");
    assert_eq!(&**answer.get_ref(), [0xff, 0xff, 1]);
    let (path, headers, body) = node.default.asked("HibernatePod").pop().expect("asked");
    assert_eq!((path.as_str(), &*body), ("/runtime.v1.RuntimeService/HibernatePod", &[0, 0, 0, 0, 3, 9, 9, 0xff][..]));
    assert_eq!((headers["x-trace"].as_bytes(), headers["grpc-timeout"].as_bytes()), (&b"17"[..], &b"5S"[..]));
    let failed = node.runtime().exec_sync(ExecSyncRequest { container_id: "ab".into(), ..Default::default() }).await;
    assert_eq!(failed.expect_err("not there").message(), "unknown method ExecSync", "the default's own words");
}

#[tokio::test]
async fn unknown_fields_and_long_messages_pass_in_both_directions() {
    let node = Node::up().await;
    let long: Bytes = [
        ContainerStatusResponse::default().encode_to_vec(),
        vec![0xfa, 0x7d, 0x80, 0x80, 0x80, 7],
        vec![b'x'; 7 << 21],
    ]
    .concat()
    .into();
    node.default.replies("ContainerStatus", Reply::Message(long.clone()));
    let request: Bytes =
        [ContainerStatusRequest { container_id: "ab".into(), verbose: false }.encode_to_vec(), vec![0xfa, 0x7d, 1, 5]]
            .concat()
            .into();
    let question = Question::new("/runtime.v1.RuntimeService/ContainerStatus", request.clone());
    let answer = ask::one(node.front.clone(), question).await.expect("answered").into_inner();
    assert!(answer == long, "{} of {} bytes", answer.len(), long.len());
    assert_eq!(node.default.asked("ContainerStatus")[0].2[5..], request[..]);
}

#[tokio::test]
async fn lists_are_of_both_and_a_filter_by_id_asks_one() {
    let node = Node::up().await;
    node.lists(&["a", "b"]);
    node.own.has().sandboxes = vec![sandbox("vm1")];
    assert_eq!(node.listed().await.expect("a list"), ["a", "b", "vm1"], "the default's first");
    let of = async |id: &str| {
        let filter = Some(PodSandboxFilter { id: id.into(), ..Default::default() });
        let list =
            node.runtime().list_pod_sandbox(ListPodSandboxRequest { filter }).await.expect("a list").into_inner();
        list.items.len()
    };
    assert_eq!((of("vm1").await, node.default.asked("ListPodSandbox").len()), (1, 1), "the default was not asked");
    assert_eq!(of("ab").await, 2, "it filters by itself, and this one does not");
    let filter = Some(ContainerFilter { id: "ab".into(), pod_sandbox_id: "vm1".into(), ..Default::default() });
    let none = node.runtime().list_containers(ListContainersRequest { filter }).await.expect("a list").into_inner();
    assert_eq!(none.containers.len(), 0, "of two sides there is nothing");
}

#[tokio::test]
async fn before_the_default_has_answered_once_there_is_no_list() {
    let node = Node::new();
    node.own.has().sandboxes = vec![sandbox("vm1")];
    until(|| node.front.0.backend.away().is_some_and(|away| away.why.contains("no such socket"))).await;
    let refused = node.listed().await.expect_err("half of the node");
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(
        refused.message().contains("runtime.sock") && refused.message().contains("there is no such socket"),
        "{refused}"
    );
    // By the id of one of ours all is well.
    let ask = PodSandboxStatusRequest { pod_sandbox_id: "vm1".into(), verbose: false };
    node.runtime().pod_sandbox_status(ask).await.expect("answered");
}

/// What kubelet must never hear is that a pod is gone.
#[tokio::test]
async fn a_dead_default_shortens_no_list_and_its_ids_are_unavailable() {
    let node = Node::up().await;
    node.lists(&["a", "b"]);
    node.own.has().sandboxes = vec![sandbox("vm1")];
    assert_eq!(node.listed().await.expect("a list").len(), 3);
    node.default.says("RemovePodSandbox", &RemovePodSandboxResponse {});
    node.runtime().remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: "a".into() }).await.expect("removed");
    node.default.says("RunPodSandbox", &RunPodSandboxResponse { pod_sandbox_id: "c".into() });
    let config = PodSandboxConfig { labels: [("app".to_owned(), "web".to_owned())].into(), ..Default::default() };
    let run = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    node.runtime().run_pod_sandbox(run).await.expect("made");
    node.default.kill();
    node.is_down().await;
    assert_eq!(node.listed().await.expect("a list"), ["b", "c", "vm1"], "as it was left");
    let filter =
        Some(PodSandboxFilter { label_selector: [("app".to_owned(), "web".to_owned())].into(), ..Default::default() });
    node.own.has().sandboxes.clear();
    let list = node.runtime().list_pod_sandbox(ListPodSandboxRequest { filter }).await.expect("a list").into_inner();
    assert_eq!(list.items.iter().map(|sandbox| sandbox.id.as_str()).collect::<Vec<_>>(), ["c"], "filtered here");
    let ask = PodSandboxStatusRequest { pod_sandbox_id: "b".into(), verbose: false };
    let refused = node.runtime().pod_sandbox_status(ask).await.expect_err("away");
    assert_eq!(refused.code(), Code::Unavailable, "never NotFound");
    assert!(refused.message().contains("runtime.sock` is away for"), "{refused}");

    // A new process at the same place.
    node.lists(&["b", "c", "d"]);
    node.default.start();
    node.is_up().await;
    assert_eq!(node.listed().await.expect("a list"), ["b", "c", "d"]);
}

/// As by SIGSTOP: the connection is there, and nothing is answered.
#[tokio::test]
async fn a_default_that_hangs_holds_up_nobody_for_long() {
    let node = Node::hasty().await;
    node.lists(&["a"]);
    node.own.has().sandboxes = vec![sandbox("vm1")];
    assert_eq!(node.listed().await.expect("a list").len(), 2);
    until(|| node.front.0.saved.status().is_some()).await;
    node.default.stop(true);
    assert_eq!(node.listed().await.expect("a list"), ["a", "vm1"], "after the deadline");
    // It does not answer `Version` either.
    node.is_down().await;
    let asked = || ["ListPodSandbox", "PodSandboxStatus", "Status"].map(|call| node.default.asked(call).len());
    let before = asked();
    assert_eq!(node.listed().await.expect("a list"), ["a", "vm1"]);
    let ask = PodSandboxStatusRequest { pod_sandbox_id: "a".into(), verbose: false };
    let refused = node.runtime().pod_sandbox_status(ask).await.expect_err("away");
    assert!(refused.message().contains("not even `Version`"), "{refused}");
    let status = node.runtime().status(StatusRequest::default()).await.expect("answered").into_inner();
    assert_eq!(asked(), before, "nobody waits for it any more");
    let conditions = status.status.expect("a status").conditions;
    assert!(conditions.iter().any(|is| is.r#type == "RuntimeReady" && is.status), "the last good one: {conditions:?}");
    node.lists(&["a", "b"]);
    node.default.stop(false);
    node.is_up().await;
    assert_eq!(node.listed().await.expect("a list"), ["a", "b", "vm1"]);
}

/// Slow lists are late, and do not stand still; what else it is asked it answers.
#[tokio::test]
async fn a_default_whose_lists_take_too_long_is_seen_late() {
    let node = Node::hasty().await;
    node.lists(&["a"]);
    assert_eq!(node.listed().await.expect("a list"), ["a"]);
    let now = std::sync::Arc::new(tokio::sync::Notify::new());
    let late = ListPodSandboxResponse { items: vec![sandbox("a"), sandbox("b")] }.encode_to_vec();
    node.default.replies("ListPodSandbox", Reply::Late(late.into(), now.clone()));
    node.default.says("StopPodSandbox", &StopPodSandboxResponse {});
    assert_eq!(node.listed().await.expect("a list"), ["a"]);
    node.runtime().stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: "a".into() }).await.expect("it is there");
    for _ in 0..6 {
        assert_eq!(node.listed().await.expect("a list"), ["a"], "so many are under way, and no more are begun");
    }
    assert!(node.default.asked("ListPodSandbox").len() <= 6);
    assert!(node.front.0.backend.away().is_none(), "it answers `Version`");
    let length = || node.front.0.lists.shown()[0].1.map(|(_, bytes)| bytes);
    let before = length();
    now.notify_waiters();
    until(|| length() > before).await;
    node.default.kill();
    node.is_down().await;
    assert_eq!(node.listed().await.expect("a list"), ["a", "b"], "the late one");
}

#[tokio::test]
async fn rubbish_is_no_list_and_replaces_none() {
    let node = Node::up().await;
    node.lists(&["a"]);
    assert_eq!(node.listed().await.expect("a list"), ["a"]);
    let failed = Reply::Failed(Status::internal("broken"));
    let half = Reply::Message(Bytes::from_static(&[0x0a, 9, 1]));
    // A whole list, of an item that is none.
    let garbage = Reply::Message(Bytes::from_static(&[0x0a, 2, 0x0a, 9]));
    for reply in [Reply::Web, Reply::Torn, failed, half, garbage] {
        node.default.replies("ListPodSandbox", reply.clone());
        assert_eq!(node.listed().await.expect("a list"), ["a"], "{reply:?}");
        let filter = Some(PodSandboxFilter { state: Some(PodSandboxStateValue::default()), ..Default::default() });
        let list =
            node.runtime().list_pod_sandbox(ListPodSandboxRequest { filter }).await.expect("a list").into_inner();
        assert_eq!(list.items.len(), 1, "filtered, {reply:?}");
    }
    for (call, reply) in [("ContainerStatus", Reply::Web), ("ContainerStatus", Reply::Torn)] {
        node.default.replies(call, reply);
        let failed =
            node.runtime().container_status(ContainerStatusRequest { container_id: "a".into(), verbose: false }).await;
        assert!(matches!(failed.expect_err("no answer").code(), Code::Internal | Code::Unavailable));
    }
}

#[tokio::test]
async fn streams_of_lists_are_whole_or_the_last_good_one() {
    let node = Node::up().await;
    node.own.has().sandboxes = vec![sandbox("vm1")];
    let message = |ids: &[&str]| {
        Bytes::from(
            StreamPodSandboxesResponse { pod_sandboxes: ids.iter().map(|id| sandbox(id)).collect() }.encode_to_vec(),
        )
    };
    let streamed = async || {
        let mut stream = node
            .runtime()
            .stream_pod_sandboxes(StreamPodSandboxesRequest::default())
            .await
            .expect("a stream")
            .into_inner();
        let mut ids = Vec::new();
        while let Some(message) = stream.message().await.expect("a message") {
            ids.extend(message.pod_sandboxes.into_iter().map(|sandbox| sandbox.id));
        }
        ids
    };
    node.default.replies(
        "StreamPodSandboxes",
        Reply::Stream(vec![message(&["a"]), message(&["b"])], Status::new(Code::Ok, "")),
    );
    assert_eq!(streamed().await, ["a", "b", "vm1"]);
    node.default.replies("StreamPodSandboxes", Reply::Stream(vec![message(&["a"])], Status::unavailable("half")));
    assert_eq!(streamed().await, ["a", "b", "vm1"], "half a stream is none");
    node.default.replies("StreamPodSandboxes", Reply::Failed(Status::unimplemented("unknown method")));
    node.lists(&["c"]);
    assert_eq!(streamed().await, ["c", "vm1"], "kubelet would give up streaming for good");
    node.default.kill();
    node.is_down().await;
    assert_eq!(streamed().await, ["c", "vm1"]);
}

#[tokio::test]
async fn usage_is_of_who_answers_and_never_stale() {
    let node = Node::hasty().await;
    let stats = |id: &str| ContainerStats {
        attributes: Some(ContainerAttributes { id: id.into(), ..Default::default() }),
        ..Default::default()
    };
    node.own.has().stats = vec![stats("vm1")];
    node.default.says("ListContainerStats", &ListContainerStatsResponse { stats: vec![stats("a")] });
    let listed = async || {
        let answer = node.runtime().list_container_stats(ListContainerStatsRequest::default()).await.expect("a list");
        answer.into_inner().stats.len()
    };
    assert_eq!(listed().await, 2);
    node.own.has().hangs = true;
    assert_eq!(listed().await, 1, "ours is left out");
    node.own.has().hangs = false;
    node.own.has().panics = true;
    assert_eq!(listed().await, 1, "so it is with a bug of ours");
    node.own.has().panics = false;
    node.default.kill();
    node.is_down().await;
    assert_eq!(listed().await, 1);
}

#[tokio::test]
async fn a_bug_or_a_hang_of_ours_holds_up_no_container() {
    let node = Node::hasty().await;
    node.default.says("ContainerStatus", &ContainerStatusResponse::default());
    for hangs in [true, false] {
        {
            let mut has = node.own.has();
            (has.hangs, has.panics) = (hangs, !hangs);
        }
        let ask = ContainerStatusRequest { container_id: "ab".into(), verbose: false };
        node.runtime().container_status(ask).await.expect("answered");
        let status = node.runtime().status(StatusRequest::default()).await.expect("answered").into_inner();
        let conditions = status.status.expect("a status").conditions;
        let of = |kind: &str| conditions.iter().find(|is| is.r#type == kind).map(|is| is.status);
        assert_eq!((of("RuntimeReady"), of("NetworkReady"), of("VirtletReady")), (Some(true), Some(true), Some(false)));
    }
}

#[tokio::test]
async fn status_is_the_defaults_and_ours_is_behind_it() {
    let node = Node::up().await;
    let status = node.runtime().status(StatusRequest { verbose: true }).await.expect("answered").into_inner();
    let names: Vec<_> = status.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names, ["", "runc", "virtlet"]);
    let shown: serde_json::Value = serde_json::from_str(&status.info["virtletProxy"]).expect("JSON");
    assert_eq!((&shown["up"], &shown["trouble"]), (&serde_json::json!(true), &serde_json::Value::Null));
    // While we start.
    node.lists(&["a"]);
    node.opener.waits_for("its database");
    let status = node.runtime().status(StatusRequest::default()).await.expect("answered").into_inner();
    let ready = status.status.expect("a status").conditions.pop().expect("ours");
    assert_eq!((ready.r#type.as_str(), ready.status, ready.reason.as_str()), ("VirtletReady", false, "Starting"));
    assert!(status.runtime_handlers.iter().any(|handler| handler.name == "virtlet"), "pods are admitted by it");
    assert_eq!(node.listed().await.expect_err("half of the node").code(), Code::Unavailable);
}

#[tokio::test]
async fn a_handler_of_both_is_nobodys() {
    let node = Node::new();
    let handler = |name: &str| RuntimeHandler { name: name.into(), ..Default::default() };
    let status = StatusResponse { runtime_handlers: vec![handler(""), handler("virtlet")], ..Default::default() };
    node.default.says("Status", &status);
    node.default.start();
    until(|| node.front.0.state.has_twice("virtlet")).await;
    let run = RunPodSandboxRequest { runtime_handler: "virtlet".into(), ..Default::default() };
    let refused = node.runtime().run_pod_sandbox(run).await.expect_err("refused");
    assert!(refused.code() == Code::FailedPrecondition && refused.message().contains("`virtlet`"), "{refused}");
    let status = node.runtime().status(StatusRequest::default()).await.expect("answered").into_inner();
    let ready = status.status.expect("a status").conditions.pop().expect("ours");
    assert_eq!((ready.status, ready.reason.as_str(), status.runtime_handlers.len()), (false, "HandlersTwice", 2));
}

#[tokio::test]
async fn version_and_config_are_the_defaults_also_over_our_restart() {
    let node = Node::up().await;
    let linux = Some(LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs.into() });
    node.default.says("RuntimeConfig", &RuntimeConfigResponse { linux });
    let version = node.runtime().version(VersionRequest::default()).await.expect("answered").into_inner();
    assert_eq!(version.runtime_name, "containerd", "containers keep it in their ids");
    assert_eq!(
        node.runtime().runtime_config(RuntimeConfigRequest {}).await.expect("answered").into_inner().linux,
        linux
    );
    until(|| node.front.0.saved.is_written()).await;
    node.default.kill();
    let (door, _opener) = door::shut("1.2.3");
    let again = Node::open(&node.dir, &node.default, &door);
    let mut runtime = RuntimeServiceClient::with_origin(again.front(), Uri::from_static("http://localhost"));
    let version = runtime.version(VersionRequest::default()).await.expect("answered").into_inner();
    assert_eq!((version.runtime_name.as_str(), version.runtime_version.as_str()), ("containerd", "v2.4.2"));
    assert_eq!(runtime.runtime_config(RuntimeConfigRequest {}).await.expect("answered").into_inner().linux, linux);
}

#[tokio::test]
async fn images_go_by_keys_and_then_by_who_has_them() {
    let node = Node::up().await;
    let image =
        |id: &str, tag: &str| Image { id: id.into(), repo_tags: vec![tag.into()], size: 1, ..Default::default() };
    node.own.has().images = vec![image("sha256:vm", "disk:latest")];
    node.own.has().sandboxes = vec![PodSandbox {
        metadata: Some(PodSandboxMetadata { uid: "u-vm".into(), ..Default::default() }),
        ..sandbox("vm1")
    }];
    node.default.says("ImageStatus", &ImageStatusResponse::default());
    node.default.says("PullImage", &PullImageResponse { image_ref: "sha256:c".into() });
    node.default.says("RemoveImage", &RemoveImageResponse {});
    let status = async |name: &str| {
        let answer = node
            .image_calls()
            .image_status(ImageStatusRequest { image: spec(name), verbose: false })
            .await
            .expect("answered");
        answer.into_inner().image.map(|image| image.id)
    };
    assert_eq!(status("disk:latest").await.as_deref(), Some("sha256:vm"), "only we have it");
    assert_eq!(status("nginx").await, None);
    node.default.says(
        "ImageStatus",
        &ImageStatusResponse { image: Some(image("sha256:c", "disk:latest")), ..Default::default() },
    );
    assert_eq!(status("disk:latest").await.as_deref(), Some("sha256:c"), "the default is first where nothing tells");
    assert_eq!(status("virtlet.cloud/disk").await, None, "a prefix tells");
    let pull = async |name: &str, uid: &str| {
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata { uid: uid.into(), ..Default::default() }),
            ..Default::default()
        };
        let request = PullImageRequest { image: spec(name), sandbox_config: Some(config), auth: None };
        node.image_calls().pull_image(request).await.expect("pulled").into_inner().image_ref
    };
    assert_eq!(
        (pull("x", "u-vm").await, pull("x", "u-other").await),
        ("sha256:ours".into(), "sha256:c".into()),
        "by the pod's sandbox"
    );
    assert_eq!(pull("virtlet.cloud/x", "").await, "sha256:ours");
    node.image_calls().remove_image(RemoveImageRequest { image: spec("sha256:vm") }).await.expect("removed");
    assert!(
        node.own.has().asked.contains(&"RemoveImage sha256:vm".to_owned())
            && node.default.asked("RemoveImage").len() == 1
    );
    // While the default is away, what is ours is still told.
    node.default.kill();
    node.is_down().await;
    assert_eq!(status("disk:latest").await.as_deref(), Some("sha256:vm"));
    let refused = node.image_calls().image_status(ImageStatusRequest { image: spec("nginx"), verbose: false }).await;
    assert_eq!(refused.expect_err("nobody knows").code(), Code::Unavailable, "it may have it");
}

#[tokio::test]
async fn an_image_of_the_other_side_is_told_by_name() {
    let node = Node::up().await;
    let image =
        |id: &str, tag: &str| Image { id: id.into(), repo_tags: vec![tag.into()], size: 1, ..Default::default() };
    node.own.has().images = vec![image("sha256:vm", "disk:latest")];
    node.default
        .says("ImageStatus", &ImageStatusResponse { image: Some(image("sha256:c", "x")), ..Default::default() });
    let create = async |sandbox: &str, id: &str, name: &str| {
        let image = Some(ImageSpec { image: id.into(), user_specified_image: name.into(), ..Default::default() });
        let config = Some(ContainerConfig { image, ..Default::default() });
        let request = CreateContainerRequest { pod_sandbox_id: sandbox.into(), config, sandbox_config: None };
        node.runtime().create_container(request).await.map(|answer| answer.into_inner().container_id)
    };
    assert_eq!(create("vm1", "sha256:vm", "disk:latest").await.expect("made"), "vm02");
    assert_eq!(create("vm1", "sha256:c", "disk:latest").await.expect("made"), "vm02", "by the name that the pod has");
    let refused = create("vm1", "sha256:c", "nginx").await.expect_err("not ours");
    assert!(
        refused.code() == Code::FailedPrecondition && refused.message().contains("kubernetes.io/target-runtime"),
        "{refused}"
    );
    node.default.says("ImageStatus", &ImageStatusResponse::default());
    assert_eq!(create("vm1", "sha256:x", "nginx").await.expect_err("nobody's").code(), Code::NotFound, "our own words");
    node.default.replies("CreateContainer", Reply::Failed(Status::not_found("no such image")));
    let refused = create("ab", "sha256:vm", "disk:latest").await.expect_err("not theirs");
    assert!(refused.code() == Code::FailedPrecondition && refused.message().contains("runtimeClassName"), "{refused}");
    assert_eq!(create("ab", "sha256:y", "nginx").await.expect_err("nobody's").message(), "no such image");
    let refused = create("ab", "sha256:y", "virtlet.cloud/disk").await.expect_err("named as ours");
    assert_eq!(refused.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_default_without_events_leaves_ours() {
    let node = Node::up().await;
    let mut events = node.runtime().get_container_events(GetEventsRequest {}).await.expect("a stream").into_inner();
    assert_eq!(events.message().await.expect("an event").expect("an event").container_id, "vm02");
    let more = tokio::time::timeout(DEADLINE, events.message()).await;
    assert!(more.is_err(), "it goes on: {more:?}");
}

#[tokio::test]
async fn a_url_without_a_host_is_told() {
    let node = Node::up().await;
    let exec = async || node.runtime().exec(ExecRequest { container_id: "ab".into(), ..Default::default() }).await;
    node.default.says("Exec", &ExecResponse { url: "http://127.0.0.1:1234/exec/x".into() });
    assert_eq!(exec().await.expect("a URL").into_inner().url, "http://127.0.0.1:1234/exec/x");
    for url in ["/exec/x", "http:///exec/x", ""] {
        node.default.says("Exec", &ExecResponse { url: url.into() });
        let failed = exec().await.expect_err(url);
        assert!(failed.message().contains("set an absolute stream URL"), "{failed}");
    }
}

/// The default hears that its client has gone, and what it has begun to answer is not waited for.
#[tokio::test]
async fn a_client_that_leaves_ends_the_call_at_the_default() {
    let node = Node::up().await;
    node.default.replies("PullImage", Reply::Never);
    let mut images = node.image_calls();
    let pull =
        tokio::spawn(
            async move { images.pull_image(PullImageRequest { image: spec("x"), ..Default::default() }).await },
        );
    until(|| !node.default.asked("PullImage").is_empty()).await;
    pull.abort();
    let _ = pull.await;
    until(|| node.default.answering() == 0).await;
    until(|| node.front.0.metrics.under_way() == 0).await;
}

/// A method that streams both ways, of a kubelet that is newer.
#[tokio::test]
async fn both_directions_of_a_stream_go_on_at_the_same_time() {
    let node = Node::up().await;
    node.default.replies("Converse", Reply::Echo);
    let (say, said) = tokio::sync::mpsc::channel::<Result<Bytes, Status>>(4);
    let body = http_body_util::StreamBody::new(tokio_stream::StreamExt::map(
        tokio_stream::wrappers::ReceiverStream::new(said),
        |said| said.map(hyper::body::Frame::data),
    ));
    let mut request = Request::new(Body::new(body));
    *request.uri_mut() = Uri::from_static("http://localhost/runtime.v1.RuntimeService/Converse");
    let mut answer = node.front.clone().call(request).await.expect("answered").into_body();
    for word in [&b"one"[..], b"two"] {
        say.send(Ok(word.into())).await.expect("said");
        let frame = answer.frame().await.expect("a frame").expect("one");
        assert_eq!(frame.into_data().expect("data"), word, "before the request has ended");
    }
    drop(say);
    let mut end = answer.frame().await.expect("an end").expect("one");
    if end.is_data() {
        // HTTP/2 ends a body by a frame with nothing in it.
        end = answer.frame().await.expect("an end").expect("one");
    }
    let end = end.into_trailers().expect("trailers");
    assert_eq!(end["grpc-status"], "14", "an answer without a status is one that broke off");
}

/// An answer that nobody takes holds up the default, and neither our memory nor other calls.
#[tokio::test]
async fn an_answer_that_is_not_read_has_room_for_little_and_holds_up_nobody() {
    let node = Node::up().await;
    let sent = std::sync::Arc::default();
    node.default.replies("Flood", Reply::Flood(64 << 10, std::sync::Arc::clone(&sent)));
    node.default.says("ContainerStatus", &ContainerStatusResponse::default());
    let mut unread = Vec::new();
    for _ in 0..8 {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static("http://localhost/runtime.v1.RuntimeService/Flood");
        unread.push(node.front.clone().call(request).await.expect("answered"));
    }
    for _ in 0..100 {
        let ask = ContainerStatusRequest { container_id: "ab".into(), verbose: false };
        node.runtime().container_status(ask).await.expect("answered");
    }
    let sent = sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(sent < unread.len() * (2 << 20), "{sent} bytes for {} answers", unread.len());
    drop(unread);
    until(|| node.default.answering() == 0).await;
}

/// A socket of something else.
#[tokio::test]
async fn what_does_not_speak_http_is_told_and_tried_again() {
    let node = Node::new();
    let listener = tokio::net::UnixListener::bind(&node.default.socket).expect("a socket");
    let speaks = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"220 mail.example.com ESMTP\r\n").await;
            open.push(stream);
        }
    });
    let why = || node.front.0.backend.away().map(|away| away.why).unwrap_or_default();
    until(|| !why().contains("no such socket") && !why().contains("not connected")).await;
    assert!(why().contains("it does not answer `Version`"), "{}", why());
    speaks.abort();
    node.default.start();
    node.is_up().await;
}

/// A new process of another version: what was known of the old one is looked at anew.
#[tokio::test]
async fn a_runtime_that_is_replaced_is_asked_anew() {
    let node = Node::up().await;
    let version = |version: &str| VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "containerd".into(),
        runtime_version: version.into(),
        runtime_api_version: "v1".into(),
    };
    node.default.kill();
    node.is_down().await;
    node.default.says("Version", &version("v3.0.0"));
    let handler = |name: &str| RuntimeHandler { name: name.into(), ..Default::default() };
    node.default.says("Status", &StatusResponse { runtime_handlers: vec![handler("virtlet")], ..Default::default() });
    node.default.start();
    node.is_up().await;
    until(|| node.front.0.state.has_twice("virtlet")).await;
    let told = node.runtime().version(VersionRequest::default()).await.expect("answered").into_inner();
    assert_eq!(told.runtime_version, "v3.0.0");
}

/// As virtletctl asks: what machines there are, and what is wrong with them, whatever the other runtime has.
#[tokio::test]
async fn who_means_our_side_is_answered_by_it_alone() {
    let node = Node::new();
    node.own.has().sandboxes = vec![sandbox("vm1")];
    let mut question = Question::new(Kind::Sandboxes.path(), Bytes::new());
    question.metadata.insert(SIDE, OURS.parse().expect("a value"));
    let list = ask::one(node.front.clone(), question).await.expect("answered").into_inner();
    assert_eq!(ListPodSandboxResponse::decode(list).expect("a list").items.len(), 1);
}

#[tokio::test]
async fn an_old_kubelet_is_told_so() {
    let node = Node::up().await;
    let question = Question::new("/runtime.v1alpha2.RuntimeService/Version", Bytes::new());
    let refused = ask::one(node.front.clone(), question).await.expect_err("refused");
    assert!(refused.code() == Code::Unimplemented && refused.message().contains("1.26"), "{refused}");
}

#[tokio::test]
async fn hostile_requests_are_refused_and_break_nothing() {
    let node = Node::up().await;
    node.default.says("ContainerStatus", &ContainerStatusResponse::default());
    for path in [
        "/runtime.v1.RuntimeService/ContainerStatus",
        "/runtime.v1.RuntimeService/RunPodSandbox",
        "/runtime.v1.RuntimeService/ListContainers",
        "/runtime.v1.ImageService/PullImage",
        "/runtime.v1.ImageService/ListImages",
        "/runtime.v1.RuntimeService/CreateContainer",
    ] {
        let refused =
            ask::one(node.front.clone(), Question::new(path, Bytes::from_static(&[0x0a, 0xff, 0xff, 0xff, 0x7f])))
                .await;
        assert_eq!(refused.expect_err(path).code(), Code::InvalidArgument, "{path}");
    }
    node.runtime()
        .container_status(ContainerStatusRequest { container_id: "ab".into(), verbose: false })
        .await
        .expect("answered");
}
