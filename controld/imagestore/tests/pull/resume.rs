//! Downloads that break off and go on, images that did not change, and what is compressed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use imagestore::{Config, PullRequest, Store};
use vmimage::decode::{Compression, compress};
use vmimage::error::ErrorKind;

use crate::rig::{Bed, Call, Server, disk, eventually, hex, names};
use crate::together::Gate;

const MEBIBYTE: usize = 1 << 20;
const CHILD_URL: &str = "IMAGESTORE_TEST_CHILD_URL";
const CHILD_DIR: &str = "IMAGESTORE_TEST_CHILD_DIR";

/// A file as a server has it.
struct File {
    bytes: Vec<u8>,
    etag: &'static str,
}

/// Answers with the file or the part that is asked for, as RFC 9110 wants it, up to byte `until` of the file. Says how
/// many bytes it sent.
fn serve(call: &mut Call<'_>, file: &File, until: usize) -> usize {
    serve_with(call, file, until, "")
}

/// The same with another header in each answer.
fn serve_with(call: &mut Call<'_>, file: &File, until: usize, header_line: &str) -> usize {
    let File { bytes, etag } = file;
    let facts = format!("ETag: {etag}\r\nAccept-Ranges: bytes\r\n{header_line}");
    if header(call, "if-none-match").is_some_and(|known| known == *etag) {
        call.send(format!("HTTP/1.1 304 Same\r\n{facts}\r\n"));
        return 0;
    }
    let same = header(call, "if-range").is_none_or(|wanted| wanted == *etag);
    let range = header(call, "range").filter(|_| same).and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let last = if last.is_empty() { bytes.len() } else { last.parse::<usize>().ok()? + 1 };
        Some((first.parse::<usize>().ok()?, last.min(bytes.len())))
    });
    let (first, end) = range.unwrap_or((0, bytes.len()));
    let status = match range {
        Some(_) => format!("206 Part\r\nContent-Range: bytes {first}-{}/{}", end - 1, bytes.len()),
        None => "200 OK".into(),
    };
    call.send(format!("HTTP/1.1 {status}\r\n{facts}Content-Length: {}\r\n\r\n", end - first));
    let sent = &bytes[first..end.min(until).max(first)];
    call.send(sent);
    sent.len()
}

fn header(call: &Call<'_>, name: &str) -> Option<String> {
    let of = |line: &str| {
        line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, it)| it.to_owned())
    };
    call.head.lines().find_map(of)
}

/// A server whose connections end at these bytes of the file, one after the other; the last serves all.
fn breaking(bytes: Vec<u8>, etag: &'static str, cuts: Vec<usize>) -> Server {
    let file = File { bytes, etag };
    let next = AtomicUsize::new(0);
    Server::plain(move |call| {
        let until = cuts.get(next.fetch_add(1, Ordering::Relaxed)).copied().unwrap_or(usize::MAX);
        serve(call, &file, until);
    })
}

#[tokio::test]
async fn a_connection_that_breaks_is_replaced() {
    let image = disk(1, 2 * MEBIBYTE + 5);
    for cuts in [vec![65_537], vec![MEBIBYTE], vec![2 * MEBIBYTE + 4], vec![70_000, 70_001, 900_000, 900_000]] {
        let server = breaking(image.clone(), "\"a\"", cuts.clone());
        let bed = Bed::new(&server.url("/x"));
        let pulled = bed.pull().await.expect("pulled");
        assert_eq!(pulled.id.hex(), hex(&image), "{cuts:?}");
        let requests = server.requests.lock().expect("sound");
        assert_eq!(requests.len(), cuts.len() + 1);
        for (cut, head) in cuts.iter().zip(&requests[1..]) {
            let head = head.to_lowercase();
            assert!(
                head.contains(&format!("range: bytes={cut}-\r\n")) && head.contains("if-range: \"a\"\r\n"),
                "{head}"
            );
        }
    }
}

