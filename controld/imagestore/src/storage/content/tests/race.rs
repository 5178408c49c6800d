//! Several threads at one content store: whatever they get in each other's way with, who holds an image has it, and when all are
//! done the disk, the index and what a start would make of the disk are one.
//!
//! What each thread does is fixed by its seed; how they interleave is the machine's affair. The hook gives way at every
//! step, so that they do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak, mpsc};

use super::*;

const THREADS: u64 = 6;
const WORKS: usize = 40;
const ROUNDS: u64 = 2;
/// A round takes a second or two, alone.
const ROUND_DEADLINE: Duration = Duration::from_secs(120);
const NAMES: [&str; 3] = ["a", "b:v1", "example.com/c"];
/// The last two stand on the first.
const CONTENTS: usize = 5;
const LAYERS: std::ops::Range<usize> = 3..5;

/// Large enough that hashing it takes longer than a change of the index.
fn content(number: usize) -> Vec<u8> {
    vec![b'0' + u8::try_from(number).expect("small"); 200_000]
}

/// One of them.
struct Worker {
    store: Arc<ContentStore>,
    holder: String,
    seed: u64,
}

impl Worker {
    /// A number below `end`, by a linear congruential generator (Knuth's MMIX constants).
    fn below(&mut self, end: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.seed >> 33).expect("31 bits") % end
    }

    fn work(&mut self) {
        for _ in 0..WORKS {
            let (name, number) = (NAMES[self.below(NAMES.len())], self.below(CONTENTS));
            let id = id_of(&content(number));
            let store = self.store.clone();
            match self.below(12) {
                0..4 => self.pull(name, number),
                4..6 => drop(store.remove(name, None, Losing::All).expect("removed")),
                6 => drop(store.remove(&id.to_string(), None, Losing::All).expect("removed")),
                7 => drop(store.gc(GcOptions { partials: true, ..GcOptions::default() }).expect("collected")),
                8 | 9 => {
                    let verified = store.verify(&id).expect("read");
                    let sound = verified.as_ref().is_none_or(|verified| verified.verdict == Verdict::Sound);
                    assert!(sound, "nobody harmed it: {verified:?}");
                }
                10 => {
                    let by_digest = format!("{}@{id}", name.trim_end_matches(":v1"));
                    drop(store.reuse(&key("", &by_digest), &id, Origin::default()).expect("bound"));
                }
                _ => self.lease(&id, number),
            }
        }
        self.store.release(&self.holder).expect("released");
    }

    fn pull(&mut self, name: &str, number: usize) {
        let received = receive(&self.store, &content(number));
        let hold = if LAYERS.contains(&number) {
            let parent = Parent { named: "base:1".into(), format: Some(DiskFormat::Raw), id: None };
            let top = self.store.keep(received, Facts { parent: Some(parent), ..INFO.into() }).expect("stored");
            let base = self.store.keep(receive(&self.store, &content(0)), INFO.into()).expect("stored");
            self.store.stand(top.id(), base.id()).expect("written").expect("it fits");
            assert_eq!(self.store.below(top.id()).expect("whole").len(), 1);
            top
        } else {
            self.store.keep(received, INFO.into()).expect("stored")
        };
        self.assert_is_there(hold.id(), number);
        let image = self.store.reuse(&key("", name), hold.id(), Origin::default()).expect("bound").expect("held");
        assert_eq!(image.id, id_of(&content(number)));
        self.assert_is_there(hold.id(), number);
    }

    /// Takes a lease, and gives up those it has now and then.
    fn lease(&mut self, id: &ImageId, number: usize) {
        if self.store.lease(id, &self.holder).expect("written") {
            self.assert_is_there(id, number);
        }
        if self.below(3) == 0 {
            self.store.release(&self.holder).expect("released");
        }
    }

    /// What is held or leased can be read, with all below it.
    fn assert_is_there(&self, id: &ImageId, number: usize) {
        let data = self.store.disk().data.path().to_owned();
        assert!(fs::read(data.join(id.hex())).expect("there") == content(number), "other bytes");
        // Before somebody has put it on its base, a layer can be leased as well.
        for layer in self.store.below(id).into_iter().flatten() {
            assert!(fs::read(layer.path).expect("there") == content(0), "other bytes below");
        }
    }
}

#[test]
fn nobody_pulls_the_shelf_from_under_another() {
    for round in 0..ROUNDS {
        let root = tempfile::tempdir().expect("a directory");
        let store = open_with(
            root.path(),
            Box::new(|_| {
                std::thread::yield_now();
                Ok(())
            }),
        );
        let (done, all) = mpsc::channel();
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (holder, done) = (format!("pod-{number}"), done.clone());
                let mut worker = Worker { store: store.clone(), holder, seed: round * THREADS + number + 1 };
                std::thread::spawn(move || {
                    worker.work();
                    drop(worker);
                    let _ = done.send(());
                })
            })
            .collect();
        drop(done);
        // Its other ends go with the threads, however they end.
        loop {
            match all.recv_timeout(ROUND_DEADLINE) {
                Ok(()) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("round {round}: not done within {ROUND_DEADLINE:?}"),
            }
        }
        for thread in threads {
            thread.join().expect("no thread failed");
        }
        assert_is_one(root.path(), store);
    }
}

