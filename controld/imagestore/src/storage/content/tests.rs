use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::sys::stat::Mode;
use sha2::{Digest as _, Sha256};
use vmimage::digest::{Algorithm, Digest};
use vmimage::error::ErrorKind;
use vmimage::inspect::{DiskFormat, ImageInfo};
use vmimage::name::ImageRef;

use super::*;

mod handlers;
mod layers;
mod model;
mod race;

const KEEP: Keep = Keep { partial_ttl: Duration::from_secs(3600), partial_quota: 1 << 30, reserve: 0 };
const INFO: ImageInfo = ImageInfo { format: DiskFormat::Raw, virtual_size: 512 };
const STEPS: [Step; 6] = [Step::Data, Step::Meta, Step::Ref, Step::Link, Step::Retired, Step::Displaced];
/// Tells the test binary, run by itself, behind which step to die.
const DIE_AT: &str = "IMAGESTORE_TEST_DIE_AT";
const DIE_IN: &str = "IMAGESTORE_TEST_DIE_IN";

fn open(root: &Path) -> Arc<ContentStore> {
    open_with(root, Box::new(|_| Ok(())))
}

fn open_with(root: &Path, after: Hook) -> Arc<ContentStore> {
    Arc::new(
        ContentStore::open(Disk::open(&root.join("images")).expect("opened"), known(), KEEP, after).expect("scanned"),
    )
}

/// A default handler, and one whose guests are of another kind.
fn known() -> Known {
    let arm = Handler::named("arm").expect("a handler");
    let platforms = [(Handler::default(), "linux/amd64".to_owned()), (arm, "linux/arm64/v8".to_owned())];
    Known { default_handler: "vm".into(), platforms: platforms.into(), pinned: BTreeSet::new() }
}

fn key(handler: &str, name: &str) -> Key {
    let handler = Handler::named(handler).unwrap_or_default();
    Key { handler, image: name.parse().expect("a name") }
}

fn get(store: &ContentStore, name: &str) -> Option<Image> {
    store.get(name, &Handler::default())
}

fn receive(store: &ContentStore, bytes: &[u8]) -> Received {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(crate::storage::ingest::tests::take_in_plain(store.disk(), bytes))
}

fn publish(store: &Arc<ContentStore>, name: &str, bytes: &[u8]) -> Result<Image, DiskError> {
    let origin = Origin { source: Some("https://example.com/x".into()), ..Origin::default() };
    let hold = store.keep(receive(store, bytes), INFO.into())?;
    Ok(store.reuse(&key("", name), hold.id(), origin)?.expect("held"))
}

fn id_of(bytes: &[u8]) -> ImageId {
    Digest::computed(Algorithm::Sha256, &Sha256::digest(bytes)).to_id().expect("an id")
}

/// All files and links below the store, with what is in them.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.join("images")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("listed") {
            let path = entry.expect("an entry").path();
            let facts = fs::symlink_metadata(&path).expect("there");
            let name = path.strip_prefix(root.join("images")).expect("below").display().to_string();
            if facts.is_dir() {
                dirs.push(path);
            } else if facts.is_symlink() {
                found.insert(name, fs::read_link(&path).expect("a link").display().to_string());
            } else {
                found.insert(name, String::from_utf8_lossy(&fs::read(&path).expect("read")).into_owned());
            }
        }
    }
    found
}

/// The store holds exactly these names with these bytes, and not a file more.
fn assert_holds(root: &Path, store: &ContentStore, expected: &[(&str, &[u8])]) {
    let mut files: Vec<String> = vec!["lock".into()];
    for (name, bytes) in expected {
        let id = id_of(bytes);
        let image = get(store, name).unwrap_or_else(|| panic!("{name} is there"));
        assert_eq!(image.id, id);
        assert_eq!(fs::read(&image.path).expect("read"), *bytes);
        assert_eq!(fs::metadata(&image.path).expect("there").mode() & 0o7777, 0o444);
        let link = name.parse::<ImageRef>().map(|image| links::link_name(&image)).expect("a name");
        files.extend([format!("links/{link}"), format!("refs/_default/{link}.json")]);
        files.extend([format!("data/{}", id.hex()), format!("meta/{}.json", id.hex())]);
    }
    files.sort();
    files.dedup();
    assert_eq!(tree(root).into_keys().collect::<Vec<_>>(), files);
    let ids: std::collections::BTreeSet<_> = expected.iter().map(|(_, bytes)| id_of(bytes)).collect();
    assert_eq!(
        store.list(None).iter().map(|image| image.id.clone()).collect::<Vec<_>>(),
        ids.into_iter().collect::<Vec<_>>()
    );
}

