//! Glance and Keystone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use imagestore::net::{Ask, Opened, Resume, Transport};
use imagestore::provider::{Covers, Glance, Provider as _, ProviderError};
use serde_json::{Value, json};
use vmimage::convert::ForeignFormat;
use vmimage::declared::Declared;
use vmimage::error::ErrorKind;

use crate::rig::{
    Asked, Reply, Server, bytes, chain, client, found, is_absent, locator, refused, want, want_with_login,
};

const DATA: &[u8] = b"QFI\xfb and so on";

fn id(at: usize) -> String {
    format!("71c675ab-d94f-49cd-a114-{at:012}")
}

/// A record that differs by its number.
fn record(at: usize, name: &str) -> Value {
    json!({
        "id": id(at), "name": name, "status": "active", "disk_format": "qcow2", "container_format": "bare",
        "size": DATA.len(), "checksum": "c".repeat(32), "os_hash_algo": "sha512",
        "os_hash_value": format!("{at:0128x}"), "os_hidden": false,
        "created_at": format!("2026-11-21T13:00:{:02}Z", at % 60), "updated_at": "2026-11-21T14:00:00Z"
    })
}

fn changed(mut record: Value, key: &str, value: Value) -> Value {
    record[key] = value;
    record
}

/// A Glance without pages and without filters, which is what none may rely on.
fn glance(records: Vec<Value>) -> impl Fn(&Asked) -> Reply + Send + Sync + 'static {
    move |asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        let Some(rest) = path.strip_prefix("/v2/images") else { return Reply::missing() };
        let known = |id: &str| records.iter().find(|record| record["id"] == id);
        match rest.trim_start_matches('/') {
            "" => Reply::ok(json!({ "images": records, "first": "/v2/images" }).to_string()),
            rest => match rest.split_once('/') {
                None => known(rest).map_or_else(Reply::missing, |record| Reply::ok(record.to_string())),
                Some((id, "file")) if known(id).is_some() => data(asked),
                Some(_) => Reply::missing(),
            },
        }
    }
}

/// What stores behind Glance do with a range. The header is of the whole and in hex, whatever is sent.
fn data(asked: &Asked) -> Reply {
    let from = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
    match from {
        Some(from) if from < DATA.len() => Reply::new(206, &DATA[from..])
            .with("Content-Range", &format!("bytes {from}-{}/{}", DATA.len() - 1, DATA.len())),
        _ => Reply::ok(DATA),
    }
    .with("Content-MD5", &"c".repeat(32))
}

fn provider(settings: Value) -> Glance {
    let config = serde_json::from_value(settings).expect("settings");
    Glance::new("corp", &config, client(), Transport::plain()).expect("a provider")
}

fn open_to_all(server: &Server) -> Glance {
    provider(json!({ "endpoint": server.url("") }))
}

#[tokio::test]
async fn the_newest_active_image_of_exactly_that_name_is_found_and_opened() {
    let server = Server::new(glance(vec![
        record(1, "cirros"),
        record(3, "cirros"),
        record(2, "cirros"),
        record(9, "cirros-9"),
        record(8, "Cirros"),
        changed(record(7, "cirros"), "status", json!("queued")),
    ]));
    let provider = open_to_all(&server);
    let image = found(&provider, "cirros").await;
    assert_eq!(image.metadata.aliases, [id(3)]);
    assert_eq!(image.shown, server.url(&format!("/v2/images/{}/file", id(3))));
    assert_eq!(image.size, Some(DATA.len() as u64));
    let promises: Vec<_> = image.promises.iter().map(|promise| promise.hash.to_string()).collect();
    assert_eq!(promises, [format!("sha512:{:0128x}", 3)]);
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), DATA);
    let asked = server.asked();
    let query = |key: &str| asked[0].query(key);
    assert_eq!(query("name").as_deref(), Some("cirros"));
    assert_eq!((query("status").as_deref(), query("sort").as_deref()), (None, Some("created_at:desc")));
    assert!(asked.iter().all(|asked| asked.header("x-auth-token").is_none()));
    assert!(provider.find("cirr", &want("amd64")).await.expect("asked").is_none());
}

