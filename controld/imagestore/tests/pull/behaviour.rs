//! What a pull gives, and what stays of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use imagestore::{Protocol, Store};
use vmimage::error::ErrorKind;
use vmimage::inspect::DiskFormat;

use crate::rig::{Bed, Server, disk, hex, names, sha512};

const MEBIBYTE: usize = 1 << 20;

#[tokio::test]
async fn a_pull_stores_what_the_server_has() {
    let image = disk(1, 5 * MEBIBYTE + 77);
    let body = image.clone();
    let server = Server::plain(move |call| call.ok(&body));
    let bed = Bed::new(&server.url("/Dir/Image.qcow2?token=secret"));
    let pulled = bed.pull().await.expect("pulled");
    let hex = hex(&image);
    assert_eq!(pulled.id.to_string(), format!("sha256:{hex}"));
    assert_eq!(pulled.repo_tags, ["img:latest"]);
    assert_eq!(pulled.repo_digests, [format!("img@sha256:{hex}")]);
    assert_eq!((pulled.format, pulled.virtual_size), (DiskFormat::Qcow2, 1 << 20));
    assert!(pulled.size >= image.len() as u64 && pulled.size < image.len() as u64 + 65_536, "{}", pulled.size);
    assert_eq!(pulled.path, bed.images().join("data").join(&hex));
    assert!(fs::read(&pulled.path).expect("read") == image);
    assert_eq!(bed.store.get("img", "").expect("a handler").as_ref(), Some(&pulled));
    assert_eq!(bed.store.list("").expect("listed"), [pulled.into()]);
    assert_eq!(names(&bed.images().join("links")), ["img:latest"]);
    assert_eq!(
        fs::read_link(bed.images().join("links/img:latest")).expect("a link").to_str(),
        Some(format!("../data/{hex}").as_str())
    );
    let record = fs::read_to_string(bed.images().join("refs/_default/img:latest.json")).expect("read");
    assert!(record.contains("/Dir/Image.qcow2?...") && !record.contains("secret"), "{record}");

    let head = server.requests.lock().expect("sound")[0].to_lowercase();
    assert!(head.starts_with("get /dir/image.qcow2?token=secret http/1.1\r\n"), "{head}");
    for line in
        [format!("host: {}", server.address), "accept-encoding: identity".into(), "user-agent: virtlet-rs/".into()]
    {
        assert!(head.contains(&line), "{head}");
    }
    assert!(!head.contains("authorization"));
}

/// QEMU runs as another user: it must reach a base image by its name, and not be able to change or list anything. Who else
/// is on the node may know the digest too, and must not get the image by it.
#[tokio::test]
async fn qemu_may_read_the_image_and_other_users_nothing() {
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = Bed::new(&server.url("/"));
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o711)).expect("set");
    let image = bed.pull().await.expect("pulled");
    let facts = fs::metadata(&image.path).expect("there");
    assert_eq!(facts.mode() & 0o7777, 0o444);
    assert_eq!(facts.uid(), nix::unistd::geteuid().as_raw());
    if !nix::unistd::geteuid().is_root() {
        // Only root can try as somebody else; the modes are asserted above and in the store's own tests.
        return;
    }
    let run = |gid: u32, script: &str| {
        let run = Command::new("sh").args(["-c", script, "sh"]).arg(&image.path).uid(64_055).gid(gid).output();
        run.expect("run").status.success()
    };
    let read = "cat \"$1\" >/dev/null";
    assert!(!run(64_055, read), "served to nobody yet");
    bed.store.serve_to(64_055).await.expect("served");
    assert!(run(64_055, read));
    assert!(!run(64_056, read), "the digest is no leave to have it");
    bed.store.serve_to(64_056).await.expect("served");
    assert!(!run(64_055, read) && run(64_056, read), "one group at a time");
    for script in
        ["echo >>\"$1\"", "rm -f \"$1\"", "ls \"${1%/*}\"", "ls \"${1%/*}/../links\"", "cat \"${1%/*}/../lock\""]
    {
        assert!(!run(64_056, script), "{script}");
    }
}

