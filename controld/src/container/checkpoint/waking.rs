//! A pod that goes on from a checkpoint. Whoever makes its container asks here what the checkpoint is of, whether it can go on as that, and
//! for its files; the container's start asks for the rest.
//!
//! 1. [`open`]: the directory is judged and opened, its manifest read, and the head of its memory looked at ([`super::source`]).
//! 2. [`Waking::fits`]: the pod is planned as CreateContainer plans one, as it is now. The plan is what the machine is made of, and the
//!    manifest only refuses ([`super::fit`]). This is asked before anything is made, and again when the pod has its network.
//! 3. Files are copied to the pod's own, blocks shared where that can be, and compared with the manifest by their digests. The root disk's layer
//!    is judged as a stranger's image ([`super::overlay`]). The container is CREATED, with a note of the memory on its record.
//! 4. [`launch`](super::going_on): each start has a token of its own in the machine's description, so the head of the memory is written anew, and libvirt
//!    starts the machine from it as it would start another one: vmwrapper brings the NICs, at the slots that they had.
//! 5. [`go_on`](super::going_on): the guest runs, without carriers first, and learns by its agent which MAC addresses its NICs have now, if they are others.
//!    From then on the memory is of no use, as the guest writes to its disks, so it is emptied before; an empty one says that the guest may not
//!    run yet, and none that it has run. Done again from there by the next controld, if the record still has the note.
//!
//! What fails before the guest runs is undone as that of any other container and its start. The pod's next container goes on from the memory
//! then ([`super::memory`]), and boots if the guest has run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::tap::{MacAddr, PodNet, QemuUser};
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Applied, Disk, MachinePlan, MachineType};

use super::fit::{self, Here, Room};
use super::manifest::{DiskMade, Machine, Manifest, NicMade};
use super::memory::{memory_of, remove_memories};
use super::plan::{Of, refusals};
use super::source::{self, Source};
use super::{LOOK, NO_ANSWER, PLACE, TURN, failed, most, node, overlay, pass};
use crate::container::places::{Open, Place};
use crate::container::uses::Uses;
use crate::disks::emptydir;
use crate::files::remove;
use crate::model::{RestoreNote, Sandbox};

/// Most bytes of what UEFI remembers; QEMU's chip has less than 8 MiB.
const MOST_UEFI: u64 = 8 << 20;
/// Most bytes of a layer of a disk with so many: what is in it, and its tables.
const TABLES: u64 = 256 << 20;

/// A checkpoint that a pod is made of. It is opened once, and all is read through that.
#[derive(Debug)]
pub struct Waking {
    dir: PathBuf,
    manifest: Manifest,
    files: Arc<Open<Source>>,
    place: Place,
    unwanted: CancellationToken,
    /// A copy that is late is nobody's any more.
    _over: DropGuard,
    /// The name of one for warm starts.
    warm: Option<String>,
}

/// Opens the checkpoint in a directory.
///
/// # Errors
/// When there is none that can be read, or the directory does not answer.
pub(in crate::container) async fn open(uses: &Uses, path: &str) -> Result<Waking> {
    // A controld that goes down gives it up.
    let unwanted = uses.checkpoints.token();
    let (way, named) = (uses.checkpoints.way(path, PLACE).await?, path.to_owned());
    let dir = way.work(NO_ANSWER, LOOK, &unwanted, move || source::way(&named)).await?;
    drop(way);
    // Others have theirs until all of their files are copied.
    let place = uses.checkpoints.place(Uuid::new_v4().to_string(), vec![dir.clone()], TURN).await?;
    let named = dir.clone();
    let source = place.work(NO_ANSWER, LOOK, &unwanted, move || Source::open(&named)).await?;
    let manifest = source.manifest.clone();
    let _over = unwanted.clone().drop_guard();
    Ok(Waking { dir, manifest, files: Arc::new(place.keep(source)), place, unwanted, _over, warm: None })
}

