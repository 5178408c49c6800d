//! The services as a client meets them that is newer than they are: with fields in its messages that nobody here knows, at every level,
//! and with calls that are not there yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use common::KeyedMutex;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{
    CheckpointContainerRequest, CheckpointPodRequest, ContainerConfig, ContainerMetadata, DnsConfig, ImageSpec,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, ListPodSandboxRequest, NamespaceOption, PodSandboxConfig,
    PodSandboxMetadata, PodSandboxStatusRequest, RestorePodRequest, RunPodSandboxRequest, VersionRequest,
};
use tempfile::TempDir;
use tonic::body::Body;
use tonic::codegen::http::{Request, Uri};
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use super::image::ImageCalls;
use super::runtime::Runtime;
use crate::api::admin::AdminCalls;
use crate::api::admin::machines::MachineCalls;
use crate::api::admin::orphans::OrphanCalls;
use crate::api::sessions::Sessions;
use crate::api::verbs::Verbs;
use crate::api::{Own, services};
use crate::container::Containers;
use crate::daemon::node::tests::node;
use crate::sandbox::Sandboxes;
use crate::tap::tests::Fake;

/// All calls and messages of CRI, as a test of `proto/generate` keeps them.
const SCHEMA: &str = include_str!("../../../../proto/generate/tests/snapshots/cri__the_wire_is_pinned.snap");

/// A node's services, in front of a tapmanager that does as it is asked; its libvirt does not answer.
struct Node {
    dir: TempDir,
    _tap: Fake,
    services: Routes,
}

impl Node {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let tap = Fake::told(&dir, |_request| None);
        let mut node = node(dir.path()).await;
        node.tap = tap.tap();
        node.orphans.found_no_machines();
        let (mutex, streams) = (KeyedMutex::default(), (node.agents.clone(), node.consoles.clone()));
        let containers = Containers::new(node.for_containers(), mutex.clone());
        let sandboxes = Sandboxes::new(node.for_sandboxes(), containers.clone(), mutex);
        let verbs = Verbs::new(containers.clone());
        let sessions = Sessions::bind(&node.config, node.store.clone(), streams.0, streams.1, verbs).await;
        let sessions = Arc::new(sessions.expect("bound"));
        let runtime = Runtime::new(node.for_calls(sessions.clone(), "1.2.3"), sandboxes, containers.clone());
        let own = Own {
            images: AdminCalls::new(node.images.clone()),
            machines: MachineCalls::new(containers, sessions),
            orphans: OrphanCalls::new(node.orphans.clone()),
        };
        Self { services: services(runtime, ImageCalls::new(node.images.clone()), own), dir, _tap: tap }
    }

    fn runtime(&self) -> RuntimeServiceClient<Routes> {
        RuntimeServiceClient::with_origin(self.services.clone(), Uri::from_static("http://localhost"))
    }

    /// How a call with these bytes for its message ends.
    async fn end(&self, path: &str, message: &[u8]) -> (Code, String) {
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        let frame = Bytes::from([&[0], &length[..], message].concat());
        let request = Request::post(path).header("content-type", "application/grpc").body(Body::new(Full::new(frame)));
        let response = self.services.clone().oneshot(request.expect("a request")).await.expect("no transport");
        let (head, body) = response.into_parts();
        let ended = match Status::from_header_map(&head.headers) {
            Some(ended) => ended,
            // Events go on for ever.
            None if path.ends_with("/GetContainerEvents") => Status::ok(""),
            None => {
                let answer = body.collect().await.expect("an answer");
                answer.trailers().and_then(Status::from_header_map).expect("an end")
            }
        };
        (ended.code(), ended.message().replace(&self.dir.path().display().to_string(), "DIR"))
    }
}

/// A field of a message. Of a message or an enum, `of` is its name.
struct Field {
    number: u32,
    kind: &'static str,
    of: &'static str,
}

