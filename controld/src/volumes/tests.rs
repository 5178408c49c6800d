use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use proto::tap::QemuUser;
use uuid::Uuid;
use vmspec::plan::RootLifetime;

use super::*;

const OVMF: &str = "/usr/share/OVMF/OVMF_CODE_4M.ms.fd";
/// As long as the pod.
const LASTS: RootLifetime = RootLifetime::Pod;
const ME: Uuid = Uuid::from_u128(1);

fn volumes(dir: &Path) -> Volumes {
    Volumes::open(dir.join("volumes")).expect("open")
}

fn owner(pod_uid: &str) -> Owner {
    Owner::new(ME, (3, 0), pod_uid, "default", "web")
}

/// An image of the store, where files are named by their ids.
fn base(dir: &Path, name: &str) -> Base {
    let path = dir.join(name);
    let made =
        std::process::Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&path).arg("8M").status();
    assert!(made.expect("qemu-img (package qemu-utils) is installed").success());
    Base { image_id: format!("sha256:{name}"), path, format: "qcow2".into(), virtual_size: 8 << 20, name: name.into() }
}

fn qemu() -> QemuUser {
    QemuUser { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() }
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).expect("there").ino()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("directory").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

async fn made(volumes: &Volumes, folder: &Folder, base: &Base) -> PathBuf {
    let root = volumes.ensure_root(folder, base, 0, LASTS, qemu()).await.expect("made");
    let path = root.path().to_owned();
    root.keep().await.expect("kept");
    path
}

#[tokio::test]
async fn a_pod_whose_root_disk_is_a_volume_keeps_its_image_as_long_as_it_wants_that_name() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let named = |file, name: &str| Base { name: name.into(), ..base(dir.path(), file) };
    let (first, moved) = (named("00", "web"), named("01", "web"));
    volumes.note_base(&folder, &first).await.expect("noted");
    assert_eq!(volumes.base(&folder, moved).await, first);
    let other = named("01", "db");
    assert_eq!(volumes.base(&folder, other.clone()).await, other);
    assert!(!folder.overlay().exists());
    volumes.empty(&folder).await.expect("emptied");
    assert_eq!(names(&folder.path), ["owner.json"]);
}

#[tokio::test]
async fn a_pod_has_one_machine_type_as_long_as_its_handler_asks_for_the_same() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let [q35, pc, old, new] = ["q35", "pc", "pc-q35-9.2", "pc-q35-10.0"].map(|name| name.parse().expect("type"));
    assert_eq!(volumes.machine_type("uid-1", &q35).await, None, "no folder");
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    assert_eq!(volumes.machine_type("uid-1", &q35).await, None);
    volumes.note_machine_type(&folder, &q35, &old).await.expect("noted");
    assert_eq!(volumes.machine_type("uid-1", &q35).await, Some(old.clone()));
    assert_eq!(volumes.machine_type("uid-1", &pc).await, None, "the handler was changed");
    assert_eq!(volumes.machine_type("uid-2", &q35).await, None, "another pod");
    volumes.note_machine_type(&folder, &q35, &new).await.expect("noted");
    assert_eq!(volumes.machine_type("uid-1", &q35).await, Some(new.clone()));
    // Of a later release, or damaged: not ours to write over.
    let note = folder.path.join("machine.json");
    for there in [r#"{"version":2}"#, "{"] {
        std::fs::write(&note, there).expect("written");
        assert_eq!(volumes.machine_type("uid-1", &q35).await, None);
        volumes.note_machine_type(&folder, &q35, &old).await.expect("left");
        assert_eq!(std::fs::read_to_string(&note).expect("there"), there);
    }
    std::fs::write(&note, include_str!("fixtures/machine.v1.json")).expect("written");
    assert_eq!(volumes.machine_type("uid-1", &q35).await, Some(old));
    volumes.empty(&folder).await.expect("emptied");
    assert_eq!(names(&folder.path), ["owner.json"]);
}

