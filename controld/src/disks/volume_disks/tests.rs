use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use common::Chain;
use vmspec::plan::{DiskCache, Serial};

use super::*;
use crate::container::tests::container;
use crate::volumes::Owner;

const GIB: u64 = 1 << 30;

/// The file of a volume of 1 GiB.
async fn found(dir: &Path, read_only: bool) -> Result<VolumeFile, String> {
    let of = Of::File { dir: dir.to_owned(), size: Some(GIB) };
    match look("data", &of, read_only).await {
        Ok(Looked::File(file)) => Ok(file),
        Ok(Looked::Below(..)) => panic!("a layer"),
        Err(error) => Err(Chain(&error).to_string()),
    }
}

fn disk(volume: VolumeDisk) -> Disk {
    Disk {
        name: "data".into(),
        serial: Serial::of_name("data"),
        source: DiskSource::Volume(volume),
        path: String::new(),
        read_only: false,
        options: MountOptions::default(),
    }
}

fn plan_of(disks: Vec<Disk>) -> MachinePlan {
    MachinePlan { disks, ..container("vm", 0).machine }
}

fn qemu_img(words: &[&str]) {
    let made = Command::new("qemu-img").args(words).status();
    assert!(made.expect("qemu-img (package qemu-utils) is installed").success(), "{words:?}");
}

#[tokio::test]
async fn a_new_disk_is_a_little_smaller_than_its_volume_and_has_holes() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("disk.img");
    for of_empty in OF_EMPTY {
        fs::create_dir(dir.path().join(of_empty)).expect("made");
    }
    let file = found(dir.path(), false).await.expect("made");
    let made = fs::metadata(&path).expect("there");
    assert_eq!((made.len(), made.permissions().mode() & 0o777), (962 << 20, 0o600));
    assert!(made.blocks() * 512 < MIB, "{} blocks", made.blocks());
    assert_eq!((file.format, file.id.inode), (FileFormat::Raw, made.ino()));
    assert_eq!(found(dir.path(), true).await, Ok(file.clone()));
    // One whose making broke off is made to its end.
    File::options().write(true).open(&path).and_then(|file| file.set_len(0)).expect("cut");
    assert_eq!(found(dir.path(), false).await, Ok(file));
    assert_eq!(fs::metadata(&path).expect("there").len(), 962 << 20);
    assert!(matches!(size_of_new(MIB), Err(NoDisk::Small(MIB))));
    assert!(size_of_new(u64::MAX).is_ok_and(|bytes| bytes == DiskFile::MOST));
}

