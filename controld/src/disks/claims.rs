//! Which machine may use a block device, or the file of a volume: of those that write to it, one at a time, since two that do spoil its file system without a word,
//! and who reads what another one writes sees a file system that changes under it. Those that all only read are free to, and so are those
//! whose runtime handlers say that they share disks, except root disks and files. QEMU's own lock does not see to that, since each QEMU has
//! the device's node in a `/dev` of its own. Who has a device is decided by the containers on record, and by the starts that this process has
//! already let through.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use proto::tap::PodId;
use vmspec::MachineId;
use vmspec::error::{Error, Kind};
use vmspec::plan::{Below, BlockDevice, DiskFile, FileId, MachinePlan, OverlayDisk, VolumeDisk, VolumeFile};

use super::volume_name;
use crate::model::{Container, ContainerState};

/// Machines that may use their devices, as far as this controld has started them.
#[derive(Debug, Default)]
pub(super) struct Claims {
    passed: Mutex<HashSet<MachineId>>,
}

impl Claims {
    /// Lets the container's machine have its devices. `records` are the containers as they are on record when it is asked, which is while
    /// nobody else gets past here: by an older list somebody might have passed who is not on it as one who starts.
    ///
    /// # Errors
    /// When another one's machine runs, or is being started, that has a device of it, and the two are not to have that at once.
    pub(crate) fn claim(
        &self,
        container: &Container,
        records: impl FnOnce() -> Vec<Arc<Container>>,
    ) -> Result<(), Box<InUse>> {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let all = records();
        passed.retain(|machine| all.iter().any(|other| other.machine.id == *machine && other.state.may_run()));
        let uses = |other: &Container| match other.state {
            ContainerState::Running | ContainerState::Uncertain => true,
            // Of two that are being started the first one has it.
            ContainerState::Starting => passed.contains(&other.machine.id),
            ContainerState::Created | ContainerState::Exited => false,
        };
        let holder = rivals(container, &all).find(|(other, ..)| uses(other));
        if let Some((other, store, access)) = holder {
            return Err(Box::new(InUse { store: store.to_string(), access, by: other.clone() }));
        }
        passed.insert(container.machine.id);
        Ok(())
    }
}

/// That a device or a file is another machine's.
#[derive(Debug)]
pub(crate) struct InUse {
    /// It in words.
    store: String,
    /// The most that one of the two does with it.
    access: Access,
    by: Arc<Container>,
}

impl InUse {
    /// Whose container it is that has it.
    pub(crate) fn sandbox(&self) -> &PodId {
        &self.by.sandbox
    }

    /// It in words, for a container that is not started; `pod` has it.
    pub(crate) fn refusal(&self, pod: &str) -> Error {
        let Self { store, access, by } = self;
        let rule = match access {
            Access::Root => "a root disk is one VM's at a time",
            Access::WriteFile => "a file that a VM writes to is one VM's at a time",
            Access::Write | Access::Read => {
                "a disk that a VM writes to is one VM's at a time, unless the runtime handlers of both have `shared_disks`"
            }
        };
        let what = format!(
            "{store} is in use by the VM of pod `{pod}` (container `{}`, `{}`), and {rule}",
            by.id, by.config.name
        );
        Error::new(Kind::State, what)
    }
}

