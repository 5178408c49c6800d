//! Disks that are files in volumes which kubelet has mounted: `disk.img`, as KubeVirt has it in claims that are no block volumes. And layers on such
//! a file, or on a block volume: those lie with the pod's other disks, and are made anew for each container.
//!
//! A file is found, or made, when the container is made, and the plan says which it is and of which format. A start looks at it again, all
//! of it if it is qcow2, since guests and others write to it in between: no other file is below it, and QEMU is told its format and never
//! looks itself. QEMU's user does not come to kubelet's directories, so each start opens the file here and hands the descriptor to libvirt.
//! Nothing in a volume is followed, and nothing in it is removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use common::off_reactor;
use nix::sys::statvfs::statvfs;
use proto::tap::QemuUser;
use proto::vm::DEVICE_DIR;
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::time::timeout;
use vmimage::inspect::{Bytes as _, DiskFormat, Expected, Policy, Refusal, examine};
use vmspec::draft::volume_disks::{Lower, Of, Wanted, of_empty_dir};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{
    Below, DescribedDisk, Disk, DiskFile, DiskSource, FileFormat, FileId, MachinePlan, OverlayDisk, VolumeDisk,
    VolumeFile,
};
use vmspec::{MountOptions, pod_dir};

use super::block_devices::Node;
use super::emptydir::{open, open_for_qemu, without_copies};
use super::looks::Looks;
use super::volume_name;
use crate::model::domain::{AsyncIo, DiskNow, GROUP_OF_ROOT, RootNow, Slice, group_of};
use crate::store::is_disk_full;
use crate::volumes::{Base, Folder, VolumeError, Volumes};

/// Of all of a machine's. The tables of a full qcow2 disk of 16 TiB are 2 GiB, in a volume that may be far away.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Looks at volumes: 8 at those of one server, and a part of all the threads of this process at all.
static LOOKS: LazyLock<Looks> = LazyLock::new(|| Looks::new(8, 128));
/// How long others may take to let one go: most are done in milliseconds, and many machines may be made at once.
const LOOK_DEADLINE: Duration = Duration::from_secs(5);
/// What begins a qcow2 file.
const QCOW2: [u8; 4] = *b"QFI\xfb";
const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;
/// Of a hundred parts of a volume, those that a new disk has. The rest is for the volume's file system, as with KubeVirt.
const PARTS: u64 = 94;
/// What file systems have that are empty; file servers show snapshots so.
pub(crate) const OF_EMPTY: [&str; 3] = ["lost+found", ".snapshot", ".snapshots"];
/// kubelet's directory of a pod's emptyDirs, in the pod's.
const EMPTY_DIRS: &str = "volumes/kubernetes.io~empty-dir";
const GIB: u64 = 1 << 30;
/// Longest part of a name that an error shows, in characters.
const MAX_SHOWN: usize = 64;

/// Why the file of a volume is no disk.
#[derive(Debug, thiserror::Error)]
enum NoDisk {
    #[error("the volume has no `disk.img`, and the VM only reads it")]
    Absent,
    #[error(
        "the volume has no `disk.img` and is not empty (there is {0:?}), so that none is made; name the disk so, or take an empty volume"
    )]
    NotEmpty(String),
    #[error("the volume has room for {0} bytes, and a disk is 1 MiB at least; take a larger one")]
    Small(u64),
    #[error("`disk.img` is refused")]
    Refused(#[source] Refusal),
    #[error("`disk.img` has {0} bytes, which are no whole sectors of 512; is it cut off?")]
    Sectors(u64),
    #[error(
        "`disk.img` is a qcow2 file of a disk of {size} bytes, and the volume has {most}; if its guest has not made it so, take a larger volume"
    )]
    Larger { size: u64, most: u64 },
    #[error(
        "a layer on it would be of {} GiB, more than the {} GiB that controld gives a disk; take a smaller one, or have `max_disk_gib` of `machine` or of the runtime handler raised",
        .size.div_ceil(GIB), .most / GIB
    )]
    Limit { size: u64, most: u64 },
    #[error("`disk.img` is another one than when the container was made; kubelet makes the container anew")]
    Other,
    #[error("`disk.img` cannot be {0}")]
    Io(&'static str, #[source] io::Error),
    #[error("the size of its device is not known")]
    Size(#[source] io::Error),
}

/// Where layers are made.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) volumes: &'a Volumes,
    /// The pod's.
    pub(crate) folder: &'a Folder,
    pub(crate) qemu: QemuUser,
    /// Most bytes of one.
    pub(crate) most: Option<u64>,
}