/// What of a plan is looked at beside what it has.
pub(in crate::container) struct Wanted<'a> {
    pub(in crate::container) plan: &'a MachinePlan,
    pub(in crate::container) image_id: &'a str,
    /// Bytes of the root disk.
    pub(in crate::container) root: u64,
    /// The pod's network; `None` if it has none yet.
    pub(in crate::container) net: Option<&'a PodNet>,
}

impl Waking {
    /// What a container of this pod has on record.
    pub(in crate::container) fn note(&self, sandbox: &Sandbox) -> RestoreNote {
        let Manifest { namespace, pod, nics, .. } = &self.manifest;
        let is_clone = (namespace, pod) != (&sandbox.config.namespace, &sandbox.config.name);
        let given = sandbox.net.iter().flat_map(|net| &net.nics);
        let learns =
            nics.iter().zip(given).map(|(nic, given)| (nic.mac, given.mac)).filter(|(had, given)| had != given);
        RestoreNote { dir: self.dir.clone(), is_clone, learns: learns.collect(), is_warm: self.warm.is_some() }
    }

    /// The same, as one for warm starts of this name.
    pub(in crate::container) fn warm(self, key: String) -> Self {
        Self { warm: Some(key), ..self }
    }

    /// Its name, if it is one for warm starts.
    pub(in crate::container) fn key(&self) -> Option<&str> {
        self.warm.as_deref()
    }

    /// What gives up its copies.
    #[must_use]
    pub fn unwanted(&self) -> CancellationToken {
        self.unwanted.clone()
    }

    /// The NICs that the guest has, by their links, with the addresses that it knows them by.
    #[must_use]
    pub fn macs(&self) -> Vec<(String, MacAddr)> {
        self.manifest.nics.iter().map(|nic| (nic.name.clone(), nic.mac)).collect()
    }

    /// The name that its container had.
    #[must_use]
    pub fn container(&self) -> &str {
        &self.manifest.container
    }

    /// The machine type that the guest has found, with its version, if a pod that asks for `asked` can have that.
    ///
    /// # Errors
    /// When it cannot.
    pub(in crate::container) fn machine_type(&self, asked: &MachineType) -> Result<MachineType> {
        let made = &self.manifest.machine.kind;
        // `q35` and `pc` are any version.
        let is_any = matches!(asked.as_str(), "q35" | "pc") && asked.chipset() == made.chipset();
        if is_any || asked == made {
            return Ok(made.clone());
        }
        let what = format!(
            "the checkpoint cannot go on here: its machine type is `{made}`, and the pod, or its runtime handler, asks for `{asked}`"
        );
        Err(Error::new(Kind::State, what))
    }

    /// Whether the guest can go on as this machine.
    ///
    /// # Errors
    /// When it cannot; all that differs is told.
    pub(in crate::container) async fn fits(&self, uses: &Uses, wanted: Wanted<'_>) -> Result<()> {
        let Wanted { plan, image_id, root, net } = wanted;
        let refused = refusals(plan, net);
        if !refused.is_empty() {
            let what = format!("a pod cannot be made of a checkpoint: {}", refused.join("; "));
            return Err(Error::new(Kind::State, what));
        }
        let node = node(uses, &plan.hardware).await?;
        let types = uses.hypervisor.machine_types().await?;
        let nics = net.map(NicMade::all);
        let applied = Applied { vcpus: plan.cpus.boot, memory: plan.memory.boot };
        let here = Here {
            image_id,
            emulator: &node.emulator,
            types: &types,
            machine: &Machine::of(plan, applied, node.cpu),
            nics: nics.as_deref(),
            learns: plan.guest.has_agent,
            disks: &DiskMade::all(plan),
            room: &|of| room(plan, root, of),
        };
        fit::check(&self.manifest, &here)
    }

