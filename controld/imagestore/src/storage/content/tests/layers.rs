//! What a crash, or a failure of the disk, leaves of a chain that is being put together.

use super::*;

/// Stores an image that names its parent, and nothing of that yet.
fn keep(store: &Arc<ContentStore>, bytes: &[u8], parent: Option<&str>) -> Hold {
    let parent = parent.map(|named| Parent { named: named.into(), format: Some(DiskFormat::Raw), id: None });
    store.keep(receive(store, bytes), Facts { parent, ..INFO.into() }).expect("stored")
}

/// As a pull does it: all of them without a name, then the edges from the bottom up, then the name.
fn pull(store: &Arc<ContentStore>, name: &str) -> Result<Image, DiskError> {
    let top = keep(store, b"top", Some("mid:1"));
    let mid = keep(store, b"mid", Some("base:1"));
    let base = keep(store, b"base", None);
    store.stand(mid.id(), base.id())?.expect("it fits");
    store.stand(top.id(), mid.id())?.expect("it fits");
    Ok(store.reuse(&key("", name), top.id(), Origin::default())?.expect("held"))
}

#[test]
fn a_kill_while_a_chain_is_put_together_leaves_all_or_nothing() {
    const TEST: &str = "storage::content::tests::layers::a_kill_while_a_chain_is_put_together_leaves_all_or_nothing";
    if let (Some(step), Some(root)) = (std::env::var_os(DIE_AT), std::env::var_os(DIE_IN)) {
        let (step, times) = step.to_str().expect("text").split_once(' ').expect("two words");
        let (step, left) = (step.to_owned(), std::sync::atomic::AtomicUsize::new(times.parse().expect("a number")));
        let hook = move |reached: Step| {
            if format!("{reached:?}") == step && left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                std::process::abort();
            }
            Ok(())
        };
        pull(&open_with(Path::new(&root), Box::new(hook)), "x").expect("pulled");
        return;
    }
    let steps = ["Data 1", "Data 2", "Data 3", "Meta 2", "Meta 3", "Stood 1", "Stood 2", "Ref 1", "Link 1"];
    for step in steps {
        let root = tempfile::tempdir().expect("a directory");
        assert!(rerun(TEST, step, root.path()), "{step}");
        let store = open(root.path());
        match step {
            "Link 1" => assert_eq!(store.below(&get(&store, "x").expect("there").id).expect("whole").len(), 2),
            _ => assert_holds(root.path(), &store, &[]),
        }
        let image = pull(&store, "x").expect("pulled");
        assert_eq!(store.below(&image.id).expect("whole").len(), 2, "{step}");
        store.remove("x", None, Losing::All).expect("removed");
        assert_holds(root.path(), &store, &[]);
    }
}

#[test]
fn a_collection_takes_a_chain_as_a_whole() {
    // The ids of three of these six chains, or so, have a parent before its child.
    for salt in 0..6 {
        let root = tempfile::tempdir().expect("a directory");
        let store = open(root.path());
        let bytes = |part: &str| format!("{part} {salt}").into_bytes();
        let top = keep(&store, &bytes("top"), Some("base:1"));
        let base = keep(&store, &bytes("base"), None);
        store.stand(top.id(), base.id()).expect("written").expect("it fits");
        let gone = key("arm", "x");
        store.reuse(&gone, top.id(), Origin::default()).expect("bound").expect("held");
        drop((top, base, store));
        let mut known = known();
        known.platforms.remove(&gone.handler);
        let disk = Disk::open(&root.path().join("images")).expect("opened");
        let store = ContentStore::open(disk, known, KEEP, Box::new(|_| Ok(()))).expect("scanned");
        let report = store.gc(GcOptions { orphan_handlers: true, ..GcOptions::default() }).expect("collected");
        assert_eq!((report.names, report.images.count), (1, 2), "{salt}");
    }
}

#[test]
fn what_is_put_together_goes_with_whoever_gave_up() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let base = keep(&store, b"base", None);
    let mid = keep(&store, b"mid", Some("base:1"));
    store.stand(mid.id(), base.id()).expect("written").expect("it fits");
    drop(base);
    store.gc(GcOptions::default()).expect("collected");
    assert_eq!(store.below(mid.id()).expect("whole").len(), 1);
    drop(mid);
    assert_holds(root.path(), &store, &[]);
}

#[test]
fn an_edge_is_checked_and_stays() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let (base, other) = (keep(&store, b"base", None), keep(&store, b"other", None));
    let (mid, top) = (keep(&store, b"mid", Some("base:1")), keep(&store, b"top", Some("mid:1")));
    let parent = Parent { named: "base:1".into(), format: Some(DiskFormat::Qcow2), id: None };
    let wrong = store.keep(receive(&store, b"wrong"), Facts { parent: Some(parent), ..INFO.into() }).expect("stored");
    let stand = |upper: &Hold, lower: &Hold| store.stand(upper.id(), lower.id()).expect("no failure");
    let format = Misfit::Format { declared: DiskFormat::Qcow2, found: DiskFormat::Raw };
    assert_eq!(stand(&wrong, &base), Err(format));
    assert_eq!(stand(&mid, &mid), Err(Misfit::Cycle));
    assert_eq!(stand(&top, &mid), Ok(()));
    assert_eq!(stand(&mid, &top), Err(Misfit::Cycle));
    assert_eq!(stand(&mid, &base), Ok(()));
    assert_eq!(stand(&mid, &base), Ok(()));
    assert_eq!(stand(&mid, &other), Err(Misfit::Taken { by: base.id().clone() }));
    assert_eq!(stand(&base, &other), Err(Misfit::Gone), "no layer");
    // Bytes that come again from elsewhere change nothing.
    keep(&store, b"mid", Some("base:1"));
    assert_eq!(store.below(top.id()).expect("whole").len(), 2);
}