/// Fields by the name of their message.
struct Schema(BTreeMap<&'static str, Vec<Field>>);

impl Schema {
    fn new() -> Self {
        let mut messages = BTreeMap::<_, Vec<_>>::new();
        for line in SCHEMA.lines() {
            if let Some(name) = line.strip_prefix("message ") {
                messages.entry(name).or_default();
            }
            let field = line.split_once(" = ").and_then(|(field, is)| Some((field.rsplit_once('.')?.0, is)));
            let Some((message, is)) = field else { continue };
            let words: Vec<_> = is.split(", ").next().unwrap_or_default().split(' ').collect();
            // The value of an enum is a number alone.
            if let [number, _label, kind, of @ ..] = &*words {
                let of = of.first().map_or("", |name| name.trim_start_matches(".runtime.v1."));
                let number = number.parse().expect("a number");
                messages.entry(message).or_default().push(Field { number, kind, of });
            }
        }
        Self(messages)
    }

    /// Paths of all calls, and what is asked by each.
    fn calls() -> impl Iterator<Item = (String, &'static str)> {
        SCHEMA.lines().filter_map(|line| {
            let (call, request) = line.split_once(") -> ")?.0.split_once('(')?;
            let path = format!("/runtime.v1.{}", call.replace('.', "/"));
            Some((path, request.trim_start_matches(".runtime.v1.")))
        })
    }

    /// A message with all of its fields, and theirs.
    fn whole(&self, name: &str) -> Vec<u8> {
        let mut message = Vec::new();
        for Field { number, kind, of } in &self.0[name] {
            match *kind {
                "message" => put(&mut message, *number, &self.whole(of)),
                "string" | "bytes" => put(&mut message, *number, b"x"),
                "double" => {
                    encode_key(*number, WireType::SixtyFourBit, &mut message);
                    message.extend(1_f64.to_le_bytes());
                }
                _ => {
                    encode_key(*number, WireType::Varint, &mut message);
                    encode_varint(1, &mut message);
                }
            }
        }
        message
    }

    /// The message with unknown fields before and behind its own, and so with all messages in it.
    fn widened(&self, name: &str, mut message: &[u8]) -> Vec<u8> {
        let mut wide = unknown();
        while !message.is_empty() {
            let begin = message;
            let (number, kind) = decode_key(&mut message).expect("a key");
            let of = self.0[name].iter().find(|field| field.number == number && field.kind == "message");
            if let Some(Field { of, .. }) = of {
                let length = decode_varint(&mut message).expect("a length");
                let (content, rest) = message.split_at(usize::try_from(length).expect("short"));
                put(&mut wide, number, &self.widened(of, content));
                message = rest;
            } else {
                skip_field(kind, number, &mut message, DecodeContext::default()).expect("a field");
                wide.extend(&begin[..begin.len() - message.len()]);
            }
        }
        wide.extend(unknown());
        wide
    }
}

fn put(message: &mut Vec<u8>, number: u32, content: &[u8]) {
    encode_key(number, WireType::LengthDelimited, message);
    encode_varint(content.len() as u64, message);
    message.extend(content);
}

/// Fields of each form, with numbers that no message has: one near, and the largest there is.
fn unknown() -> Vec<u8> {
    let mut fields = Vec::new();
    for number in [1000, (1 << 29) - 1] {
        encode_key(number, WireType::Varint, &mut fields);
        encode_varint(u64::MAX, &mut fields);
        encode_key(number, WireType::SixtyFourBit, &mut fields);
        fields.extend([0xff; 8]);
        put(&mut fields, number, b"what a newer client says");
        encode_key(number, WireType::ThirtyTwoBit, &mut fields);
        fields.extend([0xff; 4]);
    }
    fields
}

#[tokio::test]
async fn what_a_newer_client_says_besides_changes_the_answer_to_no_call() {
    let (schema, known, newer) = (Schema::new(), Node::new().await, Node::new().await);
    let mut codes = BTreeMap::<_, usize>::new();
    for (path, request) in Schema::calls() {
        let message = schema.whole(request);
        let end = known.end(&path, &message).await;
        assert_eq!(newer.end(&path, &schema.widened(request, &message)).await, end, "{path}");
        *codes.entry(format!("{:?}", end.0)).or_default() += 1;
    }
    assert_eq!(codes.values().sum::<usize>(), 43, "{codes:?}");
    // None fails for the form of its message, and many do what they do.
    assert!(!codes.contains_key("Internal") && codes["Ok"] > 20, "{codes:?}");
}

#[tokio::test]
async fn a_pod_is_made_of_what_is_known_of_a_newer_clients_request() {
    let (schema, node) = (Schema::new(), Node::new().await);
    let metadata = PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "ns".into(), attempt: 3 };
    let context = LinuxSandboxSecurityContext {
        namespace_options: Some(NamespaceOption { pid: 1, ..Default::default() }),
        ..Default::default()
    };
    let config = PodSandboxConfig {
        metadata: Some(metadata.clone()),
        hostname: "web-0".into(),
        dns_config: Some(DnsConfig { searches: vec!["example.test".into()], ..Default::default() }),
        labels: [("app".into(), "web".into())].into(),
        annotations: [("virtlet.cloud/anti-spoof".into(), "false".into())].into(),
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(context),
            sysctls: [("net.ipv4.ip_forward".into(), "1".into())].into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: "virtlet".into() };
    let message = schema.widened("RunPodSandboxRequest", &request.encode_to_vec());
    let end = node.end("/runtime.v1.RuntimeService/RunPodSandbox", &message).await;
    assert_eq!(end, (Code::Ok, String::new()));

    let list = node.runtime().list_pod_sandbox(ListPodSandboxRequest::default()).await.expect("a list").into_inner();
    let [sandbox] = &*list.items else { panic!("{list:?}") };
    assert_eq!((&sandbox.metadata, &*sandbox.runtime_handler), (&Some(metadata), "virtlet"));
    assert_eq!((&sandbox.labels, &sandbox.annotations), (&config.labels, &config.annotations));
}