/// What machines have, and only some of them together.
#[derive(Debug, Clone, Copy)]
enum Store<'a> {
    Device(&'a BlockDevice),
    File(&'a VolumeFile),
    /// The node's own: in an emptyDir, or of a flexvolume.
    Local(&'a DiskFile),
}

impl Store<'_> {
    fn is(self, other: Store<'_>) -> bool {
        match (self, other) {
            (Self::Device(one), Store::Device(other)) => one.number == other.number,
            (Self::File(one), Store::File(other)) => one.id == other.id,
            (Self::Local(one), Store::Local(other)) => one.dir == other.dir,
            (Self::File(file), Store::Local(local)) => id_of(local) == Some(file.id),
            (Self::Local(local), Store::File(file)) => id_of(local) == Some(file.id),
            (Self::Device(_), Store::File(_) | Store::Local(_))
            | (Self::File(_) | Self::Local(_), Store::Device(_)) => false,
        }
    }
}

/// What a file is that a volume's may be by another name. It is on a disk of the node, so this does not hang.
fn id_of(local: &DiskFile) -> Option<FileId> {
    let found = fs::symlink_metadata(local.path()).ok()?;
    Some(FileId::of(found.dev(), found.ino()))
}

impl fmt::Display for Store<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(BlockDevice { node, number }) => write!(f, "block device `{}` ({number})", node.display()),
            Self::File(file) => write!(f, "`{}` of volume `{}`", VolumeFile::NAME, volume_name::of(&file.dir)),
            Self::Local(file) => write!(f, "`{}` of volume `{}`", DiskFile::NAME, volume_name::of(&file.dir)),
        }
    }
}

/// What a machine does with a device or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Read,
    Write,
    /// No handler lets several do it.
    WriteFile,
    /// Boots from it; controld may have written to it.
    Root,
}

/// Containers whose machines cannot run while this one's does, each with what is why, and the most that one of the two does with it.
fn rivals<'a>(
    container: &'a Container,
    all: &'a [Arc<Container>],
) -> impl Iterator<Item = (&'a Arc<Container>, Store<'a>, Access)> {
    let others = all.iter().filter(|other| other.id != container.id);
    others.filter_map(|other| {
        let (store, access) = contested(&container.machine, &other.machine)?;
        Some((other, store, access))
    })
}

/// What one machine has that the other one may not have at the same time, and the most that one of the two does with it.
fn contested<'a>(one: &'a MachinePlan, other: &'a MachinePlan) -> Option<(Store<'a>, Access)> {
    let share = one.hardware.shared_disks && other.hardware.shared_disks;
    let pairs = stores(one).flat_map(|mine| stores(other).map(move |its| (mine, its)));
    let same = pairs.filter(|((mine, _), (its, _))| mine.is(*its));
    let most = same.map(|((store, mine), (_, its))| (store, mine.max(its))).max_by_key(|(_, access)| *access);
    most.filter(|(_, access)| match access {
        Access::Root | Access::WriteFile => true,
        Access::Write => !share,
        Access::Read => false,
    })
}

/// The devices and files of a machine, and what it does with each.
fn stores(plan: &MachinePlan) -> impl Iterator<Item = (Store<'_>, Access)> {
    let root = plan.root.persistent.as_ref().map(|root| (Store::Device(&root.device), Access::Root));
    let root_of_volume = plan.root.volume.as_ref().map(|volume| of_volume(volume, Access::Root));
    let disks = plan.disks.iter().filter_map(|disk| {
        let access = |write| if disk.read_only { Access::Read } else { write };
        let device = disk.source.block().map(|device| (Store::Device(device), access(Access::Write)));
        let local = disk.source.file().map(|file| (Store::Local(file), access(Access::WriteFile)));
        device.or(local).or_else(|| disk.source.volume().map(|volume| of_volume(volume, access(Access::WriteFile))))
    });
    root.into_iter().chain(root_of_volume).chain(disks)
}

