//! The server on loopback: a front proxy on one side, and on the other an API server that has a VM, its instance and that one's pod.

mod api;

use bytes::BytesMut;
use k8s_openapi::api::core::v1::ConfigMap;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use streaming::websocket::{BINARY, CLOSE, Decoder, Piece, write_masked};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::api::Api;
use super::front_proxy::FrontProxy;
use super::*;
use crate::certificates::provider;

const HOST: &str = "virtlet-subresources.virtlet-system.svc";
/// What is awaited comes within this.
const SOON: Duration = Duration::from_secs(10);
const AT: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

struct Rig {
    at: SocketAddr,
    roots: RootCertStore,
    front: CertifiedIssuer<'static, KeyPair>,
    api: Api,
    server: Arc<Server>,
    alive: watch::Sender<()>,
    /// The server ends with this.
    _door: watch::Sender<Option<Arc<Door>>>,
}

/// Who comes.
#[derive(Clone, Copy)]
enum Comes<'a> {
    /// With a certificate of the front proxies' authority, for this name.
    As(&'a str),
    /// With one of somebody else's.
    Stranger,
    Bare,
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

async fn rig() -> Rig {
    let (ours, front) = (authority("ours"), authority("front"));
    let key = KeyPair::generate().expect("a key");
    let made = CertificateParams::new([HOST.to_owned()]).expect("parameters").signed_by(&key, &ours).expect("signed");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    let shown = builder.with_no_client_auth().with_single_cert(vec![made.into()], key).expect("a pair");
    let map: ConfigMap = serde_json::from_value(json!({"data": {
        "requestheader-client-ca-file": front.pem(),
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
    }}))
    .expect("a map");
    let proxy = Arc::new(FrontProxy::read(&map).expect("proxies"));
    let door = Door { tls: proxy.server(&shown).expect("TLS"), proxy };
    let api = Api::start().await;
    let (alive, stopped) = watch::channel(());
    let server = Arc::new(Server {
        group: Group::KubeVirt,
        release: "1.2.3".to_owned(),
        clients: api.clients(),
        figures: Arc::default(),
        slots: Slots::default(),
        sessions: Arc::new(Sessions::new(2, 2)),
        bodies: Room::new(1, "bodies"),
        said: Room::new(1, "answers"),
        stopped,
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let (_door, now) = watch::channel(Some(Arc::new(door)));
    tokio::spawn(answer(listener, now, Arc::clone(&server)));
    let mut roots = RootCertStore::empty();
    roots.add(ours.der().clone()).expect("an authority");
    Rig { at, roots, front, api, server, alive, _door }
}

impl Rig {
    async fn connect(&self, comes: Comes<'_>) -> std::io::Result<TlsStream<TcpStream>> {
        let builder =
            ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
        let builder = builder.with_root_certificates(self.roots.clone());
        let config = match comes {
            Comes::Bare => builder.with_no_client_auth(),
            Comes::As(_) | Comes::Stranger => {
                let stranger = authority("front");
                let (name, signer) = match comes {
                    Comes::As(name) => (name, &self.front),
                    _ => ("front-proxy-client", &stranger),
                };
                let mut params = CertificateParams::default();
                params.distinguished_name.push(DnType::CommonName, name);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                let key = KeyPair::generate().expect("a key");
                let made = params.signed_by(&key, signer).expect("signed");
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                builder.with_client_auth_cert(vec![made.into()], key).expect("a pair")
            }
        };
        let stream = TcpStream::connect(self.at).await?;
        let name = ServerName::try_from(HOST).expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Status and body of an answer.
    async fn ask(&self, comes: Comes<'_>, request: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect(comes).await.expect("a connection");
        let length = body.len();
        let head = format!(
            "{request} HTTP/1.1\r\nhost: x\r\nx-remote-user: jane\r\nx-remote-group: dev\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        // It may have been answered before all of it was sent.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    /// As the API server asks for Jane.
    async fn jane(&self, request: &str, body: &str) -> (u16, String) {
        self.ask(Comes::As("front-proxy-client"), request, body).await
    }

    /// What Jane is told of an error.
    async fn refused(&self, request: &str, body: &str) -> (u16, String) {
        let (code, body) = self.jane(request, body).await;
        let status: Value = serde_json::from_str(&body).expect("a Status");
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)));
        (code, status["message"].as_str().expect("a text").to_owned())
    }

    /// A stream, and the head of the answer.
    async fn stream(&self, path: &str, protocol: &str) -> (TlsStream<TcpStream>, String) {
        let mut stream = self.connect(Comes::As("front-proxy-client")).await.expect("a connection");
        let head = format!(
            "GET {AT}/{path} HTTP/1.1\r\nhost: x\r\nx-remote-user: jane\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("asked");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.expect("an answer"));
        }
        (stream, String::from_utf8(answer).expect("text").to_lowercase())
    }
}

/// Sends a message.
async fn say(stream: &mut TlsStream<TcpStream>, opcode: u8, payload: &[u8]) {
    let mut out = BytesMut::new();
    write_masked(opcode, &[payload], [9, 8, 7, 6], &mut out);
    stream.write_all(&out).await.expect("said");
}

/// Bytes of messages, until there are as many as this, or the other side leaves.
async fn heard(stream: &mut TlsStream<TcpStream>, count: usize) -> Vec<u8> {
    let (mut decoder, mut buffer, mut all) = (Decoder::of_server(), BytesMut::new(), Vec::new());
    while all.len() < count {
        match decoder.decode(&mut buffer).expect("messages") {
            Some(Piece::Message { bytes, .. }) => all.extend_from_slice(&bytes),
            Some(Piece::Ping(_)) => {}
            Some(Piece::Close(_)) => break,
            None => {
                if stream.read_buf(&mut buffer).await.expect("read") == 0 {
                    break;
                }
            }
        }
    }
    all
}

#[tokio::test]
async fn headers_are_believed_of_front_proxies_alone() {
    let rig = rig().await;
    let path = format!("PUT {AT}/virtualmachines/db/start");
    assert_eq!(rig.ask(Comes::Bare, &path, "").await.0, 401);
    assert_eq!(rig.ask(Comes::As("kubelet"), &path, "").await.0, 401);
    // One of another authority is not let in at all, or is not answered.
    if let Ok(mut stream) = rig.connect(Comes::Stranger).await {
        let _ = stream.write_all(b"GET /apis HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{answer:?}");
    }
    assert!(rig.api.reviews().is_empty() && rig.api.patches().is_empty());
    // What is no secret is anybody's.
    for path in
        ["/apis", "/apis/subresources.kubevirt.io", "/apis/subresources.kubevirt.io/v1", "/healthz", "/openapi/v3"]
    {
        assert_eq!(rig.ask(Comes::Bare, &format!("GET {path}"), "").await.0, 200, "{path}");
    }
    let (code, told) = rig.ask(Comes::Bare, "GET /apis/subresources.kubevirt.io/v1/version", "").await;
    assert!(code == 200 && told.contains("\"v1.2.3\""), "{told}");
}

#[tokio::test]
async fn who_asks_may_be_in_many_groups() {
    let rig = rig().await;
    let mut stream = rig.connect(Comes::As("front-proxy-client")).await.expect("a connection");
    let groups = "x-remote-group: oidc:some-team-of-many\r\n".repeat(500);
    let head = format!(
        "PUT {AT}/virtualmachineinstances/db/pause HTTP/1.1\r\nhost: x\r\nx-remote-user: jane\r\n{groups}content-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("asked");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 202 "), "{}", String::from_utf8_lossy(&answer));
    let review = rig.api.reviews().pop().expect("a review");
    assert_eq!(review["spec"]["groups"].as_array().map(Vec::len), Some(500));
}

#[tokio::test]
async fn strangers_leave_room_for_front_proxies() {
    let rig = rig().await;
    let mut all = Vec::new();
    for _ in 0..MAX_STRANGERS {
        all.push(rig.connect(Comes::Bare).await.expect("a connection"));
    }
    let taken = async {
        while rig.server.slots.strangers.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, taken).await.expect("all places are taken");
    let mut more = rig.connect(Comes::Bare).await.expect("a connection");
    let _ = more.write_all(b"GET /apis HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = more.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{answer:?}");
    assert_eq!(rig.jane("GET /apis", "").await.0, 200);
    drop(all);
}

#[tokio::test]
async fn each_request_is_reviewed_for_its_own_subresource() {
    let rig = rig().await;
    rig.api.allow("virtualmachineinstances/vnc");
    let (code, told) = rig.refused(&format!("GET {AT}/virtualmachineinstances/db/vnc/screenshot"), "").await;
    assert_eq!(code, 403);
    assert!(told.contains("User \"jane\" cannot get resource \"virtualmachineinstances/vnc/screenshot\""), "{told}");
    assert_eq!(rig.refused(&format!("PUT {AT}/virtualmachineinstances/db/pause"), "").await.0, 403);
    let (_, head) = rig.stream("virtualmachineinstances/db/console", "").await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    let (_, head) = rig.stream("virtualmachineinstances/db/vnc", "").await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    let reviews = rig.api.reviews();
    let asked: Vec<String> = reviews
        .iter()
        .map(|review| {
            let at = &review["spec"]["resourceAttributes"];
            assert_eq!(
                (&review["spec"]["user"], &at["namespace"], &at["name"]),
                (&json!("jane"), &json!("default"), &json!("db"))
            );
            format!("{} {}/{}", at["verb"], at["resource"], at["subresource"]).replace('"', "")
        })
        .collect();
    let wanted = [
        "get virtualmachineinstances/vnc/screenshot",
        "update virtualmachineinstances/pause",
        "get virtualmachineinstances/console",
        "get virtualmachineinstances/vnc",
    ];
    assert_eq!(asked, wanted);
}

#[tokio::test]
async fn power_is_asked_of_the_operator() {
    let rig = rig().await;
    let at = format!("{AT}/virtualmachines/db");
    let (code, told) = rig.refused(&format!("PUT {at}/start"), "{}").await;
    assert_eq!(code, 409);
    assert_eq!(told, "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"db\": VM is already running");
    let (code, told) = rig.jane(&format!("PUT {at}/stop"), "{\"gracePeriod\":7}").await;
    assert_eq!((code, told.len()), (202, 0));
    let (query, patch) = rig.api.patches().pop().expect("a patch");
    assert!(!query.contains("dryRun"), "{query}");
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let text = patch["metadata"]["annotations"]["virtlet.k8s/power-request"].as_str().expect("a request");
    let mut request: Value = serde_json::from_str(text).expect("JSON");
    request["id"] = json!(null);
    assert_eq!(request, json!({"id": null, "action": "Stop", "vmiUID": "vmi-uid", "gracePeriodSeconds": 7}));
    // Nobody may ask before that is answered.
    let (code, told) = rig.refused(&format!("PUT {at}/restart"), "").await;
    assert!(code == 409 && told.ends_with("another request is under way"), "{told}");
    rig.api.answer_request();
    assert_eq!(rig.jane(&format!("PUT {at}/restart"), "{\"dryRun\":[\"All\"]}").await.0, 202);
    assert!(rig.api.patches().pop().is_some_and(|(query, _)| query.contains("dryRun=All")));
    let (code, told) = rig.refused(&format!("PUT {AT}/virtualmachines/other/start"), "").await;
    assert!(code == 404 && told.contains("\"other\" not found"), "{told}");
    assert_eq!(rig.refused(&format!("PUT {at}/start"), "{\"paused\":true}").await.0, 400);
    assert_eq!(rig.refused(&format!("PUT {at}/start"), "7").await.0, 400);
    assert_eq!(rig.refused(&format!("PUT {at}/start"), &" ".repeat(65 << 10)).await.0, 413);
}

#[tokio::test]
async fn a_vm_that_is_written_meanwhile_is_looked_at_again() {
    let rig = rig().await;
    rig.api.is_late(1);
    assert_eq!(rig.jane(&format!("PUT {AT}/virtualmachines/db/stop"), "").await.0, 202);
    assert_eq!(rig.api.patches().len(), 2);
    rig.api.answer_request();
    rig.api.is_late(usize::MAX);
    assert_eq!(rig.refused(&format!("PUT {AT}/virtualmachines/db/stop"), "").await.0, 409);
}

#[tokio::test]
async fn nodes_do_what_is_asked_and_say_what_is_in_the_way() {
    let rig = rig().await;
    let at = format!("{AT}/virtualmachineinstances/db");
    assert_eq!(rig.jane(&format!("PUT {at}/reset"), "").await, (202, String::new()));
    assert_eq!(rig.api.words(), ["virtlet:reset", "--for=jane"]);
    assert_eq!(rig.jane(&format!("PUT {at}/freeze"), "{\"unfreezeTimeout\":\"1m0.5s\"}").await.0, 202);
    assert_eq!(rig.api.words(), ["virtlet:freeze", "--for=jane", "--timeout=61"]);
    let (code, told) = rig.refused(&format!("PUT {at}/softreboot"), "").await;
    assert_eq!(code, 409);
    assert_eq!(told, "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"db\": no agent answers");
    let (code, told) = rig.jane(&format!("GET {at}/userlist"), "").await;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let wanted = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceGuestOSUserList", "metadata": {}, "items": [{"userName": "root"}],
    });
    assert_eq!((code, told), (200, wanted));
    assert_eq!(rig.refused(&format!("GET {at}/guestosinfo"), "").await.0, 500);
    let (code, told) = rig.refused(&format!("GET {at}/filesystemlist"), "").await;
    assert_eq!(code, 413);
    assert_eq!(
        told,
        "the node's answer is longer than 1048576 bytes, and is not passed on: `kubectl exec` of the command in the VM's pod has no such bound"
    );
    let (code, picture) = rig.jane(&format!("GET {at}/vnc/screenshot?moveCursor=true"), "").await;
    assert_eq!((code, &*picture), (200, "PNG"));
    assert_eq!(rig.api.words(), ["virtlet:screenshot", "--for=jane", "--move-cursor"]);
    // One that is paused would fail its probe.
    rig.api.with(|objects| objects.instance["spec"]["livenessProbe"] = json!({"httpGet": {"port": 80}}));
    let (code, told) = rig.refused(&format!("PUT {at}/pause"), "").await;
    assert!(code == 409 && told.contains("liveness probe"), "{told}");
    rig.api.with(|objects| objects.instance["spec"]["livenessProbe"] = json!({"guestAgentPing": {}}));
    assert_eq!(rig.jane(&format!("PUT {at}/pause"), "").await.0, 202);
}

