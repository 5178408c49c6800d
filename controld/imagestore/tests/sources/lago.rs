//! A Lago repository.

use std::sync::Arc;

use imagestore::net::{Ask, Opened, Transport};
use imagestore::provider::{Covers, Lago, LocalFiles, Platform, Provider as _, ProviderError, Source};
use serde_json::{Value, json};
use vmimage::error::ErrorKind;

use crate::rig::{Files, Reply, Server, bytes, chain, client, found, is_absent, locator, refused, want};

const SHA1: &str = "ec4c0a608f6db5e0e42de0026a937c0860a3b927";

fn repo(sources: &Value, handle: &str) -> String {
    json!({
        "name": "office", "sources": sources,
        "templates": { "el7": { "versions": {
            "v1": { "source": "s", "handle": "old.qcow2", "timestamp": 1 },
            "v2": { "source": "s", "handle": handle, "timestamp": 2.5 },
        } } }
    })
    .to_string()
}

fn web(server: &Server) -> Value {
    json!({ "s": { "type": "http", "args": { "baseurl": server.url("/files") } } })
}

fn lago(uri: &str, weak: bool, roots: Vec<std::path::PathBuf>) -> Lago {
    let config = serde_json::from_value(json!({ "uri": uri, "allow_weak_hashes": weak })).expect("settings");
    Lago::new("lago", &config, client(), Transport::plain(), Arc::new(LocalFiles::new(roots))).expect("a provider")
}

#[tokio::test]
async fn the_latest_version_is_found_with_what_stands_beside_it() {
    let files = Files::default();
    let server = Server::of(&files);
    files.put("repo.metadata", repo(&web(&server), "sub/new.qcow2"));
    files.put("files/sub/new.qcow2.hash", format!("{SHA1}\n"));
    let metadata =
        json!({ "distro": "el7", "base": "el7-base:v1", "checksum": "5".repeat(128), "root-password": "123456" });
    files.put("files/sub/new.qcow2.metadata", metadata.to_string());
    let provider = lago(&server.url("/repo.metadata"), false, vec![]);
    let image = found(&provider, "el7").await;
    assert_eq!(image.shown, server.url("/files/sub/new.qcow2"));
    assert_eq!(image.metadata.aliases, ["el7:v2", "office:el7:v2"]);
    assert_eq!((image.metadata.created, image.metadata.parent.as_deref()), (Some(2), Some("el7-base:v1")));
    let promises: Vec<_> = image.promises.iter().map(|promise| (promise.hash.to_string(), promise.covers)).collect();
    let strong = (format!("sha512:{}", "5".repeat(128)), Covers::Content);
    assert_eq!(promises, [strong, (format!("sha1:{SHA1}"), Covers::Content)]);
    server.paths();
    found(&provider, "el7").await;
    assert!(server.asked()[0].header("if-none-match").is_some());
    assert!(provider.find("el8", &want("amd64")).await.expect("asked").is_none());
    let names: Vec<_> =
        provider.search("el", None).await.expect("searched").into_iter().map(|image| image.name).collect();
    assert_eq!(names, ["el7"]);
    assert!(provider.resolve(&locator("http://host/el7"), &want("amd64")).await.is_err());
}

#[tokio::test]
async fn sha1_alone_takes_a_setting_and_nothing_at_all_is_refused() {
    let files = Files::default();
    let server = Server::of(&files);
    files.put("repo.metadata", repo(&web(&server), "new.qcow2"));
    let (strict, lenient) =
        (lago(&server.url("/repo.metadata"), false, vec![]), lago(&server.url("/repo.metadata"), true, vec![]));
    assert!(refused(&lenient, "el7").await.contains("neither `.hash` nor `.metadata` with a hash"));
    files.put("files/new.qcow2.hash", SHA1);
    assert!(refused(&strict, "el7").await.contains("only weak hashes for `el7`"));
    assert_eq!(found(&lenient, "el7").await.promises[0].hash.to_string(), format!("sha1:{SHA1}"));
    files.put("files/new.qcow2.hash", "<html>not found</html>");
    assert!(refused(&lenient, "el7").await.contains("broken hash"));
    files.put("files/new.qcow2.hash", SHA1);
    files.put("files/new.qcow2.metadata", r#"{"arch": "aarch64"}"#);
    assert!(refused(&lenient, "el7").await.contains("not for linux/amd64, only for linux/arm64/v8"));
    files.put("files/new.qcow2.metadata", "{");
    assert!(refused(&lenient, "el7").await.contains("no valid JSON"));
}

#[tokio::test]
async fn the_compressed_file_is_tried_first() {
    let files = Files::default();
    let server = Server::of(&files);
    files.put("repo.metadata", repo(&web(&server), "new.qcow2"));
    files.put("files/new.qcow2.hash", SHA1);
    let provider = lago(&server.url("/repo.metadata"), true, vec![]);
    let image = found(&provider, "el7").await;
    server.paths();
    let error = bytes(&provider, &image, &Ask::default()).await.expect_err("nothing there");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{}", chain(&error));
    assert_eq!(server.paths(), ["/files/new.qcow2.xz", "/files/new.qcow2"]);
    files.put("files/new.qcow2", "plain");
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), b"plain");
    files.put("files/new.qcow2.xz", "compressed");
    server.paths();
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), b"compressed");
    assert_eq!(server.paths(), ["/files/new.qcow2.xz"]);

    // A handle that says so itself is the only file; the hash may be beside either name.
    files.put("repo.metadata", repo(&web(&server), "packed.qcow2.xz"));
    files.put("files/packed.qcow2.hash", SHA1);
    let image = found(&provider, "el7").await;
    server.paths();
    assert!(bytes(&provider, &image, &Ask::default()).await.is_err());
    assert_eq!(server.paths(), ["/files/packed.qcow2.xz"]);
}

