//! Images that stand on others: found, pulled, put together, kept, and refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use imagestore::provider::ProviderConfig;
use imagestore::{Config, GcOptions, Image, Layers, Offline, PullRequest};
use serde_json::json;
use vmimage::digest::ImageId;
use vmimage::error::ErrorKind;

use crate::rig::{Bed, Server, chain, disk, hex, names, sha512};

/// Files of a server, which may change.
type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// An image of its own that stands on another.
fn layer(seed: u8, parent: &str, format: &str) -> Vec<u8> {
    let mut image = disk(seed, 4096);
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(8, &256_u64.to_be_bytes());
    put(16, &u32::try_from(parent.len()).expect("short").to_be_bytes());
    put(256, parent.as_bytes());
    if !format.is_empty() {
        put(104, &0xe279_2aca_u32.to_be_bytes());
        put(108, &u32::try_from(format.len()).expect("short").to_be_bytes());
        put(112, format.as_bytes());
    }
    image
}

/// A server of Lago repositories.
struct Lago {
    files: Files,
    server: Server,
}

impl Lago {
    fn new() -> Self {
        let files = Files::default();
        let served = files.clone();
        let server = Server::plain(move |call| {
            let body = served.lock().expect("sound").get(call.path()).cloned();
            match body {
                Some(body) => call.ok(&body),
                None => call.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            }
        });
        Self { files, server }
    }

    fn put(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.files.lock().expect("sound").insert(path.into(), body.into());
    }

    /// A repository of templates, each with its one version `1` and what its metadata name below it.
    fn repo(&self, repo: &str, templates: &[(&str, Vec<u8>, Option<&str>)]) {
        let versions: serde_json::Map<_, _> = templates
            .iter()
            .map(|(name, ..)| {
                let version = json!({"1": {"source": "s", "handle": name, "timestamp": 1}});
                ((*name).to_owned(), json!({"versions": version}))
            })
            .collect();
        let base = self.server.url(&format!("/{repo}"));
        let sources = json!({"s": {"type": "http", "args": {"baseurl": base}}});
        let document = json!({"name": repo, "sources": sources, "templates": versions});
        self.put(&format!("/{repo}/repo.metadata"), document.to_string());
        for (name, image, base) in templates {
            self.put(&format!("/{repo}/{name}"), image.clone());
            let metadata = json!({"checksum": sha512(image), "base": base});
            self.put(&format!("/{repo}/{name}.metadata"), metadata.to_string());
        }
    }

    fn provider(&self, repo: &str) -> ProviderConfig {
        let uri = self.server.url(&format!("/{repo}/repo.metadata"));
        serde_json::from_value(json!({"id": repo, "type": "lago", "uri": uri})).expect("settings")
    }

    /// A store that asks repositories `one` and `two`.
    fn bed(&self, change: impl FnOnce(&mut Config)) -> Bed {
        Bed::with("http://unused.example/", |config| {
            config.providers = vec![self.provider("one"), self.provider("two")];
            change(config);
        })
    }

    /// A store that asks repository `one`, where these are.
    fn with(templates: &[(&str, Vec<u8>, Option<&str>)]) -> (Self, Bed) {
        let lago = Self::new();
        lago.repo("one", templates);
        lago.repo("two", &[]);
        let bed = lago.bed(|config| config.layered = true);
        (lago, bed)
    }
}

async fn pull_as(bed: &Bed, name: &str, layers: Option<Layers>) -> Result<Image, (ErrorKind, String)> {
    let request = PullRequest { layers, ..name.into() };
    bed.store.pull(request).await.map_err(|error| (error.kind(), chain(&*error)))
}

async fn pull(bed: &Bed, name: &str) -> Result<Image, (ErrorKind, String)> {
    pull_as(bed, name, None).await
}

/// What is below an image, after it was looked up as for a machine.
fn below(bed: &Bed, name: &str) -> Vec<String> {
    let image = bed.store.usable(name, "").expect("usable");
    let layers = bed.store.below(&image.id).expect("whole");
    let shown = layers.iter().map(|layer| {
        assert_eq!(layer.path.parent(), image.path.parent());
        format!("{} {}", layer.format, layer.path.file_name().expect("a name").to_str().expect("hex"))
    });
    shown.collect()
}