#[test]
fn a_kill_behind_any_step_leaves_a_consistent_store() {
    if let (Some(step), Some(root)) = (std::env::var_os(DIE_AT), std::env::var_os(DIE_IN)) {
        die_behind(step.to_str().expect("text"), Path::new(&root));
        return;
    }
    for before in [&[][..], &[("img", &b"old"[..]), ("other", b"other")][..]] {
        for step in ["Part", "Data", "Meta", "Ref", "Link", "Retired", "Displaced"] {
            let root = tempfile::tempdir().expect("a directory");
            let store = open(root.path());
            for (name, bytes) in before {
                publish(&store, name, bytes).expect("published");
            }
            drop(store);
            let killed =
                rerun("storage::content::tests::a_kill_behind_any_step_leaves_a_consistent_store", step, root.path());
            // A name that had nothing before displaces nothing.
            assert_eq!(killed, !matches!(step, "Retired" | "Displaced") || !before.is_empty(), "{step}");

            let store = open(root.path());
            let committed = matches!(step, "Link" | "Retired" | "Displaced");
            let mut expected: Vec<_> = before.to_vec();
            if committed {
                expected.retain(|(name, _)| *name != "img");
                expected.push(("img", b"new"));
            }
            assert_holds(root.path(), &store, &expected);
            // And it goes on from there.
            publish(&store, "img", b"new").expect("published");
            assert_eq!(get(&store, "img").expect("there").id, id_of(b"new"));
        }
    }
}

fn die_behind(step: &str, root: &Path) {
    let step = step.to_owned();
    let part = step == "Part";
    let hook = move |reached: Step| {
        if format!("{reached:?}") == step {
            std::process::abort();
        }
        Ok(())
    };
    let store = open_with(root, Box::new(hook));
    let received = receive(&store, b"new");
    if part {
        std::process::abort();
    }
    let hold = store.keep(received, INFO.into()).expect("stored");
    store.reuse(&key("", "img"), hold.id(), Origin::default()).expect("published");
}

