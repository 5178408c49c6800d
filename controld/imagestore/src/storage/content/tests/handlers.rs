use super::*;

fn arm() -> Handler {
    Handler::named("arm").expect("a handler")
}

fn bind(store: &Arc<ContentStore>, handler: &str, name: &str, bytes: &[u8], origin: Origin) -> Image {
    let hold = store.keep(receive(store, bytes), INFO.into()).expect("stored");
    store.reuse(&key(handler, name), hold.id(), origin).expect("bound").expect("held")
}

fn plain(store: &Arc<ContentStore>, handler: &str, name: &str, bytes: &[u8]) -> Image {
    bind(store, handler, name, bytes, Origin::default())
}

/// What each handler has, and how many files there are.
fn seen(store: &ContentStore) -> (Vec<(String, Vec<String>)>, usize) {
    let images = store.list(None).iter().map(|image| (image.handler.clone(), image.repo_tags.clone())).collect();
    (images, store.stored(None).len())
}

#[test]
fn what_a_removal_takes() {
    let both = || [("vm", "x:latest"), ("arm", "x:latest"), ("arm", "y:latest")];
    let entry = |(handler, tag): (&str, &str)| (handler.to_owned(), vec![tag.to_owned()]);
    // x is the same bytes for both handlers; y is other bytes.
    let id = id_of(b"same").to_string();
    // What is removed, for which handler, what is left, and of how many files.
    type Case<'a> = (&'a str, Option<&'a str>, &'a [(&'a str, &'a str)], usize);
    let cases: [Case; 8] = [
        ("x", None, &[("arm", "y:latest")], 1),
        ("x", Some(""), &[("arm", "x:latest"), ("arm", "y:latest")], 2),
        ("x", Some("arm"), &[("vm", "x:latest"), ("arm", "y:latest")], 2),
        (&id, None, &[("arm", "y:latest")], 1),
        (&id, Some("arm"), &[("vm", "x:latest"), ("arm", "y:latest")], 2),
        ("y", Some(""), &both(), 2),
        ("y", None, &[("vm", "x:latest"), ("arm", "x:latest")], 1),
        ("z", None, &both(), 2),
    ];
    for (text, handler, expected, files) in cases {
        let root = tempfile::tempdir().expect("a directory");
        let store = open(root.path());
        for (handler, name, bytes) in [("", "x", b"same"), ("arm", "x", b"same"), ("arm", "y", b"else")] {
            plain(&store, handler, name, bytes);
        }
        assert_eq!(seen(&store).1, 2, "the same bytes are kept once");
        let only = handler.map(|name| Handler::named(name).unwrap_or_default());
        store.remove(text, only.as_ref(), Losing::All).expect("removed");
        store.remove(text, only.as_ref(), Losing::All).expect("removed again");
        let mut expected: Vec<_> = expected.iter().copied().map(entry).collect();
        expected.sort();
        let check = |store: &ContentStore| {
            let (mut images, stored) = seen(store);
            images.sort();
            assert_eq!((&images, stored), (&expected, files), "{text} {handler:?}");
        };
        check(&store);
        drop(store);
        check(&open(root.path()));
    }
}

#[test]
fn a_name_means_other_bytes_for_another_handler() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    plain(&store, "", "x", b"amd");
    assert_eq!(store.get("x", &arm()), None);
    let other = plain(&store, "arm", "x", b"arm");
    assert_eq!((other.handler.as_str(), &other.id), ("arm", &id_of(b"arm")));
    assert_eq!(get(&store, "x").expect("there").id, id_of(b"amd"));
    // By an id, too, only what was pulled for the handler.
    assert_eq!(store.get(&id_of(b"amd").to_string(), &arm()), None);
    assert_eq!(store.handlers_of(&id_of(b"amd").to_string()), ["vm"]);
    let link = fs::read_link(root.path().join("images/handlers/arm/links/x:latest")).expect("a link");
    assert_eq!(link, Path::new(&format!("../../../data/{}", id_of(b"arm").hex())));
}

