use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use common::Chain;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;

/// A volume as kubelet makes it.
fn volume(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("dir");
    let data = dir.path().join("..2026_01_01");
    fs::create_dir(&data).expect("made");
    symlink("..2026_01_01", dir.path().join(DATA)).expect("linked");
    for (name, text) in files {
        let path = data.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
        let top = name.split('/').next().expect("a name");
        let _again = symlink(Path::new(DATA).join(top), dir.path().join(top));
    }
    dir
}

fn data(dir: &TempDir) -> PathBuf {
    dir.path().join("..2026_01_01")
}

fn texts(volume: &Volume) -> Vec<(&str, &[u8])> {
    volume.0.iter().map(|(name, file)| (name.as_str(), file.bytes.as_slice())).collect()
}

fn refusal(dir: &TempDir) -> String {
    Chain(&read(dir.path()).expect_err("refused")).to_string()
}

#[test]
fn keys_are_read_by_their_names() {
    let dir = volume(&[("a", "1"), ("b/c", "2"), ("..hidden", "x")]);
    fs::create_dir(data(&dir).join("empty")).expect("made");
    fs::set_permissions(data(&dir).join("a"), fs::Permissions::from_mode(0o400)).expect("set");
    let read = read(dir.path()).expect("reads");
    assert_eq!(texts(&read), [("a", &b"1"[..]), ("b/c", b"2")]);
    assert_eq!(read.0["a"].mode, 0o400);
}

#[test]
fn what_is_behind_the_link_counts_at_each_reading() {
    let dir = volume(&[("a", "old")]);
    assert_eq!(texts(&read(dir.path()).expect("reads")), [("a", &b"old"[..])]);
    fs::create_dir(dir.path().join("..new")).expect("made");
    fs::write(dir.path().join("..new/a"), "new").expect("written");
    symlink("..new", dir.path().join("..data_tmp")).expect("linked");
    fs::rename(dir.path().join("..data_tmp"), dir.path().join(DATA)).expect("renamed");
    assert_eq!(texts(&read(dir.path()).expect("reads")), [("a", &b"new"[..])]);
}

#[test]
fn a_plain_directory_is_read_as_it_is() {
    let dir = tempfile::tempdir().expect("dir");
    fs::write(dir.path().join("a"), "1").expect("written");
    assert_eq!(texts(&read(dir.path()).expect("reads")), [("a", &b"1"[..])]);
}

#[test]
fn nothing_leads_out_of_it() {
    let outside = tempfile::tempdir().expect("dir");
    fs::write(outside.path().join("secret"), "kept").expect("written");
    for target in [outside.path().to_path_buf(), "../".into(), "/etc".into(), "..again".into()] {
        let dir = tempfile::tempdir().expect("dir");
        symlink("..again", dir.path().join("..again")).expect("linked");
        symlink(&target, dir.path().join(DATA)).expect("linked");
        assert!(refusal(&dir).contains("is a link, or leads out of it"), "{target:?}: {}", refusal(&dir));
    }
    for target in [outside.path().join("secret"), "a".into(), "../..data/a".into()] {
        let dir = volume(&[("a", "1")]);
        symlink(&target, data(&dir).join("z")).expect("linked");
        assert_eq!(refusal(&dir), "\"z\" is a link, or leads out of it", "{target:?}");
    }
}

#[test]
fn what_is_no_file_is_refused_without_waiting_for_it() {
    let dir = volume(&[("a", "1")]);
    mkfifo(&data(&dir).join("pipe"), Mode::from_bits_truncate(0o600)).expect("made");
    assert_eq!(refusal(&dir), "\"pipe\" is not a regular file");
    let dir = volume(&[]);
    let _socket = UnixListener::bind(data(&dir).join("s")).expect("bound");
    assert_eq!(refusal(&dir), "\"s\" is not a regular file");
    let dir = tempfile::tempdir().expect("dir");
    fs::create_dir(dir.path().join(DATA)).expect("made");
    assert_eq!(refusal(&dir), "\"..data\" is not a regular file");
}

#[test]
fn it_is_bounded() {
    let dir = volume(&[("a", &"x".repeat(MAX_USER_DATA + 1))]);
    assert_eq!(refusal(&dir), "\"a\" is longer than 2097152 bytes");
    let most = "x".repeat(MAX_USER_DATA);
    let names: Vec<String> = (0..9).map(|n| format!("f{n}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), most.as_str())).collect();
    assert!(read(volume(&files[..8]).path()).is_ok());
    assert_eq!(refusal(&volume(&files)), "it has more than 16777216 bytes");
    let names: Vec<String> = (0..=MAX_FILES).map(|n| format!("f{n}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert!(refusal(&volume(&files)).contains("more than 1024 files"));
    let deep = format!("{}x", "d/".repeat(MAX_DEPTH + 1));
    assert!(refusal(&volume(&[(&deep, "")])).contains("in more than 8 others"));
}

#[test]
fn names_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = volume(&[]);
    fs::write(data(&dir).join(std::ffi::OsStr::from_bytes(b"\xff")), "").expect("written");
    assert!(refusal(&dir).contains("is not UTF-8"));
}

#[test]
fn what_is_not_there_is_told() {
    assert!(matches!(read(Path::new("/nowhere/at/all")), Err(VolumeError::Open(_))));
}