fn stored(bed: &Bed) -> Vec<String> {
    names(&bed.images().join("data"))
}

fn sorted(images: &[&[u8]]) -> Vec<String> {
    let mut ids: Vec<_> = images.iter().map(|image| hex(image)).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn a_chain_comes_with_its_top_by_names() {
    let base = disk(1, 4096);
    let mid = layer(2, "base:1", "qcow2");
    let top = layer(3, "./mid:1", "");
    let (_lago, bed) =
        Lago::with(&[("base", base.clone(), None), ("mid", mid.clone(), Some("base:1")), ("top", top.clone(), None)]);
    let image = pull(&bed, "top:1").await.expect("pulled");
    assert_eq!((image.id.hex(), image.missing), (&*hex(&top), None));
    assert_eq!(image.parent.expect("a layer").hex(), hex(&mid));
    assert_eq!(below(&bed, "top:1"), [format!("qcow2 {}", hex(&mid)), format!("qcow2 {}", hex(&base))]);
    assert_eq!(bed.store.list("").expect("listed").len(), 1, "what is below has no name");
    // It is what keeps the others, also over a restart, and if but a lease is left of it.
    bed.store.gc(GcOptions::default()).await.expect("collected");
    let bed = bed.reopened();
    assert_eq!(stored(&bed), sorted(&[&base, &mid, &top]));
    bed.store.lease(&image.id, "pod").await.expect("leased");
    bed.store.remove("top:1", "").await.expect("removed");
    bed.store.gc(GcOptions::default()).await.expect("collected");
    assert_eq!(stored(&bed), sorted(&[&base, &mid, &top]));
    bed.store.release("pod").await.expect("released");
    assert_eq!(stored(&bed), [""; 0]);
}

#[tokio::test]
async fn what_is_below_comes_once_for_all_that_stand_on_it() {
    let base = disk(1, 4096);
    let top = layer(3, "base:1", "");
    let other = layer(4, "base:1", "");
    let (lago, bed) =
        Lago::with(&[("base", base.clone(), None), ("top", top.clone(), None), ("other", other.clone(), None)]);
    pull(&bed, "top:1").await.expect("pulled");
    // Its metadata are still there, and say what it is.
    lago.files.lock().expect("sound").remove("/one/base").expect("it was offered");
    pull(&bed, "top:1").await.expect("pulled again");
    let bed = bed.reopened();
    pull(&bed, "other:1").await.expect("pulled beside it");
    assert_eq!(stored(&bed), sorted(&[&base, &top, &other]));
}

#[tokio::test]
async fn a_chain_is_found_by_digest_in_the_store() {
    let base = disk(1, 4096);
    let mid = layer(2, &format!("sha256:{}", hex(&base)), "qcow2");
    let top = layer(3, &format!("sha512:{}", sha512(&mid)), "qcow2");
    let (lago, bed) = Lago::with(&[("a", base.clone(), None), ("b", mid.clone(), None), ("c", top.clone(), None)]);
    let (kind, error) = pull(&bed, "c:1").await.expect_err("nobody has it");
    assert_eq!(kind, ErrorKind::Incomplete);
    assert!(error.contains(&format!("stands on `sha512:{}`, which neither", sha512(&mid))), "{error}");
    bed.assert_empty().await;
    for name in ["a:1", "b:1", "c:1"] {
        pull(&bed, name).await.expect(name);
    }
    assert_eq!(below(&bed, "c:1"), [format!("qcow2 {}", hex(&mid)), format!("qcow2 {}", hex(&base))]);
    // Names of what is below come and go.
    bed.store.remove("a:1", "").await.expect("removed");
    bed.store.remove("b:1", "").await.expect("removed");
    assert_eq!(stored(&bed), sorted(&[&base, &mid, &top]));
    // Not even asked for what is below.
    lago.files.lock().expect("sound").retain(|path, _| !path.contains("/a") && !path.contains("/b"));
    pull(&bed, "c:1").await.expect("pulled again");
    bed.store.remove("c:1", "").await.expect("removed");
    assert_eq!(stored(&bed), [""; 0]);
}

#[tokio::test]
async fn a_digest_decides_whatever_a_source_calls_it() {
    let base = disk(1, 4096);
    let top = layer(2, &format!("sha256:{}", hex(&base)), "");
    let (lago, bed) = Lago::with(&[("base", base.clone(), None), ("top", top.clone(), Some("base:1"))]);
    pull(&bed, "top:1").await.expect("the source says where it is");
    assert_eq!(below(&bed, "top:1"), [format!("qcow2 {}", hex(&base))]);
    bed.store.remove("top:1", "").await.expect("removed");
    lago.repo("one", &[("base", disk(9, 4096), None), ("top", top, Some("base:1"))]);
    let (kind, error) = pull(&bed, "top:1").await.expect_err("other bytes");
    assert_eq!(kind, ErrorKind::DigestMismatch, "{error}");
    bed.assert_empty().await;
}

#[tokio::test]
async fn providers_that_know_digests_are_asked_for_them() {
    let (base, lago) = (disk(1, 4096), Lago::new());
    let top = layer(2, &format!("sha256:{}", hex(&base)), "qcow2");
    lago.repo("one", &[("top", top, None)]);
    let item = json!({"ftype": "disk1.img", "path": "base.img", "size": base.len(), "sha256": hex(&base)});
    let versions = json!({"1": {"items": {"disk1.img": item}}});
    let product = json!({"arch": "amd64", "aliases": "base", "versions": versions});
    let entry = json!({"format": "products:1.0", "datatype": "image-downloads", "path": "streams/v1/p.json"});
    let index = json!({"format": "index:1.0", "index": {"one": entry}});
    let products = json!({"format": "products:1.0", "products": {"com.example:base:amd64": product}});
    lago.put("/s/streams/v1/index.json", index.to_string());
    lago.put("/s/streams/v1/p.json", products.to_string());
    lago.put("/s/base.img", base.clone());
    let streams = json!({"id": "s", "type": "simplestreams", "uri": lago.server.url("/s/"), "insecure": true});
    let bed = Bed::with("http://unused.example/", |config| {
        config.providers = vec![lago.provider("one"), serde_json::from_value(streams).expect("settings")];
        config.layered = true;
    });
    pull(&bed, "top:1").await.expect("pulled");
    assert_eq!(below(&bed, "top:1"), [format!("qcow2 {}", hex(&base))]);
}

#[tokio::test]
async fn other_providers_and_then_the_store_are_asked_for_names() {
    let (base, other, lago) = (disk(1, 4096), disk(2, 4096), Lago::new());
    lago.repo("one", &[("base", base.clone(), None)]);
    lago.repo("two", &[("top", layer(3, "base:1", ""), None), ("own", layer(4, "plain:1", ""), None)]);
    let bed = lago.bed(|config| config.layered = true);
    pull(&bed, "top:1").await.expect("pulled");
    assert_eq!(below(&bed, "top:1"), [format!("qcow2 {}", hex(&base))]);
    // Its own provider comes first, though it is not the first.
    lago.repo("two", &[("top", layer(5, "base:1", ""), None), ("base", other.clone(), None)]);
    let request = PullRequest { provider: Some("two".into()), ..PullRequest::from("top:1") };
    bed.store.pull(request).await.expect("pulled");
    assert_eq!(below(&bed, "top:1"), [format!("qcow2 {}", hex(&other))]);

    lago.put("/plain", base.clone());
    lago.repo("two", &[("own", layer(4, "plain:1", ""), None)]);
    let rule = format!("translations: [{{name: 'plain', url: '{}'}}]", lago.server.url("/plain"));
    std::fs::write(bed.dir.path().join("rules/a.yaml"), rule).expect("written");
    assert_eq!(pull(&bed, "own:1").await.expect_err("not here").0, ErrorKind::Incomplete);
    pull(&bed, "plain:1").await.expect("pulled");
    pull(&bed, "own:1").await.expect("pulled");
    assert_eq!(below(&bed, "own:1"), [format!("qcow2 {}", hex(&base))]);
}

/// Two at once, too: pulls that wait for each other would never end.
#[tokio::test(flavor = "multi_thread")]
async fn circles_are_refused_and_nobody_waits_in_one() {
    let (_lago, bed) = Lago::with(&[
        ("a", layer(1, "b:1", ""), None),
        ("b", layer(2, "a:1", ""), None),
        ("self", layer(3, "self:1", ""), None),
    ]);
    let both = async { tokio::join!(pull(&bed, "a:1"), pull(&bed, "b:1"), pull(&bed, "self:1")) };
    let (a, b, own) = tokio::time::timeout(Duration::from_secs(20), both).await.expect("they end");
    for (outcome, by) in [(a, "a:1"), (b, "b:1"), (own, "self:1")] {
        let (kind, error) = outcome.expect_err("a circle");
        assert_eq!(kind, ErrorKind::Refused);
        assert!(error.ends_with(&format!("image stands on itself, by way of `{by}`")), "{error}");
    }
    bed.assert_empty().await;
}

#[tokio::test]
async fn sixteen_images_are_a_chain_and_seventeen_are_none() {
    let names: Vec<String> = (0..17).map(|number| format!("l{number}")).collect();
    let images = |number: u8| match number {
        0 => disk(0, 4096),
        _ => layer(number, &format!("l{}:1", number - 1), "qcow2"),
    };
    let templates: Vec<_> = (0..17).map(|number| (&*names[usize::from(number)], images(number), None)).collect();
    let (_lago, bed) = Lago::with(&templates);
    let (kind, error) = pull(&bed, "l16:1").await.expect_err("too many");
    assert_eq!(kind, ErrorKind::Refused);
    assert!(error.ends_with("image stands on more than 15 others"), "{error}");
    bed.assert_empty().await;
    pull(&bed, "l15:1").await.expect("pulled");
    assert_eq!(below(&bed, "l15:1").len(), 15);
    // Nor by way of what is here.
    assert_eq!(pull(&bed, "l16:1").await.expect_err("too many").0, ErrorKind::Refused);
    assert_eq!(stored(&bed).len(), 16);
}

/// With one slot, whoever kept it while waiting for what is below would wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_leaves_its_slot_to_what_is_below() {
    let lago = Lago::new();
    lago.repo("one", &[("base", disk(1, 4096), None), ("mid", layer(2, "base:1", ""), None)]);
    lago.repo("two", &[("top", layer(3, "mid:1", ""), None)]);
    let bed = lago.bed(|config| (config.layered, config.limits.downloads) = (true, 1));
    let pulled = async { tokio::join!(pull(&bed, "top:1"), pull(&bed, "mid:1"), pull(&bed, "base:1")) };
    let (top, mid, base) = tokio::time::timeout(Duration::from_secs(20), pulled).await.expect("they end");
    let (top, mid, base) = (top.expect("pulled"), mid.expect("pulled"), base.expect("pulled"));
    assert_eq!((top.parent.as_ref(), mid.parent.as_ref(), base.parent), (Some(&mid.id), Some(&base.id), None));
    let got = |path: &str| {
        let requests = lago.server.requests.lock().expect("sound");
        requests.iter().filter(|head| head.starts_with(&format!("GET {path} "))).count()
    };
    assert_eq!((got("/one/base"), got("/one/mid"), got("/two/top")), (1, 1, 1));
}