/// The disks of a container's machine that are in volumes, or on them; files that are not there are made, and layers anew.
///
/// # Errors
/// When a volume has no disk and none can be made, or a layer cannot.
pub(crate) async fn make(wanted: &[Wanted], Place { volumes, folder, qemu, most }: Place<'_>) -> Result<Vec<Disk>> {
    let mut disks = Vec::new();
    for Wanted { name, serial, read_only, of } in wanted {
        let volume = match look(name, of, *read_only).await? {
            Looked::File(file) => VolumeDisk::File(file),
            Looked::Below(below, base) => {
                check_limit(name, &base, most)?;
                let made = volumes.make_overlay(folder, name, &base, qemu).await;
                let failed = |cause| not_made(name, cause);
                VolumeDisk::Overlay(OverlayDisk { overlay: made.map_err(failed)?, below })
            }
        };
        disks.push(Disk {
            name: name.clone(),
            serial: serial.clone(),
            source: DiskSource::Volume(volume),
            // The guest finds it by its serial.
            path: String::new(),
            read_only: *read_only,
            options: MountOptions::default(),
        });
    }
    Ok(disks)
}

/// The disk that a machine boots from, if it is one of these; of a layer also what it is to be made on, as the pod's root overlay.
///
/// # Errors
/// When the volume has no disk and none can be made, or a layer would have more than `most` bytes.
pub(crate) async fn make_root(
    wanted: Option<&Wanted>,
    folder: &Folder,
    most: Option<u64>,
) -> Result<Option<(VolumeDisk, Option<Base>)>> {
    let Some(Wanted { name, of, read_only, .. }) = wanted else { return Ok(None) };
    Ok(Some(match look(name, of, *read_only).await? {
        Looked::File(file) => (VolumeDisk::File(file), None),
        Looked::Below(below, base) => {
            check_limit(name, &base, most)?;
            (VolumeDisk::Overlay(OverlayDisk { overlay: folder.overlay(), below }), Some(base))
        }
    }))
}

/// Makes sure that the files of a machine are those that it was planned with, and sound; how its root disk is used in this start, if that is
/// one of them.
///
/// # Errors
/// When one is not.
pub(crate) async fn ready(plan: &MachinePlan) -> Result<Option<RootNow>> {
    if files(plan).next().is_none() && plan.root.volume.is_none() {
        return Ok(None);
    }
    let plan = plan.clone();
    in_time(DEADLINE, dirs(&plan), move || {
        let sizes = files(&plan).map(|(name, file)| check(file).map_err(|cause| refused(name, cause)));
        let sizes = sizes.collect::<Result<Vec<u64>>>()?;
        let Some(volume) = &plan.root.volume else { return Ok(None) };
        let described = &plan.hardware.described;
        let disk = used(&described.root_volume, volume, false, Some(&described.root), Node::new().async_io())?;
        let uuid = match volume {
            VolumeDisk::File(file) => Some(volume_name::uuid(&volume_name::of_disk(&file.dir))),
            // As any disk of the pod's own.
            VolumeDisk::Overlay(_) => None,
        };
        let size = sizes.first().copied().unwrap_or_default();
        Ok(Some(RootNow { disk, slice: Slice { offset: 0, size }, uuid }))
    })
    .await
}

/// How such a disk is used in a start that is now. Blocks.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn now(disk: &Disk, volume: &VolumeDisk, said: Option<&DescribedDisk>, io: AsyncIo) -> Result<DiskNow> {
    used(&disk.name, volume, disk.read_only, said, io)
}

/// Files of a machine's disks for libvirt, by the names that its description has for them. Blocks.
///
/// # Errors
/// When one is not there any more, or is another one.
pub(crate) fn opened(plan: &MachinePlan) -> Result<Vec<(String, File)>> {
    let hardware = &plan.hardware;
    let root = plan.root.volume.iter().map(|volume| {
        (&*hardware.described.root_volume, GROUP_OF_ROOT.to_owned(), volume, false, Some(&hardware.described.root))
    });
    let others = plan.disks.iter().filter_map(|disk| {
        Some((&*disk.name, group_of(disk), disk.source.volume()?, disk.read_only, hardware.said_of(&disk.name)))
    });
    let mut files = Vec::new();
    for (name, group, volume, read_only, said) in root.chain(others) {
        let Some(file) = volume.file() else { continue };
        let said = said.and_then(DescribedDisk::is_direct);
        // QEMU opens what is below a layer as it opens that.
        let (read_only, is_direct) = match volume {
            VolumeDisk::File(_) => (read_only, said),
            VolumeDisk::Overlay(_) => (true, Some(said == Some(true))),
        };
        let (opened, _) = open_same(file, read_only, is_direct).map_err(|cause| refused(name, cause))?;
        files.push((group, opened));
    }
    Ok(files)
}

