//! Images that a publisher's list of checksums promises.

use std::sync::{Arc, Mutex};

use imagestore::PullRequest;
use imagestore::net::Auth;
use vmimage::error::ErrorKind;

use crate::rig::{Bed, Call, Server, chain, disk, hex, sha512};

const LIST: &str = "/latest/SHA512SUMS";
const IMAGE: &str = "/latest/Disk-1.qcow2";

/// What the server has at the moment.
#[derive(Default)]
struct Published {
    image: Vec<u8>,
    list: Vec<u8>,
}

fn publisher(published: &Arc<Mutex<Published>>) -> Server {
    let published = published.clone();
    Server::plain(move |call: &mut Call<'_>| {
        let Published { image, list } = &*published.lock().expect("sound");
        match call.path() {
            IMAGE => call.ok(image),
            LIST | "/latest/Disk-1.qcow2.sha256" => call.ok(list),
            _ => call.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        }
    })
}

/// A store with a rule for `img` that names a list.
fn bed(server: &Server, list: &str) -> Bed {
    let bed = Bed::new("http://unused.example/");
    rule(&bed, server, &server.url(list));
    bed
}

fn rule(bed: &Bed, server: &Server, list: &str) {
    let rule = format!("translations: [{{name: img, url: '{}', checksums: '{list}'}}]", server.url(IMAGE));
    std::fs::write(bed.dir.path().join("rules/a.yaml"), rule).expect("written");
}

fn asked(server: &Server, path: &str) -> usize {
    server.requests.lock().expect("sound").iter().filter(|head| head.contains(path)).count()
}

#[tokio::test]
async fn an_image_must_be_what_its_list_says() {
    let (old, new) = (disk(1, 64 * 1024), disk(2, 64 * 1024));
    let list = |image: &[u8]| format!("{}  other.raw\n{}  Disk-1.qcow2\n", "0".repeat(128), sha512(image)).into_bytes();
    let published = Arc::new(Mutex::new(Published { image: old.clone(), list: list(&old) }));
    let server = publisher(&published);
    let bed = bed(&server, LIST);
    let pulled = bed.pull().await.expect("pulled");
    assert_eq!(pulled.id.hex(), hex(&old));
    assert!(!pulled.weak);
    // The list says that it is here.
    assert_eq!(bed.pull().await.expect("pulled").id, pulled.id);
    // And the image's own server that it may be had, by an answer whose body nobody reads.
    assert_eq!((asked(&server, LIST), asked(&server, IMAGE)), (2, 2));
    // The publisher is about to replace the image.
    published.lock().expect("sound").image = new.clone();
    bed.pull().await.expect("it is here");
    published.lock().expect("sound").list = list(&old);
    let (kind, error) = bed
        .store
        .pull(PullRequest { force: true, .."img".into() })
        .await
        .map_err(|error| (error.kind(), chain(&*error)))
        .expect_err("differs");
    assert_eq!(kind, ErrorKind::DigestMismatch, "{error}");
    published.lock().expect("sound").list = list(&new);
    assert_eq!(bed.pull().await.expect("pulled").id.hex(), hex(&new));
}