/// What a disk in a volume is of, and what is done with that if `access` is what is done with the disk.
fn of_volume(volume: &VolumeDisk, access: Access) -> (Store<'_>, Access) {
    match volume {
        VolumeDisk::File(file) => (Store::File(file), access),
        VolumeDisk::Overlay(OverlayDisk { below: Below::File(file), .. }) => (Store::File(file), Access::Read),
        VolumeDisk::Overlay(OverlayDisk { below: Below::Block(device), .. }) => (Store::Device(device), Access::Read),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use vmspec::plan::{DeviceNumber, Disk, DiskSource, FileFormat, FileId, OnImageChange, PersistentRoot, Serial};
    use vmspec::{ContainerId, MountOptions};

    use super::*;
    use crate::container::tests::container;

    fn device(minor: u32) -> BlockDevice {
        BlockDevice { node: format!("/dev/loop{minor}").into(), number: DeviceNumber { major: 7, minor } }
    }

    fn of(state: ContainerState, root: Option<u32>, disk: Option<u32>) -> Arc<Container> {
        let mut container = Container { state, ..container("vm", 0) };
        container.machine.root.persistent = root.map(|minor| PersistentRoot {
            device: device(minor),
            volume: "pvc".into(),
            virtual_size: 1,
            on_image_change: OnImageChange::Keep,
            as_is: false,
            converted: false,
        });
        container.machine.disks = disk.map(data_disk).into_iter().collect();
        Arc::new(container)
    }

    fn in_state(container: &Arc<Container>, state: ContainerState) -> Arc<Container> {
        Arc::new(Container { state, ..container.as_ref().clone() })
    }

    fn data_disk(minor: u32) -> Disk {
        Disk {
            name: String::new(),
            serial: Serial::of_path("/dev/a"),
            source: DiskSource::Block(device(minor)),
            path: "/dev/a".into(),
            read_only: false,
            options: MountOptions::default(),
        }
    }

    #[test]
    fn a_root_disk_is_one_machines_at_a_time() {
        let wants = of(ContainerState::Starting, Some(1), None);
        for (other, free) in [
            (of(ContainerState::Running, Some(1), None), false),
            (of(ContainerState::Uncertain, Some(1), None), false),
            (of(ContainerState::Running, None, Some(1)), false),
            (of(ContainerState::Running, Some(2), Some(3)), true),
            (of(ContainerState::Exited, Some(1), None), true),
            (of(ContainerState::Created, Some(1), None), true),
            // It has not got past here itself.
            (of(ContainerState::Starting, Some(1), None), true),
        ] {
            let claimed = Claims::default().claim(&wants, || vec![wants.clone(), other.clone()]);
            assert_eq!(claimed.is_ok(), free, "{other:?}");
        }
        // Who has it as a disk of another kind waits as well.
        let running = of(ContainerState::Running, Some(1), None);
        let reads = of(ContainerState::Starting, None, Some(1));
        let in_use = Claims::default().claim(&reads, || vec![running.clone(), reads.clone()]).expect_err("refused");
        assert_eq!(in_use.sandbox(), &running.sandbox);
        let error = in_use.refusal("default/db");
        let begins = "block device `/dev/loop1` (7:1) is in use by the VM of pod `default/db` (container `";
        assert!(error.kind() == Kind::State && error.to_string().starts_with(begins), "{error}");
        assert!(error.to_string().ends_with("a root disk is one VM's at a time"), "{error}");
    }

    #[test]
    fn a_disk_that_a_machine_writes_to_is_no_other_ones() {
        let disk = |state, minor, read_only, shared_disks| {
            let mut container = of(state, None, Some(minor)).as_ref().clone();
            container.machine.hardware.shared_disks = shared_disks;
            container.machine.disks.iter_mut().for_each(|disk| disk.read_only = read_only);
            Arc::new(container)
        };
        let (starting, running) = (ContainerState::Starting, ContainerState::Running);
        for (mine, other, free) in [
            // Each: read-only, and whether disks are shared.
            ((false, false), (false, false), false),
            ((true, false), (false, false), false),
            ((false, false), (true, false), false),
            ((true, false), (true, false), true),
            ((false, true), (false, true), true),
            ((true, true), (false, true), true),
            // One of them alone cannot allow it.
            ((false, true), (false, false), false),
            ((false, false), (false, true), false),
        ] {
            let wants = disk(starting, 1, mine.0, mine.1);
            for (state, minor, free) in [
                (running, 1, free),
                (ContainerState::Uncertain, 1, free),
                (ContainerState::Exited, 1, true),
                (running, 2, true),
            ] {
                let other = disk(state, minor, other.0, other.1);
                let claimed = Claims::default().claim(&wants, || vec![wants.clone(), other.clone()]);
                assert_eq!(claimed.is_ok(), free, "{mine:?} beside {other:?}");
                if let Err(in_use) = claimed {
                    let error = in_use.refusal("default/db").to_string();
                    assert!(error.contains("`/dev/loop1` (7:1)") && error.ends_with("have `shared_disks`"), "{error}");
                }
            }
        }
        // A root disk is nobody else's whatever handlers say.
        let mut root = of(running, Some(1), None).as_ref().clone();
        root.machine.hardware.shared_disks = true;
        let (root, wants) = (Arc::new(root), disk(starting, 1, true, true));
        assert!(Claims::default().claim(&wants, || vec![wants.clone(), root]).is_err());
    }

    #[test]
    fn the_file_of_a_volume_is_one_machines_that_writes_to_it_whatever_handlers_say() {
        let file = |inode| {
            let id = FileId { device: DeviceNumber { major: 8, minor: 1 }, inode };
            VolumeDisk::File(VolumeFile { dir: "/pods/u/pvc".into(), id, format: FileFormat::Raw })
        };
        let with = |state, inode, read_only, is_root| {
            let mut container = of(state, None, None).as_ref().clone();
            container.machine.hardware.shared_disks = true;
            if is_root {
                container.machine.root.volume = Some(file(inode));
            } else {
                let source = DiskSource::Volume(file(inode));
                container.machine.disks = vec![Disk { source, read_only, ..data_disk(1) }];
            }
            Arc::new(container)
        };
        let (starting, running) = (ContainerState::Starting, ContainerState::Running);
        // Layers only read what they are on.
        let on = |below: Below| {
            let mut container = of(running, None, None).as_ref().clone();
            container.machine.root.volume = Some(VolumeDisk::Overlay(OverlayDisk { overlay: "/o".into(), below }));
            Arc::new(container)
        };
        let VolumeDisk::File(of_file) = file(1) else { panic!("a file") };
        for (layer, writer) in [
            (on(Below::File(of_file.clone())), with(starting, 1, false, false)),
            (on(Below::Block(device(1))), of(starting, None, Some(1))),
        ] {
            let claimed = Claims::default().claim(&writer, || vec![writer.clone(), layer.clone()]);
            assert!(claimed.is_err(), "{layer:?}");
            let other = in_state(&layer, starting);
            let other = Arc::new(Container { id: ContainerId::random(), ..other.as_ref().clone() });
            assert!(Claims::default().claim(&other, || vec![other.clone(), layer.clone()]).is_ok(), "{layer:?}");
        }
        for (mine, other, free) in [
            ((1, false, false), (1, false, false), false),
            ((1, true, false), (1, false, false), false),
            ((1, true, false), (1, true, false), true),
            ((1, true, false), (1, false, true), false),
            ((1, false, true), (2, false, true), true),
        ] {
            let wants = with(starting, mine.0, mine.1, mine.2);
            let other = with(running, other.0, other.1, other.2);
            let claimed = Claims::default().claim(&wants, || vec![wants.clone(), other.clone()]);
            assert_eq!(claimed.is_ok(), free, "{mine:?}");
            if let Err(in_use) = claimed {
                let told = in_use.refusal("default/db").to_string();
                assert!(
                    told.starts_with("`disk.img` of volume `/pods/u/pvc` is in use by the VM of pod `default/db`"),
                    "{told}"
                );
            }
        }
    }

    #[test]
    fn a_file_of_an_emptydir_is_known_by_any_name() {
        let (dir, other) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
        let local = DiskFile { dir: dir.path().to_owned(), size: 512, file_system: None };
        fs::write(local.path(), [0; 512]).expect("written");
        fs::write(other.path().join(DiskFile::NAME), [0; 512]).expect("written");
        let with = |state, source, read_only| {
            let mut container = of(state, None, None).as_ref().clone();
            container.machine.disks = vec![Disk { source, read_only, ..data_disk(1) }];
            Arc::new(container)
        };
        // As a `hostPath` finds it.
        let found = |dir: &std::path::Path| {
            let id = id_of(&DiskFile { dir: dir.to_owned(), ..local.clone() }).expect("there");
            DiskSource::Volume(VolumeDisk::File(VolumeFile { dir: "/srv".into(), id, format: FileFormat::Raw }))
        };
        let (starting, running) = (ContainerState::Starting, ContainerState::Running);
        for (source, read_only, free) in [
            (found(dir.path()), false, false),
            (found(other.path()), false, true),
            (DiskSource::File(local.clone()), false, false),
            (DiskSource::Block(device(1)), false, true),
            (found(dir.path()), true, false),
        ] {
            let holder = with(running, DiskSource::File(local.clone()), false);
            let wants = with(starting, source, read_only);
            let claimed = Claims::default().claim(&wants, || vec![wants.clone(), holder]);
            assert_eq!(claimed.is_ok(), free, "{wants:?}");
        }
    }

    #[test]
    fn of_two_that_start_at_once_the_first_one_has_it() {
        let claims = Claims::default();
        let (one, two) = (of(ContainerState::Starting, Some(1), None), of(ContainerState::Starting, Some(1), None));
        let all = || vec![one.clone(), two.clone()];
        assert!(claims.claim(&one, all).is_ok());
        assert!(claims.claim(&two, all).is_err());
        assert!(claims.claim(&one, all).is_ok(), "again is fine");
        let ended = in_state(&one, ContainerState::Exited);
        assert!(claims.claim(&two, || vec![ended, two.clone()]).is_ok());
    }

    #[test]
    fn who_has_it_as_another_disk_counts_from_its_start_until_it_is_known_to_be_gone() {
        let claims = Claims::default();
        let (reads, wants) = (of(ContainerState::Starting, None, Some(1)), of(ContainerState::Starting, Some(1), None));
        claims.claim(&reads, || vec![reads.clone(), wants.clone()]).expect("the first one");
        for state in [ContainerState::Starting, ContainerState::Running, ContainerState::Uncertain] {
            let other = in_state(&reads, state);
            assert!(claims.claim(&wants, || vec![other, wants.clone()]).is_err(), "{state:?}");
        }
        let ended = in_state(&reads, ContainerState::Exited);
        assert!(claims.claim(&wants, || vec![ended, wants.clone()]).is_ok());
    }

    #[test]
    fn of_two_whose_claims_meet_one_has_it() {
        /// One that has waited so long is not let past.
        const HELD: Duration = Duration::from_millis(200);
        let claims = Claims::default();
        let (one, two) = (of(ContainerState::Created, Some(1), None), of(ContainerState::Starting, Some(1), None));
        let records = Mutex::new(vec![one.clone(), two.clone()]);
        let all = || records.lock().expect("no panic").clone();
        let (tell, told) = mpsc::channel();
        let (first, second) = thread::scope(|scope| {
            let mut begun = None;
            let first = claims.claim(&two, || {
                let before = all();
                // Amid this claim the other one's start is recorded, and claims.
                let one = in_state(&one, ContainerState::Starting);
                *records.lock().expect("no panic") = vec![one.clone(), two.clone()];
                let (claims, all) = (&claims, &all);
                begun = Some(scope.spawn(move || {
                    let claimed = claims.claim(&one, all);
                    let _ = tell.send(());
                    claimed
                }));
                let _ = told.recv_timeout(HELD);
                before
            });
            (first, begun.expect("begun").join().expect("no panic"))
        });
        assert!(first.is_ok() && second.is_err(), "{first:?} {second:?}");
    }
}