#[tokio::test]
async fn without_recursion_an_image_waits_for_what_it_stands_on() {
    let base = disk(1, 4096);
    let digest = format!("sha256:{}", hex(&base));
    for named in ["base:1", &digest] {
        let mid = layer(2, named, "qcow2");
        let top = layer(3, "mid:1", "");
        let (_lago, bed) =
            Lago::with(&[("base", base.clone(), None), ("mid", mid.clone(), None), ("top", top.clone(), None)]);
        let image = pull_as(&bed, "top:1", Some(Layers::Leave)).await.expect("stored");
        assert_eq!(image.missing.as_deref(), Some("mid:1"));
        assert_eq!(bed.store.list("").expect("listed"), [image.clone().into()]);
        let bed = bed.reopened();
        let refused = bed.store.usable("top:1", "").expect_err("incomplete");
        assert_eq!(refused.kind(), ErrorKind::Incomplete);
        assert!(refused.to_string().contains("stands on `mid:1`, which is not in the store"), "{refused}");
        assert!(bed.store.below(&image.id).is_err());
        // Each that comes is put where it is missing.
        pull_as(&bed, "mid:1", Some(Layers::Leave)).await.expect("stored");
        let missing = |name| bed.store.get(name, "").expect("a handler").expect("here").missing;
        assert_eq!((missing("top:1").as_deref(), missing("mid:1").as_deref()), (Some(named), Some(named)));
        pull(&bed, "base:1").await.expect("pulled");
        assert_eq!(below(&bed, "top:1"), [format!("qcow2 {}", hex(&mid)), format!("qcow2 {}", hex(&base))]);
        for name in ["base:1", "mid:1"] {
            bed.store.remove(name, "").await.expect("removed");
        }
        assert_eq!(stored(&bed), sorted(&[&base, &mid, &top]));
        // What is here already is found when the image comes.
        bed.store.remove("top:1", "").await.expect("removed");
        pull(&bed, "base:1").await.expect("pulled");
        pull_as(&bed, "mid:1", Some(Layers::Leave)).await.expect("stored");
        assert_eq!(below(&bed, "mid:1"), [format!("qcow2 {}", hex(&base))]);
    }
}