/// Runs one test of this binary by itself. Returns whether it was killed; if not, it passed.
fn rerun(test: &str, step: &str, root: &Path) -> bool {
    let this = std::env::current_exe().expect("this binary");
    let done = Command::new(this).args(["--exact", test]).env(DIE_AT, step).env(DIE_IN, root).output().expect("run");
    let killed = done.status.signal() == Some(nix::sys::signal::Signal::SIGABRT as i32);
    assert!(killed || done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert!(killed || String::from_utf8_lossy(&done.stdout).contains("1 passed"));
    killed
}

#[test]
fn a_failure_behind_any_step_is_undone_or_complete() {
    for before in [None, Some(&b"old"[..])] {
        for step in STEPS {
            let root = tempfile::tempdir().expect("a directory");
            let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let hook = {
                let armed = armed.clone();
                move |reached| match reached == step && armed.load(std::sync::atomic::Ordering::Relaxed) {
                    true => Err(DiskError::Os { action: "write", path: PathBuf::from("x"), cause: Errno::ENOSPC }),
                    false => Ok(()),
                }
            };
            let store = open_with(root.path(), Box::new(hook));
            if let Some(bytes) = before {
                publish(&store, "img", bytes).expect("published");
            }
            let files = tree(root.path()).into_keys().collect::<Vec<_>>();
            armed.store(true, std::sync::atomic::Ordering::Relaxed);
            let result = publish(&store, "img", b"new");
            armed.store(false, std::sync::atomic::Ordering::Relaxed);
            if matches!(step, Step::Retired | Step::Displaced) && before.is_none() {
                assert!(result.is_ok());
                continue;
            }
            assert_eq!(result.expect_err("it failed").kind(), ErrorKind::Exhausted);
            if matches!(step, Step::Data | Step::Meta | Step::Ref) {
                assert_eq!(tree(root.path()).into_keys().collect::<Vec<_>>(), files, "{step:?}");
                assert_eq!(get(&store, "img").map(|image| image.id), before.map(id_of), "{step:?}");
            } else {
                assert_eq!(get(&store, "img").map(|image| image.id), Some(id_of(b"new")), "{step:?}");
            }
            publish(&store, "img", b"new").expect("published");
            drop(store);
            assert_holds(root.path(), &open(root.path()), &[("img", b"new")]);
        }
    }
}

#[test]
fn what_was_planted_is_neither_followed_nor_touched() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    publish(&store, "good", b"good").expect("published");
    drop(store);
    let images = root.path().join("images");
    let secret = root.path().join("secret");
    fs::write(&secret, "secret").expect("written");
    let hex = |letter: &str| letter.repeat(64);
    let data = |name: &str| images.join("data").join(name);
    symlink(&secret, data(&hex("a"))).expect("linked");
    nix::unistd::mkfifo(&data(&hex("b")), Mode::S_IRWXU).expect("made");
    fs::create_dir(data(&hex("c"))).expect("made");
    fs::write(data(&hex("d")), "writable").expect("written");
    fs::set_permissions(data(&hex("d")), fs::Permissions::from_mode(0o666)).expect("set");
    fs::write(data("README"), "by hand").expect("written");
    symlink(&secret, data("part_link")).expect("linked");
    let link = |name: &str, target: &str| symlink(target, images.join("links").join(name)).expect("linked");
    link("evil:latest", "/etc/passwd");
    link("evil:up", "../../secret");
    link("evil:data", &format!("../data/{}/../../../secret", hex("a")));
    for (tag, letter) in [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")] {
        link(&format!("planted:{tag}"), &format!("../data/{}", hex(letter)));
    }
    link("untagged", &format!("../data/{}", id_of(b"good").hex()));
    fs::write(images.join("links/file:latest"), "no link").expect("written");
    fs::create_dir(images.join("links/dir:latest")).expect("made");
    nix::unistd::mkfifo(&images.join(format!("meta/{}.json", hex("a"))), Mode::S_IRWXU).expect("made");
    symlink(&secret, images.join("refs/_default/x.json")).expect("linked");
    fs::write(images.join("leases/pod.json"), "{\"version\": 9, \"images\": []}").expect("written");
    fs::write(images.join("meta/notes.txt"), vec![b'x'; 100_000]).expect("written");
    // A FIFO has nobody at its other end, so `tree` would wait for ever; look at names alone.
    let names = || {
        let mut names: Vec<PathBuf> = ["data", "links", "meta", "refs/_default", "leases"]
            .iter()
            .flat_map(|dir| fs::read_dir(images.join(dir)).expect("listed"))
            .map(|entry| entry.expect("an entry").path())
            .collect();
        names.sort();
        names
    };
    let before = names();
    let store = open(root.path());
    assert_eq!(names(), before, "nothing of it was touched");
    assert!(store.findings().iter().all(|finding| !finding.removed));
    assert_eq!(store.findings().len(), 16, "{:#?}", store.findings());
    assert_eq!(store.list(None).len(), 1);
    for name in ["evil", "evil:up", "evil:data", "planted:a", "planted:b", "planted:c", "planted:d", "file", "dir"] {
        assert_eq!(get(&store, name), None, "{name}");
    }
    assert_eq!(fs::read_to_string(&secret).expect("read"), "secret");

    // In the way of an image that comes by its right name.
    let wanted = id_of(b"wanted");
    symlink(&secret, data(wanted.hex())).expect("linked");
    assert!(matches!(publish(&store, "wanted", b"wanted"), Err(DiskError::Obstructed { .. })));
    assert!(fs::symlink_metadata(data(wanted.hex())).expect("still there").is_symlink());
    assert_eq!(fs::read_to_string(&secret).expect("read"), "secret");
}

#[test]
fn an_image_that_lost_its_record_is_replaced_by_the_next_pull() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = publish(&store, "img", b"good").expect("published");
    drop(store);
    fs::set_permissions(&image.path, fs::Permissions::from_mode(0o644)).expect("set");
    fs::write(&image.path, "rotten").expect("written");
    let store = open(root.path());
    assert_eq!(get(&store, "img"), None, "of another size than recorded");
    assert!(image.path.exists(), "left for whoever wants to look");
    publish(&store, "img", b"good").expect("published");
    assert_holds(root.path(), &store, &[("img", b"good")]);
}

#[test]
fn an_image_that_lost_its_file_is_pulled_again_with_all_its_names() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = publish(&store, "img", b"good").expect("published");
    publish(&store, "other", b"good").expect("published");
    fs::remove_file(&image.path).expect("removed");
    let by_digest = key("", &format!("img@{}", image.id));
    assert_eq!(store.adopt(&by_digest, &image.id, Origin::default()).expect("looked"), None);
    publish(&store, "img", b"good").expect("published");
    assert_holds(root.path(), &store, &[("img", b"good"), ("other", b"good")]);
}

