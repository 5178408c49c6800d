//! Images that are sent instead of pulled.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use imagestore::{Image, Offline, PullError, PullRequest, Upload};
use vmimage::declared::Declared;
use vmimage::error::ErrorKind;
use vmimage::inspect::DiskFormat;

use crate::rig::{Bed, chain, disk, hex};

/// Sends bytes in pieces, whole or cut off.
async fn send(
    bed: &Bed,
    name: &str,
    bytes: &[u8],
    length: Option<u64>,
    whole: bool,
    declared: Option<Declared>,
) -> Result<Image, PullError> {
    let (feed, upload) = Upload::new(length);
    let pieces: Vec<_> = bytes.chunks(7000).map(Bytes::copy_from_slice).collect();
    let pump = async move {
        for piece in pieces {
            if !feed.push(piece).await {
                return;
            }
        }
        if whole {
            feed.end().await;
        }
    };
    let (image, ()) = tokio::join!(bed.store.import(name.into(), upload, declared), pump);
    image
}

async fn import(bed: &Bed, name: &str, bytes: &[u8]) -> Result<Image, (ErrorKind, String)> {
    let sent = send(bed, name, bytes, None, true, None).await;
    sent.map_err(|error| (error.kind(), chain(&error)))
}

fn bed() -> Bed {
    Bed::new("http://unused.example/")
}

#[tokio::test]
async fn what_is_sent_is_an_image_like_any_other() {
    let (bed, image) = (bed(), disk(1, 300_000));
    let sent = import(&bed, "localhost/disk", &image).await.expect("taken");
    assert_eq!((sent.id.hex(), sent.format), (hex(&image).as_str(), DiskFormat::Qcow2));
    assert_eq!(
        (sent.provider.as_deref(), &sent.repo_tags[..]),
        (Some("import"), &["localhost/disk:latest".to_owned()][..])
    );
    assert_eq!(bed.store.usable("localhost/disk", "").expect("a machine can be made of it").id, sent.id);
    // Packed, under another name.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &image).expect("packed");
    let packed = packed.finish().expect("packed");
    let again = send(&bed, "x/packed:1", &packed, Some(packed.len() as u64), true, None).await.expect("taken");
    assert_eq!(again.id, sent.id);
    // The name goes on to what is sent next.
    let other = import(&bed, "localhost/disk", &disk(2, 300_000)).await.expect("taken");
    assert_eq!(bed.store.get("localhost/disk", "").expect("a handler").expect("there").id, other.id);
}

#[tokio::test]
async fn what_is_sent_is_judged_like_a_download() {
    let bed = bed();
    let image = disk(1, 100_000);
    let mut backed = image.clone();
    backed[8..16].copy_from_slice(&512_u64.to_be_bytes());
    backed[16..20].copy_from_slice(&11_u32.to_be_bytes());
    for (bytes, kind, expected) in [
        (b"#!/bin/sh\n".repeat(1000), ErrorKind::Refused, ""),
        (backed, ErrorKind::Refused, ""),
        (Vec::new(), ErrorKind::Server, "empty"),
    ] {
        let (got, error) = import(&bed, "x/y", &bytes).await.expect_err(expected);
        assert_eq!(got, kind, "{error}");
        assert!(error.starts_with("failed to import image `x/y:latest`: ") && error.contains(expected), "{error}");
    }
    let declared = Declared::named("vmdk");
    let error = send(&bed, "x/y", &image, None, true, declared).await.expect_err("not converted");
    assert!(chain(&error).contains("declared as a VMDK image"), "{}", chain(&error));
    for name in ["No/Name", &format!("sha256:{}", "0".repeat(64))] {
        let error = send(&bed, name, &image, None, true, None).await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    }
    let pinned = format!("x/y@sha256:{}", "0".repeat(64));
    let (kind, error) = import(&bed, &pinned, &image).await.expect_err("other bytes");
    assert_eq!(kind, ErrorKind::DigestMismatch, "{error}");
    bed.assert_empty().await;
}

#[tokio::test]
async fn what_is_cut_off_is_not_taken() {
    let (bed, image) = (bed(), disk(1, 100_000));
    for (length, whole) in [(None, false), (Some(100_000), false), (Some(100_001), true), (Some(99_999), true)] {
        let error = send(&bed, "x/y", &image, length, whole, None).await.expect_err("cut off");
        assert_eq!(error.kind(), ErrorKind::Server, "{}", chain(&error));
    }
    bed.assert_empty().await;
    // Who goes away amid it leaves nothing either.
    let (feed, upload) = Upload::new(None);
    let import = bed.store.import("x/y".into(), upload, None);
    tokio::select! {
        _ = import => panic!("nothing ended it"),
        _ = async { feed.push(Bytes::copy_from_slice(&image)).await; feed.push(Bytes::copy_from_slice(&image)).await } => {}
    }
    bed.assert_empty().await;
}

#[tokio::test]
async fn silence_ends_an_import() {
    let bed = Bed::with("http://unused.example/", |config| config.net.timeouts.stall = Duration::from_millis(100));
    let (feed, upload) = Upload::new(None);
    assert!(feed.push(Bytes::copy_from_slice(&disk(1, 4096)[..1000])).await);
    let error = bed.store.import("x/y".into(), upload, None).await.expect_err("silent");
    assert_eq!(error.kind(), ErrorKind::Deadline, "{}", chain(&error));
    drop(feed);
}

#[tokio::test]
async fn who_pulls_a_local_name_gets_what_was_sent_and_nobody_is_asked() {
    let bed = Bed::with("http://unused.example/", |config| {
        let restricted = |providers: &[&str]| imagestore::HandlerConfig {
            providers: Some(providers.iter().map(ToString::to_string).collect::<BTreeSet<_>>()),
            ..Default::default()
        };
        config.handlers.insert("files".into(), restricted(&["import"]));
        config.handlers.insert("no-files".into(), restricted(&["http"]));
    });
    let image = disk(1, 100_000);
    let sent = import(&bed, "localhost/disk:1", &image).await.expect("taken");
    let pull = |name: &str, offline| bed.store.pull(PullRequest { offline, ..name.into() });
    for offline in [None, Some(Offline::Always), Some(Offline::Auto)] {
        assert_eq!(pull("localhost/disk:1", offline).await.expect("here").id, sent.id);
    }
    pull("localhost/disk:2", None).await.expect_err("another one");
    // A name that a server may have is asked for there, also if something was sent under it.
    import(&bed, "unused.example/disk", &image).await.expect("taken");
    pull("unused.example/disk", None).await.expect_err("there is no such server");
    let pull = |handler: &str| bed.store.pull(PullRequest { handler: handler.into(), .."localhost/disk:1".into() });
    for (handler, allowed) in [("files", true), ("no-files", false)] {
        let (feed, upload) = Upload::new(None);
        feed.push(Bytes::copy_from_slice(&image)).await;
        let request = PullRequest { handler: handler.into(), .."localhost/disk:1".into() };
        let (taken, ()) = tokio::join!(bed.store.import(request, upload, None), feed.end());
        taken.expect("taken");
        assert_eq!(pull(handler).await.is_ok(), allowed, "{handler}");
        assert_eq!(bed.store.usable("localhost/disk:1", handler).is_ok(), allowed, "{handler}");
    }
}
