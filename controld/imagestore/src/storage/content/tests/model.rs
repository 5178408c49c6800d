//! Random work against a model of a few maps: whatever is done, and wherever it is cut off, the disk and the answers
//! are what the model says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 3] = ["a", "b:v1", "example.com/c"];
const HANDLERS: [&str; 2] = ["", "arm"];
const HOLDERS: [&str; 2] = ["pod-1", "pod-2"];
const CONTENTS: [&[u8]; 4] = [b"zero", b"one", b"two", b"three"];
const CUT: [Step; 6] = [Step::Data, Step::Meta, Step::Ref, Step::Link, Step::Retired, Step::Displaced];

#[derive(Debug, Clone)]
enum Op {
    Pull {
        handler: usize,
        name: usize,
        content: usize,
    },
    /// The same, cut off behind a step; then a restart.
    Cut {
        handler: usize,
        name: usize,
        content: usize,
        step: usize,
    },
    Remove {
        handler: Option<usize>,
        name: usize,
    },
    Gc {
        orphans: bool,
    },
    Lease {
        holder: usize,
        content: usize,
    },
    Release {
        holder: usize,
    },
    /// A byte of the file turns, and somebody verifies.
    Rot {
        content: usize,
    },
    /// A restart, with or without the second handler in the configuration.
    Restart {
        second: bool,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    names: BTreeMap<(usize, usize), usize>,
    leases: BTreeMap<usize, BTreeSet<usize>>,
    present: BTreeSet<usize>,
}

impl Model {
    fn settle(&mut self) {
        let leased = self.leases.values().flatten();
        let needed: BTreeSet<usize> = self.names.values().chain(leased).copied().collect();
        self.present.retain(|content| needed.contains(content));
    }

    fn pull(&mut self, handler: usize, name: usize, content: usize) {
        self.names.insert((handler, name), content);
        self.present.insert(content);
        self.settle();
    }

    fn remove(&mut self, only: Option<usize>, name: usize) {
        let counts = |handler: usize| only.is_none_or(|only| only == handler);
        let meant: BTreeSet<usize> =
            self.names.iter().filter(|((h, n), _)| *n == name && counts(*h)).map(|(_, content)| *content).collect();
        self.names.retain(|(handler, _), content| !(counts(*handler) && meant.contains(content)));
        self.settle();
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (handler, name, content) = (0..HANDLERS.len(), 0..NAMES.len(), 0..CONTENTS.len());
    let pull = (handler.clone(), name.clone(), content.clone());
    let op = prop_oneof![
        5 => pull.clone().prop_map(|(handler, name, content)| Op::Pull { handler, name, content }),
        3 => (pull, 0..CUT.len()).prop_map(|((handler, name, content), step)| Op::Cut { handler, name, content, step }),
        3 => (prop::option::of(handler), name).prop_map(|(handler, name)| Op::Remove { handler, name }),
        1 => any::<bool>().prop_map(|orphans| Op::Gc { orphans }),
        2 => (0..HOLDERS.len(), content.clone()).prop_map(|(holder, content)| Op::Lease { holder, content }),
        1 => (0..HOLDERS.len()).prop_map(|holder| Op::Release { holder }),
        1 => content.prop_map(|content| Op::Rot { content }),
        2 => any::<bool>().prop_map(|second| Op::Restart { second }),
    ];
    prop::collection::vec(op, 1..20)
}

/// A content store that can be told to break off behind a step.
struct Bed {
    root: tempfile::TempDir,
    store: Option<Arc<ContentStore>>,
    armed: Arc<AtomicUsize>,
    second: bool,
}

impl Bed {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let mut bed = Self { root, store: None, armed: Arc::new(AtomicUsize::new(usize::MAX)), second: true };
        bed.restart();
        bed
    }

    fn restart(&mut self) {
        self.store = None;
        let armed = self.armed.clone();
        let hook = move |reached: Step| {
            let wanted = CUT.get(armed.load(Ordering::Relaxed));
            assert!(wanted != Some(&reached), "cut");
            Ok(())
        };
        let mut known = known();
        if !self.second {
            known.platforms.retain(|handler, _| handler.is_default());
        }
        let disk = Disk::open(&self.root.path().join("images")).expect("opened");
        self.store = Some(Arc::new(ContentStore::open(disk, known, KEEP, Box::new(hook)).expect("scanned")));
    }

    fn store(&self) -> &Arc<ContentStore> {
        self.store.as_ref().expect("open")
    }

    fn pull(&self, handler: usize, name: usize, content: usize) -> Result<(), DiskError> {
        let store = self.store();
        let hold = store.keep(receive(store, CONTENTS[content]), INFO.into())?;
        let key = key(HANDLERS[handler], NAMES[name]);
        store.reuse(&key, hold.id(), Origin::default()).map(drop)
    }

