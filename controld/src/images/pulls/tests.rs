//! Pulls that are stood for by plain futures.

use tokio::sync::oneshot;

use super::*;

fn image(hex: &str) -> Image {
    Image {
        id: format!("sha256:{}", hex.repeat(32)).parse().expect("an id"),
        handler: "virtlet".into(),
        repo_tags: vec![],
        repo_digests: vec![],
        size: 1,
        virtual_size: 512,
        format: vmimage::inspect::DiskFormat::Raw,
        path: "/x".into(),
        user: None,
        provider: None,
        pinned: false,
        weak: false,
        stale: false,
        parent: None,
        missing: None,
    }
}

fn pulls() -> Pulls {
    Pulls::new(&["virtlet".into(), "arm".into()])
}

fn of(pulls: &Pulls, handler: &str) -> PullCounts {
    pulls.counts().into_iter().find(|(name, _)| name == handler).expect("a handler").1
}

fn at(bytes: u64) -> Progress {
    Progress { bytes, ..Progress::default() }
}

#[tokio::test]
async fn each_end_counts_once_for_its_handler() {
    let pulls = pulls();
    let (old, new) = (image("aa"), image("bb"));
    let ends = [
        ("", None, Ok(new.clone())),
        ("virtlet", Some(&old), Ok(new.clone())),
        ("virtlet", Some(&old), Ok(old.clone())),
        ("arm", None, Err("refused")),
        ("no-such", None, Err("unknown handler")),
    ];
    for (handler, known, end) in ends {
        let ended = pulls.count(handler, known, async { end.clone() }, || None).await;
        assert_eq!(ended, end, "{handler}");
    }
    let expected = PullCounts { started: 3, changed: 2, unchanged: 1, ..PullCounts::default() };
    assert_eq!(of(&pulls, "virtlet"), expected);
    assert_eq!(of(&pulls, "arm"), PullCounts { started: 1, failed: 1, ..PullCounts::default() });
    assert_eq!(pulls.counts().len(), 2, "no figures for others");
}

#[tokio::test]
async fn a_pull_that_is_dropped_was_abandoned_and_its_bytes_count() {
    let pulls = pulls();
    let (told, progress) = watch::channel(at(0));
    let mut pull =
        Box::pin(pulls.count("arm", None, std::future::pending::<Result<Image, ()>>(), move || Some(progress)));
    assert!(std::future::poll_fn(|context| Poll::Ready(pull.as_mut().poll(context))).await.is_pending());
    assert_eq!(of(&pulls, "arm"), PullCounts { started: 1, ..PullCounts::default() });
    told.send_replace(at(7));
    drop(pull);
    assert_eq!(of(&pulls, "arm"), PullCounts { started: 1, abandoned: 1, bytes: 7, ..PullCounts::default() });
}

#[tokio::test]
async fn one_download_counts_once_however_many_wait_for_it() {
    let pulls = Arc::new(pulls());
    let (told, progress) = watch::channel(at(0));
    let (mut ends, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (end, ended) = oneshot::channel();
        let (pulls, progress) = (pulls.clone(), progress.clone());
        waiting.push(tokio::spawn(async move {
            let pull = async { ended.await.map_err(|_| "gone") };
            pulls.count("", None, pull, move || Some(progress)).await
        }));
        ends.push(end);
    }
    drop(progress);
    while of(&pulls, "virtlet").started < 3 {
        tokio::task::yield_now().await;
    }
    told.send_replace(at(10));
    told.send_replace(at(25));
    // The one that was there first does not take the figures with it.
    waiting.remove(0).abort();
    told.send_replace(at(40));
    drop(told);
    for end in ends.drain(1..) {
        end.send(image("aa")).expect("waited for");
    }
    for waiting in waiting {
        waiting.await.expect("ran").expect("pulled");
    }
    while of(&pulls, "virtlet").abandoned < 1 {
        tokio::task::yield_now().await;
    }
    let expected = PullCounts { started: 3, changed: 2, abandoned: 1, bytes: 40, ..PullCounts::default() };
    assert_eq!(of(&pulls, "virtlet"), expected);
    let (_told, another) = watch::channel(at(0));
    pulls.download(another);
    assert_eq!(pulls.downloads.lock().expect("not poisoned").len(), 1, "those that ended are forgotten");
}

#[test]
fn bytes_are_told_once_and_a_smaller_figure_is_another_artifact() {
    let (told, progress) = watch::channel(at(0));
    let download = Download { progress, seen: Mutex::default() };
    for (bytes, news) in [(0, 0), (100, 100), (100, 0), (250, 150), (30, 30), (31, 1)] {
        told.send_replace(at(bytes));
        assert_eq!(download.news(), news, "{bytes}");
    }
}
