use super::*;

use std::os::unix::fs::symlink;

#[test]
fn why_there_is_no_share_says_what_helps() {
    assert_eq!(
        no_share(Errno::ENODEV),
        "the guest's kernel has no virtiofs; take an image whose kernel has CONFIG_VIRTIO_FS"
    );
    assert!(no_share(Errno::EINVAL).contains("no virtiofs device of this tag"));
    assert_eq!(no_share(Errno::EIO), "Input/output error (os error 5)");
}

#[test]
fn targets_are_made_with_what_is_above_them() {
    let root = tempfile::tempdir().unwrap();
    let (dir, file) = (root.path().join("a/dir"), root.path().join("b/c/file"));
    for _again in 0..2 {
        assert_eq!(target(&dir, true).unwrap(), dir.canonicalize().unwrap());
        assert_eq!(target(&file, false).unwrap(), file.canonicalize().unwrap());
    }
    assert!(dir.is_dir() && file.is_file());
    let why = "it is a directory in the guest, and the volume a file; take another path";
    assert_eq!(target(&dir, false).unwrap_err(), why);
    assert!(target(&file.join("below"), true).unwrap_err().starts_with("failed to "));
}

#[test]
fn a_target_is_what_its_path_leads_to_and_nothing_is_made_through_a_link() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir(at("real")).unwrap();
    symlink("real", at("link")).unwrap();
    symlink("none", at("nowhere")).unwrap();
    symlink("/proc", at("kernels")).unwrap();
    assert_eq!(target(&at("link"), true).unwrap(), at("real").canonicalize().unwrap());
    assert_eq!(target(&at("link/new"), false).unwrap(), at("real/new").canonicalize().unwrap());
    for is_dir in [true, false] {
        assert!(target(&at("nowhere"), is_dir).unwrap_err().starts_with("it is a symlink that leads nowhere"));
    }
    assert!(!at("none").exists());
    assert!(target(&at("kernels"), true).unwrap_err().starts_with("it leads to `/proc`, which is in `/proc`"));
}

#[test]
fn an_entry_is_of_the_share_or_of_what_the_share_has_below_it() {
    let mounted = |device: &str, root: &str, point: &str| Mounted {
        device: device.into(),
        root: root.into(),
        point: point.into(),
        flags: MsFlags::empty(),
    };
    let all = [mounted("0:1", "/", "/share"), mounted("0:2", "/", "/share/1")];
    let share = Share::at("/share");
    let of = |entry: &str| share.of_entry(Path::new(entry), &all);
    assert_eq!(of("/share/0"), Some(("0:1".into(), "/0".into())));
    assert_eq!(of("/share/1"), Some(("0:2".into(), "/".into())));
    assert_eq!(share.of_entry(Path::new("/share/0"), &[]), None);
}
