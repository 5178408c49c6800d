//! The plan of a machine, from what kubelet, the pod and the node say. Pure: it looks at nothing, and makes nothing.

mod as_disk;
mod described;
mod disk_limit;
pub mod disks;
mod emptydir;
pub mod files_disks;
pub mod flexvolume;
pub mod guest;
pub mod hardware;
pub mod image_volumes;
pub mod mount_options;
pub mod persistent;
mod promise;
mod share;
pub mod size;
pub mod volume_disks;
mod volumes;

use std::path::Path;

pub use self::promise::promise;
use self::volumes::Volumes;
use crate::annotations::PodAnnotations;
use crate::error::{Error, Result};
use crate::ids::domain_name;
use crate::plan::{Cgroup, Cpus, Disk, DiskImage, Guest, Hardware, MachinePlan, Memory, Passed, RootDisk, Share};
use crate::seed::{GuestDisk, guest_device, guest_disks};
use crate::settings::{Handler, MachineConfig};
use crate::{Accelerator, ContainerConfig, MachineId, Offer, SandboxConfig};

/// What a plan is made from, beside its root disk.
#[derive(Debug, Clone, Copy)]
pub struct Wishes<'a> {
    pub id: MachineId,
    pub sandbox: &'a SandboxConfig,
    pub container: &'a ContainerConfig,
    pub annotations: &'a PodAnnotations,
    /// Those that the container mounts.
    pub flexvolumes: &'a [flexvolume::Wanted],
    /// The pod's runtime handler.
    pub handler: &'a Handler,
    /// What the emulator has for machines of its type, if it was asked.
    pub offer: Option<&'a Offer>,
    pub accel: Accelerator,
    pub node: &'a MachineConfig,
}

/// All of a plan but the disks, which are not looked for until the rest of it is known to be possible.
#[derive(Debug, Clone)]
pub struct Draft {
    id: MachineId,
    cpus: Cpus,
    memory: Memory,
    huge_page: Option<u64>,
    hardware: Hardware,
    smbios: Option<uuid::Uuid>,
    cgroup: Cgroup,
    guest: Guest,
    share: Option<Share>,
    root: Option<persistent::Wanted>,
    disks: Vec<disks::Wanted>,
    files: Vec<Disk>,
    images: Vec<image_volumes::Wanted>,
    flexvolumes: Vec<Disk>,
    with_files: Vec<Disk>,
    of_volumes: Vec<volume_disks::Wanted>,
    volume_root: Option<volume_disks::Wanted>,
}

/// What came out well; what did not is added to the problems.
fn kept<T>(made: Result<T>, wrong: &mut Vec<Error>) -> Option<T> {
    made.map_err(|error| wrong.push(error)).ok()
}

impl Draft {
    /// # Errors
    /// When there is no machine that is as it is wished.
    pub fn of(wishes: Wishes<'_>) -> Result<Self> {
        let wanted = size::Wanted {
            resources: wishes.container.resources.as_ref(),
            overhead: wishes.sandbox.memory_overhead.unwrap_or_default(),
            vcpus: wishes.annotations.vcpus,
            max_vcpus: wishes.annotations.max_vcpus,
            max_memory: wishes.annotations.max_memory,
            handler: Some(&wishes.handler.defaults),
        };
        let sizes = wishes.handler.defaults.on(wishes.node);
        // Each of them is told, but what can be known only of those that came out well.
        let mut wrong = Vec::new();
        let cpus = kept(size::cpus(wanted, &sizes), &mut wrong);
        let huge_page = wishes.container.resources.as_ref().and_then(|resources| Some(resources.huge_pages?.size));
        let hardware = cpus.and_then(|cpus| {
            kept(hardware::of(wishes.handler, wishes.annotations, wishes.offer, wishes.accel, cpus.max), &mut wrong)
        });
        let fits = cpus.zip(hardware.as_ref()).and_then(|(cpus, hardware)| {
            kept(described::check(hardware, cpus, wishes.accel, wishes.offer.is_some()), &mut wrong)
        });
        let cgroup = kept(Cgroup::of(&wishes.sandbox.cgroup_parent, wishes.id), &mut wrong);
        let root = kept(persistent::of(wishes.container, wishes.annotations, wishes.handler), &mut wrong);
        let planned = |hardware: &Hardware| {
            let volumes = Volumes::of(&wishes, hardware)?;
            described::disks::check(hardware, &volumes).map(|()| volumes)
        };
        let volumes = hardware.as_ref().and_then(|hardware| kept(planned(hardware), &mut wrong));
        let guest = volumes.as_ref().and_then(|volumes| {
            let Wishes { sandbox, container, annotations, handler, .. } = wishes;
            let mounted = mounted(&volumes.files, &volumes.images, &volumes.flexvolumes);
            let all = (&volumes.disks[..], &mounted[..]);
            kept(guest::of(sandbox, container, annotations, handler, volumes.share.as_ref(), all), &mut wrong)
        });
        let held = volumes.as_ref().zip(root.as_ref()).and_then(|(volumes, root)| {
            let has_lasting_root = root.is_some() || volumes.has_lasting_root();
            kept(mount_options::check(&wishes, volumes, has_lasting_root), &mut wrong)
        });
        let files: Vec<&Disk> = volumes.iter().flat_map(Volumes::new_disks).collect();
        let small = kept(disk_limit::check(wishes.annotations, &files, sizes.max_disk), &mut wrong);
        let memory = cpus.and_then(|cpus| {
            let parts = hardware.as_ref().zip(volumes.as_ref()).map(|(hardware, volumes)| volumes.parts(hardware));
            kept(size::memory(wanted, cpus.boot, parts.unwrap_or_default(), wishes.accel, &sizes), &mut wrong)
        });
        let memory = memory.and_then(|memory| {
            let fixed = hardware.as_ref().is_some_and(|hardware| hardware.described.devices.no_balloon);
            if fixed { kept(described::fixed(memory), &mut wrong) } else { Some(memory) }
        });
        let (
            Some(cpus),
            Some(memory),
            Some(hardware),
            Some(cgroup),
            Some(root),
            Some(volumes),
            Some(guest),
            Some(()),
            Some(()),
            Some(()),
        ) = (cpus, memory, hardware, cgroup, root, volumes, guest, held, small, fits)
        else {
            return Err(Error::all(&wrong));
        };
        let Volumes { share, disks, files, images, flexvolumes, with_files, of_volumes, root: volume_root } = volumes;
        let smbios = wishes.annotations.system_uuid;
        Ok(Self {
            id: wishes.id,
            cpus,
            memory,
            huge_page,
            hardware,
            smbios,
            cgroup,
            guest,
            share,
            root,
            disks,
            files,
            images,
            flexvolumes,
            with_files,
            of_volumes,
            volume_root,
        })
    }