    /// Makes disks that are files in emptyDirs, with what the guest knows to be on them. One that an earlier try has left is taken.
    ///
    /// # Errors
    /// When one cannot be made, or there is another one.
    pub(in crate::container) async fn make_disks(&self, disks: &[Disk]) -> Result<()> {
        for disk in disks {
            let Some(file) = disk.source.file().cloned() else { continue };
            let (files, unwanted, of) = (self.files.clone(), self.unwanted.clone(), Of::Disk(disk.serial.to_string()));
            let serial = disk.serial.clone();
            let make = move || {
                let files = files.files()?;
                let not_made = |cause| failed(&format!("disk `{serial}` not made"), cause);
                let Some(half) = emptydir::begin(&file).map_err(not_made)? else {
                    let there = emptydir::open(&file.path(), 0, true).map_err(not_made)?;
                    if files.is_there(&of, &there, &unwanted)? {
                        return Ok(());
                    }
                    let what = format!("disk `{serial}` is there already, and is not the checkpoint's; remove the pod");
                    return Err(Error::new(Kind::Exists, what));
                };
                files.copy(&of, half.file(), &unwanted)?;
                half.finish().map_err(not_made)
            };
            self.work(&Of::Disk(disk.serial.to_string()), make).await?;
        }
        Ok(())
    }

    /// Makes the root disk's layer at a path where nothing is, on an image with this id and path, for a disk of so many bytes, as QEMU's user's.
    ///
    /// # Errors
    /// When it cannot be made, or the checkpoint's is none.
    pub(in crate::container) async fn make_root(
        &self,
        at: PathBuf,
        (image_id, image): (String, PathBuf),
        size: u64,
        qemu: QemuUser,
    ) -> Result<()> {
        let (files, unwanted) = (self.files.clone(), self.unwanted.clone());
        let make = move || {
            let image = image.to_str().ok_or_else(|| Error::new(Kind::Internal, "the image's path is not UTF-8"))?;
            let not_made = |cause| failed("the root disk not made", cause);
            let made = new_file(&at).map_err(not_made)?;
            let fill = || {
                files.files()?.copy(&Of::Root, &made, &unwanted)?;
                overlay::adopt(&made, &image_id, image, size)?;
                finish(&made, Some(qemu)).map_err(not_made)
            };
            whole_or_gone(&at, &made, fill())
        };
        self.work(&Of::Root, make).await
    }

    /// Makes the file of what UEFI remembers, if there is UEFI, in the place of one that is there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(in crate::container) async fn make_uefi(&self, at: PathBuf, qemu: QemuUser) -> Result<()> {
        let (files, unwanted) = (self.files.clone(), self.unwanted.clone());
        let not_made = |cause| failed("the file of UEFI's variables not made", cause);
        let make = move || {
            remove(&at).map_err(not_made)?;
            let made = new_file(&at).map_err(not_made)?;
            let fill = || {
                files.files()?.copy(&Of::Uefi, &made, &unwanted)?;
                finish(&made, Some(qemu)).map_err(not_made)
            };
            whole_or_gone(&at, &made, fill())
        };
        self.work(&Of::Uefi, make).await
    }

    /// Makes the file of the guest's memory, which is root's, in the place of those that earlier tries have left.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(in crate::container) async fn make_memory(&self, plan: &MachinePlan) -> Result<()> {
        let (files, unwanted, at) = (self.files.clone(), self.unwanted.clone(), memory_of(plan));
        let not_made = |cause| failed("the file of the guest's memory not made", cause);
        let make = move || {
            remove_memories(&at).map_err(not_made)?;
            let made = new_file(&at).map_err(not_made)?;
            let fill = || {
                files.files()?.copy(&Of::Memory, &made, &unwanted)?;
                finish(&made, None).map_err(not_made)
            };
            whole_or_gone(&at, &made, fill())
        };
        self.work(&Of::Memory, make).await
    }

    /// Works on one file, as long as that may take.
    async fn work(&self, of: &Of, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let bytes = self.manifest.files.iter().find(|part| part.of == *of).map_or(0, |part| part.bytes);
        let deadline = pass(bytes);
        self.place.work("a file of the checkpoint was not copied", deadline, &self.unwanted, work).await
    }
}