#[test]
fn names_of_a_handler_that_is_gone_wait_for_it() {
    let root = tempfile::tempdir().expect("a directory");
    plain(&open(root.path()), "arm", "x", b"arm");
    let without = || {
        let mut known = known();
        known.platforms.remove(&arm());
        let disk = Disk::open(&root.path().join("images")).expect("opened");
        ContentStore::open(disk, known, KEEP, Box::new(|_| Ok(()))).expect("scanned")
    };
    let store = without();
    assert!(store.list(None).is_empty() && store.findings().is_empty());
    store.gc(GcOptions::default()).expect("collected");
    assert_eq!(store.stored(None).len(), 1, "it is still somebody's");
    drop(store);
    assert!(open(root.path()).get("x", &arm()).is_some());
    let report = without().gc(GcOptions { orphan_handlers: true, ..GcOptions::default() }).expect("collected");
    assert_eq!((report.names, report.images.count), (1, 1));
    assert_holds(root.path(), &open(root.path()), &[]);
}

#[test]
fn a_name_of_another_platform_is_found_no_more() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let origin = Origin { platform: Some("linux/386".into()), ..Origin::default() };
    bind(&store, "arm", "x", b"one", origin);
    plain(&store, "", "old", b"one");
    assert_eq!(store.get("x", &arm()), None, "never another platform");
    assert_eq!(store.get(&id_of(b"one").to_string(), &arm()), None);
    assert!(store.remembered(&key("arm", "x")).is_none(), "nothing to ask the source about");
    let listed = store.list(Some(&arm()));
    assert_eq!(listed.iter().map(|image| image.stale).collect::<Vec<_>>(), [true], "so that it can be removed");
    assert!(get(&store, "old").is_some(), "a record that says nothing is believed");
    let fresh = Origin { platform: Some("linux/arm64/v8".into()), ..Origin::default() };
    assert!(!bind(&store, "arm", "x", b"two", fresh).stale);
    assert_eq!(store.get("x", &arm()).expect("there").id, id_of(b"two"));
}

#[test]
fn a_manifest_is_the_digest_that_a_registry_knows() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let manifest = format!("sha256:{}", "ab".repeat(32));
    let origin = Origin { manifest: manifest.parse().ok(), user: Some("1000:1000".into()), ..Origin::default() };
    let image = bind(&store, "", "r.io/x:v1", b"disk", origin);
    assert_eq!(image.repo_digests, [format!("r.io/x@{manifest}")]);
    assert_eq!(image.user.as_deref(), Some("1000:1000"));
    assert_eq!(get(&store, &format!("r.io/x@{manifest}")), Some(image.clone()));
    assert_eq!(get(&store, &format!("r.io/x@{}", image.id)), Some(image));
    assert_eq!(get(&store, &format!("r.io/y@{manifest}")), None);
    assert_eq!(get(&store, &format!("r.io/x@sha256:{}", "0".repeat(64))), None);
}

#[test]
fn a_broken_image_is_put_aside_and_comes_back_by_a_pull() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = plain(&store, "", "x", b"good");
    plain(&store, "arm", "x", b"good");
    plain(&store, "", "other", b"other");
    store.lease(&image.id, "pod").expect("leased");
    let turn = || {
        fs::set_permissions(&image.path, fs::Permissions::from_mode(0o644)).expect("set");
        fs::write(&image.path, b"gooe").expect("written");
    };
    turn();
    let verdicts: Vec<_> =
        store.stored(None).iter().map(|id| store.verify(id).expect("read").expect("there")).collect();
    let broken = verdicts.iter().find(|verified| verified.id == image.id).expect("looked at");
    assert_eq!(broken.verdict, Verdict::Corrupt { found: id_of(b"gooe").to_string() });
    assert_eq!(
        (broken.names.as_slice(), broken.holders.as_slice()),
        (&["x:latest", "x:latest"].map(String::from)[..], &["pod".to_owned()][..])
    );
    assert_eq!(verdicts.iter().filter(|verified| verified.verdict == Verdict::Sound).count(), 1);
    assert_eq!((get(&store, "x"), store.get("x", &arm())), (None, None));
    assert_eq!(fs::read(root.path().join("images/quarantine").join(image.id.hex())).expect("kept"), b"gooe");
    plain(&store, "", "x", b"good");
    assert_eq!(fs::read(&image.path).expect("read"), b"good", "where the pod's disk looks for it");
    let report = store.gc(GcOptions { quarantine: true, ..GcOptions::default() }).expect("collected");
    assert_eq!(report.quarantine.count, 1);
    drop(store);

    // A pull that finds it looks at it once for each start.
    turn();
    let store = open(root.path());
    let by_digest = key("", &format!("x@{}", image.id));
    assert_eq!(store.adopt(&by_digest, &image.id, Origin::default()).expect("looked"), None, "pull it, then");
    assert_eq!(get(&store, "x"), None);
    plain(&store, "", "new", b"good");
    assert_eq!(fs::read(&image.path).expect("read"), b"good");
}