#[tokio::test]
async fn a_compressed_image_goes_on_too() {
    let image = disk(1, MEBIBYTE);
    let hosted = compress(Compression::Zstd, &image);
    let server = breaking(hosted.clone(), "\"a\"", vec![hosted.len() / 2, hosted.len() - 1]);
    let bed = Bed::new(&server.url("/x"));
    assert_eq!(bed.pull().await.expect("pulled").id.hex(), hex(&image));
    assert_eq!(server.hits(), 3);
}

/// As Apache's `AddEncoding x-gzip .gz` has it: the header says what the file is, and not what was made of it.
#[tokio::test]
async fn a_compressed_file_that_is_called_encoded_is_the_file() {
    let image = disk(1, MEBIBYTE);
    let gzipped = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        gzip.write_all(bytes).expect("written");
        gzip.finish().expect("done")
    };
    let (once, twice) = (gzipped(&image), gzipped(&gzipped(&image)));
    let cuts = [once.len() / 2, usize::MAX];
    let next = AtomicUsize::new(0);
    let server = Server::plain(move |call| {
        let bytes = if call.path() == "/twice.gz" { twice.clone() } else { once.clone() };
        let until = if call.path() == "/broken.gz" { cuts[next.fetch_add(1, Ordering::Relaxed)] } else { usize::MAX };
        serve_with(call, &File { bytes, etag: "\"a\"" }, until, "Content-Encoding: x-gzip\r\n");
    });
    let bed = Bed::new(&server.url("/broken.gz"));
    assert_eq!(bed.pull().await.expect("pulled").id.hex(), hex(&image));
    assert_eq!(server.hits(), 2, "what goes on is called the same");
    for (path, kind, said) in [
        ("/plain.qcow2", ErrorKind::Server, "server encoded its answer (`content-encoding: x-gzip`)"),
        ("/other.xz", ErrorKind::Server, "server encoded its answer (`content-encoding: x-gzip`)"),
        ("/twice.gz", ErrorKind::Refused, "compressed by"),
    ] {
        bed.translate(&server.url(path));
        let (found, error) = bed.pull().await.expect_err(path);
        assert!(found == kind && error.contains(said), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_without_end_is_given_up() {
    let server = breaking(disk(1, MEBIBYTE), "\"a\"", vec![70_000; 20]);
    let bed = Bed::new(&server.url("/x"));
    let (kind, error) = bed.pull().await.expect_err("no way on");
    assert!(kind == ErrorKind::Server && error.contains("download broke off"), "{error}");
    assert_eq!(server.hits(), 6, "five more attempts");
    bed.assert_empty().await;
}

#[tokio::test]
async fn without_a_strong_validator_there_is_no_going_on() {
    for etag in ["W/\"a\"", "a", ""] {
        let server = breaking(disk(1, MEBIBYTE), etag, vec![70_000]);
        let bed = Bed::new(&server.url("/x"));
        let (_, error) = bed.pull().await.expect_err("broke off");
        assert!(error.contains("download broke off"), "{etag}: {error}");
        assert_eq!(server.hits(), 1);
        bed.assert_empty().await;
    }
}

/// With a digest, nothing else need vouch for the rest.
#[tokio::test]
async fn a_digest_is_as_good_as_a_validator() {
    let image = disk(1, MEBIBYTE);
    let server = breaking(image.clone(), "W/\"a\"", vec![70_000]);
    let bed = Bed::new(&server.url("/x"));
    bed.store.pull(&format!("img@sha256:{}", hex(&image))).await.expect("pulled");
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn what_changed_meanwhile_is_fetched_from_its_beginning() {
    let (old, new) =
        (File { bytes: disk(1, MEBIBYTE), etag: "\"old\"" }, File { bytes: disk(2, MEBIBYTE), etag: "\"new\"" });
    let expected = hex(&new.bytes);
    let next = AtomicUsize::new(0);
    let server = Server::plain(move |call| {
        match next.fetch_add(1, Ordering::Relaxed) {
            0 => serve(call, &old, 300_000),
            _ => serve(call, &new, usize::MAX),
        };
    });
    let bed = Bed::new(&server.url("/x"));
    assert_eq!(bed.pull().await.expect("pulled").id.hex(), expected);
    // Another one each time is given up.
    let next = AtomicUsize::new(0);
    let server = Server::plain(move |call| {
        let etag = ["\"a\"", "\"b\"", "\"c\"", "\"d\""][next.fetch_add(1, Ordering::Relaxed) % 4];
        serve(call, &File { bytes: disk(1, MEBIBYTE), etag }, 300_000);
    });
    let bed = Bed::new(&server.url("/x"));
    let (_, error) = bed.pull().await.expect_err("never the same");
    assert!(error.contains("another file each time"), "{error}");
    bed.assert_empty().await;
}

#[tokio::test]
async fn lies_about_the_rest_are_refused() {
    let lies = [
        "Content-Range: bytes 70001-1048576/1048577\r\nContent-Length: 978576",
        "Content-Range: bytes 70000-1048575/1048577\r\nContent-Length: 978576",
        "Content-Range: bytes 70000-1048575/*\r\nContent-Length: 978576",
        "Content-Length: 978576",
    ];
    for lie in lies {
        let file = File { bytes: disk(1, MEBIBYTE), etag: "\"a\"" };
        let server = Server::plain(move |call| match header(call, "range") {
            None => drop(serve(call, &file, 70_000)),
            Some(_) => {
                call.send(format!("HTTP/1.1 206 Part\r\nETag: \"a\"\r\n{lie}\r\n\r\n"));
                call.send(&file.bytes[70_000..]);
            }
        });
        let bed = Bed::new(&server.url("/x"));
        let (kind, error) = bed.pull().await.expect_err(lie);
        assert!(kind == ErrorKind::Server, "{lie}: {error}");
        bed.assert_empty().await;
    }
}

#[tokio::test]
async fn a_part_without_the_same_validator_is_no_part() {
    for etag in ["", "ETag: \"b\"\r\n", "ETag: W/\"a\"\r\n"] {
        let (old, new) = (disk(1, MEBIBYTE), disk(2, MEBIBYTE));
        let expected = hex(&new);
        let (old, new) = (File { bytes: old, etag: "\"a\"" }, File { bytes: new, etag: "\"b\"" });
        let next = AtomicUsize::new(0);
        let server = Server::plain(move |call| match (next.fetch_add(1, Ordering::Relaxed), header(call, "range")) {
            (0, _) => drop(serve(call, &old, 70_000)),
            (_, None) => drop(serve(call, &new, usize::MAX)),
            // Whatever was asked for by `If-Range`.
            (_, Some(_)) => {
                let rest = &new.bytes[70_000..];
                call.send(format!(
                    "HTTP/1.1 206 Part\r\n{etag}Content-Range: bytes 70000-{}/{MEBIBYTE}\r\nContent-Length: {}\r\n\r\n",
                    MEBIBYTE - 1,
                    rest.len()
                ));
                call.send(rest);
            }
        });
        let bed = Bed::new(&server.url("/x"));
        assert_eq!(bed.pull().await.expect("begun anew").id.hex(), expected, "{etag}");
    }
}

#[tokio::test]
async fn what_did_not_change_costs_one_question() {
    let file = File { bytes: disk(1, MEBIBYTE), etag: "W/\"weak is enough\"" };
    let sent = Arc::new(AtomicUsize::new(0));
    let total = file.bytes.len();
    let counted = sent.clone();
    let server = Server::plain(move |call| {
        counted.fetch_add(serve(call, &file, usize::MAX), Ordering::Relaxed);
    });
    let bed = Bed::new(&server.url("/x"));
    let first = bed.pull().await.expect("pulled");
    let record = || fs::read(bed.images().join("refs/_default/img:latest.json")).expect("read");
    let before = record();
    for _ in 0..3 {
        assert_eq!(bed.pull().await.expect("unchanged"), first);
    }
    assert_eq!((server.hits(), sent.load(Ordering::Relaxed)), (4, total));
    assert!(record() == before, "nothing to write");
    // Another name for the same place profits.
    fs::write(
        bed.dir.path().join("rules/b.yaml"),
        format!("translations: [{{name: other, url: '{}'}}]", server.url("/x")),
    )
    .expect("written");
    assert_eq!(bed.store.pull("other").await.expect("unchanged").id, first.id);
    assert_eq!((server.hits(), sent.load(Ordering::Relaxed)), (5, total));
    // Whoever insists gets it anew.
    let request = PullRequest { force: true, ..PullRequest::from("img") };
    bed.store.pull(request).await.expect("pulled");
    assert_eq!(sent.load(Ordering::Relaxed), 2 * total);
    // To hear that nothing changed is of no use without the file.
    fs::remove_file(&first.path).expect("removed");
    bed.pull().await.expect("pulled");
    assert_eq!(sent.load(Ordering::Relaxed), 3 * total);
    assert_eq!(hex(&fs::read(&first.path).expect("read")), first.id.hex());
    // What was recognised at one place says nothing of another.
    bed.translate(&server.url("/elsewhere"));
    bed.pull().await.expect("pulled");
    assert_eq!(sent.load(Ordering::Relaxed), 4 * total);
}

/// As of a server that makes its tag of a file's time and size, when another file with both of them takes its place.
#[tokio::test]
async fn other_bytes_behind_the_same_validator_take_force_or_a_digest() {
    let image = Arc::new(Mutex::new(disk(1, MEBIBYTE)));
    let at_server = image.clone();
    let server = Server::plain(move |call| {
        let bytes = at_server.lock().expect("sound").clone();
        serve(call, &File { bytes, etag: "\"time-and-size\"" }, usize::MAX);
    });
    let bed = Bed::new(&server.url("/x"));
    let old = bed.pull().await.expect("pulled");
    *image.lock().expect("sound") = disk(2, MEBIBYTE);
    assert_eq!(bed.pull().await.expect("unchanged"), old, "the server says so");
    let request = PullRequest { force: true, ..PullRequest::from("img") };
    let new = bed.store.pull(request).await.expect("pulled");
    assert_eq!(new.id.hex(), hex(&disk(2, MEBIBYTE)));
    *image.lock().expect("sound") = disk(4, MEBIBYTE);
    let name = format!("img@sha256:{}", hex(&disk(4, MEBIBYTE)));
    assert_eq!(bed.store.pull(&name).await.expect("pulled").id.hex(), hex(&disk(4, MEBIBYTE)));
}

#[tokio::test]
async fn no_secret_of_a_place_is_written_down() {
    let with_secrets = |url: String| format!("{}?token=hush", url.replace("http://", "http://user:hush@"));
    // A whole image, and one that breaks off and stays as a partial.
    let whole = Server::plain(|call| call.ok(&disk(1, 4096)));
    let broken = breaking(disk(2, 9 * MEBIBYTE), "\"a\"", vec![6 * MEBIBYTE; 20]);
    let bed = Bed::new(&with_secrets(whole.url("/x")));
    let pulled = format!("{:?}", bed.pull().await.expect("pulled"));
    bed.translate(&with_secrets(broken.url("/x")));
    let (_, error) = bed.pull().await.expect_err("it broke off");
    assert!(!partials(&bed.images()).is_empty(), "{error}");
    // base64 of `user:hush` is dXNlcjpodXNo
    let is_secret = |text: &str| text.contains("hush") || text.contains("dXNlcjpodXNo");
    for server in [&whole, &broken] {
        let asked = server.requests.lock().expect("sound").concat();
        assert!(asked.contains("?token=hush") && asked.contains("dXNlcjpodXNo"), "not for the server: {asked}");
    }
    assert!(!is_secret(&pulled) && !is_secret(&error), "{pulled} {error}");
    let (mut directories, mut read) = (vec![bed.images()], 0);
    while let Some(directory) = directories.pop() {
        for path in names(&directory).into_iter().map(|name| directory.join(name)) {
            assert!(!is_secret(&path.to_string_lossy()), "{}", path.display());
            if path.is_dir() {
                directories.push(path);
            } else {
                // What is written under another name first may have its own by now.
                let bytes = match fs::read(&path) {
                    Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => continue,
                    bytes => bytes.expect("read"),
                };
                let text = String::from_utf8_lossy(&bytes).into_owned();
                assert!(!is_secret(&text), "{}", path.display());
                read += 1;
            }
        }
    }
    assert!(read >= 5, "{read}: of an image its bytes, its record and that of its name; of a partial bytes and record");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_for_the_same_place_share_a_download() {
    let image = disk(1, MEBIBYTE);
    let body = image.clone();
    let gate = Arc::new(Gate::default());
    let at_server = gate.clone();
    let server = Server::plain(move |call| {
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        call.send(&body[..100_000]);
        at_server.pass();
        call.send(&body[100_000..]);
    });
    let bed = Bed::new(&server.url("/x"));
    let rules = (0..20).map(|number| format!("{{name: n{number}, url: '{}'}}", server.url("/x")));
    let rules = format!("translations: [{}]", rules.collect::<Vec<_>>().join(", "));
    fs::write(bed.dir.path().join("rules/b.yaml"), rules).expect("written");
    let pulls: Vec<_> = (0..200)
        .map(|number| {
            let store = bed.store.clone();
            tokio::spawn(async move { store.pull(format!("n{}", number % 20).as_str()).await })
        })
        .collect();
    // Whoever sees the same bytes come waits for the same download.
    let waits = |number: usize| {
        let progress = bed.store.pull_progress(&format!("n{number}"), "");
        progress.is_some_and(|progress| progress.bytes == 100_000)
    };
    eventually("all wait", || (0..20).all(waits)).await;
    gate.open();
    for pull in pulls {
        assert_eq!(pull.await.expect("ran").expect("pulled").id.hex(), hex(&image));
    }
    assert_eq!(server.hits(), 1);
    assert_eq!(bed.store.get("n7", "").expect("a handler").expect("there").repo_tags.len(), 20);
}

fn partials(images: &Path) -> Vec<PathBuf> {
    let dir = images.join("partial");
    names(&dir).into_iter().map(|name| dir.join(name)).collect()
}

/// How far the one partial is that there is, by its record or by its file.
fn received(images: &Path) -> (u64, u64) {
    let files = partials(images);
    let of = |ending: &str| files.iter().find(|path| path.to_string_lossy().ends_with(ending));
    let record = of(".json").and_then(|path| fs::read_to_string(path).ok());
    let record = record.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let recorded = record.and_then(|record| record["received"].as_u64()).unwrap_or(0);
    (recorded, of(".data").and_then(|path| fs::metadata(path).ok()).map_or(0, |facts| facts.len()))
}

/// Sends half of a large file and then nothing, and the rest to whoever asks for it. Counts what it sent.
fn halting(file: File) -> (Server, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let first = AtomicUsize::new(0);
    let server = Server::plain(move |call| {
        let first = first.fetch_add(1, Ordering::Relaxed) == 0;
        let until = if first { file.bytes.len() / 2 } else { usize::MAX };
        counted.fetch_add(serve(call, &file, until), Ordering::Relaxed);
        if first {
            call.hold();
        }
    });
    (server, sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_was_given_up_is_gone_on_with() {
    let image = disk(1, 12 * MEBIBYTE + 3);
    let (server, sent) = halting(File { bytes: image.clone(), etag: "\"a\"" });
    let bed = Bed::new(&server.url("/x"));
    let store = bed.store.clone();
    let given_up = tokio::spawn(async move { store.pull("img").await });
    let half = image.len() as u64 / 2;
    let at_half = || bed.store.pull_progress("img", "").is_some_and(|progress| progress.bytes == half);
    eventually("half of it is there", at_half).await;
    given_up.abort();
    let _ = given_up.await;
    eventually("what came is recorded", || received(&bed.images()).0 > half - 2 * MEBIBYTE as u64).await;
    // The record comes last but one; then it is let go of.
    let config = bed.config.clone();
    drop(bed.store);
    let store = open_again(config).await;
    assert_eq!(store.pull("img").await.expect("pulled").id.hex(), hex(&image));
    let twice = sent.load(Ordering::Relaxed) - image.len();
    assert!(twice < 2 * MEBIBYTE, "{twice} bytes came twice");
    assert_eq!(partials(&bed.dir.path().join("images")), Vec::<PathBuf>::new());
}

/// No second wait of the same length within a pull; nothing is lost to the next one.
#[tokio::test]
async fn a_stalled_pull_ends_and_the_next_goes_on() {
    let bytes = disk(2, 8 * MEBIBYTE + 1);
    let image = hex(&bytes);
    let (server, _sent) = halting(File { bytes, etag: "\"a\"" });
    let bed = Bed::with(&server.url("/x"), |config| config.net.timeouts.stall = Duration::from_millis(500));
    let (kind, error) = bed.pull().await.expect_err("silence");
    assert!(kind == ErrorKind::Deadline && error.contains("server stalled: "), "{kind:?} {error}");
    assert_eq!(server.hits(), 1, "asked again within the pull");
    let images = bed.images();
    eventually("what came is recorded", || received(&images).0 > 0).await;
    let kept = received(&images).0;
    let Bed { store, config, dir: _kept } = bed;
    drop(store);
    let store = open_again(config).await;
    assert_eq!(store.pull("img").await.expect("pulled").id.hex(), image);
    let requests = server.requests.lock().expect("sound");
    let rest = format!("range: bytes={kept}-\r\n");
    assert!(requests.len() == 2 && requests[1].to_lowercase().contains(&rest), "kept {kept}: {requests:?}");
}

/// The threads of a pull that was given up may have the store's disk for a moment yet.
async fn open_again(config: Config) -> Store {
    let opened = Mutex::new(None);
    eventually("the store is free", || match Store::open(config.clone()) {
        Ok(store) => opened.lock().expect("sound").replace(store).is_none(),
        Err(_) => false,
    })
    .await;
    opened.into_inner().expect("sound").expect("opened")
}

fn store_in(dir: &Path) -> Config {
    let mut config = Config::new(dir.join("images"));
    config.translations_dir = Some(dir.join("rules"));
    config.net.policy.allow_loopback = true;
    config
}

/// Killed amid a download, as by the kernel: the next process goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_killed_is_gone_on_with() {
    if let (Some(url), Some(dir)) = (std::env::var_os(CHILD_URL), std::env::var_os(CHILD_DIR)) {
        let _ = url;
        let store = Store::open(store_in(Path::new(&dir))).expect("opened");
        let _ = store.pull("img").await;
        return;
    }
    let mut image = disk(1, 12 * MEBIBYTE + 3);
    // Also a hole at the place where it stops.
    image[4 * MEBIBYTE..7 * MEBIBYTE].fill(0);
    let (server, sent) = halting(File { bytes: image.clone(), etag: "\"a\"" });
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("rules")).expect("made");
    let rule = format!("translations: [{{name: img, url: '{}'}}]", server.url("/x"));
    fs::write(dir.path().join("rules/a.yaml"), rule).expect("written");
    let this = std::env::current_exe().expect("this binary");
    let mut child = Command::new(this)
        .args(["--exact", "resume::a_process_that_was_killed_is_gone_on_with"])
        .env(CHILD_URL, server.url("/x"))
        .env(CHILD_DIR, dir.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let images = dir.path().join("images");
    let half = image.len() as u64 / 2;
    eventually("half of it is on the disk", || {
        images.exists() && received_if_any(&images) > half - 2 * MEBIBYTE as u64
    })
    .await;
    child.kill().expect("killed");
    child.wait().expect("gone");
    let store = open_again(store_in(dir.path())).await;
    assert_eq!(store.pull("img").await.expect("pulled").id.hex(), hex(&image));
    let twice = sent.load(Ordering::Relaxed) - image.len();
    assert!(twice < 2 * MEBIBYTE, "{twice} bytes came twice");
}

fn received_if_any(images: &Path) -> u64 {
    if images.join("partial").exists() { received(images).1 } else { 0 }
}

/// What is here of a file that has changed since is of no use.
#[tokio::test(flavor = "multi_thread")]
async fn a_partial_of_another_version_is_begun_anew() {
    let (old, new) = (disk(1, 8 * MEBIBYTE), disk(2, 8 * MEBIBYTE));
    let expected = hex(&new);
    let (old, new) = (File { bytes: old, etag: "\"old\"" }, File { bytes: new, etag: "\"new\"" });
    let next = AtomicUsize::new(0);
    let server = Server::plain(move |call| match next.fetch_add(1, Ordering::Relaxed) {
        0 => {
            serve(call, &old, 4 * MEBIBYTE);
            call.hold();
        }
        _ => drop(serve(call, &new, usize::MAX)),
    });
    let bed = Bed::new(&server.url("/x"));
    given_up_half_way(&bed).await;
    assert_eq!(bed.pull().await.expect("pulled").id.hex(), expected);
    eventually("nothing is left", || partials(&bed.images()).is_empty()).await;
}

/// A server that goes on with another version, and one that gives another part than was asked for, would be asked for the
/// same part until the partial lapses.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_go_on_as_it_must_costs_one_attempt() {
    for (etag, total, attempts) in [("\"new\"", 8 * MEBIBYTE, 1), ("\"old\"", 8 * MEBIBYTE + 1, 2)] {
        let (old, new) = (disk(1, 8 * MEBIBYTE), disk(2, 8 * MEBIBYTE));
        let expected = hex(&new);
        let (old, new) = (File { bytes: old, etag: "\"old\"" }, File { bytes: new, etag: "\"new\"" });
        let next = AtomicUsize::new(0);
        let server = Server::plain(move |call| {
            let range =
                header(call, "range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
            match (next.fetch_add(1, Ordering::Relaxed), range) {
                (0, _) => {
                    serve(call, &old, 4 * MEBIBYTE);
                    call.hold();
                }
                (_, None::<usize>) => drop(serve(call, &new, usize::MAX)),
                (_, Some(from)) => call.send(format!(
                    "HTTP/1.1 206 Part\r\nETag: {etag}\r\nContent-Range: bytes {from}-{}/{total}\r\nContent-Length: {}\r\n\r\n",
                    total - 1,
                    total - from
                )),
            }
        });
        let bed = Bed::new(&server.url("/x"));
        given_up_half_way(&bed).await;
        for _ in 1..attempts {
            bed.pull().await.expect_err("no part of anything");
        }
        assert_eq!(bed.pull().await.expect("pulled").id.hex(), expected, "{etag}");
    }
}

#[tokio::test]
async fn compressed_images_are_stored_decompressed() {
    let image = disk(1, 300_000);
    for by in [Compression::Gzip, Compression::Bzip2, Compression::Xz, Compression::Zstd] {
        let (what, body) = (by.to_string(), compress(by, &image));
        let server = Server::plain(move |call| {
            let whole = &body[..];
            match call.path() {
                "/cut" => call.ok(&whole[..whole.len() - 5]),
                "/junk" => call.ok(&[whole, b"junk"].concat()),
                "/twice" => call.ok(&compress(Compression::Zstd, whole)),
                _ => call.ok(whole),
            }
        });
        // Neither names nor headers say that it is compressed.
        let bed = Bed::new(&server.url("/image.qcow2"));
        let pulled = bed.pull().await.expect(&what);
        assert_eq!(pulled.id.hex(), hex(&image), "{what}");
        for (path, text) in [("/cut", "cut off"), ("/junk", "failed to decompress"), ("/twice", "compressed by")] {
            bed.translate(&server.url(path));
            let (kind, error) = bed.pull().await.expect_err(&what);
            assert!(kind == ErrorKind::Refused && error.contains(text), "{what}{path}: {error}");
        }
        assert_eq!(bed.store.get("img", "").expect("a handler"), Some(pulled), "the old one stays");
    }
}

/// A pull of which 4 MiB come, and which nobody waits for then; what came is on disk and on record.
async fn given_up_half_way(bed: &Bed) {
    let store = bed.store.clone();
    let given_up = tokio::spawn(async move { store.pull("img").await });
    eventually("half of it is there", || {
        bed.store.pull_progress("img", "").is_some_and(|progress| progress.bytes == 4 << 20)
    })
    .await;
    given_up.abort();
    let _ = given_up.await;
    eventually("what came is recorded", || received(&bed.images()).0 > 2 << 20).await;
    // The next pull of it would begin anew meanwhile.
    let is_free = |path: &PathBuf| fs::File::open(path).is_ok_and(|file| file.try_lock().is_ok());
    eventually("nobody works on it", || partials(&bed.images()).iter().all(is_free)).await;
}