    /// What its guest would find itself on.
    pub const fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    /// The memory that it would have.
    pub const fn memory(&self) -> Memory {
        self.memory
    }

    /// The volumes that its guest would see.
    pub const fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// The volume that it would boot from, if that is one.
    pub const fn persistent_root(&self) -> Option<&persistent::Wanted> {
        self.root.as_ref()
    }

    /// What it would boot from of a volume that kubelet mounts, if it does.
    pub const fn volume_root(&self) -> Option<&volume_disks::Wanted> {
        self.volume_root.as_ref()
    }

    /// Whether the disk that it would boot from is there before the pod and after it.
    pub fn has_lasting_root(&self) -> bool {
        self.root.is_some() || self.volume_root.as_ref().is_some_and(volume_disks::Wanted::is_lasting)
    }

    /// Of its disks beside the root disk, those that are of volumes that kubelet mounts.
    pub fn of_volumes(&self) -> &[volume_disks::Wanted] {
        &self.of_volumes
    }

    /// Of its disks, those that are files in emptyDirs.
    pub fn files(&self) -> &[Disk] {
        &self.files
    }

    /// Those that are flexvolumes.
    pub fn flexvolumes(&self) -> &[Disk] {
        &self.flexvolumes
    }

    /// With the files of new flexvolumes below `dir`.
    pub fn with_files_below(self, dir: &Path) -> Self {
        Self { flexvolumes: flexvolume::placed(self.flexvolumes, dir), ..self }
    }

    /// Its disks beside the root disk, as the guest would see them.
    pub fn guest_disks(&self) -> Vec<GuestDisk> {
        let device =
            |disk: &disks::Wanted| guest_device(&disk.serial, &disk.path, disk.read_only, (&self.hardware, &disk.name));
        let mounted = mounted(&self.files, &self.images, &self.flexvolumes);
        self.disks.iter().map(device).chain(guest_disks(&mounted, &self.hardware)).collect()
    }

    /// Of its disks, those that are images.
    pub fn images(&self) -> &[image_volumes::Wanted] {
        &self.images
    }

    /// Of its disks beside the root disk, those that are block volumes.
    pub fn disks(&self) -> &[disks::Wanted] {
        &self.disks
    }

    /// The plan of the machine of container `name`, with these block volumes, images and disks of mounted volumes.
    pub fn finish(
        self,
        name: &str,
        root: RootDisk,
        [blocks, images, of_volumes]: [Vec<Disk>; 3],
        passed: Passed,
    ) -> MachinePlan {
        MachinePlan {
            id: self.id,
            domain: domain_name(self.id.uuid(), name),
            cpus: self.cpus,
            memory: self.memory,
            hardware: self.hardware,
            root,
            huge_page: self.huge_page,
            smbios: self.smbios,
            cgroup: Some(self.cgroup),
            guest: self.guest,
            share: self.share,
            disks: [blocks, self.files, images, self.flexvolumes, self.with_files, of_volumes].concat(),
            passed,
        }
    }
}

/// Those of a guest's disks of which it is told what is on them.
fn mounted(files: &[Disk], images: &[image_volumes::Wanted], flexvolumes: &[Disk]) -> Vec<Disk> {
    let images = images.iter().map(|image| image.disk(DiskImage::default()));
    files.iter().cloned().chain(images).chain(flexvolumes.iter().cloned()).collect()
}