#[test]
fn pins_keep_what_has_no_name() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = plain(&store, "", "x", b"one");
    assert!(store.pin(&image.id).expect("pinned") && get(&store, "x").expect("there").pinned);
    assert!(store.holders().is_empty(), "nobody to be released after a restart");
    assert!(store.nameless().is_empty(), "it is listed by its name");
    let removed = store.remove("x", None, Losing::All).expect("removed");
    let kept = Some(Keepers { pinned: true, ..Keepers::default() });
    assert_eq!(removed.iter().map(|image| &image.kept).collect::<Vec<_>>(), [&kept]);
    assert!(image.path.exists() && get(&store, "x").is_none());
    let plain =
        Image { handler: String::new(), repo_tags: vec![], repo_digests: vec![], pinned: true, ..image.clone() };
    assert_eq!(store.nameless(), std::slice::from_ref(&plain));
    assert!(store.list(None).is_empty(), "pods know images by their names");
    assert_eq!(store.details(&image.id.hex()[..8], &Handler::default()).map(|found| found.image), Some(plain));
    assert_eq!(store.stored(Some(image.id.hex())), std::slice::from_ref(&image.id));
    let verified = store.verify(&image.id).expect("read").expect("there");
    assert!(verified.pinned && verified.holders.is_empty(), "{verified:?}");
    drop(store);
    let store = open(root.path());
    assert!(store.findings().is_empty() && image.path.exists());
    for text in [image.id.to_string().as_str(), image.id.hex(), &image.id.hex()[..8]] {
        assert_eq!(store.pinned(text).as_ref(), Some(&image.id), "{text}");
    }
    for text in ["x", "", &image.id.hex()[..7], "sha256:00000000"] {
        assert_eq!(store.pinned(text), None, "{text}");
    }
    store.unpin(&image.id).expect("unpinned");
    assert!(store.nameless().is_empty());
    assert!(!image.path.exists() && store.pinned(image.id.hex()).is_none());
}

#[test]
fn a_removal_says_what_went_and_what_keeps_the_rest() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = plain(&store, "", "x", b"one");
    plain(&store, "", "y:v1", b"one");
    plain(&store, "arm", "x", b"one");
    store.lease(&image.id, "pod").expect("leased");
    let of = |name: &str, handler: &str| Binding { name: name.into(), handler: handler.into() };
    let own = store.remove("x", Some(&Handler::default()), Losing::All).expect("removed");
    assert_eq!(own[0].names, [of("x:latest", "vm"), of("y:v1", "vm")], "all names of the image");
    let kept = own[0].kept.clone().expect("kept");
    assert_eq!(
        (kept.names.as_slice(), kept.holders.as_slice()),
        (&[of("x:latest", "arm")][..], &["pod".to_owned()][..])
    );
    let last = store.remove("x", None, Losing::All).expect("removed");
    assert_eq!(last[0].names, [of("x:latest", "arm")]);
    assert_eq!(last[0].kept, Some(Keepers { holders: vec!["pod".into()], ..Keepers::default() }));
    assert_eq!(store.remove("x", None, Losing::All).expect("fine if absent"), []);
    store.release("pod").expect("released");
    let again = plain(&store, "", "x", b"one");
    let gone = store.remove(again.id.hex(), None, Losing::All).expect("removed");
    assert_eq!((&gone[0].id, gone[0].names.len(), &gone[0].kept), (&again.id, 1, &None));
}

