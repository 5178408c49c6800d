//! A pod that goes on from a checkpoint. Whoever makes its container asks here what the checkpoint is of, whether it can go on as that, and
//! for its files; the container's start asks for the rest.
//!
//! 1. [`open`]: the directory is judged and opened, its manifest read, and the head of its memory looked at ([`super::source`]).
//! 2. [`Waking::fits`]: the pod is planned as CreateContainer plans one, as it is now. The plan is what the machine is made of, and the
//!    manifest only refuses ([`super::fit`]). This is asked before anything is made, and again when the pod has its network.
//! 3. Files are copied to the pod's own, blocks shared where that can be, and compared with the manifest by their digests. The root disk's layer
//!    is judged as a stranger's image ([`super::overlay`]). The container is CREATED, with a note of the memory on its record.
//! 4. [`launch`]: each start has a token of its own in the machine's description, so the head of the memory is written anew, and libvirt
//!    starts the machine from it as it would start another one: vmwrapper brings the NICs, at the slots that they had.
//! 5. [`go_on`]: the guest runs, without carriers first, and learns by its agent which MAC addresses its NICs have now, if they are others.
//!    From then on the memory is of no use, as the guest writes to its disks, so it is emptied before; an empty one says that the guest may not
//!    run yet, and none that it has run. Done again from there by the next controld, if the record still has the note.
//!
//! What fails before the guest runs is undone as that of any other container and its start. The pod's next container goes on from the memory
//! then ([`hand_over`]), and boots if the guest has run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::dns::host_name;
use common::{Chain, off_reactor};
use proto::tap::{MacAddr, PodNet, QemuUser};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Applied, Disk, MachinePlan, MachineType};

use super::fit::{self, Here, Room};
use super::manifest::{DiskMade, Machine, Manifest, NicMade};
use super::plan::{Of, refusals};
use super::source::{self, Source};
use super::{LOOK, NO_ANSWER, PLACE, TURN, failed, most, net_of, node, overlay, pass};
use crate::container::places::{Open, Place};
use crate::container::slots::Slots;
use crate::container::uses::Uses;
use crate::disks::emptydir;
use crate::files::{io_failed, remove};
use crate::hypervisor::StartTurn;
use crate::model::{Container, RestoreNote, Sandbox};

