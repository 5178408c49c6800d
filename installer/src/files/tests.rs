use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::{FileError, LIST, UNFINISHED, finished, listed, purge, remove, stage};
use crate::payload::Payload;

const EXAMPLE: &str = "usr/share/doc/virtlet/examples/etc/virtlet/controld.toml";
const RULES: &str = "usr/share/doc/virtlet/examples/etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet";

fn image(files: &[(&str, &str)]) -> (TempDir, Payload) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        put(dir.path(), name, text);
    }
    fs::create_dir_all(dir.path().join("usr/lib/virtlet")).unwrap();
    symlink("../../sbin/vmwrapper", dir.path().join("usr/lib/virtlet/vmwrapper")).unwrap();
    let payload = Payload::open(dir.path()).unwrap();
    (dir, payload)
}

fn put(root: &Path, name: &str, text: &str) {
    let at = root.join(name);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(&at, text).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
}

fn install(root: &Path, payload: &Payload) -> bool {
    let changed = stage(root, payload).unwrap().commit(root, payload).unwrap();
    finished(root).unwrap();
    changed.anew
}

fn text(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(name)).unwrap_or_default()
}

/// All files and links below, but for directories.
fn all(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                left.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_second_run_changes_nothing_and_starts_nothing_anew() {
    let (_image, payload) = image(&[("usr/sbin/controld", "one"), (EXAMPLE, "a")]);
    let root = tempfile::tempdir().unwrap();
    assert!(install(root.path(), &payload));
    let first = all(root.path());
    assert!(!install(root.path(), &payload));
    assert_eq!(all(root.path()), first);
    assert_eq!(text(root.path(), "etc/virtlet/controld.toml"), "a");
    let mode = fs::metadata(root.path().join("usr/sbin/controld")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn another_mode_and_another_target_are_mended() {
    let (_image, payload) = image(&[("usr/sbin/controld", "one")]);
    let root = tempfile::tempdir().unwrap();
    install(root.path(), &payload);
    fs::set_permissions(root.path().join("usr/sbin/controld"), fs::Permissions::from_mode(0o777)).unwrap();
    let link = root.path().join("usr/lib/virtlet/vmwrapper");
    fs::remove_file(&link).unwrap();
    symlink("/elsewhere", &link).unwrap();
    assert!(install(root.path(), &payload));
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../../sbin/vmwrapper"));
    assert!(!install(root.path(), &payload));
}

#[test]
fn a_newer_release_takes_away_what_it_has_no_more_and_nothing_of_others() {
    let (_old, old) = image(&[("usr/sbin/controld", "one"), ("usr/sbin/left", "x")]);
    let (_new, new) = image(&[("usr/sbin/controld", "two")]);
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "usr/sbin/other", "theirs");
    install(root.path(), &old);
    assert!(install(root.path(), &new));
    assert_eq!(text(root.path(), "usr/sbin/controld"), "two");
    assert!(!root.path().join("usr/sbin/left").exists());
    assert_eq!(text(root.path(), "usr/sbin/other"), "theirs");
}

#[test]
fn an_edited_file_of_etc_stays_and_another_follows_the_release() {
    let (_old, old) = image(&[(EXAMPLE, "old"), (RULES, "rules")]);
    let (_new, new) = image(&[(EXAMPLE, "new"), (RULES, "more rules")]);
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("etc/apparmor.d")).unwrap();
    install(root.path(), &old);
    put(root.path(), "etc/virtlet/controld.toml", "edited");
    let changed = stage(root.path(), &new).unwrap().commit(root.path(), &new).unwrap();
    assert!(changed.told.iter().any(|line| line.starts_with("kept") && line.ends_with("controld.toml")), "{changed:?}");
    assert_eq!(text(root.path(), "etc/virtlet/controld.toml"), "edited");
    assert_eq!(text(root.path(), "etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet"), "more rules");
}

#[test]
fn a_host_without_apparmor_gets_no_rules() {
    let (_image, payload) = image(&[(RULES, "rules")]);
    let root = tempfile::tempdir().unwrap();
    install(root.path(), &payload);
    assert!(!root.path().join("etc/apparmor.d").exists());
}

#[test]
fn an_installation_is_the_first_until_one_has_come_to_its_end() {
    let (_image, payload) = image(&[("usr/sbin/controld", "1")]);
    let root = tempfile::tempdir().unwrap();
    let commit = |payload: &Payload| stage(root.path(), payload).unwrap().commit(root.path(), payload).unwrap();
    assert!(commit(&payload).is_first);
    assert!(commit(&payload).is_first, "it was killed before its end");
    let (_newer, payload) = image(&[("usr/sbin/controld", "2")]);
    assert!(commit(&payload).is_first, "a newer release after one that was killed");
    finished(root.path()).unwrap();
    assert!(!commit(&payload).is_first);
    let (_newest, payload) = image(&[("usr/sbin/controld", "3")]);
    assert!(!commit(&payload).is_first);
}

#[test]
fn a_run_that_was_killed_is_finished_by_the_next() {
    let (_old, old) = image(&[("usr/sbin/controld", "one")]);
    let (_new, new) = image(&[("usr/sbin/controld", "two"), ("usr/sbin/tapmanager", "two")]);
    let root = tempfile::tempdir().unwrap();
    install(root.path(), &old);
    // Before any file was moved: all is as it was.
    drop(stage(root.path(), &new).unwrap());
    assert_eq!(text(root.path(), "usr/sbin/controld"), "one");
    // After all were, and before the daemons ran them.
    stage(root.path(), &new).unwrap().commit(root.path(), &new).unwrap();
    assert!(root.path().join(UNFINISHED).exists());
    assert!(install(root.path(), &new), "the daemons still run the old release");
    assert!(!install(root.path(), &new));
    assert!(!all(root.path()).iter().any(|name| name.contains("virtlet-new")), "{:?}", all(root.path()));
}

#[test]
fn a_file_of_etc_that_nobody_edited_follows_even_after_a_run_that_was_killed_at_any_file() {
    let (_old, old) = image(&[("usr/sbin/controld", "one"), (EXAMPLE, "old")]);
    let (_new, new) = image(&[("usr/sbin/controld", "two"), (EXAMPLE, "new")]);
    let whole = {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), &old);
        stage(root.path(), &new).unwrap().moves.len()
    };
    for done in 0..=whole {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), &old);
        for (beside, at) in stage(root.path(), &new).unwrap().moves.iter().take(done) {
            fs::rename(beside, at).unwrap();
        }
        install(root.path(), &new);
        assert_eq!(text(root.path(), "etc/virtlet/controld.toml"), "new", "after {done} of {whole}");
    }
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let (_image, payload) = image(&[("usr/sbin/controld", "one"), (EXAMPLE, "a")]);
    let root = tempfile::tempdir().unwrap();
    let staged = stage(root.path(), &payload).unwrap();
    assert_eq!(fs::read_to_string(staged.program("usr/sbin/controld")).unwrap(), "one");
    staged.give_up().unwrap();
    assert!(all(root.path()).is_empty(), "{:?}", all(root.path()));
}