#[tokio::test]
async fn a_name_without_a_rule_is_a_url() {
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = Bed::with("http://unused.example/", |config| config.protocol = Protocol::Http);
    let name = format!("{}/dir/image.qcow2:v1", server.address);
    let image = bed.store.pull(&name).await.expect("pulled");
    assert_eq!(image.repo_tags, [name]);
    assert!(server.requests.lock().expect("sound")[0].starts_with("GET /dir/image.qcow2 "));
    // The prefix is for whoever chose this store; it is no part of the URL or of a rule's name, but of the image's.
    bed.translate(&server.url("/"));
    let image = bed.store.pull("virtlet.cloud/img").await.expect("pulled");
    assert!(image.repo_tags.contains(&"virtlet.cloud/img:latest".to_owned()));
    assert_eq!(bed.store.get("img", "").expect("a handler"), None);
}

#[tokio::test]
async fn a_digest_is_held_to() {
    let image = disk(1, 4096);
    let body = image.clone();
    let server = Server::plain(move |call| call.ok(&body));
    let bed = Bed::new(&server.url("/x"));
    let wrong = "0".repeat(64);
    let error = bed.store.pull(&format!("img@sha256:{wrong}")).await.expect_err("other bytes");
    assert_eq!(error.kind(), ErrorKind::DigestMismatch);
    let error = crate::rig::chain(&*error);
    assert!(error.contains(&wrong) && error.contains(&hex(&image)), "{error}");
    bed.assert_empty().await;

    let right = format!("img@sha256:{}", hex(&image));
    let pulled = bed.store.pull(&right).await.expect("pulled");
    assert_eq!((pulled.repo_tags, pulled.repo_digests), (vec![], vec![right.clone()]));
    let hits = server.hits();
    bed.store.pull(&right).await.expect("here already");
    bed.store.pull(&hex(&image)).await.expect("by its id");
    assert_eq!(server.hits(), hits, "what the source gave to all a moment ago needs no server");
    let gone = bed.store.pull(&wrong).await.expect_err("an id says no place");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_sha512_digest_is_held_to_and_remembered() {
    let image = disk(1, 4096);
    let sum = sha512(&image);
    let server = Server::plain(move |call| call.ok(&image));
    let bed = Bed::new(&server.url("/x"));
    let error = bed.store.pull(&format!("img@sha512:{}", "0".repeat(128))).await.expect_err("other bytes");
    assert_eq!(error.kind(), ErrorKind::DigestMismatch);
    let name = format!("img@sha512:{sum}");
    let pulled = bed.store.pull(&name).await.expect("pulled");
    let hits = server.hits();
    let config = bed.config.clone();
    drop(bed.store);
    let store = Store::open(config).expect("opened again");
    assert_eq!(store.get(&format!("sha512:{sum}"), "").expect("a handler"), Some(pulled.clone()));
    assert_eq!(store.pull(&name).await.expect("here"), pulled);
    assert_eq!(server.hits(), hits);
}

#[tokio::test]
async fn a_changed_image_takes_the_place_of_the_old() {
    let server = Server::plain(|call| {
        let body = disk(if call.path() == "/new" { 2 } else { 1 }, 4096);
        call.ok(&body);
    });
    let bed = Bed::new(&server.url("/old"));
    let old = bed.pull().await.expect("pulled");
    let same = bed.pull().await.expect("pulled again");
    assert_eq!(old, same);
    assert_eq!(server.hits(), 2, "a tag may have moved: it is always asked for");
    bed.store.lease(&old.id, "pod").await.expect("leased");
    bed.translate(&server.url("/new"));
    let new = bed.pull().await.expect("pulled");
    assert_ne!(new.id, old.id);
    assert!(old.path.exists(), "leased");
    bed.store.release("pod").await.expect("released");
    assert!(!old.path.exists());
    assert_eq!(names(&bed.images().join("data")), [new.id.hex()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_may_be_asked_for_often_and_at_once() {
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = Bed::new(&server.url("/"));
    bed.pull().await.expect("pulled");
    let removals: Vec<_> = (0..5)
        .map(|_| {
            let store = bed.store.clone();
            tokio::spawn(async move { store.remove("img", "").await })
        })
        .collect();
    for removal in removals {
        removal.await.expect("ran").expect("removed");
    }
    bed.assert_empty().await;
    bed.store.remove("img", "").await.expect("fine if absent");
    assert_eq!(bed.store.remove("No/../Name", "").await.expect_err("no name").kind(), ErrorKind::InvalidName);
}

#[tokio::test]
async fn names_and_holders_are_checked_before_anything_else() {
    let bed = Bed::new("http://unused.example/");
    for name in ["", "../x", "Ubuntu", "http://a.example/x", "a\0b", "sha256:12"] {
        assert_eq!(bed.store.pull(name).await.expect_err(name).kind(), ErrorKind::InvalidName, "{name}");
    }
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    bed.translate(&server.url("/"));
    let image = bed.pull().await.expect("pulled");
    for holder in ["", ".", "../x", ".hidden", "a/b", "a\0", &"x".repeat(129)] {
        let error = bed.store.lease(&image.id, holder).await.expect_err(holder);
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{holder}");
    }
    assert!(bed.store.holders().is_empty());
}

#[tokio::test]
async fn a_bad_translation_file_is_told_and_others_go_on() {
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = Bed::new(&server.url("/"));
    fs::write(bed.dir.path().join("rules/b.yaml"), "translations: [{name: x, no_such: y}]").expect("written");
    bed.pull().await.expect("pulled");
    let problems = bed.store.translation_problems().await.expect("read");
    assert_eq!(problems.len(), 1);
    let told = crate::rig::chain(&problems[0]);
    assert!(told.contains("b.yaml") && told.contains("no_such"), "{told}");
}

#[tokio::test]
async fn a_name_whose_only_rule_cannot_be_used_is_refused() {
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = Bed::new(&server.url("/"));
    let rules = "translations: [{name: cirros, url: 'ftp://h/'}]";
    fs::write(bed.dir.path().join("rules/b.yaml"), rules).expect("written");
    let error = bed.store.pull("cirros").await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidName);
    let told = crate::rig::chain(&*error);
    assert!(told.contains("rule 1 (`cirros`) of `b.yaml`") && told.contains("scheme `ftp`"), "{told}");
    assert_eq!(bed.store.translation_problems().await.expect("read").len(), 1);
}

#[tokio::test]
async fn usage_counts_what_is_there() {
    let server = Server::plain(|call| call.ok(&disk(1, MEBIBYTE)));
    let bed = Bed::new(&server.url("/"));
    let empty = bed.store.usage().await.expect("counted");
    assert_eq!((empty.used_bytes, empty.inodes), (0, 0));
    let image = bed.pull().await.expect("pulled");
    let usage = bed.store.usage().await.expect("counted");
    assert_eq!((usage.used_bytes, usage.inodes), (image.size, 1));
    // The longest mount point above the store is the one it is on.
    let mounts = fs::read_to_string("/proc/self/mounts").expect("read");
    let above = mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| bed.images().starts_with(at));
    assert_eq!(usage.mountpoint.to_str(), above.max_by_key(|at| at.len()));
}

#[tokio::test]
async fn https_is_verified() {
    let server = Server::encrypted(|call| call.ok(&disk(1, 4096)));
    let bed = Bed::new(&server.url("/"));
    let (kind, error) = bed.pull().await.expect_err("nobody vouches for it");
    assert_eq!(kind, ErrorKind::Server);
    assert!(error.contains("TLS handshake with `127.0.0.1` failed"), "{error}");

    let pem = bed.dir.path().join("ca.pem");
    fs::write(&pem, server.certificate.as_deref().unwrap_or_default()).expect("written");
    let trusting = Bed::with(&server.url("/"), |config| config.net.extra_ca = vec![pem.clone()]);
    trusting.pull().await.expect("pulled");
    // The certificate is for another name.
    trusting.translate(&server.url("/").replace("127.0.0.1", "localhost"));
    assert_eq!(trusting.pull().await.expect_err("another name").0, ErrorKind::Server);
    fs::write(&pem, "junk").expect("written");
    for file in [pem, bed.dir.path().join("no.pem")] {
        let unreadable = Bed::with(&server.url("/"), |config| config.net.extra_ca = vec![file]);
        assert_eq!(unreadable.pull().await.expect_err("nothing to trust").0, ErrorKind::Internal);
    }
}