/// kubelet and crictl pass the error on as it is, and go on.
#[tokio::test]
async fn what_is_not_there_yet_is_said_to_be_unimplemented_and_the_client_goes_on() {
    let node = Node::new().await;
    let mut client = node.runtime();
    let of_container = CheckpointContainerRequest { container_id: "vm01".into(), ..Default::default() };
    let refused = client.checkpoint_container(of_container).await.expect_err("not there");
    let why = "a virtual machine is not checkpointed";
    assert!(refused.code() == Code::Unimplemented && refused.message().contains(why), "{refused}");
    client.version(VersionRequest::default()).await.expect("answered");
}

#[tokio::test]
async fn a_pod_of_no_checkpoint_is_refused_before_anything_is_made() {
    let node = Node::new().await;
    let metadata = PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "ns".into(), attempt: 0 };
    let container = ContainerConfig {
        metadata: Some(ContainerMetadata { name: "vm".into(), attempt: 0 }),
        image: Some(ImageSpec { image: "tiny".into(), ..Default::default() }),
        ..Default::default()
    };
    let good = RestorePodRequest {
        checkpoint_path: "/nowhere/at/all".into(),
        config: Some(PodSandboxConfig { metadata: Some(metadata), ..Default::default() }),
        container_configs: vec![container],
        ..Default::default()
    };
    let options = [("x".to_owned(), String::new())].into();
    for (request, code, why) in [
        (good.clone(), Code::FailedPrecondition, "it is not there"),
        (RestorePodRequest { checkpoint_path: "x".into(), ..good.clone() }, Code::InvalidArgument, "absolute path"),
        (RestorePodRequest { options, ..good.clone() }, Code::InvalidArgument, "option `x`"),
        (RestorePodRequest { container_configs: Vec::new(), ..good }, Code::InvalidArgument, "one container"),
    ] {
        let refused = node.runtime().restore_pod(request).await.expect_err(why);
        assert!(refused.code() == code && refused.message().contains(why), "{why}: {refused}");
    }
    let list = node.runtime().list_pod_sandbox(ListPodSandboxRequest::default()).await.expect("a list").into_inner();
    assert!(list.items.is_empty(), "{list:?}");
}

#[tokio::test]
async fn a_checkpoint_of_no_pod_or_with_options_is_refused() {
    let node = Node::new().await;
    let checkpoint = CheckpointPodRequest {
        pod_sandbox_id: "vm01".into(),
        output_path: "/var/lib/kubelet/checkpoints/x".into(),
        ..Default::default()
    };
    let refused = node.runtime().checkpoint_pod(checkpoint.clone()).await.expect_err("no pod");
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    let options = [("tcp-established".to_owned(), String::new())].into();
    let refused =
        node.runtime().checkpoint_pod(CheckpointPodRequest { options, ..checkpoint }).await.expect_err("options");
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("tcp-established"), "{refused}");
}

/// With a time kubelet (1.37, gate `EventedPLEG`) takes the containers' statuses from here, and forgets which are of this sandbox: it starts
/// a pod's init containers again and again.
#[tokio::test]
async fn a_sandbox_leaves_its_containers_statuses_to_calls_of_their_own() {
    let node = Node::new().await;
    let metadata = PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "ns".into(), attempt: 0 };
    let config = PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    let pod_sandbox_id = node.runtime().run_pod_sandbox(request).await.expect("made").into_inner().pod_sandbox_id;
    let request = PodSandboxStatusRequest { pod_sandbox_id, verbose: true };
    let told = node.runtime().pod_sandbox_status(request).await.expect("told").into_inner();
    assert!(told.status.is_some() && told.timestamp == 0 && told.containers_statuses.is_empty(), "{told:?}");
}