#[test]
fn removal_leaves_what_was_edited_and_a_purge_nothing() {
    let (_image, payload) = image(&[("usr/sbin/controld", "one"), (EXAMPLE, "a"), (RULES, "rules")]);
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "etc/apparmor.d/abstractions/libvirt-qemu", "libvirt's");
    put(root.path(), "var/lib/virtlet/state", "x");
    install(root.path(), &payload);
    put(root.path(), "etc/virtlet/controld.toml", "edited");
    let told = remove(root.path(), &listed(root.path()).unwrap()).unwrap();
    assert!(told.len() == 1 && told[0].contains("controld.toml"), "{told:?}");
    let left = ["etc/apparmor.d/abstractions/libvirt-qemu", "etc/virtlet/controld.toml", "var/lib/virtlet/state"];
    assert_eq!(all(root.path()), left);
    assert!(!root.path().join("usr/lib/virtlet").exists() && !root.path().join("usr/share/doc/virtlet").exists());
    purge(root.path()).unwrap();
    assert_eq!(all(root.path()), ["etc/apparmor.d/abstractions/libvirt-qemu"]);
}

#[test]
fn a_list_that_leads_elsewhere_is_refused() {
    let root = tempfile::tempdir().unwrap();
    for line in ["etc/passwd", "usr/../etc/passwd", "/usr/bin/ls", "usr", ""] {
        put(root.path(), LIST, &format!("{line}\n"));
        assert!(matches!(listed(root.path()), Err(FileError::Listed(_))), "{line}");
    }
}

#[test]
fn an_image_with_anything_outside_usr_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "etc/passwd", "x");
    assert!(Payload::open(dir.path()).is_err());
}

#[test]
fn a_purge_empties_what_a_link_leads_to_and_leaves_the_link() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("srv/state/deep")).unwrap();
    fs::create_dir_all(at("var/lib")).unwrap();
    fs::create_dir_all(at("etc/virtlet")).unwrap();
    fs::write(at("srv/state/deep/secret"), "x").unwrap();
    fs::write(at("etc/virtlet/controld.toml"), "").unwrap();
    std::os::unix::fs::symlink(at("srv/state"), at("var/lib/virtlet")).unwrap();
    for _again in 0..2 {
        purge(root.path()).unwrap();
        assert_eq!(fs::read_dir(at("srv/state")).unwrap().count(), 0);
        assert!(at("var/lib/virtlet").is_symlink() && !at("etc/virtlet").exists());
    }
}