#[tokio::test]
async fn a_list_that_is_not_sound_brings_no_image() {
    let image = disk(1, 64 * 1024);
    let published = Arc::new(Mutex::new(Published { image: image.clone(), list: Vec::new() }));
    let server = publisher(&published);
    let bed = bed(&server, LIST);
    let mut long = vec![b'#'; 1 << 20];
    long.extend(format!("\n{}  Disk-1.qcow2\n", sha512(&image)).into_bytes());
    for (list, expected) in [
        (b"<html>".to_vec(), "it has no SHA-256 or SHA-512 of `Disk-1.qcow2`"),
        (format!("{}\n", hex(&image)).into_bytes(), "it has no SHA-256 or SHA-512 of `Disk-1.qcow2`"),
        (
            format!("{}  Disk-1.qcow2\n{}  Disk-1.qcow2\n", hex(&image), "0".repeat(64)).into_bytes(),
            "it has more than one sha256 of `Disk-1.qcow2`",
        ),
        (long, "answered with more than 1048576 bytes"),
    ] {
        published.lock().expect("sound").list = list;
        let (_, error) = bed.pull().await.expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
    rule(&bed, &server, &server.url("/latest/nothing"));
    let (kind, error) = bed.pull().await.expect_err("no list");
    assert!(error.contains("list of checksums") && error.contains("nothing is there"), "{error}");
    assert_eq!(kind, ErrorKind::Server, "it says nothing of the image");
    assert_eq!(asked(&server, IMAGE), 0, "no image is asked for without its list");
    bed.assert_empty().await;
    // The list of this one image may call it otherwise.
    published.lock().expect("sound").list = format!("{}  Disk-build-7.qcow2\n", hex(&image)).into_bytes();
    rule(&bed, &server, &server.url("/latest/Disk-1.qcow2.sha256"));
    assert_eq!(bed.pull().await.expect("pulled").id.hex(), hex(&image));
}

#[tokio::test]
async fn a_list_out_of_tls_is_not_believed_and_gets_no_login() {
    let image = disk(1, 64 * 1024);
    let list = format!("{}  Disk-1.qcow2\n", hex(&image)).into_bytes();
    let plain = publisher(&Arc::new(Mutex::new(Published { image: image.clone(), list })));
    let target = plain.url(LIST);
    let encrypted = Server::encrypted(move |call| call.redirect(&target));
    let bed = Bed::with("http://unused.example/", |config| {
        let file = config.root.with_file_name("ca.pem");
        std::fs::write(&file, encrypted.certificate.as_ref().expect("a certificate")).expect("written");
        config.net.extra_ca = vec![file];
    });
    // Also where the image itself may come so.
    let rule = format!(
        "translations: [{{name: img, url: '{}', checksums: '{}', transport: t}}]\ntransports: {{t: {{allowDowngrade: true}}}}",
        plain.url(IMAGE),
        encrypted.url(LIST)
    );
    std::fs::write(bed.dir.path().join("rules/a.yaml"), rule).expect("written");
    let auth = Some(Auth::Basic { user: "me".into(), password: "secret".into() });
    let error = bed.store.pull(PullRequest { auth, .."img".into() }).await.expect_err("not believed");
    assert!(chain(&*error).contains("redirects from https to plain"), "{}", chain(&*error));
    let heads = encrypted.requests.lock().expect("sound").join("\n").to_lowercase();
    assert!(!heads.contains("authorization"), "the login is for the image's server: {heads}");
}

#[tokio::test]
async fn a_list_that_anybody_may_read_opens_no_private_image() {
    let image = disk(1, 64 * 1024);
    let list = format!("{}  Disk-1.qcow2\n", hex(&image)).into_bytes();
    let server = Server::plain(move |call: &mut Call<'_>| match call.path() {
        LIST => call.ok(&list),
        _ if call.head.contains("Basic ") => call.ok(&image),
        _ => call.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"),
    });
    let bed = bed(&server, LIST);
    let pull = |auth: Option<Auth>| bed.store.pull(PullRequest { auth, .."img".into() });
    let login = Auth::Basic { user: "me".into(), password: "secret".into() };
    pull(Some(login.clone())).await.expect("let in");
    let error = pull(None).await.expect_err("not let in");
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", chain(&*error));
    pull(Some(login)).await.expect("let in again");
    assert_eq!(asked(&server, LIST), 3);
}

#[tokio::test]
async fn what_a_rule_says_of_the_images_server_is_not_for_that_of_the_list() {
    let image = disk(1, 64 * 1024);
    let list = format!("{}  Disk-1.qcow2\n", hex(&image)).into_bytes();
    let there = Arc::new(Mutex::new(Published { image, list: list.clone() }));
    let (plain, encrypted) = (publisher(&there), Server::encrypted(move |call| call.ok(&list)));
    let bed = Bed::new("http://unused.example/");
    // Nobody vouches for the server of the list.
    let rule = format!(
        "translations: [{{name: img, url: '{}', checksums: '{}', transport: t}}]\ntransports: {{t: {{tls: {{insecure: true}}}}}}",
        plain.url(IMAGE),
        encrypted.url(LIST)
    );
    std::fs::write(bed.dir.path().join("rules/a.yaml"), rule).expect("written");
    let (_, error) = bed.pull().await.expect_err("its certificate is nobody's");
    assert!(error.contains("TLS handshake"), "{error}");
}
