//! Directories of checkpoints, made by whoever runs the tests.

use std::os::unix::fs::symlink;

use common::Chain;
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::umask;
use tempfile::TempDir;

use super::*;

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("listed");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").permissions().mode() & 0o777
}

/// Most bytes of a machine's memory.
const MOST: u64 = 1 << 20;

/// A directory, and a machine with one file in another one.
struct Bench {
    at: TempDir,
    machine: TempDir,
    wanted: CancellationToken,
}

impl Bench {
    fn new() -> Self {
        let [at, machine] = [(); 2].map(|()| tempfile::tempdir().expect("tempdir"));
        fs::write(machine.path().join("overlay"), b"layer").expect("written");
        Self { at, machine, wanted: CancellationToken::new() }
    }

    fn dir(&self) -> &Path {
        self.at.path()
    }

    fn half(&self) -> PathBuf {
        self.dir().join(PARTIAL)
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part { name: "root.qcow2".into(), of: Of::Root, path: self.machine.path().join("overlay") }]
    }

    fn begin(&self, id: Uuid) -> Result<Files> {
        let found = self.parts().into_iter().map(|part| fs::metadata(part.path).expect("there"));
        let open: Vec<_> = found.map(|found| FileId::of(found.dev(), found.ino())).collect();
        begin(self.dir(), id, self.parts(), &open, &self.wanted)
    }

    /// As QEMU does.
    fn remember(&self) {
        fs::write(self.half().join(MEMORY), "memory").expect("written");
    }

    fn clear(&self, id: Uuid) {
        clear(self.dir(), id, &["root.qcow2".to_owned()]).expect("cleared");
    }
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

#[test]
fn a_directory_is_empty_roots_alone_and_not_ours() {
    let dir = tempfile::tempdir().expect("tempdir");
    let real = dir.path().canonicalize().expect("there");
    let made = |name: &str| {
        let path = real.join(name);
        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("set");
        path
    };
    let (good, open, full, ours) = (made("good"), made("open"), made("full"), made("ours"));
    let half = made("half");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).expect("set");
    fs::write(full.join("x"), "").expect("written");
    fs::create_dir(half.join(PARTIAL)).expect("made");
    fs::create_dir(ours.join("in")).expect("made");
    fs::create_dir(good.join("lost+found")).expect("made");
    symlink(&good, real.join("link")).expect("linked");
    symlink(&ours, real.join("state")).expect("linked");
    let state = [real.join("state")];
    assert_eq!(judge(good.to_str().expect("text"), &state).expect("a place"), good);
    let text = |path: PathBuf| path.to_str().expect("text").to_owned();
    for (path, kind, why) in [
        (text(open), Kind::State, "others than root"),
        (text(full.clone()), Kind::State, "not empty: there is `x`"),
        (text(half), Kind::State, "another checkpoint is being made"),
        (text(full.join("x")), Kind::State, "no directory"),
        (text(real.join("link")), Kind::State, "no directory"),
        (text(real.join("gone")), Kind::State, "not there"),
        (text(ours.join("in")), Kind::Invalid, "its own files"),
        (text(good.join("../ours/in")), Kind::Invalid, "its own files"),
        ("relative".into(), Kind::Invalid, "absolute"),
        (String::new(), Kind::Invalid, "absolute"),
        ("/a\nb".into(), Kind::Invalid, "control"),
        ("/a\0b".into(), Kind::Invalid, "control"),
        (format!("/{}", "a".repeat(MAX_PATH)), Kind::Invalid, "3072 bytes"),
    ] {
        let refused = judge(&path, &state).expect_err(&path);
        assert!(refused.kind() == kind && refused.to_string().contains(why), "{path}: {refused}");
    }
}

#[test]
fn a_path_leads_through_links_but_not_by_its_last() {
    let dir = tempfile::tempdir().expect("tempdir");
    let real = dir.path().canonicalize().expect("there");
    fs::create_dir(real.join("there")).expect("made");
    symlink(real.join("there"), real.join("link")).expect("linked");
    let of = |path: &str| way(real.join(path).to_str().expect("text"));
    let text = |path: &str| real.join(path).to_str().expect("text").to_owned();
    assert_eq!(of("link/new").expect("it leads somewhere"), text("there/new"));
    assert_eq!(of("link").expect("it leads somewhere"), text("link"));
    assert_eq!(of("link/..").expect("it leads somewhere"), real.to_str().expect("text"));
    for (path, kind) in [("gone/new", Kind::State), ("a\nb", Kind::Invalid)] {
        assert_eq!(of(path).expect_err(path).kind(), kind, "{path}");
    }
    assert_eq!(way("relative").expect_err("relative").kind(), Kind::Invalid);
}

#[test]
fn what_broke_off_goes_and_nothing_else() {
    let bench = Bench::new();
    let files = bench.begin(id(1)).expect("begun");
    files.copy(&bench.wanted).expect("copied");
    assert_eq!(names(bench.dir()), [PARTIAL]);
    assert_eq!(names(&bench.half()), [&*id(1).to_string(), MEMORY, "root.qcow2"]);
    assert_eq!(fs::read(bench.half().join("root.qcow2")).expect("read"), b"layer");
    assert_eq!(files.memory(), bench.half().join(MEMORY));
    assert_eq!(files.bytes().expect("known").1, 5);

    bench.clear(id(2));
    assert_eq!(names(&bench.half()).len(), 3, "it is another's");
    fs::write(bench.dir().join("theirs"), "").expect("written");
    bench.clear(id(1));
    assert_eq!(names(bench.dir()), ["theirs"]);
    bench.clear(id(1));
    clear(&bench.dir().join("gone"), id(1), &[]).expect("a directory that is not there");
    clear(&bench.dir().join("theirs"), id(1), &[]).expect("nor one that is none");
}

