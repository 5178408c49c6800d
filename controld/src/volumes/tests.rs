use std::os::unix::fs::MetadataExt as _;

use super::*;

fn base(dir: &Path) -> Base {
    let path = dir.join("base.qcow2");
    let made =
        std::process::Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&path).arg("8M").status();
    assert!(made.expect("qemu-img (package qemu-utils) is installed").success());
    Base { image_id: "sha256:00".into(), path, format: "qcow2".into(), virtual_size: 8 << 20 }
}

fn owner() -> QemuUser {
    QemuUser { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() }
}

#[tokio::test]
async fn the_overlay_is_kept_for_the_same_image_and_made_anew_for_another() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = Volumes::open(dir.path().join("volumes")).expect("open");
    let mut base = base(dir.path());
    let root = volumes.ensure_root("uid-1", &base, 0, owner()).await.expect("made");
    let first = std::fs::metadata(&root).expect("there");
    assert_eq!(first.mode() & 0o777, 0o660);
    let again = volumes.ensure_root("uid-1", &base, 0, owner()).await.expect("kept");
    assert_eq!(std::fs::metadata(&again).expect("there").ino(), first.ino());
    base.image_id = "sha256:01".into();
    let anew = volumes.ensure_root("uid-1", &base, 16 << 20, owner()).await.expect("made anew");
    let info =
        std::process::Command::new("qemu-img").args(["info", "--output=json", "-f", "qcow2"]).arg(&anew).output();
    let info: serde_json::Value = serde_json::from_slice(&info.expect("info").stdout).expect("json");
    assert_eq!(info["virtual-size"], 16 << 20);
    assert_eq!(info["backing-filename-format"], "qcow2");
    volumes.remove("uid-1").expect("removed");
    volumes.remove("uid-1").expect("removing again is fine");
    assert!(!root.exists());
}

#[tokio::test]
async fn a_failed_overlay_leaves_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = Volumes::open(dir.path().join("volumes")).expect("open");
    let mut base = base(dir.path());
    base.format = "nonsense".into();
    let error = volumes.ensure_root("uid-1", &base, 0, owner()).await.expect_err("no base");
    assert!(matches!(error, VolumeError::QemuImg { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path().join("volumes")).expect("dir").count(), 0);
}

#[tokio::test]
async fn a_uid_cannot_climb_out_of_the_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = Volumes::open(dir.path().join("volumes")).expect("open");
    for uid in ["", "..", "a/b", ".hidden", "a\nb", &"a".repeat(129)] {
        assert!(matches!(volumes.remove(uid), Err(VolumeError::Uid(_))), "{uid:?} was taken");
    }
}