#[test]
fn dangling_links_and_leftovers_are_swept() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    publish(&store, "good", b"good").expect("published");
    let gone = publish(&store, "gone", b"gone").expect("published");
    drop(store);
    fs::remove_file(gone.path).expect("removed");
    let images = root.path().join("images");
    fs::write(images.join("data/part_1-1"), "half").expect("written");
    fs::write(images.join("meta/.tmp-1-1"), "half").expect("written");
    fs::write(images.join("refs/_default/.tmp-1-1"), "half").expect("written");
    fs::write(images.join("leases/.tmp-1-1"), "half").expect("written");
    symlink("../data/x", images.join("links/.tmp-1-1")).expect("linked");
    let store = open(root.path());
    assert_holds(root.path(), &store, &[("good", b"good")]);
    assert!(store.findings().iter().all(|finding| finding.removed));
    drop(store);
    assert!(open(root.path()).findings().is_empty(), "swept once and for all");
}

#[test]
fn leases_keep_the_file_over_removal_and_restart() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = publish(&store, "img", b"one").expect("published");
    assert!(store.lease(&image.id, "pod-1").expect("leased"));
    assert!(store.lease(&image.id, "pod-1").expect("leased again"));
    assert!(store.lease(&image.id, "pod-2").expect("leased"));
    store.remove("img", None, Losing::All).expect("removed");
    assert_eq!(get(&store, "img"), None);
    assert_eq!(get(&store, &image.id.to_string()), None);
    assert!(store.list(None).is_empty());
    assert!(image.path.exists());
    drop(store);

    let store = open(root.path());
    assert!(store.findings().is_empty(), "{:?}", store.findings());
    assert_eq!(store.holders(), ["pod-1", "pod-2"]);
    store.release("pod-1").expect("released");
    assert!(image.path.exists());
    // The same bytes come back while they are leased: nothing is written twice.
    let inode = fs::metadata(&image.path).expect("there").ino();
    publish(&store, "again", b"one").expect("published");
    assert_eq!(fs::metadata(&image.path).expect("there").ino(), inode);
    store.release("pod-2").expect("released");
    assert!(image.path.exists(), "it has a name again");
    store.release("pod-2").expect("released twice");
    store.remove("again", None, Losing::All).expect("removed");
    assert_holds(root.path(), &store, &[]);
    assert!(!store.lease(&image.id, "pod-3").expect("no failure"), "it is gone");
}

#[test]
fn nothing_is_swept_while_a_lease_cannot_be_read() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let image = publish(&store, "img", b"one").expect("published");
    store.lease(&image.id, "pod").expect("leased");
    store.remove("img", None, Losing::All).expect("removed");
    drop(store);
    let lease = root.path().join("images/leases/pod.json");
    let sound = fs::read(&lease).expect("read");
    fs::write(&lease, "{").expect("written");
    drop(open(root.path()));
    assert!(image.path.exists());
    fs::write(&lease, sound).expect("written");
    let store = open(root.path());
    store.release("pod").expect("released");
    assert_holds(root.path(), &store, &[]);
}

#[test]
fn a_displaced_image_goes_unless_it_is_leased() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let one = publish(&store, "img", b"one").expect("published");
    store.lease(&one.id, "pod").expect("leased");
    publish(&store, "img", b"two").expect("published");
    assert!(one.path.exists() && get(&store, &one.id.to_string()).is_none());
    publish(&store, "img", b"three").expect("published");
    store.release("pod").expect("released");
    assert_holds(root.path(), &store, &[("img", b"three")]);
}

