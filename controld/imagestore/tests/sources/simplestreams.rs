//! A mirror of Simple Streams.

use std::path::Path;
use std::sync::LazyLock;

use imagestore::net::{Ask, Transport};
use imagestore::provider::{Covers, Provider as _, ProviderError, Revision, Simplestreams, SimplestreamsConfig};
use pgp::composed::{
    ArmorOptions, CleartextSignedMessage, DetachedSignature, KeyType, SecretKeyParamsBuilder, SignedSecretKey,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::SignatureType;
use pgp::types::Password;
use rand::rngs::OsRng;
use serde_json::{Value, json};

use crate::rig::{Files, Server, bytes, chain, client, found, is_absent, locator, refused, want};

static OURS: LazyLock<SignedSecretKey> = LazyLock::new(key);
static OTHERS: LazyLock<SignedSecretKey> = LazyLock::new(key);

fn key() -> SignedSecretKey {
    let mut params = SecretKeyParamsBuilder::default();
    params.key_type(KeyType::Ed25519Legacy).can_certify(true).can_sign(true).primary_user_id("mirror".into());
    params.build().expect("parameters").generate(OsRng).expect("a key")
}

fn signed(text: &str, key: &SignedSecretKey) -> String {
    let signed = CleartextSignedMessage::sign(OsRng, text, &key.primary_key, &Password::empty()).expect("signed");
    signed.to_armored_string(ArmorOptions::default()).expect("armor")
}

fn beside(text: &str, key: &SignedSecretKey) -> Vec<u8> {
    let made = DetachedSignature::sign_binary_data(
        OsRng,
        &key.primary_key,
        &Password::empty(),
        HashAlgorithm::Sha512,
        text.as_bytes(),
    );
    let made = made.expect("signed");
    assert_eq!(made.signature.typ(), Some(SignatureType::Binary));
    made.to_armored_bytes(ArmorOptions::default()).expect("armor")
}

fn index(day: u32, path: &str) -> String {
    let entry = json!({ "format": "products:1.0", "datatype": "image-downloads", "path": path });
    let updated = format!("Tue, {day:02} Mar 2016 00:00:00 +0000");
    json!({ "format": "index:1.0", "updated": updated, "index": { "one": entry } }).to_string()
}

fn products(day: u32, versions: &Value) -> String {
    json!({
        "format": "products:1.0", "updated": format!("Tue, {day:02} Mar 2016 00:00:00 +0000"),
        "products": {
            "net.cirros:amd64": { "arch": "amd64", "aliases": "cirros", "release_title": "Cirros", "versions": versions },
            "net.cirros:s390x": { "arch": "s390x", "aliases": "cirros,big", "versions": versions },
        }
    })
    .to_string()
}

fn disk(text: &str) -> Value {
    json!({ "items": { "disk.img": { "path": format!("files/{text}.img"), "size": text.len(), "sha256": "a".repeat(64) } } })
}

fn config(uri: &str, more: Value) -> SimplestreamsConfig {
    let mut settings = more;
    settings["uri"] = uri.into();
    serde_json::from_value(settings).expect("settings")
}

fn mirror(uri: &str, more: Value) -> Simplestreams {
    Simplestreams::new("mirror", &config(uri, more), client(), Transport::plain(), None).expect("a provider")
}

/// A mirror whose documents are signed by our key, and remembered in `dir`.
fn signed_mirror(server: &Server, dir: &Path) -> Simplestreams {
    let keyring = dir.join("keys.asc");
    let armored = OURS.to_public_key().to_armored_string(ArmorOptions::default()).expect("armor");
    std::fs::write(&keyring, armored).expect("written");
    let config = config(&server.url("/"), json!({ "keyring": keyring }));
    let memory = Some(dir.join("memory.json"));
    Simplestreams::new("mirror", &config, client(), Transport::plain(), memory).expect("a provider")
}

fn put_signed(files: &Files, day: u32, key: &SignedSecretKey) {
    files.put("streams/v1/index.sjson", signed(&index(day, "streams/v1/one.sjson"), key));
    files.put("streams/v1/one.sjson", signed(&products(day, &json!({ "1": disk("old") })), key));
}

#[tokio::test]
async fn the_newest_version_for_the_platform_is_found_and_opened() {
    let files = Files::default();
    files.put("root/streams/v1/index.json", index(1, "streams/v1/one.json"));
    files.put("root/streams/v1/one.json", products(1, &json!({ "1": disk("old"), "2": disk("newer") })));
    files.put("root/files/newer.img", "newer");
    let server = Server::of(&files);
    let provider = mirror(&server.url("/root"), json!({ "insecure": true }));
    let image = found(&provider, "cirros").await;
    assert_eq!(server.paths(), ["/root/streams/v1/index.json", "/root/streams/v1/one.json"]);
    assert_eq!(image.shown, server.url("/root/files/newer.img"));
    assert_eq!(image.size, Some(5));
    assert_eq!(image.metadata.name, "net.cirros:amd64");
    assert_eq!(image.metadata.revision, Some(Revision::Serial("2".into())));
    assert_eq!(image.metadata.notes[""], "Cirros");
    let [promise] = &*image.promises else { panic!("{:?}", image.promises) };
    assert_eq!((promise.hash.to_string(), promise.covers), (format!("sha256:{}", "a".repeat(64)), Covers::Hosted));
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), b"newer");
    server.paths();

    // Nothing changed: two questions, no document again.
    assert_eq!(found(&provider, "cirros").await.key, image.key);
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|asked| asked.header("if-none-match").is_some()), "{asked:?}");

    // Another version is another download.
    files.put("root/streams/v1/one.json", products(1, &json!({ "3": disk("newest") })));
    let newer = found(&provider, "cirros").await;
    assert_ne!(newer.key, image.key);
    assert_eq!(newer.shown, server.url("/root/files/newest.img"));

    provider.clear_cache();
    server.paths();
    found(&provider, "cirros").await;
    assert!(server.asked().iter().all(|asked| asked.header("if-none-match").is_none()));
}