#[tokio::test]
async fn what_does_not_run_is_reached_by_nobody() {
    let rig = rig().await;
    let at = format!("{AT}/virtualmachineinstances/db");
    rig.api.with(|objects| objects.pod["metadata"]["ownerReferences"][0]["uid"] = "other".into());
    let (code, told) = rig.refused(&format!("PUT {at}/pause"), "").await;
    assert!(code == 409 && told.contains("its pod is gone"), "{told}");
    rig.api.with(|objects| objects.instance["status"]["phase"] = "Scheduling".into());
    let (code, told) = rig.refused(&format!("PUT {at}/pause"), "").await;
    assert!(code == 409 && told.contains("VMI is not running: it is Scheduling"), "{told}");
    let (_, head) = rig.stream("virtualmachineinstances/db/console", "").await;
    // It is asked for again until it runs, and no longer once it has ended.
    assert!(head.starts_with("http/1.1 400 "), "{head}");
    rig.api.with(|objects| objects.instance["status"]["phase"] = "Failed".into());
    let (_, head) = rig.stream("virtualmachineinstances/db/vnc", "").await;
    assert!(head.starts_with("http/1.1 409 "), "{head}");
    rig.api.with(|objects| {
        objects.instance["status"]["phase"] = "Running".into();
        objects.instance["spec"] = json!({"domain": {"devices": {"autoattachSerialConsole": false}}});
    });
    rig.api.with(|objects| objects.pod["metadata"]["ownerReferences"][0]["uid"] = "vmi-uid".into());
    let (_, head) = rig.stream("virtualmachineinstances/db/console", "").await;
    assert!(head.starts_with("http/1.1 409 "), "{head}");
    rig.api.with(|objects| objects.instance["metadata"]["ownerReferences"] = json!([]));
    let (_, head) = rig.stream("virtualmachines/db/portforward/22", "").await;
    assert!(head.starts_with("http/1.1 409 "), "{head}");
    assert!(rig.api.words().is_empty());
}