/// Refuses a `subPath` of an emptyDir, which has no limit of its own: kubelet binds it to where nothing says so but the volume's name. Blocks.
///
/// # Errors
/// When a volume is one.
pub(crate) fn check_subpaths(wanted: &[Wanted], uid: &str) -> Result<()> {
    let is_one = |dir: &Path| {
        let (pod, volume) = pod_dir::subpath(dir.to_str()?, uid)?;
        pod.join(EMPTY_DIRS).join(volume).symlink_metadata().ok()
    };
    match wanted.iter().find(|wanted| wanted.dir().and_then(is_one).is_some()) {
        Some(wanted) => Err(of_empty_dir(&wanted.name)),
        None => Ok(()),
    }
}

/// Work on a machine's disks, which may hang if some are in volumes. Does not wait for it longer than `deadline` then.
///
/// # Errors
/// Those of the work, or that it does not come to an end.
pub(crate) async fn work_on<T: Send + 'static>(
    plan: &MachinePlan,
    deadline: Duration,
    work: impl FnOnce(&MachinePlan) -> Result<T> + Send + 'static,
) -> Result<T> {
    let dirs = dirs(plan);
    let plan = plan.clone();
    let work = move || work(&plan);
    if dirs.is_empty() { off_reactor(work).await } else { in_time(deadline, dirs, work).await }
}

/// Waits for work on volumes that are mounted at these.
async fn in_time<T: Send + 'static>(
    deadline: Duration,
    dirs: Vec<PathBuf>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Ok(look) = timeout(LOOK_DEADLINE.min(deadline), LOOKS.begin(dirs)).await else {
        let what = "no volume was looked at: earlier looks at the same file system, or as many as there may be at all, have not come to an end; a file system of the node hangs";
        return Err(Error::new(Kind::Deadline, what));
    };
    let work = move || {
        let _look = look;
        work()
    };
    timeout(deadline, off_reactor(work)).await.map_err(|_elapsed| {
        let what = format!(
            "the volumes of the VM's disks did not answer within {} s; a file system of the node hangs",
            deadline.as_secs()
        );
        Error::new(Kind::Deadline, what)
    })?
}

/// Holds a layer to what a new disk may be; it has as much as what it is on.
fn check_limit(name: &str, base: &Base, most: Option<u64>) -> Result<()> {
    let size = base.virtual_size;
    match most {
        Some(most) if size > most => Err(refused(name, NoDisk::Limit { size, most })),
        _ => Ok(()),
    }
}

/// The files of volumes that a machine has, that of the root disk first, each with the name of its disk.
fn files(plan: &MachinePlan) -> impl Iterator<Item = (&str, &VolumeFile)> {
    let root = plan.root.volume.iter().map(|volume| (&*plan.hardware.described.root_volume, volume));
    let others = plan.disks.iter().filter_map(|disk| Some((&*disk.name, disk.source.volume()?)));
    root.chain(others).filter_map(|(name, volume)| Some((name, volume.file()?)))
}

/// Where those are.
fn dirs(plan: &MachinePlan) -> Vec<PathBuf> {
    files(plan).map(|(_, file)| file.dir.clone()).collect()
}

/// What was looked at.
enum Looked {
    File(VolumeFile),
    /// With what a layer is made on.
    Below(Below, Base),
}

