//! Registries.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use imagestore::net::{Ask, Auth, Transport};
use imagestore::provider::{Covers, Oci, OciConfig, Provider as _, ProviderError, RemoteImage, Want, login};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use vmimage::error::ErrorKind;

use crate::rig::{Asked, Reply, Server, bytes, chain, client, locator, want};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// What a registry has, in the repository `vms/fedora`.
#[derive(Clone, Default)]
struct Registry {
    documents: BTreeMap<String, (String, Vec<u8>)>,
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Registry {
    fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        self.blobs.insert(digest(bytes), bytes.to_vec());
        json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
    }

    /// Puts a document under its digest and, if there is one, a tag.
    fn document(&mut self, tag: &str, media_type: &str, document: &Value) -> Value {
        let bytes = document.to_string().into_bytes();
        let digest = digest(&bytes);
        for name in [tag, &digest] {
            self.documents.insert(name.to_owned(), (media_type.to_owned(), bytes.clone()));
        }
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    fn config(&mut self, os: &str, architecture: &str, layers: &[&[u8]]) -> Value {
        let config = json!({
            "architecture": architecture, "os": os, "created": "2026-11-21T13:00:00Z",
            "config": { "User": "107:107", "Labels": { "shasum": "abc" }, "Env": ["A_KUBEVIRT_IO_B=c=d"], "Volumes": null },
            "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|layer| digest(layer)).collect::<Vec<_>>() },
        });
        self.blob(CONFIG, config.to_string().as_bytes())
    }

    /// An image of layers that are not compressed.
    fn image(&mut self, tag: &str, architecture: &str, layers: &[&[u8]]) -> Value {
        let config = self.config("linux", architecture, layers);
        let layers: Vec<_> = layers.iter().map(|layer| self.blob(LAYER, layer)).collect();
        self.document(
            tag,
            MANIFEST,
            &json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers }),
        )
    }

    fn index(&mut self, tag: &str, media_type: &str, manifests: &[Value]) -> Value {
        self.document(tag, media_type, &json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": manifests }))
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let Some(rest) = asked.path.strip_prefix("/v2/vms/fedora/") else { return Reply::missing() };
        let is_head = asked.method == "HEAD";
        let body = |bytes: &[u8]| if is_head { Vec::new() } else { bytes.to_vec() };
        match rest.split_once('/') {
            Some(("manifests", name)) => self.documents.get(name).map_or_else(Reply::missing, |(media_type, bytes)| {
                Reply::ok(body(bytes)).with("Content-Type", media_type).with("Docker-Content-Digest", &digest(bytes))
            }),
            Some(("blobs", name)) => self.blobs.get(name).map_or_else(Reply::missing, |bytes| Reply::ok(body(bytes))),
            _ => Reply::missing(),
        }
    }

    fn serve(self) -> Server {
        Server::new(move |asked| self.answer(asked))
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn for_platform(mut descriptor: Value, platform: &Value) -> Value {
    descriptor["platform"] = platform.clone();
    descriptor
}

fn arch(architecture: &str) -> Value {
    json!({ "os": "linux", "architecture": architecture })
}

/// A layer with files.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, data) in files {
        let mut block = [0_u8; 512];
        block[..path.len()].copy_from_slice(path.as_bytes());
        block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        block[156] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(block);
        out.extend(*data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn host(server: &Server) -> String {
    server.url("").trim_start_matches("http://").to_owned()
}

fn provider(server: &Server) -> Oci {
    let config = OciConfig { registries: vec![host(server)], plain_http: vec![host(server)], ..OciConfig::default() };
    Oci::new("oci", config, client(), Transport::plain())
}

async fn resolve(provider: &Oci, server: &Server, version: &str, want: &Want) -> Result<RemoteImage, String> {
    let url = format!("oci://{}/vms/fedora{version}", host(server));
    provider.resolve(&locator(&url), want).await.map_err(|error| chain(&error))
}

async fn refusal(registry: Registry, version: &str) -> String {
    let server = registry.serve();
    let found = resolve(&provider(&server), &server, version, &want("amd64")).await;
    found.expect_err("refused")
}

fn unpacked(image: &RemoteImage, layer: &[u8]) -> Vec<u8> {
    let (mut layer, mut disk) = (layer, Vec::new());
    let unpack = image.unpack.as_ref().expect("a layer");
    unpack.unpack(&mut layer).expect("a disk").read_to_end(&mut disk).expect("all of it");
    disk
}

fn methods(server: &Server) -> Vec<String> {
    server
        .asked()
        .iter()
        .map(|asked| format!("{} {}", asked.method, asked.path.trim_start_matches("/v2/vms/fedora/")))
        .collect()
}

#[tokio::test]
async fn the_image_for_the_platform_is_described_and_opened() {
    let mut registry = Registry::default();
    let (amd, arm) = (tar(&[("disk/disk.img", b"amd")]), tar(&[("disk/disk.img", b"arm")]));
    let manifest = registry.image("", "amd64", &[&amd]);
    let images = [
        for_platform(registry.image("", "arm64", &[&arm]), &arch("arm64")),
        for_platform(
            registry.document("", MANIFEST, &json!({})),
            &json!({ "os": "unknown", "architecture": "unknown" }),
        ),
        for_platform(manifest.clone(), &arch("amd64")),
    ];
    let index = registry.index("40", LIST, &images);
    let server = registry.serve();
    let provider = provider(&server);
    let image = resolve(&provider, &server, ":40", &want("x86_64")).await.expect("resolved");
    let promises: Vec<_> = image.promises.iter().map(|promise| (promise.covers, promise.hash.to_string())).collect();
    assert_eq!(promises, [(Covers::Hosted, digest(&amd)), (Covers::Unpacked, digest(&amd))]);
    assert_eq!(image.size, Some(amd.len() as u64));
    assert_eq!(image.shown, format!("{}/vms/fedora:40", host(&server)));
    assert_eq!(image.metadata.created, Some(1_795_266_000));
    let extra: Vec<_> = image.metadata.extra.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let text = |value: &Value| value["digest"].as_str().expect("a digest").to_owned();
    assert_eq!(extra, [("env.A_KUBEVIRT_IO_B", "c=d"),]);
    let registered = image.registered.as_ref().expect("of a registry");
    let digests: Vec<_> = registered.digests.iter().map(ToString::to_string).collect();
    assert_eq!(digests, [text(&index), text(&manifest)]);
    assert_eq!(registered.user.as_deref(), Some("107:107"));
    assert_eq!(registered.labels["shasum"], "abc");
    let layer = bytes(&provider, &image, &Ask::default()).await.expect("opened");
    assert_eq!(unpacked(&image, &layer), b"amd");

    let before = methods(&server).len();
    assert_eq!(resolve(&provider, &server, ":40", &want("amd64")).await.expect("resolved").key, image.key);
    assert_eq!(methods(&server)[before..], ["HEAD manifests/40"]);
    let pinned = resolve(&provider, &server, &format!("@{}", text(&index)), &want("amd64")).await.expect("resolved");
    assert_eq!(pinned.promises, image.promises);
    let other = resolve(&provider, &server, ":40", &want("arm64")).await.expect("resolved");
    assert_eq!(unpacked(&other, &bytes(&provider, &other, &Ask::default()).await.expect("opened")), b"arm");
    let error = resolve(&provider, &server, ":40", &want("s390x")).await.expect_err("none");
    assert!(error.ends_with("not for linux/s390x, only for linux/amd64, linux/arm64/v8"), "{error}");
}

#[tokio::test]
async fn a_tag_that_moves_is_seen_and_names_are_of_configured_hosts() {
    let registry = Arc::new(std::sync::Mutex::new(Registry::default()));
    let push =
        |disk: &[u8]| drop(registry.lock().expect("sound").image("latest", "amd64", &[&tar(&[("disk/d", disk)])]));
    push(b"one");
    let served = registry.clone();
    let server = Server::new(move |asked| served.lock().expect("sound").answer(asked));
    let provider = provider(&server);
    let name = format!("{}/vms/fedora", host(&server));
    let find = async || provider.find(&name, &want("amd64")).await.expect("asked").expect("there");
    let first = find().await;
    push(b"two");
    assert_ne!(find().await.promises, first.promises);
    assert!(provider.find(&format!("{name}:none"), &want("amd64")).await.expect("asked").is_none());
    assert!(provider.find("elsewhere.example/vms/fedora", &want("amd64")).await.expect("not asked").is_none());
    assert!(provider.find("fedora", &want("amd64")).await.expect("not asked").is_none());
    let missing = provider.resolve(&locator(&format!("oci://{name}:none")), &want("amd64")).await;
    assert!(matches!(missing, Err(ProviderError::NotFound { .. })));
}

#[tokio::test]
async fn without_an_index_the_configuration_says_the_platform() {
    let mut registry = Registry::default();
    registry.image("latest", "arm64", &[&tar(&[("disk/d", b"1")])]);
    let error = refusal(registry, "").await;
    assert!(error.ends_with("not for linux/amd64, only for linux/arm64/v8"), "{error}");
    // An index that lies about what it names.
    let mut registry = Registry::default();
    let image = for_platform(registry.image("", "arm64", &[&tar(&[("disk/d", b"1")])]), &arch("amd64"));
    registry.index("latest", INDEX, &[image]);
    assert!(refusal(registry, "").await.contains("only for linux/arm64/v8"));
}

#[tokio::test]
async fn what_an_index_has_beside_images_is_passed_over() {
    let mut registry = Registry::default();
    let layer = tar(&[("disk/d", b"1")]);
    let other = json!({ "mediaType": "application/vnd.example.sbom+json", "digest": digest(b"x"), "size": 1 });
    let image = registry.image("", "amd64", &[&layer]);
    let images = [for_platform(other, &arch("amd64")), for_platform(image.clone(), &arch("amd64"))];
    registry.index("latest", INDEX, &images);
    // One that does not say what it is for: its configuration does.
    registry.index("silent", INDEX, &[image]);
    let foreign = registry.image("", "arm64", &[&layer]);
    registry.index("foreign", INDEX, &[foreign]);
    let server = registry.serve();
    for version in ["", ":silent"] {
        resolve(&provider(&server), &server, version, &want("amd64")).await.expect("the image");
    }
    let error = resolve(&provider(&server), &server, ":foreign", &want("amd64")).await.expect_err("another platform");
    assert!(error.ends_with("not for linux/amd64, only for linux/arm64/v8"), "{error}");
}

#[tokio::test]
async fn a_file_that_oras_pushed_is_a_disk() {
    let empty = "application/vnd.oci.empty.v1+json";
    let push = |media_type: &str, annotations: Value| {
        let mut registry = Registry::default();
        let config = registry.blob(empty, b"{}");
        let mut file = registry.blob(media_type, b"QFI");
        file["annotations"] = annotations;
        let document = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/vnd.unknown.artifact.v1",
            "config": config, "layers": [file],
        });
        registry.document("latest", MANIFEST, &document);
        registry
    };
    let title = json!({ "org.opencontainers.image.title": "disk.qcow2" });
    for media_type in [LAYER, "application/octet-stream", "application/x-qemu-disk"] {
        let server = push(media_type, title.clone()).serve();
        let provider = provider(&server);
        let image = resolve(&provider, &server, "", &want("amd64")).await.expect(media_type);
        assert!(image.unpack.is_none());
        assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), b"QFI");
    }
    let directory = json!({ "org.opencontainers.image.title": "disks", "io.deis.oras.content.unpack": "true" });
    refusal(push(LAYER, directory), "").await;
    refusal(push(LAYER, json!({})), "").await;
}

