use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use super::unpack::{Unpacked, unpack};
use super::*;

const LIMIT: u64 = 1 << 20;

/// A directory with what archives have trouble with.
fn tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    let deep = tree.join("d".repeat(90)).join("e".repeat(90));
    fs::create_dir_all(&deep).expect("directories");
    fs::write(deep.join("long"), "a").expect("file");
    fs::write(tree.join("run"), vec![b'x'; 70_000]).expect("file");
    fs::set_permissions(tree.join("run"), fs::Permissions::from_mode(0o755)).expect("mode");
    fs::write(tree.join("-empty\n"), "").expect("file");
    symlink("/etc/passwd", tree.join("link")).expect("link");
    symlink("t".repeat(150), tree.join("longlink")).expect("link");
    drop(std::os::unix::net::UnixListener::bind(tree.join("socket")).expect("socket"));
    tree
}

fn packed(tree: &Path, name: &str) -> (Vec<u8>, Vec<PathBuf>) {
    let mut archive = Vec::new();
    let skipped = pack::pack(tree, name.as_ref(), &mut archive).expect("packed");
    (archive, skipped)
}

#[test]
fn tar_reads_what_we_pack() {
    let dir = tempfile::tempdir().expect("directory");
    let tree = tree(dir.path());
    let (archive, skipped) = packed(&tree, "copy");
    assert_eq!(skipped, [tree.join("socket")]);
    fs::remove_file(tree.join("socket")).expect("socket");
    let to = tempfile::tempdir().expect("directory");
    let mut tar =
        Command::new("tar").args(["-xmf", "-", "-C"]).arg(to.path()).stdin(Stdio::piped()).spawn().expect("tar");
    tar.stdin.take().expect("stdin").write_all(&archive).expect("written");
    assert!(tar.wait().expect("tar").success());
    let differs = Command::new("diff").args(["-r", "--no-dereference"]).arg(&tree).arg(to.path().join("copy")).output();
    let differs = differs.expect("diff");
    assert!(differs.status.success(), "{}", String::from_utf8_lossy(&differs.stdout));
    let mode = fs::metadata(to.path().join("copy/run")).expect("file").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn what_tar_packs_is_unpacked_without_links() {
    let dir = tempfile::tempdir().expect("directory");
    tree(dir.path());
    let tar = Command::new("tar").args(["-cf", "-", "-C"]).arg(dir.path()).arg("./tree").output().expect("tar");
    // As what is not there, into what is, and over that.
    for copy in ["to", "to/tree", "to/tree"] {
        let to = dir.path().join("to");
        let mut unpacked = unpack(tar.stdout.as_slice(), "tree", &to, LIMIT).expect("unpacked");
        unpacked.skipped.sort();
        assert_eq!(
            unpacked,
            Unpacked { entries: 6, skipped: vec!["./tree/link".into(), "./tree/longlink".into()], unnamed: 0 }
        );
        let to = dir.path().join(copy);
        let deep = to.join("d".repeat(90)).join("e".repeat(90));
        assert_eq!(fs::read(deep.join("long")).expect("file"), b"a");
        assert_eq!(fs::read(to.join("run")).expect("file"), vec![b'x'; 70_000]);
        assert_eq!(fs::metadata(to.join("run")).expect("file").permissions().mode() & 0o777, 0o755);
        assert!(!to.join("link").exists() && to.join("-empty\n").exists());
    }
    assert!(!dir.path().join("to/tree/tree").exists());
    // What is in it, without itself.
    let all = Command::new("tar").args(["-cf", "-", "-C"]).arg(dir.path().join("to/tree")).arg("./.").output();
    let all = all.expect("tar").stdout;
    let to = dir.path().join("again");
    for _ in 0..2 {
        assert_eq!(unpack(all.as_slice(), ".", &to, LIMIT).expect("unpacked").entries, 6);
        assert_eq!(fs::read_dir(&to).expect("directory").count(), 3);
    }
}

/// What tar makes of a directory.
fn tarred(dir: &Path, options: &[&str]) -> Vec<u8> {
    let mut tar = Command::new("tar");
    tar.args(options).args(["-cf", "-", "-C"]).arg(dir).arg("./tree");
    tar.output().expect("tar").stdout
}

#[test]
fn another_name_of_a_file_is_a_copy_of_it() {
    let dir = tempfile::tempdir().expect("directory");
    let tree = dir.path().join("tree");
    let long = format!("{}/{}", "d".repeat(90), "e".repeat(90));
    fs::create_dir_all(tree.join(&long)).expect("directory");
    fs::write(tree.join(&long).join("first"), "content").expect("file");
    fs::hard_link(tree.join(&long).join("first"), tree.join("z")).expect("link");
    for format in ["--format=gnu", "--format=pax"] {
        let to = dir.path().join(format);
        // As what is not there, and into what is.
        for copy in [to.clone(), to.join("tree")] {
            let unpacked = unpack(tarred(dir.path(), &[format]).as_slice(), "tree", &to, LIMIT).expect(format);
            assert_eq!((unpacked.entries, unpacked.skipped.len()), (5, 0), "{format}");
            for name in [format!("{long}/first"), "z".into()] {
                assert_eq!(fs::read(copy.join(&name)).expect("file"), b"content", "{format} {name}");
            }
        }
    }
    // The link leads out of what was asked for.
    let outside = tarred(dir.path(), &["--transform=flags=h;s,.*,other/x,"]);
    let error = unpack(outside.as_slice(), "tree", &dir.path().join("to"), LIMIT).expect_err("a stranger");
    assert!(matches!(error, CtlError::Copy(CopyError::Stranger(_))), "{error}");
}

/// What two names of a file, `a` and `b`, become that come into `here`, whose `tree` has a `secret`; `target` is what the guest says
/// `b` is another name of.
fn linked(here: &Path, target: &str) -> CtlError {
    let dir = tempfile::tempdir().expect("directory");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("directory");
    fs::write(tree.join("a"), "hostile").expect("file");
    fs::hard_link(tree.join("a"), tree.join("b")).expect("link");
    let target = format!("--transform=flags=RSh;s,/a$,/{target},");
    let archive = tarred(dir.path(), &["--sort=name", "-P", &target]);
    unpack(archive.as_slice(), "tree", here, LIMIT).expect_err("a hostile link")
}

#[test]
fn a_link_is_to_what_came_before_it_and_over_nothing() {
    let here = tempfile::tempdir().expect("directory");
    let tree = here.path().join("tree");
    fs::create_dir(&tree).expect("directory");
    let secret = tree.join("secret");
    fs::write(&secret, "mine").expect("file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("mode");
    let mut told = Vec::new();
    for target in ["secret", "absent", "../tree/secret"] {
        told.push(linked(here.path(), target));
        assert!(!tree.join("b").exists(), "{target}");
    }
    fs::write(tree.join("b"), "mine").expect("file");
    told.push(linked(here.path(), "a"));
    for kept in ["secret", "b"] {
        assert_eq!(fs::read(tree.join(kept)).expect(kept), b"mine", "{kept}");
    }
    let told: Vec<_> = told.iter().map(|error| common::Chain(error).to_string()).collect();
    insta::assert_snapshot!(told.join("\n").replace(here.path().to_str().expect("UTF-8"), "DIR"), @r"
    the guest sends `./tree/b` as another name of `./tree/secret`, which it has not sent; nothing more is taken from it
    failed to open `DIR/tree/absent`: No such file or directory (os error 2)
    the guest sends `./tree/../tree/secret`, which was not asked for; nothing more is taken from it
    `DIR/tree/b` is there already, and the guest sends it as another name of a file (a hard link), which goes over nothing; remove it, or copy to where there is nothing yet
    ");
}

/// As the guest that is asked for a file answers with a directory.
#[test]
fn a_directory_never_spreads_over_what_is_there() {
    let here = tempfile::tempdir().expect("directory");
    fs::create_dir(here.path().join("f.d")).expect("directory");
    let mine = [".bashrc", "f.d/x"].map(|name| here.path().join(name));
    for file in &mine {
        fs::write(file, "mine").expect("file");
    }
    let dir = tempfile::tempdir().expect("directory");
    let tree = dir.path().join("f");
    fs::create_dir_all(tree.join("f.d")).expect("directory");
    fs::write(tree.join(".bashrc"), "hostile").expect("file");
    fs::write(tree.join("f.d/x"), "hostile").expect("file");
    // As a tar sends it, and without the directories.
    for archive in [packed(&tree, "f").0, forged("f/.bashrc"), forged("f/f.d/x")] {
        unpack(archive.as_slice(), "f", here.path(), LIMIT).expect("unpacked");
        for file in &mine {
            assert_eq!(fs::read(file).expect("file"), b"mine", "{}", file.display());
        }
        fs::remove_dir_all(here.path().join("f")).expect("it is all in one place");
    }
}

#[test]
fn few_of_what_is_skipped_is_named() {
    let dir = tempfile::tempdir().expect("directory");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("directory");
    for n in 0..30 {
        symlink("nowhere", tree.join(n.to_string())).expect("link");
    }
    let unpacked = unpack(tarred(dir.path(), &[]).as_slice(), "tree", &dir.path().join("to"), LIMIT).expect("unpacked");
    assert_eq!((unpacked.skipped.len(), unpacked.unnamed), (20, 10));
}

#[test]
fn a_file_goes_to_the_name_or_into_the_directory() {
    let dir = tempfile::tempdir().expect("directory");
    let from = dir.path().join("f");
    fs::write(&from, "new").expect("file");
    let (archive, _) = packed(&from, "f");
    fs::write(dir.path().join("old"), "older").expect("file");
    symlink(dir.path().join("old"), dir.path().join("chosen")).expect("link");
    for (to, written) in [("g", "g"), ("old", "old"), ("chosen", "old"), (".", "f")] {
        unpack(archive.as_slice(), "f", &dir.path().join(to), LIMIT).expect(to);
        assert_eq!(fs::read(dir.path().join(written)).expect(written), b"new", "{to}");
        fs::write(dir.path().join(written), "older").expect("file");
    }
}

/// An archive of one file and its name, as no honest tar makes it.
fn forged(name: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("directory");
    fs::write(dir.path().join("f"), "hostile").expect("file");
    packed(&dir.path().join("f"), name).0
}

#[test]
fn a_hostile_archive_leaves_nothing_outside() {
    let dir = tempfile::tempdir().expect("directory");
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).expect("directory");
    let to = dir.path().join("to");
    let tree = to.join("tree");
    fs::create_dir_all(&tree).expect("directory");
    symlink(&outside, tree.join("way")).expect("link");
    symlink(outside.join("new"), tree.join("file")).expect("link");
    let mut told = Vec::new();
    for name in ["tree/../../outside/x", "../outside/x", "/tree/x", "other/x", "tree/way/x", "tree/file", "tree/.."] {
        let error = unpack(forged(name).as_slice(), "tree", &to, LIMIT).expect_err(name);
        told.push(common::Chain(&error).to_string().replace(dir.path().to_str().expect("UTF-8"), "DIR"));
        let left: Vec<_> = fs::read_dir(&outside).expect("directory").flatten().collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
    // A link that comes first is not made, so that nothing goes through it.
    let mut archive = Vec::new();
    let link = dir.path().join("l");
    symlink(&outside, &link).expect("link");
    let from = dir.path().join("links");
    fs::create_dir(&from).expect("directory");
    symlink(&outside, from.join("a")).expect("link");
    pack::pack(&from, "tree".as_ref(), &mut archive).expect("packed");
    archive.truncate(archive.len() - 1024);
    archive.extend(forged("tree/a/x"));
    let unpacked = unpack(archive.as_slice(), "tree", &to, LIMIT).expect("unpacked");
    assert_eq!(unpacked.skipped, ["tree/a"]);
    assert!(fs::read_dir(&outside).expect("directory").next().is_none());
    assert_eq!(fs::read(tree.join("a/x")).expect("file"), b"hostile");
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_is_too_much_or_cut_off_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let from = dir.path().join("f");
    fs::write(&from, vec![0; 2000]).expect("file");
    let (archive, _) = packed(&from, "f");
    let to = dir.path().join("g");
    // With the entry's own 512, and its name.
    unpack(archive.as_slice(), "f", &to, 2513).expect("as much as may be");
    assert!(matches!(
        unpack(archive.as_slice(), "f", &to, 2512),
        Err(CtlError::Copy(CopyError::TooMuch { limit: 2512 }))
    ));
    // What is in front of an entry counts: here a header of 600 bytes, in two blocks, with one of its own.
    let mut ahead = forged("f");
    let (record, end) = (format!("600 comment={}\n", "c".repeat(600 - 13)), vec![0; 424]);
    let mut header: [u8; 512] = ahead[..512].try_into().expect("a block");
    header[156] = b'x';
    header[124..136].copy_from_slice(format!("{:011o}\0", record.len()).as_bytes());
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    ahead.splice(..0, [&header[..], record.as_bytes(), &end].concat());
    let costs = 512 + 600 + 512 + "f".len() as u64 + "hostile".len() as u64;
    unpack(ahead.as_slice(), "f", &to, costs).expect("as much as may be");
    assert!(matches!(unpack(ahead.as_slice(), "f", &to, costs - 1), Err(CtlError::Copy(CopyError::TooMuch { .. }))));
    for cut in [100, 512, 1000, 2511] {
        let error = unpack(&archive[..cut], "f", &to, LIMIT).expect_err("cut");
        assert!(common::Chain(&error).to_string().contains("cut off"), "{cut}: {error:?}");
    }
    // Neither waited for nor written to.
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    assert!(matches!(unpack(archive.as_slice(), "f", &fifo, LIMIT), Err(CtlError::File { .. })));
}