/// Looks at a volume; a file that is not there and may be written to is made.
async fn look(name: &str, of: &Of, read_only: bool) -> Result<Looked> {
    let (name, of) = (name.to_owned(), of.clone());
    let dirs = of.dir().map(Path::to_owned).into_iter().collect();
    in_time(DEADLINE, dirs, move || match of {
        Of::File { dir, size } => {
            let seen = found_or_made(&dir, size, read_only).and_then(|seen| seen.fits(&dir, size, read_only));
            let seen = seen.map_err(|cause| refused(&name, cause))?;
            Ok(Looked::File(VolumeFile { dir, id: seen.id, format: seen.format }))
        }
        Of::Overlay(Lower::Dir(dir)) => {
            let seen = found_or_made(&dir, None, true).map_err(|cause| refused(&name, cause))?;
            let file = VolumeFile { dir, id: seen.id, format: seen.format };
            let base = base(&name, file.path(), seen.format, seen.size);
            Ok(Looked::Below(Below::File(file), base))
        }
        Of::Overlay(Lower::Device(path)) => {
            let node = Node::new();
            let device = node.block_device(&format!("volume \"{name}\""), &path)?;
            let size = node.size(device.number).map_err(|cause| refused(&name, NoDisk::Size(cause)))?;
            let base = base(&name, device.node.clone(), FileFormat::Raw, size);
            Ok(Looked::Below(Below::Block(device), base))
        }
    })
    .await
}

/// What a layer is made on. No image has such a name.
fn base(name: &str, path: PathBuf, format: FileFormat, virtual_size: u64) -> Base {
    Base {
        image_id: String::new(),
        path,
        format: format.word().to_owned(),
        virtual_size,
        name: format!("volume {name}"),
    }
}

/// What a file is.
struct Seen {
    id: FileId,
    format: FileFormat,
    /// Bytes of the disk.
    size: u64,
}

impl Seen {
    /// Holds a disk that is written to to the size of its volume, which is what is said, or what a file system has and takes itself. A guest can
    /// make its raw disk look like a qcow2 file of any size.
    fn fits(self, dir: &Path, said: Option<u64>, read_only: bool) -> Result<Self, NoDisk> {
        if read_only || self.format != FileFormat::Qcow2 {
            return Ok(self);
        }
        let stat = statvfs(dir).map_err(|errno| NoDisk::Io("looked at", errno.into()))?;
        let of_all = stat.blocks().saturating_mul(stat.fragment_size());
        let most = said.unwrap_or_else(|| (of_all / PARTS).saturating_mul(100));
        if self.size > most { Err(NoDisk::Larger { size: self.size, most }) } else { Ok(self) }
    }
}

fn found_or_made(dir: &Path, size: Option<u64>, read_only: bool) -> Result<Seen, NoDisk> {
    let path = dir.join(VolumeFile::NAME);
    let is_half = match open(&path, 0, true) {
        // Nothing is lost of one that has nothing.
        Ok(file) => file.metadata().map_err(io_failed("looked at"))?.len() == 0,
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => true,
        Err(cause) => return Err(NoDisk::Io("opened", cause)),
    };
    if is_half {
        if read_only {
            return Err(NoDisk::Absent);
        }
        make_file(dir, size)?;
    }
    examined(&open(&path, 0, true).map_err(io_failed("opened"))?)
}

/// Makes the file of an empty volume: raw and with holes.
fn make_file(dir: &Path, size: Option<u64>) -> Result<(), NoDisk> {
    for entry in fs::read_dir(dir).map_err(io_failed("made"))? {
        let name = entry.map_err(io_failed("made"))?.file_name();
        if name != VolumeFile::NAME && !OF_EMPTY.iter().any(|of_empty| name == *of_empty) {
            return Err(NoDisk::NotEmpty(name.to_string_lossy().chars().take(MAX_SHOWN).collect()));
        }
    }
    let stat = statvfs(dir).map_err(|errno| NoDisk::Io("made", errno.into()))?;
    let room = stat.blocks_available().saturating_mul(stat.fragment_size());
    let bytes = size_of_new(size.map_or(room, |size| size.min(room)))?;
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let made = openat(CWD, dir.join(VolumeFile::NAME), flags, Mode::RUSR | Mode::WUSR);
    let made = File::from(made.map_err(|errno| NoDisk::Io("made", errno.into()))?);
    let metadata = made.metadata().map_err(io_failed("made"))?;
    if !metadata.is_file() || metadata.len() > 0 {
        // Somebody was faster, and what that is, is looked at.
        return Ok(());
    }
    without_copies(&made);
    made.set_len(bytes).and_then(|()| made.sync_all()).map_err(io_failed("made"))
}

/// Bytes of a new disk of a volume with so many, in whole MiB.
fn size_of_new(volume: u64) -> Result<u64, NoDisk> {
    let bytes = volume / 100 * PARTS / MIB * MIB;
    if bytes == 0 { Err(NoDisk::Small(volume)) } else { Ok(bytes.min(DiskFile::MOST)) }
}