#[tokio::test]
async fn what_uefi_remembers_lasts_as_long_as_its_firmware_and_the_root_disk() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let variables = uefi_variables(&folder.overlay());
    let firmware = |secure_boot, loader: &str| UefiFirmware { secure_boot, loaders: [loader.to_owned()].into() };
    let (secure, plain) = (firmware(true, OVMF), firmware(false, OVMF));
    let ready = async |firmware: &UefiFirmware| {
        std::fs::write(&variables, "left").expect("written");
        volumes.ready_uefi(&folder, firmware.clone()).await.expect("ready");
        variables.exists()
    };
    let note = folder.path.join("uefi.json");
    std::fs::write(&note, include_str!("fixtures/uefi.v1.json")).expect("written");
    assert!(ready(&secure).await, "of a volume");
    // Whether a next VM finds what an earlier one has left.
    made(&volumes, &folder, &base(dir.path(), "00")).await;
    assert_eq!([ready(&secure).await, ready(&secure).await], [false, true], "an overlay");
    made(&volumes, &folder, &base(dir.path(), "01")).await;
    assert_eq!([ready(&secure).await, ready(&secure).await], [false, true], "another overlay, whoever is told of it");
    assert_eq!([ready(&plain).await, ready(&plain).await], [false, true], "another firmware");
    assert_eq!(
        [ready(&firmware(false, "other.fd")).await, ready(&plain).await],
        [false, false],
        "the node has another one"
    );
    std::fs::write(&note, "{").expect("written");
    assert_eq!([ready(&plain).await, ready(&plain).await], [false, true], "damaged");
    // Of a later release: not ours to write over.
    std::fs::write(&note, r#"{"version":2}"#).expect("written");
    assert!(ready(&secure).await);
    assert_eq!(std::fs::read_to_string(&note).expect("there"), r#"{"version":2}"#);
    volumes.empty(&folder).await.expect("emptied");
    assert_eq!(names(&folder.path), ["owner.json"]);
}

#[tokio::test]
async fn the_overlay_is_kept_for_the_same_image_and_made_anew_for_another() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let one = base(dir.path(), "00");
    let root = made(&volumes, &folder, &one).await;
    assert_eq!(std::fs::metadata(&root).expect("there").mode() & 0o777, 0o600);
    let first = inode(&root);
    // As the first releases left it.
    let note = folder.path.join("root.json");
    let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o777;
    assert_eq!(mode(&note), 0o600);
    for (file, open) in [(&note, 0o644), (&root, 0o660)] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(open)).expect("opened");
    }
    assert_eq!(inode(&made(&volumes, &folder, &one).await), first);
    assert_eq!([mode(&note), mode(&root)], [0o600; 2]);

    let two = base(dir.path(), "01");
    let anew = volumes.ensure_root(&folder, &two, 16 << 20, LASTS, qemu()).await.expect("made anew");
    assert_eq!(names(&folder.path), ["owner.json", "root.json", "root.qcow2", "root.qcow2.old"]);
    anew.keep().await.expect("kept");
    assert_eq!(names(&folder.path), ["owner.json", "root.json", "root.qcow2"]);
    let info =
        std::process::Command::new("qemu-img").args(["info", "--output=json", "-f", "qcow2"]).arg(&root).output();
    let info: serde_json::Value = serde_json::from_slice(&info.expect("info").stdout).expect("json");
    assert_eq!(info["virtual-size"], 16 << 20);
    assert_eq!(info["backing-filename-format"], "qcow2");
}

#[tokio::test]
async fn an_image_that_lies_elsewhere_is_the_same_and_so_is_one_whose_note_is_lost() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let here = base(dir.path(), "00");
    let first = inode(&made(&volumes, &folder, &here).await);

    std::fs::create_dir(dir.path().join("moved")).expect("made");
    let moved = Base { path: dir.path().join("moved/00"), ..here.clone() };
    assert_eq!(inode(&made(&volumes, &folder, &moved).await), first, "moved images cost no disk");
    let note = std::fs::read_to_string(folder.path.join("root.json")).expect("note");
    assert!(note.contains("moved"), "the release before compares paths: {note}");
    for lost in ["", "{"] {
        std::fs::write(folder.path.join("root.json"), lost).expect("torn");
        assert_eq!(inode(&made(&volumes, &folder, &moved).await), first, "a torn note costs no disk");
    }
    std::fs::remove_file(folder.path.join("root.json")).expect("removed");
    let other = base(dir.path(), "01");
    assert_ne!(inode(&made(&volumes, &folder, &other).await), first, "without a note the overlay tells its image");
}

#[tokio::test]
async fn a_pod_keeps_its_disk_when_the_name_of_its_image_comes_to_mean_another() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let named = |base: Base, name: &str| Base { name: name.into(), ..base };
    let (one, two) = (named(base(dir.path(), "00"), "web"), named(base(dir.path(), "01"), "web"));
    assert_eq!(volumes.base(&folder, two.clone()).await, two, "there is no disk yet");
    let first = inode(&made(&volumes, &folder, &one).await);
    let kept = volumes.base(&folder, two.clone()).await;
    assert_eq!(kept, one);
    assert_eq!(inode(&made(&volumes, &folder, &kept).await), first);

    // As earlier releases wrote it, for images that lay elsewhere.
    let note = folder.path.join("root.json");
    let old =
        serde_json::json!({"image_id": "sha256:00", "path": "/old/00", "format": "qcow2", "virtual_size": 8 << 20});
    std::fs::write(&note, old.to_string()).expect("written");
    assert_eq!(volumes.base(&folder, two.clone()).await, one);

    made(&volumes, &folder, &one).await;
    let other = named(two, "db");
    assert_eq!(volumes.base(&folder, other.clone()).await, other, "the pod's own image is another");
}