#[tokio::test]
async fn an_image_that_is_not_active_keeps_its_name() {
    for status in ["queued", "saving", "importing", "deactivated"] {
        let server = Server::new(glance(vec![changed(record(1, "cirros"), "status", json!(status))]));
        let provider = open_to_all(&server);
        for name in ["cirros", &id(1)] {
            let error = provider.find(name, &want("amd64")).await.expect_err(status);
            assert!(chain(&error).contains(&format!("is `{status}`, not `active`")), "{name}: {}", chain(&error));
            assert!(chain(&error).contains("`corp`") && !error.is_unreachable());
        }
    }
    let server = Server::new(glance(vec![changed(record(1, "cirros"), "status", json!("deleted"))]));
    assert!(open_to_all(&server).find("cirros", &want("amd64")).await.expect("asked").is_none());
}

#[tokio::test]
async fn an_image_is_found_by_its_id_and_by_a_rule() {
    let server = Server::new(glance(vec![record(1, "cirros"), record(2, "team/cirros 0.6")]));
    let provider = open_to_all(&server);
    assert_eq!(found(&provider, &id(1)).await.metadata.name, "cirros");
    assert!(provider.find(&id(5), &want("amd64")).await.expect("asked").is_none());
    let at = server.url("").replace("http://", "glance+http://");
    for (url, name) in [
        (format!("{at}/cirros"), "cirros"),
        (format!("{at}/v2/images/{}", id(1)), "cirros"),
        (format!("{at}/v2/images/{}/file", id(1)), "cirros"),
        (format!("{at}/team/cirros%200.6"), "team/cirros 0.6"),
        ("glance+https://corp/cirros".to_owned(), "cirros"),
    ] {
        let rule = locator(&url);
        assert!(provider.claims(rule.url()), "{url}");
        let image = provider.resolve(&rule, &want_with_login()).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(image.metadata.name, name);
    }
    for url in ["glance+https://elsewhere/cirros", "glance+http://127.0.0.1:1/cirros"] {
        assert!(!provider.claims(locator(url).url()), "{url}");
        assert!(provider.resolve(&locator(url), &want("amd64")).await.is_err(), "{url}");
    }
    let error = provider.resolve(&locator("glance+https://corp/none"), &want("amd64")).await.expect_err("none");
    assert!(matches!(error, ProviderError::NotFound { .. }), "{error}");
    // A caller's login is for the place that he named, and Keystone's users are others.
    assert!(server.asked().iter().all(|asked| asked.header("authorization").is_none()));
}