#[tokio::test]
async fn none_is_made_beside_what_is_there_or_of_what_is_only_read() {
    let dir = tempfile::tempdir().expect("tempdir");
    let refused = found(dir.path(), true).await.expect_err("only read");
    let absent = "volume \"data\" cannot be a disk of the VM: the volume has no `disk.img`, and the VM only reads it";
    assert_eq!(refused, absent);
    fs::write(dir.path().join("fedora\n.raw"), "x").expect("written");
    let refused = found(dir.path(), false).await.expect_err("not empty");
    assert!(refused.contains(r#"is not empty (there is "fedora\n.raw")"#), "{refused}");
    assert!(!dir.path().join("disk.img").exists());
    assert!(found(&dir.path().join("gone"), false).await.is_err());
}

#[tokio::test]
async fn a_disk_is_what_its_file_begins_as_and_nothing_is_below_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("disk.img");
    let shown = path.display().to_string();
    let format = async || found(dir.path(), false).await.map(|file| file.format);
    // As a CD is, or whatever a guest has written.
    let mut raw = vec![0; 64 << 10];
    raw[32769..32774].copy_from_slice(b"CD001");
    fs::write(&path, &raw).expect("written");
    assert_eq!(format().await, Ok(FileFormat::Raw));
    fs::write(&path, "short").expect("written");
    assert!(format().await.expect_err("cut off").contains("has 5 bytes, which are no whole sectors"));
    fs::remove_file(&path).expect("removed");
    qemu_img(&["create", "-q", "-f", "qcow2", &shown, "8M"]);
    assert_eq!(format().await, Ok(FileFormat::Qcow2));
    fs::remove_file(&path).expect("removed");
    // A guest may make its raw disk one of any size; who only reads it fills no volume.
    qemu_img(&["create", "-q", "-f", "qcow2", &shown, "1025M"]);
    let refused = format().await.expect_err("larger than its volume");
    assert!(refused.contains("of a disk of 1074790400 bytes, and the volume has 1073741824"), "{refused}");
    assert_eq!(found(dir.path(), true).await.map(|file| file.format), Ok(FileFormat::Qcow2));
    // QEMU was killed.
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", "lazy_refcounts=on", &shown, "8M"]);
    let in_use = 1_u64.to_be_bytes();
    File::options().write(true).open(&path).and_then(|file| file.write_all_at(&in_use, 72)).expect("written");
    assert_eq!(format().await, Ok(FileFormat::Qcow2));
    fs::remove_file(&path).expect("removed");
    qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", &shown, "8M"]);
    let refused = format().await.expect_err("another file is below it");
    assert!(refused.contains("`disk.img` is refused: unsafe or broken qcow2 image"), "{refused}");
}

#[tokio::test]
async fn what_is_no_file_is_not_opened_and_nothing_is_followed() {
    let (dir, other) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
    let path = dir.path().join("disk.img");
    fs::write(other.path().join("secret"), vec![0; 512]).expect("written");
    symlink(other.path().join("secret"), &path).expect("linked");
    assert!(found(dir.path(), false).await.expect_err("a link").contains("`disk.img` cannot be opened"));
    fs::remove_file(&path).expect("removed");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    assert!(found(dir.path(), false).await.expect_err("a pipe").contains("cannot be opened"));
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    assert!(found(dir.path(), false).await.is_err());
}

#[tokio::test]
async fn a_start_takes_the_very_file_that_was_planned() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("disk.img");
    let volume = VolumeDisk::File(found(dir.path(), false).await.expect("made"));
    let disk = disk(volume.clone());
    let plan = plan_of(vec![disk.clone()]);
    assert_eq!(ready(&plan).await.expect("as planned"), None);
    now(&disk, &volume, None, AsyncIo::IoUring).expect("opened");
    let cached = DescribedDisk { cache: Some(DiskCache::Writeback), ..DescribedDisk::default() };
    assert_eq!(now(&disk, &volume, Some(&cached), AsyncIo::IoUring).expect("opened").io, AsyncIo::Threads);
    let files = opened(&plan).expect("opened");
    assert_eq!(files.iter().map(|(group, _)| group.as_str()).collect::<Vec<_>>(), ["disk-data"]);
    // A guest may make its raw disk one of another format.
    File::options().write(true).open(&path).and_then(|file| file.write_all_at(&QCOW2, 0)).expect("written");
    assert!(ready(&plan).await.is_err());
    fs::rename(&path, dir.path().join("old")).expect("renamed");
    fs::write(&path, vec![0; 512]).expect("written");
    let refused = Chain(&ready(&plan).await.expect_err("another one")).to_string();
    assert!(refused.contains("is another one than when the container was made"), "{refused}");
    assert!(opened(&plan).is_err());
}

#[tokio::test]
async fn a_root_disk_is_known_by_its_volume() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut plan = plan_of(Vec::new());
    plan.root.volume = Some(VolumeDisk::File(found(dir.path(), false).await.expect("made")));
    let root = ready(&plan).await.expect("ready").expect("the root disk");
    assert_eq!((root.slice, root.uuid.is_some()), (Slice { offset: 0, size: 962 << 20 }, true));
    assert_eq!(opened(&plan).expect("opened")[0].0, GROUP_OF_ROOT);
}