#[tokio::test]
async fn an_overlay_that_lasts_as_long_as_a_container_is_made_for_each() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let one = base(dir.path(), "00");
    let first = inode(&made(&volumes, &folder, &one).await);
    let next = || volumes.ensure_root(&folder, &one, 0, RootLifetime::Container, qemu());
    next().await.expect("made").undo().expect("undone");
    assert_eq!(inode(&folder.overlay()), first, "of a Create that fails nothing is left");
    next().await.expect("made").keep().await.expect("kept");
    assert_ne!(inode(&folder.overlay()), first);
    assert_eq!(names(&folder.path), ["owner.json", "root.json", "root.qcow2"]);
}

#[tokio::test]
async fn what_fails_takes_nothing_with_it_that_was_there() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let nonsense = Base { format: "nonsense".into(), ..base(dir.path(), "02") };
    let error = volumes.ensure_root(&folder, &nonsense, 0, LASTS, qemu()).await.expect_err("no base");
    assert!(matches!(error, VolumeError::QemuImg { .. }), "{error}");
    assert_eq!(names(&folder.path), ["owner.json"]);

    let one = base(dir.path(), "00");
    let root = volumes.ensure_root(&folder, &one, 0, LASTS, qemu()).await.expect("made");
    root.undo().expect("undone");
    assert_eq!(names(&folder.path), ["owner.json"]);

    let first = inode(&made(&volumes, &folder, &one).await);
    volumes.ensure_root(&folder, &nonsense, 0, LASTS, qemu()).await.expect_err("no base");
    assert_eq!(inode(&made(&volumes, &folder, &one).await), first);
    let two = base(dir.path(), "01");
    let root = volumes.ensure_root(&folder, &two, 0, LASTS, qemu()).await.expect("made");
    root.undo().expect("undone");
    assert_eq!(inode(&made(&volumes, &folder, &one).await), first, "an undone Create gives the earlier disk back");
    let root = volumes.ensure_root(&folder, &one, 0, LASTS, qemu()).await.expect("there");
    root.undo().expect("undone");
    assert_eq!(inode(&made(&volumes, &folder, &one).await), first, "it was not made by that call");
}

#[tokio::test]
async fn a_kill_between_two_names_costs_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    let one = base(dir.path(), "00");
    let root = made(&volumes, &folder, &one).await;
    let first = inode(&root);
    std::fs::write(folder.path.join("root.qcow2.new"), "half").expect("written");
    std::fs::rename(&root, folder.path.join("root.qcow2.old")).expect("put aside");
    assert_eq!(inode(&made(&volumes, &folder, &one).await), first);
    assert_eq!(names(&folder.path), ["owner.json", "root.json", "root.qcow2"]);
}

#[tokio::test]
async fn a_kept_folder_is_given_to_nobody_and_the_pod_gets_one_beside_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let first = volumes.claim(&owner("uid-1")).expect("claimed");
    assert_eq!(volumes.claim(&owner("uid-1")).expect("claimed"), first);
    volumes.keep(&first, Kept::new("a test says so".into())).expect("kept");
    let second = volumes.claim(&owner("uid-1")).expect("claimed");
    assert_eq!(second.name(), "uid-1.1");
    assert_eq!(volumes.of_pod("uid-1").expect("listed"), std::slice::from_ref(&second));

    // A pod whose UID is the name of that folder is another one.
    let other = volumes.claim(&owner("uid-1.1")).expect("claimed");
    assert_eq!(other.name(), "uid-1.1.1");

    // After a restart the mark is read from the disk.
    let again = self::volumes(dir.path());
    let found = again.look().expect("listed");
    let marked: Vec<_> = found.iter().filter(|found| found.kept.is_some()).map(|found| found.folder.name()).collect();
    assert_eq!(marked, ["uid-1"]);
    assert_eq!(found[0].kept.as_ref().map(|kept| kept.why.as_str()), Some("a test says so"));
    assert_eq!(found[0].owner, Ok(Some(owner("uid-1"))));

    volumes.empty(&first).await.expect("emptied");
    volumes.remove(&first).await.expect("removed");
    volumes.remove(&first).await.expect("removing again is fine");
    assert_eq!(volumes.claim(&owner("uid-1")).expect("claimed"), second, "it goes on where it was");
    volumes.give_back(&second).expect("given back");
}