#[test]
fn every_way_of_asking_gives_the_same_image() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let hex = id_of(b"one").hex().to_owned();
    publish(&store, "example.com/a", b"one").expect("published");
    publish(&store, "example.com/a:v2", b"one").expect("published");
    publish(&store, &format!("b@sha256:{hex}"), b"one").expect("published");
    publish(&store, "other", b"two").expect("published");
    let image = get(&store, "example.com/a").expect("there");
    assert_eq!(image.repo_tags, ["example.com/a:latest", "example.com/a:v2"]);
    assert_eq!(image.repo_digests, [format!("b@sha256:{hex}"), format!("example.com/a@sha256:{hex}")]);
    assert!(image.size > 0);
    for name in [
        "example.com/a:latest",
        "example.com/a:v2",
        &hex,
        &format!("sha256:{hex}"),
        &hex[..8],
        &format!("sha256:{}", &hex[..12]),
        &format!("example.com/a@sha256:{hex}"),
        &format!("example.com/a:v7@sha256:{hex}"),
        &format!("b@sha256:{hex}"),
    ] {
        assert_eq!(get(&store, name).as_ref(), Some(&image), "{name}");
    }
    for name in [
        "example.com/a:v3",
        "a",
        "b",
        "b:latest",
        &hex[..7],
        "Example",
        "",
        &format!("c@sha256:{hex}"),
        &format!("example.com/a@sha256:{}", "0".repeat(64)),
        &format!("sha512:{}", "0".repeat(128)),
        &"0".repeat(64),
    ] {
        assert_eq!(get(&store, name), None, "{name}");
    }
    // By one tag, all names of the image go.
    store.remove("example.com/a:v2", None, Losing::All).expect("removed");
    assert_holds(root.path(), &store, &[("other", b"two")]);
    store.remove("example.com/a:v2", None, Losing::All).expect("removed again");
}

#[test]
fn a_name_too_long_for_a_file_survives_a_restart() {
    let root = tempfile::tempdir().expect("a directory");
    let name = format!("example.com/{}:{}", "a/".repeat(120).trim_end_matches('/'), "t".repeat(128));
    publish(&open(root.path()), &name, b"one").expect("published");
    let store = open(root.path());
    assert_eq!(get(&store, &name).expect("there").repo_tags, [name]);
    assert!(store.findings().is_empty());
}

#[test]
fn the_directories_must_be_ours_alone() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("images");
    let failed = |path: &Path| Disk::open(path).map(|_| ()).expect_err("refused").to_string();
    let first = Disk::open(&path).expect("opened");
    let modes = |name: &str| fs::metadata(path.join(name)).expect("there").mode() & 0o7777;
    assert_eq!(["", "data", "links", "meta", "refs", "leases"].map(modes), [0o711, 0o700, 0o700, 0o700, 0o700, 0o700]);
    assert!(failed(&path).contains("in use by another process"));
    drop(first);
    fs::set_permissions(path.join("data"), fs::Permissions::from_mode(0o777)).expect("set");
    assert!(failed(&path).contains("data` must be a directory of the daemon's user"));
    // As earlier releases left it: nobody may pass until it is known who QEMU is.
    fs::set_permissions(path.join("data"), fs::Permissions::from_mode(0o711)).expect("set");
    let gid = fs::metadata(&path).expect("there").gid();
    Disk::open(&path).expect("opened").data.serve_to(gid).expect("served");
    assert_eq!(modes("data"), 0o710);
    Disk::open(&path).expect("opened");
    assert_eq!(modes("data"), 0o710, "machines go on over a restart");
    fs::set_permissions(path.join("data"), fs::Permissions::from_mode(0o755)).expect("set");
    Disk::open(&path).expect("opened");
    assert_eq!(modes("data"), 0o700);
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).expect("set");
    assert!(failed(&path).contains("must be a directory"));
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("set");
    fs::rename(path.join("links"), path.join("real")).expect("renamed");
    symlink("real", path.join("links")).expect("linked");
    assert!(failed(&path).contains("links` must be a directory"));
    symlink(&path, root.path().join("alias")).expect("linked");
    assert!(failed(&root.path().join("alias")).contains("alias` must be a directory"));
}

#[test]
fn a_promise_more_than_is_known_of_an_image_is_not_kept_by_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let (one, two) =
        (publish(&store, "a", b"one").expect("published"), publish(&store, "b", b"two").expect("published"));
    let sought = |hash: &str| Sought { hash: hash.to_owned(), covers: Cover::Content, foreign: None };
    let (first, second) = (sought(&one.id.to_string()), sought(&two.id.to_string()));
    let unknown = sought(&format!("sha512:{}", "ab".repeat(64)));
    for (all, expected) in [
        (vec![], None),
        (vec![first.clone()], Some(&one.id)),
        (vec![first.clone(), first.clone()], Some(&one.id)),
        (vec![second.clone()], Some(&two.id)),
        (vec![first.clone(), second.clone()], None),
        (vec![second, first.clone()], None),
        (vec![first.clone(), unknown.clone()], None),
        (vec![unknown, first], None),
    ] {
        assert_eq!(store.promised(&all, "any").as_ref(), expected, "{all:?}");
    }
}
