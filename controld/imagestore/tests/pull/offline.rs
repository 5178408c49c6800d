//! What a pull gives while the source cannot be asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use imagestore::Offline;
use vmimage::error::ErrorKind;

use crate::rig::{Bed, Server, chain, disk, hex};

/// What the server does.
const SOUND: usize = 0;
const FAULTY: usize = 500;
const SILENT: usize = 1;
const JUNK: usize = 2;

fn server(mode: &Arc<AtomicUsize>) -> Server {
    let mode = mode.clone();
    Server::plain(move |call| match mode.load(Ordering::SeqCst) {
        SOUND => call.ok(&disk(1, 4096)),
        SILENT => {}
        JUNK => call.ok(&[0x11; 4096]),
        status => call.send(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")),
    })
}

#[tokio::test]
async fn the_last_image_serves_while_the_source_is_out_of_reach_and_no_longer() {
    let mode = Arc::new(AtomicUsize::new(SOUND));
    let server = server(&mode);
    let bed = Bed::with(&server.url("/x"), |config| config.offline = Offline::Auto);
    let fresh = bed.pull().await.expect("pulled");
    assert!(!fresh.stale && fresh.id.hex() == hex(&disk(1, 4096)));
    for unreachable in [FAULTY, 503, SILENT] {
        mode.store(unreachable, Ordering::SeqCst);
        let kept = bed.pull().await.unwrap_or_else(|(_, error)| panic!("{unreachable}: {error}"));
        assert!(kept.stale && kept.id == fresh.id, "{unreachable}");
    }
    // An answer is an answer, and what is not to be believed is no reason to go on as if nothing were.
    for (answer, kind) in
        [(404, ErrorKind::NotFound), (401, ErrorKind::Denied), (403, ErrorKind::Denied), (JUNK, ErrorKind::Refused)]
    {
        mode.store(answer, Ordering::SeqCst);
        let (said, error) = bed.pull().await.expect_err("no image");
        assert_eq!(said, kind, "{answer}: {error}");
    }
    let stranger = Server::encrypted(|call| call.ok(&disk(1, 4096)));
    bed.translate(&stranger.url("/x"));
    let (kind, error) = bed.pull().await.expect_err("not the server that it says it is");
    assert!(kind == ErrorKind::Server && error.contains("TLS"), "{error}");
    bed.translate(&server.url("/x"));
    mode.store(SOUND, Ordering::SeqCst);
    assert!(!bed.pull().await.expect("reached again").stale);
}

#[tokio::test]
async fn never_and_always_mean_it() {
    let mode = Arc::new(AtomicUsize::new(SOUND));
    let server = server(&mode);
    let bed = Bed::new(&server.url("/x"));
    let fresh = bed.pull().await.expect("pulled");
    mode.store(FAULTY, Ordering::SeqCst);
    assert_eq!(bed.pull().await.expect_err("never without asking").0, ErrorKind::Server);
    let asked = server.hits();
    let ask = |name: &str| imagestore::PullRequest { offline: Some(Offline::Always), ..name.into() };
    let kept = bed.store.pull(ask("img")).await.expect("here");
    assert!(kept.stale && kept.id == fresh.id);
    let by_digest = format!("img@sha256:{}", fresh.id.hex());
    assert!(!bed.store.pull(ask(&by_digest)).await.expect("these bytes are never old").stale);
    let error = bed.store.pull(ask("other")).await.expect_err("not here");
    assert!(chain(&*error).contains("offline"), "{}", chain(&*error));
    assert_eq!(server.hits(), asked, "nobody was asked");
}

#[tokio::test]
async fn a_provider_that_cannot_be_asked_is_named_and_its_absence_is_not_that_of_the_image() {
    let mode = Arc::new(AtomicUsize::new(404));
    let server = server(&mode);
    let url = server.url("/repo.metadata");
    let settings = serde_json::json!({ "type": "lago", "id": "office", "uri": url });
    let bed = Bed::with("http://unused.example/", |config| {
        config.providers = vec![serde_json::from_value(settings).expect("settings")];
    });
    let absent = format!(
        "repo.metadata of provider `office` is not at `{url}`; the provider's address in the configuration may be wrong"
    );
    let failing = format!("failed to ask provider `office`: `{url}` answered with status 503");
    for (status, why) in [(404, absent), (503, failing)] {
        mode.store(status, Ordering::SeqCst);
        let error = bed.store.pull("el7").await.expect_err("nobody knows");
        assert_eq!(error.kind(), ErrorKind::Server);
        assert_eq!(chain(&*error), format!("failed to look up image `el7:latest`: {why}"));
    }
}