#[tokio::test]
async fn an_incomplete_image_is_completed_by_a_pull_with_recursion() {
    let (base, top) = (disk(1, 4096), layer(2, "base:1", ""));
    let (_lago, bed) = Lago::with(&[("base", base.clone(), None), ("top", top.clone(), None)]);
    let pinned = format!("top:1@sha256:{}", hex(&top));
    for name in ["top:1", &pinned] {
        pull_as(&bed, name, Some(Layers::Leave)).await.expect("stored");
        assert_eq!(bed.store.usable(name, "").expect_err("incomplete").kind(), ErrorKind::Incomplete);
    }
    let pulled = pull(&bed, "top:1").await.expect("pulled");
    assert_eq!(pulled.missing, None);
    assert_eq!(below(&bed, &pinned), [format!("qcow2 {}", hex(&base))]);
    // From here on nobody needs to be asked for it.
    let offline = PullRequest { offline: Some(Offline::Always), ..PullRequest::from(&pinned) };
    assert_eq!(bed.store.pull(offline).await.expect("here").id, pulled.id);
}

#[tokio::test]
async fn formats_must_be_those_that_are_declared() {
    let (_lago, bed) = Lago::with(&[
        ("base", disk(1, 4096), None),
        ("raw", layer(2, "base:1", "raw"), None),
        ("other", layer(3, "base:1", "vmdk"), None),
    ]);
    let (kind, error) = pull(&bed, "raw:1").await.expect_err("refused");
    assert_eq!(kind, ErrorKind::Refused);
    assert!(error.ends_with("image says that `base:1` is raw, but it is qcow2"), "{error}");
    assert_eq!(pull(&bed, "other:1").await.expect_err("refused").0, ErrorKind::Refused);
    bed.assert_empty().await;
    // Nor when it comes by itself.
    pull_as(&bed, "raw:1", Some(Layers::Leave)).await.expect("stored");
    pull(&bed, "base:1").await.expect("pulled");
    assert_eq!(bed.store.usable("raw:1", "").expect_err("incomplete").kind(), ErrorKind::Incomplete);
}