/// How long a guest that was woken has no carriers: its kernel sees that at once, and whoever asks for its addresses a moment later.
/// Nothing tells that they have.
const NO_CARRIER: Duration = Duration::from_millis(300);
/// And how much longer at the most where an agent is known to be, which tells that the guest runs.
const ANSWER: Duration = Duration::from_secs(5);
/// How names of files with memories end.
const MEMORIES: &str = ".memory";
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
    Ok(Waking { dir, manifest, files: Arc::new(place.keep(source)), place, unwanted })
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
        RestoreNote { dir: self.dir.clone(), is_clone, learns: learns.collect() }
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
            whole_or_gone(&at, fill())
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
            whole_or_gone(&at, fill())
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
            whole_or_gone(&at, fill())
        };
        self.work(&Of::Memory, make).await
    }

    /// Works on one file, as long as that may take.
    async fn work(&self, of: &Of, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let bytes = self.manifest.files.iter().find(|part| part.of == *of).map_or(0, |part| part.bytes);
        // It is written, and read again.
        let deadline = pass(bytes.saturating_mul(2));
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

/// Where the memory of a machine is that is to go on from it.
pub(in crate::container) fn memory_of(plan: &MachinePlan) -> PathBuf {
    plan.root.overlay.with_file_name(format!("{}{MEMORIES}", plan.id))
}

/// Has a machine go on from the memory that another one of its pod has not gone on from, if the two are the same but for their names: whether
/// there is one.
///
/// # Errors
/// When the disk fails.
pub(in crate::container) async fn hand_over(from: &MachinePlan, to: &MachinePlan) -> Result<bool> {
    let renamed = MachinePlan { id: to.id, domain: to.domain.clone(), cgroup: to.cgroup.clone(), ..from.clone() };
    if renamed != *to {
        return Ok(false);
    }
    let (from, to) = (memory_of(from), memory_of(to));
    let linked = move || {
        // It may have run.
        if fs::metadata(&from)?.len() == 0 {
            return Ok(false);
        }
        fs::hard_link(from, to).map(|()| true)
    };
    match off_reactor(linked).await {
        // It has run.
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Ok(false),
        handed => {
            handed.map_err(|cause| io_failed("the guest's memory not handed over to the pod's next container", cause))
        }
    }
}

/// Empties a memory, if there is one.
fn empty(memory: &Path) -> io::Result<bool> {
    match openat(CWD, memory, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(false),
        opened => {
            let file = File::from(opened?);
            file.set_len(0)?;
            // Before anything that the guest writes.
            file.sync_all().map(|()| true)
        }
    }
}

/// Removes the memories in a pod's folder: its earlier containers and a killed controld may have left some.
fn remove_memories(one: &Path) -> io::Result<()> {
    let Some(dir) = one.parent() else { return Ok(()) };
    let entries = match fs::read_dir(dir) {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().ends_with(MEMORIES.as_bytes()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn new_file(at: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, at, flags, Mode::RUSR | Mode::WUSR)?);
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Removes a file that was made anew and did not become whole: the disk may be full, and the pod may stay.
fn whole_or_gone(at: &Path, filled: Result<()>) -> Result<()> {
    filled.inspect_err(|_why| {
        if let Err(cause) = remove(at) {
            tracing::warn!(path = %at.display(), %cause, "a part of a checkpoint's file stays");
        }
    })
}

fn finish(file: &File, owner: Option<QemuUser>) -> io::Result<()> {
    if let Some(QemuUser { uid, gid }) = owner {
        fchown(file, Some(uid), Some(gid))?;
    }
    file.sync_all()
}

/// Starts a machine that is defined by `description` from its memory, and holds its guest, until `unwanted` gives it up.
///
/// # Errors
/// When the memory is not there, or the machine does not start.
pub(in crate::container) async fn launch(
    uses: &Uses,
    container: &Container,
    description: String,
    (turn, log): (StartTurn, &Path),
    unwanted: &CancellationToken,
) -> Result<()> {
    let memory = memory_of(&container.machine);
    let file = memory.clone();
    let described = move || {
        let not_described = |cause| io_failed("the head of the guest's memory not written", cause);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(CWD, &file, flags, Mode::empty());
        let file = File::from(opened.map_err(|cause| {
            let what = "the guest's memory is not there any more, from which it was to go on; restore the pod anew, or let it boot";
            Error::because(Kind::State, what, cause)
        })?);
        let bytes = source::memory_at(&file)
            .map_err(|why| Error::because(Kind::DataLoss, "the guest's memory cannot be restored", why))?
            .with(&description)
            .map_err(|why| Error::because(Kind::State, "the guest's memory cannot have another head", why))?;
        file.write_all_at(&bytes, 0).map_err(not_described)?;
        Ok::<_, Error>(file.metadata().map_err(not_described)?.len())
    };
    let len = off_reactor(described).await?;
    uses.hypervisor.wake(turn, container.machine.id.uuid(), (memory.as_path(), log), pass(len), unwanted).await
}

/// Lets a guest run that [`launch`] holds, and has it ask for its addresses anew. Again is fine, also if it runs.
///
/// # Errors
/// When libvirt does not do it.
pub(in crate::container) async fn go_on(uses: &Arc<Uses>, container: &Container) -> Result<()> {
    let (id, memory) = (container.machine.id.uuid(), memory_of(&container.machine));
    let nics = nics_with_carrier(uses, container)?;
    let not_removed = |cause| io_failed("the guest's memory not removed", cause);
    // What runs writes to its disks, of which the memory knows nothing: it is restored no second time.
    let emptied = memory.clone();
    if off_reactor(move || empty(&emptied)).await.map_err(not_removed)? {
        uses.hypervisor.run_woken(id, nics.clone()).await?;
        // From here on whoever pauses it is not undone.
        off_reactor(move || remove_memories(&memory)).await.map_err(not_removed)?;
    }
    let learns = container.restore.as_ref().map(|note| &*note.learns).unwrap_or_default();
    if learns.is_empty() {
        // An agent that answers has run without carriers, however slow its guest is.
        let answer = async {
            if container.machine.guest.has_agent {
                drop(timeout(ANSWER, uses.agents.learn(container.machine.id, learns)).await);
            }
        };
        tokio::join!(sleep(NO_CARRIER), answer);
    } else {
        uses.agents.learn(container.machine.id, learns).await?;
    }
    uses.hypervisor.give_carriers(id, nics).await?;
    tell(uses.clone(), container);
    Ok(())
}

/// The NICs that a guest has with a carrier from its start, each by its place among vmwrapper's.
fn nics_with_carrier(uses: &Uses, container: &Container) -> Result<Vec<usize>> {
    let net = net_of(uses, container).ok_or_else(|| Error::new(Kind::State, "the sandbox has no network"))?;
    let machine = &container.machine;
    let down = Slots::of(&net, machine.passed.devices.len(), &machine.hardware.described)?.down;
    Ok((0..net.nics.len()).filter(|nic| !down.contains(nic)).collect())
}

/// Has the guest told what it cannot see, beside all else: many have no agent.
fn tell(uses: Arc<Uses>, container: &Container) {
    let sandbox = uses.store.sandbox(&container.sandbox);
    let is_clone = container.restore.as_ref().is_some_and(|note| note.is_clone);
    let name = sandbox.filter(|_| is_clone).map(|sandbox| {
        let config = &sandbox.config;
        host_name(&config.hostname, &config.name).to_owned()
    });
    let (of, id) = (container.id, container.machine.id);
    let tell = async move {
        // It may have been written amid somebody's freeze.
        if let Err(error) = uses.agents.thaw(id).await {
            tracing::debug!(error = %Chain(&error), "no agent of QEMU's thaws what may have been frozen at the checkpoint");
        }
        // It may have ended meanwhile.
        if uses.store.container(of).is_none() {
            return;
        }
        match uses.agents.woken(id, name.as_deref()).await {
            Ok(()) => tracing::info!(is_clone, "the guest has gone on from a checkpoint, and its agent has told it so"),
            Err(error) => tracing::warn!(
                is_clone,
                error = %Chain(&error),
                "the guest has gone on from a checkpoint, and nobody has set its clock, or its host name, machine id and keys if it is a clone"
            ),
        }
    };
    tokio::spawn(tell.in_current_span());
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
    fn memories_of_earlier_tries_go_and_nothing_else() {
        let dir = tempfile::tempdir().expect("tempdir");
        for name in ["root.qcow2", "a.memory", "b.memory", "memory.json"] {
            fs::write(dir.path().join(name), "").expect("written");
        }
        remove_memories(&dir.path().join("c.memory")).expect("removed");
        let names = fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["memory.json", "root.qcow2"]);
        remove_memories(&dir.path().join("gone/c.memory")).expect("there are none");
    }

    #[test]
    fn a_file_that_did_not_become_whole_is_gone() {
        let dir = tempfile::tempdir().expect("tempdir");
        let at = dir.path().join("a.memory");
        fs::write(&at, "").expect("written");
        whole_or_gone(&at, Ok(())).expect("whole");
        assert!(at.exists());
        let error = whole_or_gone(&at, Err(Error::new(Kind::DataLoss, "damaged"))).expect_err("damaged");
        assert_eq!((error.kind(), at.exists()), (Kind::DataLoss, false));
    }

    #[tokio::test]
    async fn a_memory_is_the_next_machines_if_that_is_the_same_and_the_last_one_did_not_run() {
        let dir = tempfile::tempdir().expect("tempdir");
        let [mut last, mut next] = [0, 1].map(|attempt| container("vm", attempt).machine);
        for plan in [&mut last, &mut next] {
            plan.root.overlay = dir.path().join("root.qcow2");
        }
        assert!(!hand_over(&last, &next).await.expect("none"));
        fs::write(memory_of(&last), "memory").expect("written");
        let larger = MachinePlan { huge_page: Some(2 << 20), ..next.clone() };
        assert!(!hand_over(&last, &larger).await.expect("another machine"));
        assert!(hand_over(&last, &next).await.expect("the same"));
        assert_eq!(fs::read(memory_of(&next)).expect("handed over"), b"memory");
        fs::remove_file(memory_of(&last)).expect("removed");
        assert!(empty(&memory_of(&next)).expect("emptied") && !empty(&memory_of(&last)).expect("none"));
        assert!(!hand_over(&next, &last).await.expect("it may have run"));
        remove_memories(&memory_of(&next)).expect("it runs");
        assert!(!hand_over(&last, &next).await.expect("it has run"));
    }
}