#[tokio::test]
async fn a_layer_is_made_anew_and_what_it_is_on_is_read_alone() {
    let (dir, volume) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
    let volumes = Volumes::open(dir.path().join("volumes")).expect("open");
    let folder = volumes.claim(&Owner::new(uuid::Uuid::nil(), (1, 0), "u", "default", "web")).expect("claimed");
    let qemu = QemuUser { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw() };
    let place = Place { volumes: &volumes, folder: &folder, qemu, most: None };
    let of = Of::Overlay(Lower::Dir(volume.path().to_owned()));
    let wanted = [Wanted { name: "data".into(), serial: Serial::of_name("data"), read_only: false, of }];
    make(&wanted, place).await.expect_err("nothing is made in a volume that is only read");
    assert!(fs::read_dir(volume.path()).expect("listed").next().is_none());
    fs::write(volume.path().join("disk.img"), vec![7; 1 << 20]).expect("written");
    let disks = make(&wanted, place).await.expect("made");
    let Some(VolumeDisk::Overlay(layer)) = disks[0].source.volume() else { panic!("a layer: {disks:?}") };
    assert_eq!(layer.overlay, dir.path().join("volumes/u/overlay-data.qcow2"));
    let first = fs::read(&layer.overlay).expect("there");
    assert_eq!(first[24..32], (1_u64 << 20).to_be_bytes(), "as large as what it is on");
    fs::write(&layer.overlay, "of a guest").expect("written");
    assert_eq!(make(&wanted, place).await.expect("made"), disks);
    assert_eq!(fs::read(&layer.overlay).expect("there"), first);

    for (most, fits) in [(Some(1 << 20), true), (Some(1 << 19), false)] {
        let made = make(&wanted, Place { most, ..place }).await;
        let root = make_root(Some(&wanted[0]), &folder, most).await;
        assert_eq!((made.is_ok(), root.is_ok()), (fits, fits), "{most:?}");
        if let Err(error) = made {
            let told = Chain(&error).to_string();
            assert!(error.kind() == Kind::Invalid && told.contains("would be of 1 GiB, more than the 0 GiB"), "{told}");
        }
    }

    let plan = plan_of(disks);
    assert_eq!(ready(&plan).await.expect("ready"), None);
    let [(group, file)] = &opened(&plan).expect("opened")[..] else { panic!("one file") };
    let flags = rustix::fs::fcntl_getfl(file).expect("flags");
    assert!(group == "disk-data" && !flags.intersects(OFlags::RDWR | OFlags::WRONLY | OFlags::DIRECT), "{flags:?}");

    let root = make_root(Some(&wanted[0]), &folder, None).await.expect("made");
    let (root, base) = root.expect("a root disk");
    let base = base.expect("of a layer");
    assert!(base.virtual_size == 1 << 20 && base.path == volume.path().join("disk.img"), "{base:?}");
    let mut plan = plan_of(Vec::new());
    plan.root.volume = Some(root);
    let now = ready(&plan).await.expect("ready").expect("a root disk");
    assert_eq!((now.uuid, now.disk.io), (None, AsyncIo::Threads), "it is the pod's");
}

#[test]
fn a_subpath_of_an_emptydir_is_none_of_these() {
    let dir = tempfile::tempdir().expect("tempdir");
    let pod = dir.path().join("pods/u");
    fs::create_dir_all(pod.join(EMPTY_DIRS).join("scratch")).expect("made");
    let check = |path: &str| {
        let of = Of::File { dir: pod.join(path), size: None };
        let wanted = Wanted { name: "data".into(), serial: Serial::of_name("data"), read_only: false, of };
        check_subpaths(&[wanted], "u").map_err(|error| error.to_string())
    };
    let refused = check("volume-subpaths/scratch/vm/0").expect_err("an emptyDir");
    assert!(refused.contains("disks[data].source: it is of an emptyDir"), "{refused}");
    check("volume-subpaths/pvc-1/vm/0").expect("a claim");
    check("volumes/kubernetes.io~csi/pvc-1/mount").expect("a claim");
}

#[tokio::test]
async fn what_hangs_is_not_waited_for_and_holds_few_threads() {
    const SOON: Duration = Duration::from_millis(20);
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Arc::new(std::sync::Mutex::new(told));
    let begun = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for _ in 0..10 {
        let (told, begun) = (told.clone(), begun.clone());
        let hangs = in_time(SOON, vec!["/proc".into()], move || {
            begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _ = told.lock().map(|told| told.recv());
            Ok(())
        });
        assert_eq!(hangs.await.expect_err("hangs").kind(), Kind::Deadline);
    }
    assert!(begun.load(std::sync::atomic::Ordering::SeqCst) <= 8);
    drop(tell);
}