#[test]
fn an_image_loses_the_name_it_was_called_by() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = plain(&store, "", "x", b"one");
    plain(&store, "", "x:v1", b"one");
    plain(&store, "", "y:v1", b"one");
    plain(&store, "arm", "x", b"one");
    plain(&store, "arm", "y:v1", b"other");
    let called = |text: &str, handler: Option<&Handler>| -> Vec<String> {
        let removed = store.remove(text, handler, Losing::Called).expect("removed");
        let names = removed.into_iter().flat_map(|removed| removed.names);
        names.map(|Binding { name, handler }| format!("{name} {handler}")).collect()
    };
    assert_eq!(called("x", Some(&Handler::default())), ["x:latest vm"]);
    let both = called("y:v1", None);
    assert_eq!(both.len(), 2, "two images, as each handler means another by it: {both:?}");
    assert!(get(&store, "x:v1").is_some() && image.path.exists());
    plain(&store, "", "x", b"one");
    let by_digest = format!("x@{}", image.id);
    assert_eq!(called(&by_digest, None), ["x:latest vm", "x:v1 vm", "x:latest arm"], "the tags of the repository");
    assert!(!image.path.exists(), "it went with its last name");
    let image = plain(&store, "", "x", b"one");
    plain(&store, "", "y", b"one");
    for text in [&image.id.hex()[..8], &image.id.to_string()] {
        assert_eq!(called(text, None).len(), 2, "{text} is no name, so all names go");
        plain(&store, "", "x", b"one");
        plain(&store, "", "y", b"one");
    }
}

#[test]
fn what_an_image_stands_on_stays_with_it() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let base = store.keep(receive(&store, b"base"), INFO.into()).expect("stored");
    let parent = Parent { named: base.id().to_string(), format: None, id: Some(base.id().clone()) };
    let facts = Facts { parent: Some(parent), ..INFO.into() };
    let top = store.keep(receive(&store, b"top"), facts).expect("stored");
    store.reuse(&key("", "x"), top.id(), Origin::default()).expect("bound");
    drop((base, top));
    store.gc(GcOptions::default()).expect("collected");
    drop(store);
    let store = open(root.path());
    assert!(store.findings().is_empty(), "{:?}", store.findings());
    assert_eq!(seen(&store).1, 2);
    let image = get(&store, "x").expect("there");
    assert_eq!(image.missing, None);
    assert_eq!(store.below(&image.id).expect("whole").len(), 1);
    store.remove("x", None, Losing::All).expect("removed");
    assert_holds(root.path(), &store, &[]);

    let facts = Facts { parent: Some(Parent { named: "base:1".into(), format: None, id: None }), ..INFO.into() };
    let lone = store.keep(receive(&store, b"lone"), facts).expect("stored");
    let image = store.reuse(&key("", "x"), lone.id(), Origin::default()).expect("bound").expect("held");
    assert_eq!(image.missing.as_deref(), Some("base:1"));
    assert_eq!(store.below(&image.id), Err("base:1".into()));
}

#[test]
fn an_image_on_its_way_out_comes_back_if_it_is_wanted() {
    for wanted in [false, true] {
        let root = tempfile::tempdir().expect("a directory");
        let store = open(root.path());
        let image = plain(&store, "", "x", b"one");
        if !wanted {
            fs::remove_file(root.path().join("images/links/x:latest")).expect("removed");
        }
        drop(store);
        // As a crash between the two steps leaves it.
        let data = root.path().join("images/data");
        fs::rename(&image.path, data.join(format!(".gc-{}", image.id.hex()))).expect("renamed");
        let store = open(root.path());
        match wanted {
            true => assert_eq!(get(&store, "x").expect("there").path, image.path),
            false => assert_holds(root.path(), &store, &[]),
        }
    }
}

/// A kill behind each step of a removal and of a verification; [`super::a_kill_behind_any_step_leaves_a_consistent_store`]
/// has those of a pull.
#[test]
fn a_kill_behind_any_step_out_leaves_a_consistent_store() {
    const THIS: &str = "storage::content::tests::handlers::a_kill_behind_any_step_out_leaves_a_consistent_store";
    if let (Some(step), Some(root)) = (std::env::var_os(DIE_AT), std::env::var_os(DIE_IN)) {
        let step = step.into_string().expect("text");
        let verifies = matches!(step.as_str(), "Suspected" | "Quarantined");
        let hook = move |reached: Step| {
            if format!("{reached:?}") == step {
                std::process::abort();
            }
            Ok(())
        };
        let store = open_with(Path::new(&root), Box::new(hook));
        match verifies {
            true => drop(store.verify(&id_of(b"one"))),
            false => drop(store.remove("img", None, Losing::All)),
        }
        return;
    }
    for step in ["Unlinked", "Retired", "Suspected", "Quarantined"] {
        let root = tempfile::tempdir().expect("a directory");
        let store = open(root.path());
        let image = plain(&store, "", "img", b"one");
        plain(&store, "", "other", b"other");
        drop(store);
        if matches!(step, "Suspected" | "Quarantined") {
            fs::set_permissions(&image.path, fs::Permissions::from_mode(0o644)).expect("set");
            fs::write(&image.path, b"onf").expect("written");
        }
        assert!(rerun(THIS, step, root.path()), "{step}");
        let store = open(root.path());
        if step == "Suspected" {
            // Only the note was written: whoever verifies finds it again.
            let verified = store.verify(&image.id).expect("read").expect("there");
            assert!(matches!(verified.verdict, Verdict::Corrupt { .. }));
        }
        store.gc(GcOptions { quarantine: true, ..GcOptions::default() }).expect("collected");
        assert_holds(root.path(), &store, &[("other", b"other")]);
        plain(&store, "", "img", b"one");
        assert_eq!(get(&store, "img").expect("there").id, image.id);
    }
}