#[tokio::test]
async fn streams_carry_bytes() {
    let rig = rig().await;
    let plain = "sec-websocket-protocol: plain.kubevirt.io\r\n";
    let (mut console, head) = rig.stream("virtualmachineinstances/db/console", plain).await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains(plain.trim()), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    say(&mut console, BINARY, b"ls\n").await;
    assert_eq!(heard(&mut console, 3).await, b"LS\n");
    // Much of it, and in the order in which it came.
    let (mut port, _) = rig.stream("virtualmachines/db/portforward/22/tcp", "").await;
    let all: Vec<u8> = (0..200_000_u32).map(|nth| (nth % 26) as u8 + b'A').collect();
    let (mut read, mut written) = (Vec::new(), 0);
    for part in all.chunks(50_000) {
        say(&mut port, BINARY, part).await;
        written += part.len();
        read.extend(heard(&mut port, written - read.len()).await);
    }
    assert_eq!(read, all);
    // There is room for two.
    let (_, head) = rig.stream("virtualmachineinstances/db/console", plain).await;
    assert!(head.starts_with("http/1.1 429 "), "{head}");
    say(&mut port, CLOSE, b"").await;
    assert!(heard(&mut port, 1).await.is_empty());
    drop(rig.alive);
    assert!(heard(&mut console, 1).await.is_empty());
    timeout(SOON, rig.server.sessions.ended()).await.expect("no stream is left");
}