#[tokio::test]
async fn a_server_that_fails_is_not_asked_for_the_plain_file() {
    let server = Server::new(|asked| match &*asked.path {
        "/files/new.qcow2.hash" => Reply::ok(SHA1),
        "/files/new.qcow2.xz" => Reply::new(503, ""),
        _ => Reply::missing(),
    });
    let files = Files::default();
    files.put("repo.metadata", repo(&web(&server), "new.qcow2"));
    let other = Server::of(&files);
    let provider = lago(&other.url("/repo.metadata"), true, vec![]);
    let image = found(&provider, "el7").await;
    let error = bytes(&provider, &image, &Ask::default()).await.expect_err("down");
    assert!(chain(&error).contains("503"), "{}", chain(&error));
}

#[tokio::test]
async fn local_sources_are_below_the_operators_directories() {
    let dir = tempfile::tempdir().expect("a directory");
    let (root, inside) = (dir.path().join("lago"), dir.path().join("lago/inside"));
    std::fs::create_dir_all(&inside).expect("made");
    std::fs::write(inside.join("new.qcow2"), "plain").expect("written");
    std::fs::write(inside.join("new.qcow2.hash"), SHA1).expect("written");
    std::fs::write(dir.path().join("secret"), "secret").expect("written");
    std::fs::write(dir.path().join("secret.hash"), SHA1).expect("written");
    std::os::unix::fs::symlink("../../secret", inside.join("link")).expect("linked");
    std::fs::write(inside.join("link.hash"), SHA1).expect("written");
    let files = Files::default();
    let server = Server::of(&files);
    let local = |root: &std::path::Path| json!({ "s": { "type": "file", "args": { "root": root } } });
    files.put("repo.metadata", repo(&local(&inside), "new.qcow2"));
    let provider = lago(&server.url("/repo.metadata"), true, vec![root.clone()]);
    let image = found(&provider, "el7").await;
    assert!(matches!(&image.source, Source::File(path) if *path == inside.join("new.qcow2")));
    assert_eq!(bytes(&provider, &image, &Ask::default()).await.expect("opened"), b"plain");
    std::fs::write(inside.join("new.qcow2.xz"), "compressed").expect("written");
    let Opened::Artifact(opened) = provider.open(&image, &Ask::default()).await.expect("opened") else { panic!() };
    assert_eq!(opened.length, Some(10));

    files.put("repo.metadata", repo(&local(dir.path()), "secret"));
    let error = provider.find("el7", &want("amd64")).await.expect_err("outside");
    assert!(matches!(error, ProviderError::NotAllowed { .. }), "{error}");
    files.put("repo.metadata", repo(&local(&inside), "link"));
    let image = found(&provider, "el7").await;
    assert!(bytes(&provider, &image, &Ask::default()).await.is_err());
    let nothing = lago(&server.url("/repo.metadata"), true, vec![]);
    assert!(nothing.find("el7", &want("amd64")).await.is_err());

    // The document may be local as well.
    std::fs::write(root.join("repo.metadata"), repo(&local(&inside), "new.qcow2")).expect("written");
    let uri = format!("file://{}", root.join("repo.metadata").display());
    let provider = lago(&uri, true, vec![root]);
    assert_eq!(found(&provider, "office:el7").await.metadata.platform, Platform::default());
}

#[tokio::test]
async fn places_that_are_none_are_refused() {
    let files = Files::default();
    let server = Server::of(&files);
    for base in ["ftp://host/", "file:///etc", "host", ""] {
        let sources = json!({ "s": { "type": "http", "args": { "baseurl": base } } });
        files.put("repo.metadata", repo(&sources, "new.qcow2"));
        let error = refused(&lago(&server.url("/repo.metadata"), true, vec![]), "el7").await;
        assert!(error.contains("no http or https URL"), "{base}: {error}");
    }
}

#[tokio::test]
async fn a_repository_that_is_not_there_says_nothing_of_its_images() {
    let (server, dir) = (Server::of(&Files::default()), tempfile::tempdir().expect("a directory"));
    let lost = |uri: &str| lago(uri, true, vec![dir.path().to_owned()]);
    let url = server.url("/repo.metadata");
    is_absent(&lost(&format!("{url}?token=PW")), &format!("repo.metadata of provider `lago` is not at `{url}?...`"))
        .await;
    let file = dir.path().join("repo.metadata");
    let shown = format!("repo.metadata of provider `lago` is not at `{}`", file.display());
    is_absent(&lost(&format!("file://{}", file.display())), &shown).await;
}