#[test]
fn a_store_of_the_first_version_is_taken_over() {
    let root = tempfile::tempdir().expect("a directory");
    let images = root.path().join("images");
    let id = id_of(b"one");
    for dir in ["", "data", "links", "meta", "refs", "refs/_default", "leases"] {
        fs::create_dir(images.join(dir)).expect("made");
    }
    fs::write(images.join("data").join(id.hex()), b"one").expect("written");
    symlink(format!("../data/{}", id.hex()), images.join("links/img:latest")).expect("linked");
    let meta = r#"{"version": 1, "size": 3, "format": "raw", "virtual_size": 512, "verified_at": 1}"#;
    fs::write(images.join(format!("meta/{}.json", id.hex())), meta).expect("written");
    let name =
        r#"{"version": 1, "image": "img:latest", "source": "https://example.com/x", "etag": "\"a\"", "pulled_at": 1}"#;
    fs::write(images.join("refs/_default/img:latest.json"), name).expect("written");
    let lease = format!(r#"{{"version": 1, "images": ["{id}"]}}"#);
    fs::write(images.join("leases/pod.json"), lease).expect("written");
    let store = open(root.path());
    assert!(store.findings().is_empty(), "{:?}", store.findings());
    assert_eq!(get(&store, "img").map(|image| image.id), Some(id));
    assert_eq!(store.holders(), ["pod"]);
    let (_, origin) = store.remembered(&key("", "img")).expect("there");
    assert_eq!(origin.source.as_deref(), Some("https://example.com/x"));
    assert_eq!(origin.etag, None, "it may be of other bytes than the link leads to");
}

#[test]
fn a_record_beside_a_link_to_other_bytes_is_not_believed() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let (one, two) = (plain(&store, "", "a", b"one"), plain(&store, "", "b", b"two"));
    let origin = Origin { etag: Some("\"of one\"".into()), ..Origin::default() };
    bind(&store, "", "img", b"one", origin);
    drop(store);
    // As a crash before the rename of the link leaves it, seen from the other side.
    let link = root.path().join("images/links/img:latest");
    fs::remove_file(&link).expect("removed");
    symlink(format!("../data/{}", two.id.hex()), &link).expect("linked");
    let store = open(root.path());
    let (image, origin) = store.remembered(&key("", "img")).expect("there");
    assert_eq!((image.id, origin.etag), (two.id, None));
    assert!(get(&store, &one.id.to_string()).is_some());
}

#[test]
fn a_hard_link_to_a_file_of_the_host_is_neither_shown_nor_written() {
    let root = tempfile::tempdir().expect("a directory");
    drop(open(root.path()));
    let secret = root.path().join("secret");
    fs::write(&secret, "secret").expect("written");
    let planted = root.path().join("images/data").join(id_of(b"wanted").hex());
    fs::hard_link(&secret, &planted).expect("linked");
    symlink(format!("../data/{}", id_of(b"wanted").hex()), root.path().join("images/links/img:latest"))
        .expect("linked");
    let store = open(root.path());
    assert_eq!(get(&store, "img"), None, "nothing says what it is");
    plain(&store, "", "img", b"wanted");
    assert_eq!(fs::read_to_string(&secret).expect("read"), "secret");
    assert_eq!(fs::read(&planted).expect("read"), b"wanted");
}