#[tokio::test]
async fn a_screen_that_is_not_to_be_had_is_a_status() {
    let rig = rig().await;
    let (mut screen, head) = rig.stream("virtualmachineinstances/db/vnc?preserveSession=true", "").await;
    assert!(head.starts_with("http/1.1 409 "), "{head}");
    let mut told = vec![0; 60];
    screen.read_exact(&mut told).await.expect("a body");
    assert!(told.starts_with(b"{"), "{told:?}");
    let (mut screen, _) = rig.stream("virtualmachineinstances/db/vnc", "").await;
    assert_eq!(rig.api.words(), ["virtlet:vnc", "--for=jane", "--take"]);
    assert_eq!(heard(&mut screen, 12).await, b"RFB 003.008\n");
}

#[tokio::test]
async fn what_is_no_stream_and_what_there_is_not_are_refused() {
    let rig = rig().await;
    assert_eq!(rig.refused(&format!("GET {AT}/virtualmachineinstances/db/console"), "").await.0, 400);
    let (_, head) = rig.stream("virtualmachineinstances/db/vnc", "sec-websocket-protocol: v4.channel.k8s.io\r\n").await;
    assert!(head.starts_with("http/1.1 400 "), "{head}");
    let (code, told) = rig.refused(&format!("PUT {AT}/virtualmachines/db/migrate"), "").await;
    assert!(code == 501 && told.contains("restart the VM"), "{told}");
    assert_eq!(rig.refused(&format!("PUT {AT}/virtualmachines/db/frobnicate"), "").await.0, 404);
    assert_eq!(rig.ask(Comes::Bare, &format!("PUT {AT}/virtualmachines/db/migrate"), "").await.0, 401);
    let vm = "{\"kind\":\"VirtualMachine\",\"spec\":{}}";
    assert_eq!(rig.jane(&format!("PUT {AT}/expand-vm-spec"), vm).await, (200, vm.to_owned()));
    let long = format!("{{\"spec\": \"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(rig.jane(&format!("PUT {AT}/expand-vm-spec"), &long).await, (200, long.clone()));
    assert_eq!(rig.refused(&format!("PUT {AT}/expand-vm-spec"), "[]").await.0, 400);
    let (code, told) = rig.jane(&format!("GET {AT}/virtualmachines/db/expand-spec"), "").await;
    assert!(code == 200 && told.contains("\"runStrategy\":\"Always\""), "{told}");
    let text = crate::metrics::Facts::text(&*rig.server.figures);
    assert!(text.contains("virtlet_subresources_requests_total{subresource=\"none\",code=\"501\"} 1"), "{text}");
}