#[tokio::test]
async fn raw_disks_may_be_below_if_they_are_taken_at_all() {
    let (raw, lago) = (vec![7; 4096], Lago::new());
    lago.repo("one", &[("base", raw.clone(), None), ("top", layer(2, "base:1", "raw"), None)]);
    lago.repo("two", &[]);
    let strict = lago.bed(|config| config.layered = true);
    assert_eq!(pull(&strict, "top:1").await.expect_err("refused").0, ErrorKind::Refused);
    strict.assert_empty().await;
    let bed = lago.bed(|config| (config.layered, config.allow_raw) = (true, true));
    pull(&bed, "top:1").await.expect("pulled");
    assert_eq!(below(&bed, "top:1"), [format!("raw {}", hex(&raw))]);
}

#[tokio::test]
async fn nothing_but_digests_and_names_is_followed() {
    let hostile = [
        "/etc/passwd",
        "../../etc/passwd",
        "base",
        "./base",
        "dir/base:1",
        "./../base:1",
        "json:{\"driver\":\"file\",\"filename\":\"/etc/passwd\"}",
        "json:1",
        "nbd:127.0.0.1:10809",
        "nbd:unix:/run/x",
        "nbd://127.0.0.1/x",
        "http://127.0.0.1/x",
        "https://example.com/base:1",
        "file:base",
        "fat:1",
        "sha256:00",
        "sha256:abc:def",
        "md5:d41d8cd98f00b204e9800998ecf8427e",
        "base:1\0/etc/passwd",
        "base:1\n",
    ];
    let (lago, bed) = Lago::with(&[]);
    for layers in [Layers::Refuse, Layers::Leave, Layers::Pull] {
        for parent in hostile {
            lago.repo("one", &[("base", disk(1, 4096), None), ("top", layer(2, parent, ""), Some("base:1"))]);
            let (kind, error) = pull_as(&bed, "top:1", Some(layers)).await.expect_err(parent);
            assert_eq!(kind, ErrorKind::Refused, "{parent}: {error}");
        }
    }
    bed.assert_empty().await;
}