#[tokio::test]
async fn a_login_for_another_registry_is_not_shown_to_this_one() {
    let mut registry = Registry::default();
    registry.image("latest", "amd64", &[&tar(&[("disk/d", b"1")])]);
    let server = Server::new(move |asked| match asked.header("authorization") {
        Some(_) => registry.answer(asked),
        None => Reply::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let host = host(&server);
    let auth = Some(Auth::Basic { user: "me".into(), password: "secret".into() });
    for (auth_server, let_in) in [
        (String::new(), true),
        (host.clone(), true),
        (format!("http://{host}/v2/"), true),
        ("registry.example".into(), false),
        ("https://index.docker.io/v1/".into(), false),
    ] {
        let wanted = Want { auth: auth.clone(), auth_server: auth_server.clone(), ..want("amd64") };
        let found = resolve(&provider(&server), &server, "", &wanted).await;
        assert_eq!(found.is_ok(), let_in, "{auth_server}");
        let shown = server.asked().iter().any(|asked| asked.header("authorization").is_some());
        assert_eq!(shown, let_in, "{auth_server}");
        server.paths();
    }
    let hub = Want { auth, auth_server: "https://index.docker.io/v1/".into(), ..Want::default() };
    assert!(hub.auth_for("registry-1.docker.io").is_some() && hub.auth_for("docker.io.example").is_none());
}

#[tokio::test]
async fn indices_may_be_nested_once() {
    let mut registry = Registry::default();
    let image = for_platform(registry.image("", "amd64", &[&tar(&[("disk/d", b"1")])]), &arch("amd64"));
    let inner = registry.index("", INDEX, &[image]);
    let outer = registry.index("two", INDEX, &[inner]);
    registry.index("three", INDEX, &[outer]);
    let deep = registry.clone();
    let server = registry.serve();
    assert!(resolve(&provider(&server), &server, ":two", &want("amd64")).await.is_ok());
    assert!(refusal(deep, ":three").await.contains("too deep"));
}

#[tokio::test]
async fn documents_that_are_not_what_they_must_be_are_refused() {
    let layer = tar(&[("disk/d", b"1")]);
    let sound = || {
        let mut registry = Registry::default();
        let manifest = registry.image("latest", "amd64", &[&layer]);
        (registry, manifest["digest"].as_str().expect("a digest").to_owned())
    };
    let (mut registry, pinned) = sound();
    let other = registry.image("other", "amd64", &[&tar(&[("disk/d", b"2")])]);
    let other = other["digest"].as_str().expect("a digest").to_owned();
    registry.documents.insert(pinned.clone(), registry.documents[&other].clone());
    assert!(refusal(registry, &format!("@{pinned}")).await.contains(&format!("the document is {other}, not {pinned}")));

    let changed = |change: &dyn Fn(&mut Value)| {
        let (mut registry, _) = sound();
        let mut document: Value = serde_json::from_slice(&registry.documents["latest"].1).expect("JSON");
        change(&mut document);
        registry.document("latest", MANIFEST, &document);
        registry
    };
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: [(Change<'_>, &str); 13] = [
        (&|document| document["mediaType"] = INDEX.into(), "the server calls it"),
        (&|document| document["mediaType"] = "text/html".into(), "the server calls it"),
        (&|document| document["schemaVersion"] = 1.into(), "schema 1"),
        (&|document| document["schemaVersion"] = 3.into(), "of schema 3"),
        (&|document| document["layers"] = json!([]), "no layers"),
        (&|document| document["layers"][0]["urls"] = json!(["http://elsewhere.example/"]), "from other servers"),
        (
            &|document| {
                document["layers"][0]["mediaType"] = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip".into()
            },
            "from other servers",
        ),
        (&|document| document["layers"][0]["digest"] = "md5:d41d8cd98f00b204e9800998ecf8427e".into(), "no SHA-256"),
        (&|document| document["layers"][0]["mediaType"] = "text/plain".into(), "`text/plain`"),
        (&|document| document["config"]["size"] = 1.into(), "bytes, not 1"),
        (&|document| document["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json".into(), "helm"),
        (
            &|document| {
                let layer = document["layers"][0].clone();
                document["layers"] = json!([layer, layer]);
            },
            "2 layers, but 1 digests",
        ),
        (&|document| document["layers"] = "x".into(), "not the JSON"),
    ];
    for (change, expected) in cases {
        let error = refusal(changed(change), "").await;
        assert!(error.contains(expected), "{expected}: {error}");
    }

    let (mut registry, _) = sound();
    let config = registry.blobs.iter_mut().find(|(_, blob)| blob.starts_with(b"{")).expect("a configuration").1;
    *config = String::from_utf8_lossy(config).replace("abc", "xyz").into_bytes();
    assert!(refusal(registry, "").await.contains("the document is sha256:"));

    let (mut registry, _) = sound();
    registry.documents.insert("latest".into(), (MANIFEST.into(), vec![b' '; 4 * 1024 * 1024 + 1]));
    assert!(refusal(registry, "").await.contains("more than 4194304 bytes"));

    let (registry, _) = sound();
    let lies = Server::new(move |asked| {
        let reply = registry.answer(asked);
        let document = &registry.documents["latest"];
        if asked.path.ends_with("manifests/latest") {
            return Reply::ok(document.1.clone())
                .with("Content-Type", &format!("{}; charset=utf-8", document.0))
                .with("Docker-Content-Digest", &digest(b"other"));
        }
        reply
    });
    let error = resolve(&provider(&lies), &lies, "", &want("amd64")).await.expect_err("refused");
    assert!(error.contains("the document is sha256:"), "{error}");
}

#[tokio::test]
async fn several_layers_are_looked_through() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&tar(&[("disk/old", b"old")])).expect("compressed");
    let lower = gzip.finish().expect("compressed");
    let (middle, upper) = (tar(&[("disk/.wh.old", b""), ("disk/new", b"new")]), tar(&[("etc/x", b"x")]));
    let mut registry = Registry::default();
    let config = registry.config("linux", "amd64", &[&lower, &middle, &upper]);
    let layers =
        [registry.blob(&format!("{LAYER}+gzip"), &lower), registry.blob(LAYER, &middle), registry.blob(LAYER, &upper)];
    let manifest =
        |layers: &[Value]| json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    registry.document("latest", MANIFEST, &manifest(&layers));
    // Without the one that removes it.
    let other = registry.blob(LAYER, &tar(&[("disk/b", b"b")]));
    registry.document("two", MANIFEST, &manifest(&[layers[0].clone(), other]));
    let named = json!({ "virtlet.cloud/disk": "/disk/new" });
    let bad = registry.clone();
    let server = registry.serve();
    let provider = provider(&server);
    let image = resolve(&provider, &server, "", &want("amd64")).await.expect("resolved");
    assert_eq!(image.promises[0].hash.to_string(), digest(&middle));
    assert_eq!(unpacked(&image, &middle), b"new");
    assert!(refusal(bad, ":two").await.contains("more than one file in `/disk` (b, old)"));

    let mut registry = Registry::default();
    let two = tar(&[("disk/old", b"old"), ("disk/new", b"new")]);
    let config = registry.config("linux", "amd64", &[&two]);
    let layer = registry.blob(LAYER, &two);
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": named });
    registry.document("latest", MANIFEST, &manifest);
    let server = registry.serve();
    let image = resolve(&self::provider(&server), &server, "", &want("amd64")).await.expect("resolved");
    assert_eq!(unpacked(&image, &two), b"new");
}

#[tokio::test]
async fn an_artifact_is_the_disk_itself() {
    let empty = "application/vnd.oci.empty.v1+json";
    for (artifact, config, layer, good) in [
        (Some("application/vnd.example.vm-disk"), empty, "application/vnd.example.disk.qcow2+zstd", true),
        (Some("application/vnd.example.vm-disk"), empty, "application/octet-stream", true),
        (None, "application/vnd.unknown.config.v1+json", "application/vnd.example.disk+gzip", true),
        (None, empty, "application/octet-stream", true),
        (Some("application/vnd.example.sbom"), empty, "application/spdx+json", false),
        (None, empty, "application/vnd.cncf.helm.chart.content.v1.tar+gzip", false),
    ] {
        let mut registry = Registry::default();
        let config = registry.blob(config, b"{}");
        let layer = registry.blob(layer, b"QFI\xfb");
        let mut manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
        if let Some(artifact) = artifact {
            manifest["artifactType"] = artifact.into();
        }
        registry.document("latest", MANIFEST, &manifest);
        let server = registry.serve();
        let provider = provider(&server);
        match resolve(&provider, &server, "", &want("amd64")).await {
            Ok(image) if good => {
                assert!(image.unpack.is_none());
                assert_eq!(image.promises.len(), 1);
                assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), b"QFI\xfb");
            }
            Err(error) if !good => assert!(error.contains("no disk of a VM"), "{error}"),
            other => panic!("{manifest}: {other:?}"),
        }
    }
}

