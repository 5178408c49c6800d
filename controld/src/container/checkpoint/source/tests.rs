//! Directories of checkpoints, of whoever runs the tests, as others leave them.

use std::os::unix::fs::symlink;

use common::Chain;
use tempfile::TempDir;

use super::super::manifest::tests::manifest;
use super::super::plan::{MEMORY, ROOT};
use super::*;

/// A checkpoint with a memory that can be restored, and a root disk.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().expect("tempdir"));
        fs::create_dir(bench.whole()).expect("made");
        for dir in [bench.0.path(), &bench.whole()] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).expect("ours");
        }
        let mut memory = b"LibvirtQemudSave".to_vec();
        for number in [2_u32, 100, 0, 0, 0] {
            memory.extend(number.to_ne_bytes());
        }
        memory.resize(HEAD + 100, 0);
        memory.extend(QEMUS);
        bench.write(MEMORY, &memory);
        bench.write(ROOT, b"abc");
        let part = |name: &str, of, bytes: usize, sha256: &str| PartMade {
            name: name.into(),
            of,
            bytes: bytes as u64,
            sha256: sha256.into(),
        };
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let files = vec![part(MEMORY, Of::Memory, memory.len(), ""), part(ROOT, Of::Root, 3, abc)];
        bench.says(&Manifest { files, ..manifest() });
        bench
    }

    fn whole(&self) -> PathBuf {
        self.0.path().join(WHOLE)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.whole().join(name), bytes).expect("written");
        fs::set_permissions(self.whole().join(name), fs::Permissions::from_mode(0o600)).expect("ours");
    }

    fn says(&self, manifest: &Manifest) {
        self.write(manifest::NAME, &serde_json::to_vec(manifest).expect("JSON"));
    }

    fn open(&self) -> Result<Source> {
        Source::open(&self.0.path().canonicalize().expect("there"))
    }

    fn refused(&self) -> String {
        Chain(&self.open().expect_err("refused")).to_string()
    }
}

#[test]
fn a_checkpoint_is_read_through_the_directory_that_was_opened() {
    let bench = Bench::new();
    let source = bench.open().expect("whole");
    fs::rename(bench.whole(), bench.0.path().join("elsewhere")).expect("moved");
    let (copy, wanted) = (tempfile::tempfile().expect("a file"), CancellationToken::new());
    source.copy(&Of::Root, &copy, &wanted).expect("copied");
    assert!(source.is_there(&Of::Root, &copy, &wanted).expect("read"));
    assert!(!source.is_there(&Of::Root, &tempfile::tempfile().expect("a file"), &wanted).expect("read"));
    assert_eq!(source.copy(&Of::Uefi, &copy, &wanted).expect_err("none").kind(), Kind::DataLoss);
}

#[test]
fn what_was_changed_since_is_damaged() {
    let bench = Bench::new();
    let wanted = CancellationToken::new();
    for (bytes, why) in [(b"abd".as_slice(), "SHA-256"), (b"abcd".as_slice(), "has 4 bytes, and had 3")] {
        bench.write(ROOT, bytes);
        let copy = tempfile::tempfile().expect("a file");
        let damaged = bench.open().expect("whole").copy(&Of::Root, &copy, &wanted).expect_err("changed");
        assert!(damaged.kind() == Kind::DataLoss && damaged.to_string().contains(why), "{damaged}");
    }
}

#[test]
fn what_others_may_write_to_or_put_in_its_place_is_refused() {
    type Change = fn(&Bench);
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("ours");
    let cases: [(Change, &str); 8] = [
        (
            |bench| fs::rename(bench.whole(), bench.0.path().join("checkpoint.partial")).expect("moved"),
            "no `checkpoint`",
        ),
        (
            |bench| {
                fs::rename(bench.whole(), bench.0.path().join("real")).expect("moved");
                symlink("real", bench.whole()).expect("linked");
            },
            "not opened",
        ),
        (|bench| fs::remove_file(bench.whole().join(manifest::NAME)).expect("removed"), "manifest not read"),
        (
            |bench| {
                fs::rename(bench.whole().join(MEMORY), bench.0.path().join("m")).expect("moved");
                symlink("../m", bench.whole().join(MEMORY)).expect("linked");
            },
            "not opened",
        ),
        (|bench| bench.write(manifest::NAME, &vec![b' '; fit::MAX_LEN + 1]), "larger than"),
        (|bench| bench.write(MEMORY, b"no memory"), "had 200"),
        (
            |bench| {
                let mut manifest = manifest();
                manifest.files =
                    vec![PartMade { name: "../m".into(), of: Of::Memory, bytes: 1, sha256: String::new() }];
                fs::write(bench.0.path().join("m"), "x").expect("written");
                bench.says(&manifest);
            },
            "no name of a file",
        ),
        (|bench| bench.says(&Manifest { files: Vec::new(), ..manifest() }), "lacks a file"),
    ];
    for (change, why) in cases {
        let bench = Bench::new();
        change(&bench);
        let refused = bench.refused();
        assert!(refused.contains(why), "{why}: {refused}");
    }
    for name in ["", MEMORY, manifest::NAME] {
        let bench = Bench::new();
        open(&bench.whole().join(name));
        let refused = bench.refused();
        assert!(refused.contains("others than root may write to"), "{name}: {refused}");
    }
    let bench = Bench::new();
    open(bench.0.path());
    assert!(bench.refused().contains("others than root may write to"));
}

#[test]
fn a_path_leads_somewhere_or_is_none() {
    let bench = Bench::new();
    let path = bench.0.path().to_str().expect("UTF-8");
    let real = bench.0.path().canonicalize().expect("there");
    assert_eq!(way(path).expect("there"), real);
    for (path, kind) in [("relative", Kind::Invalid), ("/x\n", Kind::Invalid), ("/no/where", Kind::State)] {
        assert_eq!(way(path).expect_err(path).kind(), kind);
    }
}