#[tokio::test]
async fn a_rule_names_the_provider_and_the_image() {
    let files = Files::default();
    files.put("streams/v1/index.json", index(1, "streams/v1/one.json"));
    files.put("streams/v1/one.json", products(1, &json!({ "1": disk("old") })));
    let server = Server::of(&files);
    let provider = mirror(&server.url("/"), json!({ "insecure": true }));
    let rule = locator("simplestreams://mirror/net.cirros:amd64");
    assert!(provider.claims(rule.url()));
    assert!(!provider.claims(locator("simplestreams://other/cirros").url()));
    assert_eq!(provider.resolve(&rule, &want("amd64")).await.expect("found").metadata.name, "net.cirros:amd64");
    let error = provider.resolve(&locator("simplestreams://mirror/none"), &want("amd64")).await.expect_err("none");
    assert!(matches!(error, ProviderError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn other_platforms_are_told() {
    let files = Files::default();
    files.put("streams/v1/index.json", index(1, "streams/v1/one.json"));
    files.put("streams/v1/one.json", products(1, &json!({ "1": disk("old") })));
    let server = Server::of(&files);
    let provider = mirror(&server.url("/"), json!({ "insecure": true }));
    let error = provider.find("cirros", &want("arm64")).await.expect_err("not for it");
    assert!(error.to_string().contains("not for linux/arm64/v8, only for linux/amd64, linux/s390x"), "{error}");
    assert!(provider.find("ubuntu", &want("amd64")).await.expect("asked").is_none());
    let names = |images: Vec<imagestore::provider::ImageMetadata>| -> Vec<_> {
        images.into_iter().map(|image| image.name).collect()
    };
    assert_eq!(names(provider.search("bi", None).await.expect("searched")), ["net.cirros:s390x"]);
    let wanted = want("amd64").platform;
    assert_eq!(names(provider.search("", Some(&wanted)).await.expect("searched")), ["net.cirros:amd64"]);
    let hash = format!("sha256:{}", "a".repeat(64)).parse().expect("a hash");
    assert!(provider.contains(&hash).await.expect("asked"));
    let other = format!("sha256:{}", "b".repeat(64)).parse().expect("a hash");
    assert!(!provider.contains(&other).await.expect("asked"));
}

#[tokio::test]
async fn md5_alone_takes_a_setting() {
    let files = Files::default();
    let weak = json!({ "1": { "items": { "disk.img": { "path": "a", "md5": "c".repeat(32) } } } });
    files.put("streams/v1/index.json", index(1, "streams/v1/one.json"));
    files.put("streams/v1/one.json", products(1, &weak));
    let server = Server::of(&files);
    let strict = mirror(&server.url("/"), json!({ "insecure": true }));
    assert!(refused(&strict, "cirros").await.contains("only weak hashes for `cirros`"));
    let lenient = mirror(&server.url("/"), json!({ "insecure": true, "allow_weak_hashes": true }));
    assert_eq!(found(&lenient, "cirros").await.promises[0].hash.to_string(), format!("md5:{}", "c".repeat(32)));
}

#[tokio::test]
async fn what_is_signed_is_read_and_nothing_else() {
    let (files, dir) = (Files::default(), tempfile::tempdir().expect("a directory"));
    put_signed(&files, 5, &OURS);
    let server = Server::of(&files);
    let provider = signed_mirror(&server, dir.path());
    assert!(provider.caps().signed);
    let image = found(&provider, "cirros").await;
    assert_eq!(image.metadata.signed_by.as_ref().map(String::len), Some(40));

    let (index, products) = (index(5, "streams/v1/one.sjson"), products(5, &json!({ "1": disk("old") })));
    let other = products.replace("files/old", "files/bad");
    for (path, text, why) in [
        ("streams/v1/index.sjson", index.clone(), "not signed"),
        ("streams/v1/index.sjson", signed(&index, &OTHERS), "none of the configured keys"),
        ("streams/v1/index.sjson", signed(&index, &OURS).replace("one.sjson", "two.sjson"), "is not what key"),
        ("streams/v1/index.sjson", format!("{index}\n{}", signed(&index, &OURS)), "`streams/v1/index.sjson`"),
        ("streams/v1/one.sjson", products.clone(), "not signed"),
        ("streams/v1/one.sjson", signed(&other, &OTHERS), "none of the configured keys"),
        ("streams/v1/one.sjson", signed(&products, &OURS).replace("files/old", "files/bad"), "is not what key"),
    ] {
        put_signed(&files, 5, &OURS);
        files.put(path, text);
        provider.clear_cache();
        let error = refused(&provider, "cirros").await;
        assert!(error.contains("is not signed as it must be") && error.contains(path), "{error}");
        assert!(error.contains(why.trim_matches('`')), "{error}");
    }
    put_signed(&files, 5, &OURS);
    found(&provider, "cirros").await;
}

#[tokio::test]
async fn signatures_may_be_beside_the_documents() {
    let (files, dir) = (Files::default(), tempfile::tempdir().expect("a directory"));
    let (index, products) = (index(5, "streams/v1/one.json"), products(5, &json!({ "1": disk("old") })));
    files.put("streams/v1/index.json", &*index);
    files.put("streams/v1/one.json", &*products);
    let server = Server::of(&files);
    let provider = signed_mirror(&server, dir.path());
    // There, and good, but not signed.
    assert!(refused(&provider, "cirros").await.contains("not signed"));
    files.put("streams/v1/index.json.gpg", beside(&index, &OURS));
    assert!(refused(&provider, "cirros").await.contains("one.json of `mirror` is not signed"));
    files.put("streams/v1/one.json.gpg", beside(&products, &OTHERS));
    assert!(refused(&provider, "cirros").await.contains("none of the configured keys"));
    files.put("streams/v1/one.json.gpg", beside(&products, &OURS));
    found(&provider, "cirros").await;
    files.put("streams/v1/one.json", products.replace("files/old", "files/bad"));
    assert!(refused(&provider, "cirros").await.contains("is not what key"));
    // The signed form is preferred, and there is no way back from a broken one.
    files.put("streams/v1/one.json", products);
    files.put("streams/v1/index.sjson", "junk");
    assert!(refused(&provider, "cirros").await.contains("index.sjson"));
    files.remove("streams/v1/index.sjson");
    found(&provider, "cirros").await;
    files.remove("streams/v1/index.json");
    let why = format!("the index of provider `mirror` is not at `{}`", server.url("/streams/v1/index.sjson"));
    is_absent(&provider, &why).await;
}

#[tokio::test]
async fn a_mirror_does_not_go_back_in_time() {
    let (files, dir) = (Files::default(), tempfile::tempdir().expect("a directory"));
    let server = Server::of(&files);
    put_signed(&files, 5, &OURS);
    found(&signed_mirror(&server, dir.path()), "cirros").await;

    // A restart does not help who replays an old index, nor does an old list beside a new index.
    put_signed(&files, 4, &OURS);
    let provider = signed_mirror(&server, dir.path());
    let error = refused(&provider, "cirros").await;
    assert!(error.contains("older than") && error.contains("streams/v1/index.sjson"), "{error}");
    files.put("streams/v1/index.sjson", signed(&index(6, "streams/v1/one.sjson"), &OURS));
    let error = refused(&provider, "cirros").await;
    assert!(error.contains("older than") && error.contains("streams/v1/one.sjson"), "{error}");
    put_signed(&files, 6, &OURS);
    found(&provider, "cirros").await;

    // A signed index without a date could be any.
    let undated = index(7, "streams/v1/one.sjson").replace("updated", "dated");
    files.put("streams/v1/index.sjson", signed(&undated, &OURS));
    assert!(refused(&provider, "cirros").await.contains("no date `updated`"));

    // The operator may allow what was withdrawn.
    put_signed(&files, 4, &OURS);
    provider.clear_cache();
    assert!(refused(&provider, "cirros").await.contains("older than"), "to ask anew is not to forget");
    provider.forget().expect("forgotten");
    found(&provider, "cirros").await;
}

#[tokio::test]
async fn a_mirror_that_fails_has_not_said_no() {
    let files = Files::default();
    let server = Server::of(&files);
    let provider = mirror(&server.url("/"), json!({ "insecure": true }));
    assert!(refused(&provider, "cirros").await.contains("the index of provider `mirror` is not at `http://"));
    files.put("streams/v1/index.json", index(1, "streams/v1/one.json"));
    assert!(refused(&provider, "cirros").await.contains("streams/v1/one.json"));
    files.put("streams/v1/one.json", "{");
    assert!(refused(&provider, "cirros").await.contains("no valid JSON"));
    let down = Server::new(|_| crate::rig::Reply::new(503, ""));
    let provider = mirror(&down.url("/"), json!({ "insecure": true }));
    let error = provider.find("cirros", &want("amd64")).await.expect_err("down");
    assert!(chain(&error).contains("503"), "{}", chain(&error));
}