/// The invariants of a content store at rest.
fn assert_is_one(root: &Path, store: Arc<ContentStore>) {
    let index = std::mem::take(&mut *store.write());
    let images = root.join("images");
    let mut expected: Vec<String> = vec!["lock".into()];
    // No name without a file that is what its name says.
    for (key, bound) in &index.refs {
        assert!(index.images[&bound.id].names.contains_key(key), "{key:?}");
        let link = links::link_name(&key.image);
        let target = fs::read_link(images.join("links").join(&link)).expect("a link");
        assert_eq!(target, Path::new("../data").join(bound.id.hex()));
        expected.extend([format!("links/{link}"), format!("refs/_default/{link}.json")]);
    }
    // No file without somebody who needs it.
    assert_eq!((&index.holds.len(), &index.leases.len()), (&0, &0));
    assert_eq!(index.unused(), [], "nobody needs these");
    for id in index.images.keys() {
        assert_eq!(id_of(&fs::read(images.join("data").join(id.hex())).expect("there")), *id);
        expected.extend([format!("data/{}", id.hex()), format!("meta/{}.json", id.hex())]);
    }
    expected.sort();
    assert_eq!(tree(root).into_keys().collect::<Vec<_>>(), expected);
    // A start finds the same, and nothing to sweep.
    drop(store);
    let again = open(root);
    assert_eq!(again.findings(), []);
    let found = again.read();
    assert_eq!(format!("{:#?}", found.images), format!("{:#?}", index.images));
    assert_eq!(format!("{:#?}", found.refs), format!("{:#?}", index.refs));
}

/// A content store at which `work` is done, once, behind that step. `work` may change it, as the step is not under the lock.
fn interrupted(root: &Path, at: Step, work: impl Fn(&Arc<ContentStore>) + Send + Sync + 'static) -> Arc<ContentStore> {
    let (own, left) = (Arc::new(OnceLock::<Weak<ContentStore>>::new()), AtomicBool::new(true));
    let behind = own.clone();
    let hook = move |reached: Step| {
        if reached == at && left.swap(false, Ordering::Relaxed) {
            work(&behind.get().and_then(Weak::upgrade).expect("set"));
        }
        Ok(())
    };
    let store = open_with(root, Box::new(hook));
    own.set(Arc::downgrade(&store)).expect("once");
    store
}

/// Between the judgement and the name, somebody puts another file where the part is.
#[test]
fn a_part_that_was_swapped_is_not_published() {
    let root = tempfile::tempdir().expect("a directory");
    let store = open(root.path());
    let received = receive(&store, b"judged");
    let (part, other) = (received.part.path(), root.path().join("other"));
    fs::write(&other, b"other!").expect("written");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o444)).expect("set");
    fs::rename(&other, &part).expect("swapped");
    let refused = store.keep(received, INFO.into()).expect_err("another file");
    assert!(matches!(refused, DiskError::Obstructed { ref path } if *path == part), "{refused}");
    assert_holds(root.path(), &store, &[]);
}

/// Two pulls find a broken file at once. The slower of them must not put aside what the other has brought.
#[test]
fn a_verdict_is_on_the_file_that_was_read() {
    for what_happened in ["broken", "gone"] {
        let root = tempfile::tempdir().expect("a directory");
        let store = interrupted(root.path(), Step::Hashed, |store| {
            // Whoever was faster, with a file of the same size.
            let id = id_of(b"image");
            store.remove(&id.to_string(), None, Losing::All).expect("removed");
            publish(store, "img", b"image").expect("pulled");
        });
        let image = publish(&store, "img", b"image").expect("pulled");
        fs::remove_file(&image.path).expect("removed");
        if what_happened == "broken" {
            fs::write(&image.path, b"imagE").expect("written");
            fs::set_permissions(&image.path, fs::Permissions::from_mode(0o444)).expect("set");
        }
        let verified = store.verify(&image.id).expect("read").expect("there");
        assert_eq!(verified.verdict, Verdict::Sound, "{what_happened}");
        assert_holds(root.path(), &store, &[("img", b"image")]);
    }
}

/// A layer that comes back for work that does not name it goes again.
#[test]
fn what_came_back_for_nothing_goes() {
    let root = tempfile::tempdir().expect("a directory");
    let failing = Arc::new(AtomicBool::new(false));
    let fails = failing.clone();
    let hook = move |reached: Step| match reached == Step::Retired && fails.swap(false, Ordering::Relaxed) {
        true => Err(DiskError::Obstructed { path: "stopped".into() }),
        false => Ok(()),
    };
    let store = open_with(root.path(), Box::new(hook));
    let base = store.keep(receive(&store, b"base"), INFO.into()).expect("stored");
    let parent = Parent { named: "base:1".into(), format: Some(DiskFormat::Raw), id: None };
    let top = store.keep(receive(&store, b"top"), Facts { parent: Some(parent), ..INFO.into() }).expect("stored");
    store.stand(top.id(), base.id()).expect("written").expect("it fits");
    store.reuse(&key("", "img"), top.id(), Origin::default()).expect("bound").expect("held");
    let id = top.id().clone();
    drop((base, top));
    failing.store(true, Ordering::Relaxed);
    store.remove("img", None, Losing::All).expect_err("stopped on its way out");
    drop(store.hold_trusted(&id).expect("looked").expect("brought back"));
    assert_holds(root.path(), &store, &[]);
}