#[test]
fn a_folder_in_the_making_is_none() {
    let dir = tempfile::tempdir().expect("tempdir");
    let half = dir.path().join("volumes/.new-uid-1");
    std::fs::create_dir_all(&half).expect("made");
    let volumes = volumes(dir.path());
    assert!(!half.exists());
    assert_eq!(volumes.look().expect("listed").len(), 0);
}

#[test]
fn a_folder_that_cannot_be_made_leaves_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    // Where a link to nowhere is, a folder can be made but not named.
    std::os::unix::fs::symlink("nowhere", dir.path().join("volumes/uid-1")).expect("made");
    volumes.claim(&owner("uid-1")).expect_err("its place is taken");
    assert_eq!(names(&dir.path().join("volumes")), ["uid-1"]);
}

#[tokio::test]
async fn emptied_folders_still_say_whose_they_were() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("uid-1")).expect("claimed");
    made(&volumes, &folder, &base(dir.path(), "00")).await;
    volumes.empty(&folder).await.expect("emptied");
    assert_eq!(names(&folder.path), ["owner.json"]);
    volumes.remove(&folder).await.expect("removed");
    assert!(!folder.path.exists());
}

/// A fixture of each released form, which stays readable.
#[test]
fn the_notes_of_each_release_are_read() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = |name: &str| {
        let path = dir.path().join("volumes").join(name);
        std::fs::create_dir(&path).expect("made");
        path
    };
    std::fs::write(folder("a").join("owner.json"), include_str!("fixtures/owner.v1.json")).expect("written");
    let newer = folder("b");
    std::fs::write(newer.join("owner.json"), include_str!("fixtures/owner.v2.json")).expect("written");
    let first_release = folder("c");
    std::fs::write(first_release.join("root.json"), include_str!("fixtures/root.v1.json")).expect("written");
    std::fs::write(folder("d").join("kept.json"), include_str!("fixtures/kept.v1.json")).expect("written");
    std::fs::write(folder("e").join("owner.json"), include_str!("fixtures/owner.v1.counted.json")).expect("written");
    folder(".hidden");

    let found = volumes.look().expect("listed");
    assert_eq!(found.len(), 5);
    let id = "6f0c1b2e-3d4a-4b5c-8d6e-7f8091a2b3c4".parse().expect("uuid");
    let wanted = |commits| Owner::new(id, (12, commits), "0e5a9b7c-1111-4222-8333-944455566677", "default", "web");
    assert_eq!(found[0].owner, Ok(Some(wanted(0))));
    assert_eq!(found[4].owner, Ok(Some(wanted(345))));
    assert!(found[1].owner.as_ref().is_err_and(|why| why.contains("version 2")), "{:?}", found[1].owner);
    assert_eq!(found[2].owner, Ok(None));
    assert_eq!(found[3].kept.as_ref().map(|kept| kept.since), Some(1_700_000_000));
    let base: Base = serde_json::from_str(include_str!("fixtures/root.v1.json")).expect("readable");
    assert_eq!(base.image_id, "sha256:00");

    // What cannot be read is written over by nobody; of the first release is its pod's.
    for name in ["b", "c"] {
        assert_eq!(volumes.claim(&owner(name)).expect("claimed").name(), name);
    }
    assert_eq!(std::fs::read(newer.join("owner.json")).expect("there"), include_bytes!("fixtures/owner.v2.json"));
    assert!(dir.path().join("volumes/c/owner.json").exists(), "it has a note now");
}

#[test]
fn notes_of_a_newer_release_are_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    let folder = volumes.claim(&owner("a")).expect("claimed");
    volumes.refuse_newer().expect("its own");
    let note = dir.path().join("volumes").join(folder.name()).join("owner.json");
    std::fs::write(&note, include_str!("fixtures/owner.v2.json")).expect("written");
    let error = volumes.refuse_newer().expect_err("a newer release's").to_string();
    assert_eq!(
        error,
        format!(
            "`{}` has version 2, and this release reads version 1; install the newer release again",
            note.display()
        )
    );
}

#[test]
fn a_folder_tells_when_it_was_claimed_last() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    for now in [(3, 10), (3, 11), (4, 12)] {
        let owner = Owner::new(ME, now, "uid-1", "default", "web");
        let folder = volumes.claim(&owner).expect("claimed");
        assert_eq!(volumes.inspect(folder).owner, Ok(Some(owner)));
    }
    assert_eq!(names(&dir.path().join("volumes")), ["uid-1"]);
}

#[test]
fn a_uid_cannot_climb_out_of_the_directory() {
    let dir = tempfile::tempdir().expect("tempdir");
    let volumes = volumes(dir.path());
    for uid in ["", "..", "a/b", ".hidden", "a\nb", &"a".repeat(129)] {
        assert!(matches!(volumes.claim(&owner(uid)), Err(VolumeError::Uid(_))), "{uid:?} was taken");
    }
}