#[tokio::test]
async fn what_a_source_says_makes_no_layer_of_an_image_that_is_none() {
    let (_lago, bed) = Lago::with(&[("base", disk(1, 4096), None), ("top", disk(2, 4096), Some("base:1"))]);
    let image = pull(&bed, "top:1").await.expect("pulled");
    assert_eq!((image.parent, below(&bed, "top:1")), (None, vec![]));
    assert_eq!(stored(&bed).len(), 1);
}

#[tokio::test]
async fn layers_are_refused_unless_they_are_allowed() {
    let lago = Lago::new();
    let (base, top) = (disk(1, 4096), layer(2, "base:1", ""));
    lago.repo("one", &[("base", base.clone(), None), ("top", top.clone(), None)]);
    lago.repo("two", &[("again", top.clone(), None)]);
    let bed = lago.bed(|_| {});
    let (kind, error) = pull(&bed, "top:1").await.expect_err("refused");
    assert_eq!(kind, ErrorKind::Refused);
    assert!(error.contains("backing"), "{error}");
    bed.assert_empty().await;
    // One pull may allow it, for the name that it is of.
    let pulled = pull_as(&bed, "top:1", Some(Layers::Pull)).await.expect("pulled");
    assert_eq!(pull(&bed, "top:1").await.expect("it is let in"), pulled);
    for name in ["again:1".to_owned(), format!("top@sha256:{}", hex(&top))] {
        let (kind, error) = pull(&bed, &name).await.expect_err("refused");
        assert_eq!(kind, ErrorKind::Refused, "{error}");
        assert_eq!(bed.store.list("").expect("listed"), [pulled.clone().into()]);
    }
    bed.store.remove("top:1", "").await.expect("removed");
    assert_eq!(stored(&bed), [""; 0]);
}

/// The same upper image from two sources, of which one has another image below it: neither gives the other its own.
#[tokio::test]
async fn what_an_image_stands_on_is_never_changed_by_another_source() {
    let (ours, theirs) = (disk(1, 4096), disk(2, 4096));
    let top = layer(3, "base:1", "");
    let lago = Lago::new();
    lago.repo("one", &[("base", theirs.clone(), None), ("bad", top.clone(), None)]);
    lago.repo("two", &[("base", ours.clone(), None), ("good", top.clone(), None)]);
    let bed = lago.bed(|config| config.layered = true);
    pull(&bed, "bad:1").await.expect("pulled");
    for name in ["good:1".to_owned(), format!("good:1@sha256:{}", hex(&top))] {
        let (kind, error) = pull(&bed, &name).await.expect_err("another base");
        assert_eq!(kind, ErrorKind::Refused);
        assert!(error.contains("its source now gives another `base:1`"), "{error}");
    }
    assert_eq!(below(&bed, "bad:1"), [format!("qcow2 {}", hex(&theirs))]);
    bed.store.remove("bad:1", "").await.expect("removed");
    pull(&bed, "good:1").await.expect("pulled");
    assert_eq!(below(&bed, "good:1"), [format!("qcow2 {}", hex(&ours))]);
    assert_eq!(stored(&bed), sorted(&[&ours, &top]));
}