#[tokio::test]
async fn a_glance_or_keystone_that_is_not_there_says_nothing_of_its_images() {
    for status in [404, 410] {
        let server = Server::new(move |_| Reply::new(status, "no"));
        let why = format!("the list of images of provider `corp` is not at `{}?...`", server.url("/v2/images"));
        is_absent(&open_to_all(&server), &why).await;
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("secret");
        std::fs::write(&file, r#"{"id": "i", "secret": "s"}"#).expect("written");
        let settings = json!({ "auth_url": server.url("/identity"), "application_credential_file": file });
        let lost = provider(settings);
        let why = format!("Keystone of provider `corp` is not at `{}`", server.url("/identity/v3/auth/tokens"));
        is_absent(&lost, &why).await;
        // Nor is a file of ours the image.
        std::fs::remove_file(&file).expect("removed");
        let error = lost.find("cirros", &want("amd64")).await.expect_err("no secret");
        assert_eq!(error.kind(), ErrorKind::Internal, "{}", chain(&error));
        assert!(
            chain(&error).contains("provider `corp` is not configured soundly: failed to open"),
            "{}",
            chain(&error)
        );
    }
}

#[tokio::test]
async fn what_must_not_be_used_is_refused() {
    for (key, value, why) in [
        ("container_format", json!("ova"), "container format `ova`"),
        ("disk_format", json!("iso"), "disk format `iso`"),
        ("disk_format", json!("ami"), "disk format `ami`"),
        ("disk_format", json!("dmg"), "disk format `dmg`"),
        ("os_hash_algo", json!("blake2b"), "unknown algorithm `blake2b`"),
        ("os_hash_value", json!("short"), "broken hash"),
        ("os_hash_value", json!(null), "no hash"),
        ("architecture", json!("aarch64"), "not for linux/amd64, only for linux/arm64/v8"),
    ] {
        let server = Server::new(glance(vec![changed(record(1, "cirros"), key, value)]));
        let error = refused(&open_to_all(&server), "cirros").await;
        assert!(error.contains(why), "{key}: {error}");
    }
    // By its id a queued one is there to be seen.
    let server = Server::new(glance(vec![changed(record(1, "cirros"), "status", json!("queued"))]));
    assert!(refused(&open_to_all(&server), &id(1)).await.contains("is `queued`, not `active`"));
    let weak = changed(changed(record(1, "cirros"), "os_hash_algo", json!(null)), "os_hash_value", json!(null));
    let server = Server::new(glance(vec![weak]));
    assert!(refused(&open_to_all(&server), "cirros").await.contains("only weak hashes"));
    let lenient = provider(json!({ "endpoint": server.url("/v2/"), "allow_weak_hashes": true }));
    assert_eq!(found(&lenient, "cirros").await.promises[0].hash.to_string(), format!("md5:{}", "c".repeat(32)));
}

#[tokio::test]
async fn a_format_that_can_be_converted_is_told_and_its_hash_is_of_what_is_hosted() {
    for (name, format) in [
        ("vmdk", ForeignFormat::Vmdk),
        ("vhd", ForeignFormat::Vhd),
        ("vhdx", ForeignFormat::Vhdx),
        ("vdi", ForeignFormat::Vdi),
    ] {
        let server = Server::new(glance(vec![changed(record(1, "cirros"), "disk_format", json!(name))]));
        let image = found(&open_to_all(&server), "cirros").await;
        assert_eq!(image.metadata.format, Some(Declared::Foreign(format)));
        assert_eq!(image.promises[0].covers, Covers::Hosted);
    }
}

#[tokio::test]
async fn an_image_without_data_is_an_error() {
    for answer in [Reply::new(204, ""), Reply::ok(""), Reply::new(404, ""), Reply::new(403, "")] {
        let records = glance(vec![record(1, "cirros")]);
        let server =
            Server::new(move |asked| if asked.path.ends_with("/file") { answer.clone() } else { records(asked) });
        let provider = open_to_all(&server);
        let image = found(&provider, "cirros").await;
        assert!(bytes(&provider, &image, &Ask::default()).await.is_err());
    }
}

#[tokio::test]
async fn a_part_comes_where_the_store_can_and_the_whole_where_not() {
    let rest = Ask { from: Some(Resume { at: 4, etag: None, total: Some(DATA.len() as u64) }), ..Ask::default() };
    for can in [true, false] {
        let records = glance(vec![record(1, "cirros")]);
        let server = Server::new(move |asked| match asked.header("range") {
            Some(_) if !can => Reply::new(400, "random access is not supported"),
            _ => records(asked),
        });
        let provider = open_to_all(&server);
        let image = found(&provider, "cirros").await;
        let Opened::Artifact(part) = provider.open(&image, &rest).await.expect("opened") else { panic!("unchanged") };
        assert_eq!((part.from, part.length), (if can { 4 } else { 0 }, Some(DATA.len() as u64)));
        // The checksum in the header is of the whole, and none of ours to compare.
        let from = usize::try_from(part.from).expect("small");
        assert_eq!(bytes(&provider, &image, &rest).await.expect("whole"), &DATA[from..]);
    }
}

#[tokio::test]
async fn lists_go_on_to_their_end() {
    let server = Server::new(|asked| {
        let at: usize = asked.query("marker").map_or(0, |marker| marker.parse().expect("a number"));
        let next = (at < 4).then(|| format!("/v2/images?marker={}&limit=1", at + 1));
        let name = if at == 3 { "cirros" } else { "ubuntu" };
        Reply::ok(json!({ "images": [record(at, name)], "next": next }).to_string())
    });
    // Behind a path that Glance does not know of.
    let provider = provider(json!({ "endpoint": server.url("/image") }));
    assert_eq!(found(&provider, "cirros").await.metadata.aliases, [id(3)]);
    let paths = server.paths();
    assert_eq!(paths.len(), 5);
    assert!(paths.iter().all(|path| path.starts_with("/image/v2/images?")), "{paths:?}");
    let all = provider.search("", None).await.expect("searched");
    assert_eq!(all.iter().filter(|image| image.name == "ubuntu").count(), 4);
    assert_eq!(provider.search("ci", None).await.expect("searched").len(), 1);
}

#[tokio::test]
async fn lists_that_lead_astray_are_refused() {
    let elsewhere = Server::new(|_| Reply::ok(r#"{"images": []}"#));
    let away = elsewhere.url("/v2/images?marker=x");
    let page = |next: Value| Reply::ok(json!({ "images": [], "next": next }).to_string());
    let server = Server::new(move |asked| match asked.query("name").as_deref() {
        Some("away") => page(json!(away)),
        Some("endless") => page(json!("/v2/images?page=1")),
        Some("circle") => page(json!("/v2/images?marker=1")),
        _ => match (asked.query("marker"), asked.query("page")) {
            (Some(marker), _) => page(json!(format!("/v2/images?marker={}", if marker == "1" { 2 } else { 1 }))),
            (_, Some(at)) => page(json!(format!("/v2/images?page={}", at.parse::<u64>().expect("a number") + 1))),
            _ => Reply::missing(),
        },
    });
    let provider = open_to_all(&server);
    assert!(refused(&provider, "away").await.contains("not of the same list"));
    assert_eq!(elsewhere.asked().len(), 0);
    assert!(refused(&provider, "circle").await.contains("round in circles"));
    server.paths();
    assert!(refused(&provider, "endless").await.contains("more than 1000 pages"));
    assert_eq!(server.paths().len(), 1000);
}

#[tokio::test]
async fn images_are_found_by_hash_among_what_the_server_says() {
    let server = Server::new(glance(vec![record(1, "one"), changed(record(2, "two"), "status", json!("queued"))]));
    let provider = open_to_all(&server);
    let hash = |at: usize| format!("sha512:{at:0128x}").parse().expect("a hash");
    assert_eq!(provider.metadata(&hash(1)).await.expect("asked").expect("there").name, "one");
    assert_eq!(server.asked()[0].query("os_hash_value"), Some(format!("{:0128x}", 1)));
    // Was never uploaded.
    assert!(!provider.contains(&hash(2)).await.expect("asked"));
    assert!(!provider.contains(&hash(3)).await.expect("asked"));
    let md5 = format!("md5:{}", "c".repeat(32)).parse().expect("a hash");
    assert!(provider.contains(&md5).await.expect("asked"));
    assert!(server.asked().last().expect("asked").query("checksum").is_some());
}

#[tokio::test]
async fn a_search_shows_what_is_meant_to_be_seen() {
    let server = Server::new(glance(vec![
        record(2, "b"),
        changed(record(3, "bc"), "os_hidden", json!(true)),
        changed(record(4, "bd"), "architecture", json!("s390x")),
        record(1, "a"),
        changed(record(5, "be"), "name", json!(null)),
    ]));
    let names = |images: Vec<imagestore::provider::ImageMetadata>| -> Vec<_> {
        images.into_iter().map(|image| image.name).collect()
    };
    let seen = open_to_all(&server);
    assert_eq!(names(seen.search("", None).await.expect("searched")), ["a", "b", "bd"]);
    let wanted = want("amd64").platform;
    assert_eq!(names(seen.search("b", Some(&wanted)).await.expect("searched")), ["b"]);
    let private = provider(json!({ "endpoint": server.url(""), "hide_from_search": true }));
    assert!(names(private.search("", None).await.expect("searched")).is_empty());
    found(&private, "a").await;
}

/// A Keystone whose tokens are numbers, each good for what `good` says.
struct Cloud {
    keystone: Server,
    glance: Server,
    dir: tempfile::TempDir,
}

impl Cloud {
    /// `good(n)` says whether Glance takes the nth token; `expires` is what Keystone says of all.
    fn new(expires: &str, good: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        let records = glance(vec![record(1, "cirros")]);
        let glance = Server::new(move |asked| {
            let token = asked.header("x-auth-token").and_then(|token| token.strip_prefix("token-"));
            match token.and_then(|token| token.parse().ok()) {
                Some(at) if good(at) => records(asked),
                _ => Reply::new(401, "Unauthorized"),
            }
        });
        let (count, expires, url) = (Arc::new(AtomicUsize::new(0)), expires.to_owned(), glance.url("/"));
        let keystone = Server::new(move |asked| {
            if asked.path != "/identity/v3/auth/tokens" || asked.method != "POST" {
                return Reply::missing();
            }
            if !asked.body.contains("s3cret") {
                return Reply::new(401, "The request you have made requires authentication.");
            }
            let endpoint = json!({ "interface": "public", "region": "R1", "region_id": "R1", "url": url });
            let catalog = json!([{ "type": "image", "endpoints": [endpoint] }]);
            let body = json!({ "token": { "expires_at": expires, "catalog": catalog } });
            let at = count.fetch_add(1, Ordering::Relaxed) + 1;
            Reply::new(201, body.to_string()).with("X-Subject-Token", &format!("token-{at}"))
        });
        Self { keystone, glance, dir: tempfile::tempdir().expect("a directory") }
    }

    fn secret(&self, text: &str) -> std::path::PathBuf {
        let file = self.dir.path().join("secret");
        std::fs::write(&file, text).expect("written");
        file
    }

    fn application(&self) -> Glance {
        let file = self.secret(r#"{"id": "i", "secret": "s3cret"}"#);
        let auth_url = self.keystone.url("/identity/v3");
        provider(json!({ "auth_url": auth_url, "application_credential_file": file, "region": "R1" }))
    }
}

const LATER: &str = "2100-01-01T00:00:00.000000Z";

#[tokio::test]
async fn one_token_serves_many_questions() {
    let cloud = Cloud::new(LATER, |_| true);
    let provider = cloud.application();
    let image = found(&provider, "cirros").await;
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), DATA);
    found(&provider, "cirros").await;
    let [asked] = &*cloud.keystone.asked() else { panic!("more than one token") };
    assert_eq!(asked.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_str(&asked.body).expect("JSON");
    assert_eq!(body["auth"]["identity"]["application_credential"], json!({ "id": "i", "secret": "s3cret" }));
    // Neither what is shown nor what is kept has the token.
    let shown = format!("{provider:?} {image:?}");
    assert!(!shown.contains("token-1") && !shown.contains("s3cret"), "{shown}");
    provider.clear_cache();
    found(&provider, "cirros").await;
    assert_eq!(cloud.keystone.asked().len(), 2);
}

#[tokio::test]
async fn a_password_is_the_first_line_of_its_file() {
    let cloud = Cloud::new(LATER, |_| true);
    let file = cloud.secret("s3cret\n");
    let auth_url = cloud.keystone.url("/identity");
    let settings = json!({ "auth_url": auth_url, "username": "u", "password_file": file, "project": "p" });
    found(&provider(settings), "cirros").await;
    let body: Value = serde_json::from_str(&cloud.keystone.asked()[0].body).expect("JSON");
    assert_eq!(body["auth"]["identity"]["password"]["user"]["password"], "s3cret");
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    // The second is good, the third not, the fourth is.
    let cloud = Cloud::new(LATER, |at| at % 2 == 0);
    let provider = cloud.application();
    let image = found(&provider, "cirros").await;
    assert_eq!(cloud.keystone.asked().len(), 2);
    provider.clear_cache();
    // Also when the bytes are asked for.
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), DATA);
    assert_eq!(cloud.keystone.asked().len(), 4);

    let cloud = Cloud::new(LATER, |_| false);
    let provider = cloud.application();
    let error = provider.find("cirros", &want("amd64")).await.expect_err("refused");
    assert!(error.kind() == ErrorKind::Denied && chain(&error).contains("401"), "{}", chain(&error));
    assert_eq!((cloud.keystone.asked().len(), cloud.glance.asked().len()), (2, 2));
}

#[tokio::test]
async fn a_token_is_not_used_up_to_its_last_second() {
    let cloud = Cloud::new("2020-01-01T00:00:00Z", |_| true);
    let provider = cloud.application();
    found(&provider, "cirros").await;
    found(&provider, "cirros").await;
    assert_eq!(cloud.keystone.asked().len(), 2);
}

#[tokio::test]
async fn who_is_not_let_in_is_told_without_secrets() {
    let cloud = Cloud::new(LATER, |_| true);
    let provider = cloud.application();
    for (secret, kind) in [
        (r#"{"id": "i", "secret": "wr0ng"}"#, ErrorKind::Denied),
        ("wr0ng", ErrorKind::Internal),
        (r#"{"id": "i", "secret": "wr0ng", "more": 1}"#, ErrorKind::Internal),
    ] {
        cloud.secret(secret);
        let error = provider.find("cirros", &want("amd64")).await.expect_err("refused");
        assert_eq!(error.kind(), kind, "{}", chain(&error));
        assert!(!format!("{} {error:?}", chain(&error)).contains("wr0ng"), "{}", chain(&error));
    }
    assert_eq!(cloud.glance.asked().len(), 0);
    // The file is read when it is needed, so that a secret may change.
    cloud.secret(r#"{"id": "i", "secret": "s3cret"}"#);
    found(&provider, "cirros").await;
    std::fs::remove_file(cloud.dir.path().join("secret")).expect("removed");
    provider.clear_cache();
    assert!(refused(&provider, "cirros").await.contains("failed to open"));
}

#[tokio::test]
async fn a_token_may_come_from_a_file() {
    let cloud = Cloud::new(LATER, |at| at == 7);
    let file = cloud.secret("token-7\n");
    let provider = provider(json!({ "endpoint": cloud.glance.url("/v2"), "token_file": file }));
    found(&provider, "cirros").await;
    cloud.secret("token-8");
    // What was read is kept, and read again once it is refused.
    found(&provider, "cirros").await;
    provider.clear_cache();
    assert!(refused(&provider, "cirros").await.contains("401"));
    cloud.secret("token-7");
    found(&provider, "cirros").await;
    assert_eq!(cloud.keystone.asked().len(), 0);
}

#[tokio::test]
async fn a_token_goes_to_its_endpoint_alone() {
    let elsewhere = Server::new(|_| Reply::ok(DATA));
    let target = elsewhere.url("/cdn");
    let records = glance(vec![record(1, "cirros")]);
    let glance = Server::new(move |asked| {
        assert_eq!(asked.header("x-auth-token"), Some("t0ken"));
        if asked.path.ends_with("/file") { Reply::new(302, "").with("Location", &target) } else { records(asked) }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "t0ken").expect("written");
    let provider = provider(json!({ "endpoint": glance.url(""), "token_file": file }));
    let image = found(&provider, "cirros").await;
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), DATA);
    assert!(elsewhere.asked()[0].header("x-auth-token").is_none());
}
