//! What a registry's manifest says of an image that is here counts only from the registry that has the image.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use imagestore::net::Auth;
use imagestore::{Image, PullRequest};
use serde_json::json;
use vmimage::error::ErrorKind;

use crate::rig::{Bed, Call, Server, chain, disk, hex};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
/// base64 of `me:secret`
const LOGIN: &str = "bWU6c2VjcmV0";

/// What a registry has of the image in a repository, whose manifest names it in any case.
#[derive(Clone, Copy)]
enum Blob {
    Whole,
    /// Its length, and never its bytes.
    Length,
    None,
    /// All of it, for `me` alone.
    Private,
}

/// A registry that does not look at what manifests name.
struct Registry {
    server: Server,
    /// Paths of blobs of the image that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Registry {
    fn with(image: &[u8], repositories: &[(&'static str, Blob)]) -> Self {
        let (image, repositories) = (image.to_vec(), repositories.iter().copied().collect::<BTreeMap<_, _>>());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let count = asked.clone();
        let config = b"{}".to_vec();
        let descriptor = |media_type: &str, bytes: &[u8]| json!({ "mediaType": media_type, "digest": format!("sha256:{}", hex(bytes)), "size": bytes.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/vnd.example.vm-disk",
            "config": descriptor("application/vnd.oci.empty.v1+json", &config),
            "layers": [descriptor("application/octet-stream", &image)],
        });
        let manifest = manifest.to_string().into_bytes();
        let server = Server::plain(move |call| {
            let path = call.path().to_owned();
            if path == "/v2/" {
                return answer(call, "application/json", b"{}");
            }
            let parts: Vec<_> = path.split('/').skip(2).collect();
            let [repository, kind, name] = parts[..] else { return call.send(NOT_FOUND) };
            let Some(blob) = repositories.get(repository) else { return call.send(NOT_FOUND) };
            if matches!(blob, Blob::Private) && !call.head.contains(LOGIN) {
                let wanted =
                    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n";
                return call.send(wanted);
            }
            match kind {
                "manifests" => answer(call, MANIFEST, &manifest),
                "blobs" if name.ends_with(&hex(&config)) => answer(call, "application/octet-stream", &config),
                "blobs" => {
                    count.lock().expect("sound").push(path.clone());
                    match blob {
                        Blob::Whole | Blob::Private => answer(call, "application/octet-stream", &image),
                        Blob::Length => {
                            call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", image.len()));
                            call.hold();
                        }
                        Blob::None => call.send(NOT_FOUND),
                    }
                }
                _ => call.send(NOT_FOUND),
            }
        });
        Self { server, asked }
    }

    fn blobs(&self) -> usize {
        self.asked.lock().expect("sound").len()
    }
}

fn answer(call: &mut Call<'_>, media_type: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n", body.len());
    call.send(head);
    if !call.head.starts_with("HEAD") {
        call.send(body);
    }
}

/// A store with a rule `NUMBER/REPOSITORY` for each registry, which the caller chooses the repository of.
fn bed(registries: &[&Registry]) -> Bed {
    let hosts: Vec<_> = registries.iter().map(|registry| registry.server.address.to_string()).collect();
    let bed = Bed::with("http://unused.example/", |config| {
        let settings = json!({ "type": "oci", "id": "oci", "plain_http": hosts });
        config.providers = vec![serde_json::from_value(settings).expect("settings")];
        config.regexp_translations = true;
    });
    let rules = hosts.iter().enumerate();
    let rules =
        rules.map(|(number, host)| json!({ "regexp": format!("^{number}/(.*)$"), "url": format!("oci://{host}/$1") }));
    let rules = json!({ "translations": rules.collect::<Vec<_>>() }).to_string();
    std::fs::write(bed.dir.path().join("rules/b.yaml"), rules).expect("written");
    bed
}

async fn pull(bed: &Bed, name: &str, user: Option<&str>) -> Result<Image, (ErrorKind, String)> {
    let auth = user.map(|user| Auth::Basic { user: user.into(), password: "secret".into() });
    let request = PullRequest { auth, ..name.into() };
    bed.store.pull(request).await.map_err(|error| (error.kind(), chain(&*error)))
}

#[tokio::test]
async fn a_manifest_is_no_leave_to_have_what_another_registry_gave() {
    let image = disk(1, 64 * 1024);
    let theirs = Registry::with(&image, &[("private", Blob::Private)]);
    // Whoever runs a registry can say that it has a blob. Only its bytes show it.
    let own = Registry::with(&image, &[("none", Blob::None), ("length", Blob::Length), ("whole", Blob::Whole)]);
    let bed = bed(&[&theirs, &own]).reopened_with(|config| {
        config.net.timeouts.stall = std::time::Duration::from_millis(200);
    });
    let id = pull(&bed, "0/private", Some("me")).await.expect("let in").id;
    for name in ["1/none", "1/length"] {
        pull(&bed, name, None).await.expect_err(name);
    }
    assert_eq!(own.blobs(), 2, "asked for the bytes");
    assert_eq!(bed.store.list("").expect("listed")[0].repo_tags.len(), 1);
    assert_eq!(pull(&bed, "1/whole", None).await.expect("had the bytes").id, id);
}

#[tokio::test]
async fn another_repository_of_the_registry_is_asked_for_the_blob_and_not_for_its_bytes() {
    let image = disk(1, 64 * 1024);
    let repositories = [("private", Blob::Private), ("none", Blob::None), ("length", Blob::Length)];
    let registry = Registry::with(&image, &repositories);
    let bed = bed(&[&registry]);
    let id = pull(&bed, "0/private", Some("me")).await.expect("let in").id;
    assert_eq!(registry.blobs(), 1);
    let (kind, error) = pull(&bed, "0/none", None).await.expect_err("the repository does not have it");
    assert_eq!(kind, ErrorKind::NotFound, "{error}");
    assert_eq!(registry.blobs(), 2);
    assert_eq!(pull(&bed, "0/length", None).await.expect("no byte was needed").id, id);
    assert_eq!(registry.blobs(), 3);
    // From then on the repository is one that the image came from.
    pull(&bed, "0/length:other", None).await.expect("let in");
    pull(&bed, "0/private", Some("me")).await.expect("let in");
    assert_eq!(registry.blobs(), 3, "the manifest is enough");
    pull(&bed, "0/private", None).await.expect_err("let in by nobody");
}

/// A store without rules and providers, which speaks to all servers without TLS.
fn bare(names: bool) -> Bed {
    Bed::with("http://unused.example/", |config| {
        config.protocol = imagestore::Protocol::Http;
        config.registry_names = names;
    })
}

#[tokio::test]
async fn a_host_that_is_a_registry_needs_no_provider() {
    let image = disk(1, 64 * 1024);
    let registry = Registry::with(&image, &[("whole", Blob::Whole), ("private", Blob::Private)]);
    let host = registry.server.address;
    let doors =
        || registry.server.requests.lock().expect("sound").iter().filter(|head| head.starts_with("GET /v2/ ")).count();
    let bed = bare(true);
    let pulled = pull(&bed, &format!("{host}/whole:1"), None).await.expect("pulled");
    assert_eq!((pulled.id.hex(), pulled.provider.as_deref()), (hex(&image).as_str(), Some("registries")));
    let (kind, error) = pull(&bed, &format!("{host}/none:1"), None).await.expect_err("it has no such image");
    assert_eq!(kind, ErrorKind::NotFound, "{error}");
    pull(&bed, &format!("{host}/private"), None).await.expect_err("let in by nobody");
    pull(&bed, &format!("{host}/private"), Some("me")).await.expect("let in");
    assert_eq!(doors(), 1, "a host is asked once what it is");
    let front = registry.server.requests.lock().expect("sound")[0].to_lowercase();
    assert!(!front.contains("authorization"), "{front}");
    // What ends like a file is one.
    pull(&bed, &format!("{host}/whole.qcow2"), None).await.expect_err("there is no such file");
    let last = registry.server.requests.lock().expect("sound").last().expect("asked").clone();
    assert!(last.starts_with("GET /whole.qcow2 "), "{last}");

    let off = bare(false);
    pull(&off, &format!("{host}/whole:1"), None).await.expect_err("a file of that name");
    let denied = Bed::with("http://unused.example/", |config| {
        (config.registry_names, config.allow_untranslated) = (true, false);
    });
    let (kind, error) = pull(&denied, &format!("{host}/whole:1"), None).await.expect_err("names without a rule");
    assert_eq!(kind, ErrorKind::NotFound, "{error}");
    assert_eq!(doors(), 1);
}

#[tokio::test]
async fn a_host_that_is_none_is_asked_for_a_file() {
    let image = disk(1, 64 * 1024);
    let body = image.clone();
    let server = Server::plain(move |call| match call.path() {
        "/debian" => call.ok(&body),
        _ => call.send("HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n"),
    });
    let bed = bare(true);
    for _ in 0..2 {
        let name = format!("{}/debian:12", server.address);
        assert_eq!(pull(&bed, &name, None).await.expect("pulled").id.hex(), hex(&image));
    }
    let doors = server.requests.lock().expect("sound").iter().filter(|head| head.starts_with("GET /v2/ ")).count();
    assert_eq!(doors, 1);
    drop(server);
    let gone = Server::plain(|_call| {}).address;
    let (_, error) = pull(&bed, &format!("{gone}/debian:12"), None).await.expect_err("nobody is there");
    assert!(error.contains("failed to ask provider `registries`"), "{error}");
}

#[tokio::test]
async fn a_rule_for_a_registry_needs_no_provider() {
    let bed = Bed::new("oci://registry.example.invalid/a:1");
    let (_, error) = bed.pull().await.expect_err("nobody is there");
    assert!(!error.contains("no provider"), "{error}");
}

/// Has `reg` come from a registry by a transport.
fn rule(bed: &Bed, registry: &Server, transport: &serde_json::Value) {
    let rule = json!({ "name": "reg", "url": format!("oci://{}/vms", registry.address), "transport": "t" });
    let rules = json!({ "translations": [rule], "transports": { "t": transport } }).to_string();
    std::fs::write(bed.dir.path().join("rules/b.yaml"), rules).expect("written");
}

fn bed_of(registry: &Server) -> Bed {
    Bed::with("http://unused.example/", |config| {
        let settings = json!({ "type": "oci", "id": "oci", "plain_http": [registry.address.to_string()] });
        config.providers = vec![serde_json::from_value(settings).expect("settings")];
    })
}

/// A registry that wants a token of `realm` and lets nobody in.
fn guarded(realm: String) -> Server {
    Server::plain(move |call| {
        let wanted = format!("WWW-Authenticate: Bearer realm=\"{realm}\"\r\nContent-Length: 0");
        call.send(format!("HTTP/1.1 401 Unauthorized\r\n{wanted}\r\n\r\n"));
    })
}

#[tokio::test]
async fn leniency_for_a_registry_is_not_for_a_token_service_elsewhere() {
    let service = Server::encrypted(|call| call.ok(br#"{"token": "x"}"#));
    let lenient = json!({ "tls": { "insecure": true } });
    let elsewhere = guarded(service.url("/token").replace("127.0.0.1", "localhost"));
    let bed = bed_of(&elsewhere);
    rule(&bed, &elsewhere, &lenient);
    let (_, error) = pull(&bed, "reg", None).await.expect_err("a certificate that nobody vouches for");
    assert!(error.contains("TLS handshake with `localhost` failed"), "{error}");
    assert_eq!(service.hits(), 0);
    // Another port of the registry's host is its own.
    let own = guarded(service.url("/token"));
    let bed = bed_of(&own);
    rule(&bed, &own, &lenient);
    pull(&bed, "reg", None).await.expect_err("let in by no token");
    assert!(service.hits() > 0);
}

#[tokio::test]
async fn a_transport_that_is_said_anew_is_the_next_pulls() {
    let registry = Server::plain(|call| call.send(NOT_FOUND));
    let proxy = Server::plain(|call| call.send(NOT_FOUND));
    let bed = bed_of(&registry);
    rule(&bed, &registry, &json!({ "proxy": "off" }));
    pull(&bed, "reg", None).await.expect_err("not there");
    let direct = registry.hits();
    assert!(direct > 0);
    rule(&bed, &registry, &json!({ "proxy": proxy.url("") }));
    pull(&bed, "reg", None).await.expect_err("not there");
    assert!(proxy.hits() > 0, "asked by the proxy");
    assert_eq!(registry.hits(), direct, "and not directly");
}