#[tokio::test]
async fn credentials_of_the_caller_are_not_for_what_is_below() {
    let (base, lago) = (disk(1, 4096), Lago::new());
    lago.repo("one", &[("base", base, None)]);
    lago.put("/top", layer(2, "base:1", ""));
    let url = lago.server.url("/top");
    let bed = Bed::with(&url, |config| {
        config.providers = vec![lago.provider("one")];
        config.layered = true;
    });
    let auth = imagestore::net::Auth::Basic { user: "user".into(), password: "secret".into() };
    bed.store.pull(PullRequest { auth: Some(auth), ..PullRequest::from("img") }).await.expect("pulled");
    let with_login = |path: &str| {
        let requests = lago.server.requests.lock().expect("sound");
        let to = |head: &&String| head.starts_with(&format!("GET {path} "));
        requests.iter().filter(to).filter(|head| head.to_ascii_lowercase().contains("authorization:")).count()
    };
    assert_eq!((with_login("/top"), with_login("/one/base")), (1, 0));
}

#[tokio::test]
async fn a_lost_file_below_is_missed_and_comes_back() {
    let (base, top) = (disk(1, 4096), layer(2, "base:1", ""));
    let (_lago, bed) = Lago::with(&[("base", base.clone(), None), ("top", top, None)]);
    pull(&bed, "top:1").await.expect("pulled");
    let id: ImageId =
        format!("sha256:{}", hex(&base)).parse::<vmimage::digest::Digest>().expect("a digest").to_id().expect("an id");
    std::fs::remove_file(bed.images().join("data").join(id.hex())).expect("removed");
    let bed = bed.reopened();
    assert_eq!(bed.store.usable("top:1", "").expect_err("incomplete").kind(), ErrorKind::Incomplete);
    pull(&bed, "top:1").await.expect("pulled");
    assert_eq!(below(&bed, "top:1"), [format!("qcow2 {}", hex(&base))]);
}

/// QEMU reads a chain whose files and formats it is told, and would not have found one by what the images say.
#[tokio::test]
async fn qemu_reads_the_chain_that_the_store_tells() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    qemu(&["qemu-img", "create", "-q", "-f", "qcow2", &at("base"), "2M"]).expect("made");
    qemu(&["qemu-io", "-f", "qcow2", "-c", "write -q -P 7 0 1M", &at("base")]).expect("written");
    let base = std::fs::read(at("base")).expect("read");
    let named = format!("sha256:{}", hex(&base));
    qemu(&["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "qcow2", "-b", &named, &at("top"), "4M"])
        .expect("made");
    let (_lago, bed) =
        Lago::with(&[("base", base, None), ("top", std::fs::read(at("top")).expect("read"), Some("base:1"))]);
    let image = pull(&bed, "top:1").await.expect("pulled");
    let own = image.path.display().to_string();
    let alone = qemu(&["qemu-io", "-r", "-f", "qcow2", "-c", "read -q -P 7 0 1M", &own]).expect_err("not by itself");
    assert!(alone.contains("Unknown protocol 'sha256'"), "{alone}");
    let layers = bed.store.below(&image.id).expect("whole");
    let node = |path: &std::path::Path, format: String, backing: serde_json::Value| json!({"driver": format, "file": {"driver": "file", "filename": path}, "backing": backing});
    let below = layers
        .iter()
        .rev()
        .fold(serde_json::Value::Null, |below, layer| node(&layer.path, layer.format.to_string(), below));
    let told = format!("json:{}", node(&image.path, image.format.to_string(), below));
    qemu(&["qemu-io", "-r", "-c", "read -q -P 7 0 1M", "-c", "read -q -P 0 1M 3M", &told]).expect("read");
}

/// Runs one of QEMU's tools; what it said if it failed.
fn qemu(words: &[&str]) -> Result<(), String> {
    let done = std::process::Command::new("timeout").arg("20").args(words).output();
    let done = done.expect("timeout and QEMU's tools; install the package `qemu-utils`");
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    // qemu-io finds another pattern without failing.
    if done.status.success() && !said.contains("failed") { Ok(()) } else { Err(said) }
}