    fn check(&self, model: &Model) {
        let store = self.store();
        let images = self.root.path().join("images");
        let hexes = |contents: &BTreeSet<usize>| -> BTreeSet<String> {
            contents.iter().map(|content| id_of(CONTENTS[*content]).hex().to_owned()).collect()
        };
        // Nothing that is needed is gone, nothing else is left, and all of it is what its name says.
        let stored: BTreeSet<String> = fs::read_dir(images.join("data"))
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        assert_eq!(stored, hexes(&model.present));
        for hex in &stored {
            let bytes = fs::read(images.join("data").join(hex)).expect("read");
            assert_eq!(id_of(&bytes).hex(), hex);
        }
        let known: Vec<usize> = if self.second { vec![0, 1] } else { vec![0] };
        for (handler, name) in known.iter().flat_map(|handler| (0..NAMES.len()).map(|name| (*handler, name))) {
            let Key { handler: own, .. } = key(HANDLERS[handler], NAMES[name]);
            let found = store.get(NAMES[name], &own).map(|image| image.id);
            assert_eq!(found, model.names.get(&(handler, name)).map(|content| id_of(CONTENTS[*content])));
        }
        let listed: Vec<(ImageId, String)> =
            store.list(None).iter().map(|image| (image.id.clone(), image.handler.clone())).collect();
        let expected: BTreeSet<(ImageId, String)> = model
            .names
            .iter()
            .filter(|((handler, _), _)| known.contains(handler))
            .map(|((handler, _), content)| (id_of(CONTENTS[*content]), ["vm", "arm"][*handler].to_owned()))
            .collect();
        let mut sorted = listed.clone();
        sorted.sort();
        assert_eq!(sorted, expected.into_iter().collect::<Vec<_>>(), "each id once for each handler");
        // A link for each name, each of the one form and to a file that is there.
        let links = |dir: PathBuf| fs::read_dir(dir).map_or(0, |entries| entries.count());
        for (handler, dir) in ["links", "handlers/arm/links"].iter().enumerate() {
            let names = model.names.keys().filter(|(of, _)| *of == handler).count();
            assert_eq!(links(images.join(dir)), names, "{dir}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_what_the_model_says(ops in ops()) {
        let mut bed = Bed::new();
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Pull { handler, name, content } if bed.second || handler == 0 => {
                    bed.pull(handler, name, content).expect("pulled");
                    model.pull(handler, name, content);
                }
                Op::Cut { handler, name, content, step } if bed.second || handler == 0 => {
                    bed.armed.store(step, Ordering::Relaxed);
                    let hook = std::panic::take_hook();
                    std::panic::set_hook(Box::new(|_| {}));
                    let done = catch_unwind(AssertUnwindSafe(|| bed.pull(handler, name, content)));
                    std::panic::set_hook(hook);
                    bed.armed.store(usize::MAX, Ordering::Relaxed);
                    if done.is_ok() || matches!(CUT[step], Step::Link | Step::Retired | Step::Displaced) {
                        // Its name was bound when it was cut off.
                        model.pull(handler, name, content);
                    } else if model.leases.values().flatten().any(|leased| *leased == content) {
                        // What rotted and is leased yet is there again, although no name leads to it.
                        model.present.insert(content);
                    }
                    bed.restart();
                }
                Op::Remove { handler, name } if bed.second || handler != Some(1) => {
                    let only = handler.map(|handler| Handler::named(HANDLERS[handler]).unwrap_or_default());
                    bed.store().remove(NAMES[name], only.as_ref(), Losing::All).expect("removed");
                    model.remove(handler, name);
                }
                Op::Gc { orphans } => {
                    let report = bed.store().gc(GcOptions { orphan_handlers: orphans, ..GcOptions::default() });
                    let present = model.present.len();
                    if orphans && !bed.second {
                        model.names.retain(|(handler, _), _| *handler == 0);
                        model.settle();
                    }
                    // What nobody needs goes at once, but for what only such names needed.
                    let gone = present - model.present.len();
                    prop_assert_eq!(report.expect("collected").images.count, gone as u64);
                }
                Op::Lease { holder, content } => {
                    let leased = bed.store().lease(&id_of(CONTENTS[content]), HOLDERS[holder]).expect("asked");
                    prop_assert_eq!(leased, model.present.contains(&content));
                    if leased {
                        model.leases.entry(holder).or_default().insert(content);
                    }
                }
                Op::Release { holder } => {
                    bed.store().release(HOLDERS[holder]).expect("released");
                    model.leases.remove(&holder);
                    model.settle();
                }
                Op::Rot { content } => {
                    let id = id_of(CONTENTS[content]);
                    let path = bed.root.path().join("images/data").join(id.hex());
                    if let Ok(mut bytes) = fs::read(&path) {
                        bytes[0] ^= 1;
                        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
                        fs::write(&path, bytes).expect("written");
                        let verified = bed.store().verify(&id).expect("read").expect("there");
                        let corrupt = matches!(verified.verdict, Verdict::Corrupt { .. });
                        prop_assert!(corrupt, "{:?}", verified);
                    }
                    model.names.retain(|_, of| *of != content);
                    model.present.remove(&content);
                }
                Op::Restart { second } => {
                    bed.second = second;
                    bed.restart();
                }
                Op::Pull { .. } | Op::Cut { .. } | Op::Remove { .. } => {}
            }
            bed.check(&model);
        }
    }
}