/// What a file is, by all of it.
fn examined(file: &File) -> Result<Seen, NoDisk> {
    let found = file.metadata().map_err(io_failed("looked at"))?;
    let id = FileId::of(found.dev(), found.ino());
    let format = format_of(file).map_err(io_failed("read"))?;
    let size = match format {
        FileFormat::Raw if found.len() == 0 || !found.len().is_multiple_of(SECTOR) => {
            return Err(NoDisk::Sectors(found.len()));
        }
        // Whatever a guest has written: it is told so, and nobody looks into it.
        FileFormat::Raw => found.len(),
        FileFormat::Qcow2 => {
            let policy = Policy { allow_raw: false, max_virtual_size: DiskFile::MOST };
            let expected = Expected { policy, declared: Some(DiskFormat::Qcow2), layered: false, written: true };
            let examined = examine(file, found.len(), expected).map_err(io_failed("read"))?;
            examined.map_err(NoDisk::Refused)?.virtual_size
        }
    };
    Ok(Seen { id, format, size })
}

fn format_of(file: &File) -> io::Result<FileFormat> {
    let mut head = [0; QCOW2.len()];
    file.read(0, &mut head)?;
    Ok(if head == QCOW2 { FileFormat::Qcow2 } else { FileFormat::Raw })
}

/// Looks at all of a file again; bytes of the disk.
fn check(planned: &VolumeFile) -> Result<u64, NoDisk> {
    let file = open(&planned.path(), 0, true).map_err(io_failed("opened"))?;
    let Seen { id, format, size } = examined(&file)?;
    if (id, format) == (planned.id, planned.format) { Ok(size) } else { Err(NoDisk::Other) }
}

/// The file for QEMU, and whether it is past the node's cache.
fn open_same(planned: &VolumeFile, read_only: bool, is_direct: Option<bool>) -> Result<(File, bool), NoDisk> {
    let (file, is_direct) = open_for_qemu(&planned.path(), read_only, is_direct).map_err(io_failed("opened"))?;
    let found = file.metadata().map_err(io_failed("looked at"))?;
    let id = FileId::of(found.dev(), found.ino());
    if id == planned.id { Ok((file, is_direct)) } else { Err(NoDisk::Other) }
}

/// How a disk is used. A guest has the sectors of the device that a layer is on.
fn used(
    name: &str,
    volume: &VolumeDisk,
    read_only: bool,
    said: Option<&DescribedDisk>,
    io: AsyncIo,
) -> Result<DiskNow> {
    match volume {
        VolumeDisk::File(file) => {
            let opened = open_same(file, read_only, said.and_then(DescribedDisk::is_direct));
            let (_, is_direct) = opened.map_err(|cause| refused(name, cause))?;
            Ok(DiskNow { io: if is_direct { io } else { AsyncIo::Threads }, sectors: None })
        }
        VolumeDisk::Overlay(OverlayDisk { below: Below::File(_), .. }) => {
            Ok(DiskNow { io: AsyncIo::Threads, sectors: None })
        }
        VolumeDisk::Overlay(OverlayDisk { below: Below::Block(device), .. }) => {
            let now = Node::new().use_of(&format!("{DEVICE_DIR}{name}"), device)?;
            Ok(DiskNow { io: AsyncIo::Threads, ..now })
        }
    }
}

fn io_failed(what: &'static str) -> impl Fn(io::Error) -> NoDisk {
    move |cause| NoDisk::Io(what, cause)
}

fn not_made(name: &str, cause: VolumeError) -> Error {
    let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
    Error::because(kind, format!("layer on volume \"{name}\" not made"), cause)
}

/// A path of the node is of no use to the pod's user.
fn refused(name: &str, cause: NoDisk) -> Error {
    let kind = match &cause {
        NoDisk::Io(_, cause) if is_disk_full(cause) => Kind::Exhausted,
        NoDisk::Refused(_) | NoDisk::Sectors(_) | NoDisk::Larger { .. } | NoDisk::Limit { .. } => Kind::Invalid,
        NoDisk::Absent | NoDisk::NotEmpty(_) | NoDisk::Small(_) | NoDisk::Other | NoDisk::Io(..) | NoDisk::Size(_) => {
            Kind::State
        }
    };
    Error::because(kind, format!("volume \"{name}\" cannot be a disk of the VM"), cause)
}

#[cfg(test)]
mod tests;