#[test]
fn a_checkpoint_is_whole_at_once_and_nobodys_to_remove_then() {
    let bench = Bench::new();
    let files = bench.begin(id(1)).expect("begun");
    files.copy(&bench.wanted).expect("copied");
    let refused = files.finish(MOST, &bench.wanted).expect_err("libvirt has written elsewhere");
    assert!(refused.to_string().contains("wrote no memory"), "{refused}");
    bench.remember();
    let refused = files.finish(5, &bench.wanted).expect_err("a machine is not so large");
    assert!(refused.to_string().contains("more than 5 bytes"), "{refused}");
    let parts = files.finish(MOST, &bench.wanted).expect("finished");
    assert_eq!(
        parts.iter().map(|part| (&*part.name, part.bytes)).collect::<Vec<_>>(),
        [(MEMORY, 6), ("root.qcow2", 5)]
    );
    files.publish(b"{}", &bench.wanted).expect("published");
    assert_eq!(names(bench.dir()), [WHOLE]);
    let whole = bench.dir().join(WHOLE);
    assert_eq!(names(&whole), [manifest::NAME, MEMORY, "root.qcow2"]);
    // As after a kill in between.
    fs::write(whole.join(id(1).to_string()), "").expect("written");
    bench.clear(id(1));
    assert_eq!(names(&whole), [manifest::NAME, MEMORY, "root.qcow2"]);
}

#[test]
fn two_at_one_directory_do_not_touch_each_others_files() {
    let bench = Bench::new();
    let first = bench.begin(id(1)).expect("begun");
    let refused = bench.begin(id(2)).expect_err("there is one");
    assert!(refused.kind() == Kind::State && refused.to_string().contains(PARTIAL), "{refused}");
    bench.clear(id(2));
    first.copy(&bench.wanted).expect("copied");
    bench.remember();
    first.finish(MOST, &bench.wanted).expect("all is there");
    first.publish(b"{}", &bench.wanted).expect("published");
    let refused = bench.begin(id(3)).expect_err("there is one");
    assert!(refused.to_string().contains("there is `checkpoint`"), "{refused}");
    bench.clear(id(3));
    assert_eq!(names(bench.dir()), [WHOLE]);
}

#[test]
fn what_came_or_went_meanwhile_is_no_checkpoint_and_stays() {
    let bench = Bench::new();
    let files = bench.begin(id(1)).expect("begun");
    fs::write(bench.dir().join("theirs"), "").expect("written");
    let refused = files.publish(b"{}", &bench.wanted).expect_err("it is not alone");
    assert!(refused.to_string().contains("`theirs`"), "{refused}");
    bench.clear(id(1));
    assert_eq!(names(bench.dir()), ["theirs"]);

    let bench = Bench::new();
    let files = bench.begin(id(1)).expect("begun");
    bench.remember();
    fs::remove_file(bench.half().join(MEMORY)).expect("removed");
    bench.remember();
    let refused = files.finish(MOST, &bench.wanted).expect_err("it is another file");
    assert!(!refused.to_string().contains("another file system"), "{refused}");

    let bench = Bench::new();
    let files = bench.begin(id(1)).expect("begun");
    let (moved, dir) = (bench.machine.path().join("moved"), bench.dir().to_owned());
    fs::rename(&dir, &moved).expect("moved");
    fs::create_dir_all(dir.join(PARTIAL)).expect("made");
    let refused = files.publish(b"{}", &bench.wanted).expect_err("another directory");
    assert!(refused.to_string().contains("another directory"), "{refused}");
    assert_eq!(names(&dir), [PARTIAL]);
}

#[test]
fn files_are_roots_alone_whatever_the_umask() {
    let bench = Bench::new();
    for mask in [0, 0o277] {
        // Of this thread alone, which ends.
        let begun = std::thread::scope(|scope| {
            let begin = scope.spawn(|| {
                unshare(CloneFlags::CLONE_FS).expect("a umask of its own");
                umask(nix::sys::stat::Mode::from_bits_truncate(mask));
                bench.begin(id(1))
            });
            begin.join().expect("no panic")
        });
        begun.expect("begun");
        let modes = [bench.half(), bench.half().join(MEMORY), bench.half().join("root.qcow2")].map(|path| mode(&path));
        assert_eq!(modes, [0o700, 0o600, 0o600], "{mask:o}");
        bench.clear(id(1));
    }
}

#[test]
fn what_is_not_wanted_any_more_makes_no_file() {
    let bench = Bench::new();
    let files = bench.begin(id(1)).expect("begun");
    bench.wanted.cancel();
    assert_eq!(files.publish(b"{}", &bench.wanted).expect_err("late").kind(), Kind::State);
    bench.clear(id(1));
    bench.begin(id(2)).expect_err("late");
    assert!(names(bench.dir()).is_empty());
}

#[test]
fn a_file_that_is_a_link_is_not_followed() {
    let bench = Bench::new();
    let (overlay, other) = (bench.machine.path().join("overlay"), bench.machine.path().join("other"));
    fs::rename(&overlay, &other).expect("moved");
    symlink(&other, &overlay).expect("linked");
    assert_eq!(bench.begin(id(1)).expect_err("a link").kind(), Kind::State);
}

#[test]
fn a_file_that_qemu_does_not_have_open_is_not_copied() {
    let bench = Bench::new();
    let refused = begin(bench.dir(), id(1), bench.parts(), &[], &bench.wanted).expect_err("another file");
    assert!(refused.kind() == Kind::State && Chain(&refused).to_string().contains("that QEMU has open"), "{refused}");
    bench.clear(id(1));
}