/// How many bytes files of a machine's checkpoint have, whose root disk has so many.
fn room(plan: &MachinePlan, root: u64, of: &Of) -> Room {
    match of {
        Of::Memory => Room::AtMost(most(plan.memory.max)),
        Of::Root => Room::AtMost(root.saturating_add(root / 64).saturating_add(TABLES)),
        Of::Uefi => Room::AtMost(MOST_UEFI),
        Of::Disk(serial) => {
            let disk = plan.disks.iter().find(|disk| disk.serial.as_str() == serial);
            disk.and_then(|disk| disk.source.file()).map_or(Room::AtMost(0), |file| Room::Just(file.size))
        }
    }
}

fn new_file(at: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, at, flags, Mode::RUSR | Mode::WUSR)?);
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Removes a file that was made anew and did not become whole: the disk may be full, and the pod may stay. If another one is in its place by
/// now, this is a thread that was late, and that one is of a later try.
fn whole_or_gone(at: &Path, made: &File, filled: Result<()>) -> Result<()> {
    filled.inspect_err(|_why| {
        let removed = is_at(made, at).and_then(|is_there| if is_there { remove(at) } else { Ok(()) });
        if let Err(cause) = removed {
            tracing::warn!(path = %at.display(), %cause, "a part of a checkpoint's file stays");
        }
    })
}

/// Whether a path leads to this file.
fn is_at(file: &File, at: &Path) -> io::Result<bool> {
    let is = |found: &fs::Metadata| (found.dev(), found.ino());
    match fs::symlink_metadata(at) {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(is(&found?) == is(&file.metadata()?)),
    }
}

fn finish(file: &File, owner: Option<QemuUser>) -> io::Result<()> {
    if let Some(QemuUser { uid, gid }) = owner {
        fchown(file, Some(uid), Some(gid))?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use vmspec::MountOptions;
    use vmspec::plan::{DiskFile, DiskSource, Serial};

    use super::*;
    use crate::container::tests::container;

    #[test]
    fn a_file_has_as_many_bytes_as_such_a_machine_gives_it() {
        let mut plan = container("vm", 0).machine;
        let source = DiskSource::File(DiskFile { dir: "/empty".into(), size: 7 << 20, file_system: None });
        let serial = Serial::of_name("scratch");
        let options = MountOptions::default();
        plan.disks = vec![Disk { name: String::new(), serial, source, path: String::new(), read_only: false, options }];
        let of = |of: Of| room(&plan, 1 << 30, &of);
        assert_eq!(of(Of::Disk("scratch".into())), Room::Just(7 << 20));
        assert_eq!(of(Of::Disk("another".into())), Room::AtMost(0));
        assert_eq!(of(Of::Memory), Room::AtMost(most(1 << 27)));
        assert!(matches!(of(Of::Root), Room::AtMost(bytes) if bytes > 1 << 30 && bytes < 2 << 30));
    }

    #[test]
    fn a_file_that_did_not_become_whole_is_gone() {
        let dir = tempfile::tempdir().expect("tempdir");
        let at = dir.path().join("a.memory");
        let made = new_file(&at).expect("made");
        let damaged = || Err(Error::new(Kind::DataLoss, "damaged"));
        whole_or_gone(&at, &made, Ok(())).expect("whole");
        assert!(at.exists());
        let error = whole_or_gone(&at, &made, damaged()).expect_err("damaged");
        assert_eq!((error.kind(), at.exists()), (Kind::DataLoss, false));
        let _next = new_file(&at).expect("made anew");
        whole_or_gone(&at, &made, damaged()).expect_err("damaged");
        assert!(at.exists(), "it is that of a later try");
    }
}