/// A registry that wants a token of `realm`, which it calls `token-N`.
fn guarded(registry: Registry, realm: Option<String>, life: u64) -> (Server, Arc<AtomicUsize>) {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    let server = Server::new(move |asked| {
        if asked.path.starts_with("/token") {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            return Reply::ok(json!({ "token": format!("token-{number}"), "expires_in": life }).to_string());
        }
        let good = format!("Bearer token-{}", count.load(Ordering::Relaxed));
        if asked.header("authorization") == Some(&good) {
            return registry.answer(asked);
        }
        let realm = realm.clone().unwrap_or_else(|| format!("http://{}/token", asked.header("host").expect("a host")));
        Reply::new(401, "").with(
            "WWW-Authenticate",
            &format!(r#"Negotiate, Bearer realm="{realm}",service="a, b",scope="repository:vms/fedora:pull,x""#),
        )
    });
    (server, given)
}

fn fedora() -> Registry {
    let mut registry = Registry::default();
    registry.image("latest", "amd64", &[&tar(&[("disk/d", b"1")])]);
    registry
}

fn with_login(auth: Option<Auth>) -> Want {
    Want { auth, ..want("amd64") }
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_when_it_is_refused() {
    let (server, given) = guarded(fedora(), None, 300);
    let provider = provider(&server);
    let basic = login("user", "password", "", "", "").expect("a login");
    let image = resolve(&provider, &server, "", &with_login(basic.clone())).await.expect("resolved");
    assert_eq!(given.load(Ordering::Relaxed), 1);
    let asked = server.asked().into_iter().find(|asked| asked.path.starts_with("/token")).expect("asked");
    assert_eq!(asked.query("service").as_deref(), Some("a, b"));
    assert_eq!(asked.query("scope").as_deref(), Some("repository:vms/fedora:pull,x"));
    assert_eq!(asked.header("authorization"), Some("Basic dXNlcjpwYXNzd29yZA=="));
    // Nobody but the token service sees the login.
    let others = server.asked().into_iter().filter(|asked| !asked.path.starts_with("/token"));
    assert!({ others }.all(|asked| asked.header("authorization").is_none_or(|header| header.starts_with("Bearer"))));
    // What was good is not any more, amid a pull.
    given.fetch_add(1, Ordering::Relaxed);
    assert!(bytes(&provider, &image, &Ask::default()).await.is_ok());
    assert_eq!(given.load(Ordering::Relaxed), 3);
    // Somebody else is somebody else.
    let error = provider.resolve(&locator(&format!("oci://{}/vms/fedora", host(&server))), &with_login(None)).await;
    assert!(error.is_ok());
    assert_eq!(given.load(Ordering::Relaxed), 4);
    assert!(!format!("{provider:?} {image:?}").contains("password"));
}

#[tokio::test]
async fn an_identity_token_is_exchanged() {
    let (server, _) = guarded(fedora(), None, 300);
    let identity = login("", "", "", "refresh me", "").expect("a login");
    resolve(&provider(&server), &server, "", &with_login(identity)).await.expect("resolved");
    let asked = server.asked().into_iter().find(|asked| asked.path == "/token").expect("asked");
    assert_eq!(asked.method, "POST");
    assert_eq!(asked.header("authorization"), None);
    assert!(asked.body.contains("grant_type=refresh_token") && asked.body.contains("refresh_token=refresh+me"));
}

#[tokio::test]
async fn a_login_goes_nowhere_but_to_the_registry() {
    let elsewhere = Server::new(|_| Reply::ok(json!({ "token": "token-0" }).to_string()));
    let realm = elsewhere.url("/token").replace("127.0.0.1", "localhost");
    let basic = login("user", "password", "", "", "").expect("a login");
    let (server, _) = guarded(fedora(), Some(realm.clone()), 300);
    let error = resolve(&provider(&server), &server, "", &with_login(basic.clone())).await.expect_err("refused");
    assert!(error.contains("add it to `token_hosts`"), "{error}");
    assert!(elsewhere.asked().is_empty());
    // Without a login there is nothing to lose.
    assert!(resolve(&provider(&server), &server, "", &with_login(None)).await.is_ok());
    assert_eq!(elsewhere.asked().len(), 1);
    // Nor does a token service lead it on.
    let on = Server::new(|_| Reply::ok("{}"));
    let target = on.url("/");
    let (server, _) = guarded(fedora(), None, 300);
    let away = Server::new(move |_| Reply::new(302, "").with("Location", &target));
    let (redirected, _) = guarded(fedora(), Some(away.url("/token")), 300);
    assert!(resolve(&provider(&redirected), &redirected, "", &with_login(basic)).await.is_err());
    assert!(on.asked().is_empty());
    drop(server);
}

#[tokio::test]
async fn a_token_service_that_is_not_there_says_nothing_of_the_image() {
    let nobody = Server::new(|_| Reply::missing());
    let (server, _) = guarded(fedora(), Some(nobody.url("/token")), 300);
    let url = locator(&format!("oci://{}/vms/fedora", host(&server)));
    let error = provider(&server).resolve(&url, &with_login(None)).await.expect_err("no token");
    assert_eq!(error.kind(), ErrorKind::Server, "{}", chain(&error));
    let why = format!("a token from `{}?...`, and nothing is there", nobody.url("/token"));
    assert!(chain(&error).contains(&why), "{}", chain(&error));
    let config = serde_json::from_value(json!({
        "plain_http": [host(&server)],
        "logins": { host(&server): { "username": "u", "password_file": "/nowhere/password" } },
    }));
    let provider = Oci::new("oci", config.expect("settings"), client(), Transport::plain());
    let error = provider.resolve(&url, &want("amd64")).await.expect_err("no password");
    assert_eq!(error.kind(), ErrorKind::Internal, "{}", chain(&error));
}

#[tokio::test]
async fn passwords_and_registry_tokens_are_sent_as_they_are_wanted() {
    let registry = fedora();
    let server = Server::new(move |asked| match asked.header("authorization") {
        Some("Basic dXNlcjpwYXNzd29yZA==" | "Bearer direct") => registry.answer(asked),
        _ => Reply::new(401, "").with("WWW-Authenticate", r#"Basic realm="here""#),
    });
    let provider = provider(&server);
    let basic = login("", "", "dXNlcjpwYXNzd29yZA==", "", "").expect("a login");
    let direct = login("", "", "", "", "direct").expect("a login");
    assert!(resolve(&provider, &server, "", &with_login(basic)).await.is_ok());
    let before = server.asked().len();
    assert!(resolve(&provider, &server, "", &with_login(direct)).await.is_ok());
    assert!(server.asked()[before..].iter().all(|asked| asked.header("authorization") == Some("Bearer direct")));
    for wrong in [
        login("", "", "", "", "wrong"),
        login("", "", "", "identity", ""),
        login("user", "wrong", "", "", ""),
        Ok(None),
    ] {
        let url = format!("oci://{}/vms/fedora", host(&server));
        let error = provider.resolve(&locator(&url), &with_login(wrong.expect("a login"))).await.expect_err("refused");
        assert_eq!(error.kind(), vmimage::error::ErrorKind::Denied, "{error}");
    }
    assert!(
        server
            .asked()
            .iter()
            .all(|asked| asked.header("authorization").is_none_or(|header| !header.contains("identity")))
    );
}
