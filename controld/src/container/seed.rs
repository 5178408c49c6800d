//! The seed of a container's machine: which volumes it is made of, and where it lies. What is in it is [`vmspec::seed`]'s.
//!
//! Looked at when the container is made, and again at each start: what kubelet has changed in a volume since is in it then.

pub(crate) mod api;
mod volume;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use common::{Chain, Reason};
use proto::tap::{PodNet, QemuUser};
use uuid::Uuid;
use vmspec::annotations::{PodAnnotations, Source};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Disk, DiskBus, Serial, Share};
use vmspec::seed::{self, ConfigDelivery, FirmwareName, GuestDisk, GuestMount, Seed, SeedInput, Sources};
use vmspec::settings::Handler;
use vmspec::{ContainerConfig, MachineId, Mount, SandboxConfig};

use super::look::io_failed;
use super::pod_dir;
use super::remove::remove as remove_file;
use crate::config::Config;
use crate::model::domain::FirmwareEntry;

/// Where a container mounts what controld alone is to read.
pub(super) const FOR_US: &str = "/run/virtlet/seed";
/// Where kubelet mounts the service account's token, which nearly every pod has. It lapses, so there are no copies of it.
pub(super) const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Where kubelet mounts the pod's hosts file.
const HOSTS: &str = "/etc/hosts";
/// Most bytes that are read of it: `hostAliases` may make it long.
const MAX_HOSTS: u64 = 64 << 10;
/// kubelet's directories of volumes that it fills itself, one for each kind.
const KINDS: [&str; 4] =
    ["kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api"];

/// Of what a seed is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wishes<'a> {
    pub(super) sandbox: &'a SandboxConfig,
    pub(super) container: &'a ContainerConfig,
    pub(super) annotations: &'a PodAnnotations,
    /// What annotations name of the API.
    pub(super) objects: &'a api::Objects,
    pub(super) handler: &'a Handler,
    pub(super) net: &'a PodNet,
    pub(super) share: Option<&'a Share>,
    /// Disks of the guest's beside the root disk.
    pub(super) disks: &'a [GuestDisk],
    /// What the guest's disk is known by, if that outlives the pod and has been seen.
    pub(super) instance: Option<Uuid>,
}

/// A seed that was written.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    /// The disk.
    pub(super) disk: Option<PathBuf>,
    pub(super) firmware: Vec<FirmwareEntry>,
}

/// Where files of a machine's seed may lie.
pub(super) fn paths(config: &Config, machine: MachineId) -> Vec<PathBuf> {
    let firmware = FirmwareName::ALL.map(|name| firmware_path(config, machine, name));
    [disk_path(config, machine)].into_iter().chain(firmware).collect()
}

fn disk_path(config: &Config, machine: MachineId) -> PathBuf {
    config.run_dir.join("seed").join(format!("{machine}.iso"))
}

fn firmware_path(config: &Config, machine: MachineId, name: FirmwareName) -> PathBuf {
    config.run_dir.join("seed").join(format!("{machine}.{}", name.suffix))
}

/// The pod's name of the volume, if it is one that kubelet fills itself for the pod with this UID. One of another pod is a `hostPath`.
pub(super) fn config_volume<'a>(mount: &'a Mount, uid: &str) -> Option<&'a str> {
    let (_, name) = mount.host_path.rsplit_once('/')?;
    KINDS.iter().any(|kind| pod_dir::is_volume(&mount.host_path, uid, kind, name)).then_some(name)
}

/// Whether the guest is not to see it.
pub(super) fn is_for_us(mount: &Mount) -> bool {
    Path::new(&mount.container_path).starts_with(FOR_US)
}

/// Makes a seed, with the program of the agent if that is to be in it. Blocks.
///
/// # Errors
/// When a volume is not there or has not what it is to have, or what the pod wants cannot reach the guest.
pub(super) fn assemble(wishes: Wishes<'_>, agent: Option<&[u8]>) -> Result<Seed> {
    let sources = sources(wishes, read)?;
    let hosts = hosts_file(wishes.sandbox, wishes.container);
    let mounts = guest_mounts(wishes, |source| std::fs::metadata(source).is_ok_and(|found| !found.is_dir()));
    let input = SeedInput { agent, hosts: &hosts, ..input(wishes, &sources, &mounts) };
    seed::assemble(&input).map_err(not_made)
}

/// Finds what is wrong with a seed by all that is known without the node: volumes that are mounted are taken to be there, and are not read. Pure.
///
/// # Errors
/// When a volume is not mounted, or what the pod wants cannot reach the guest.
pub(super) fn check_unread(wishes: Wishes<'_>) -> Result<()> {
    let sources = sources(wishes, |_, _| Ok(seed::Volume::default()))?;
    let mounts = guest_mounts(wishes, |_| false);
    seed::check_unread(&input(wishes, &sources, &mounts)).map_err(not_made)
}

fn not_made(cause: Reason) -> Error {
    Error::because(Kind::Invalid, "the pod's cloud-init seed cannot be made", cause)
}

/// What a seed is made of, without the agent and kubelet's hosts file.
fn input<'a>(wishes: Wishes<'a>, sources: &'a Sources, mounts: &'a [GuestMount]) -> SeedInput<'a> {
    let Wishes { sandbox, container, annotations, handler, net, disks, instance, .. } = wishes;
    SeedInput {
        pod_name: &sandbox.name,
        namespace: &sandbox.namespace,
        uid: &sandbox.uid,
        instance,
        hostname: &sandbox.hostname,
        hosts: "",
        annotations,
        net,
        agent: None,
        kind: handler.defaults.seed_kind(annotations),
        delivery: handler.defaults.delivery(annotations),
        network: handler.defaults.network_config(annotations),
        credentials: handler.defaults.credentials,
        sources,
        env: &container.process.env,
        mounts,
        disks,
        has_agent: handler.defaults.has_agent(annotations),
    }
}

/// Writes a seed for QEMU to read. Blocks.
///
/// # Errors
/// When it cannot be written; there is nothing of it then.
pub(super) fn write(config: &Config, machine: MachineId, seed: &Seed, qemu: QemuUser) -> Result<Written> {
    let failed = |cause| io_failed("seed not written", cause);
    if !seed.skipped().is_empty() {
        let variables = seed.skipped().join(", ");
        tracing::warn!(%variables, "variables are not in the guest's file of them, which cannot hold them");
    }
    if !seed.off_subnet().is_empty() {
        let nics = seed.off_subnet().join(", ");
        tracing::warn!(
            %nics,
            "the guest may lack routes of these NICs: a gateway is outside of its NIC's subnet, which only netplan heeds, and \
             a seed of kind configdrive cannot say"
        );
    }
    let image = seed
        .to_iso()
        .map_err(|cause| Error::because(Kind::Invalid, "the pod's cloud-init seed cannot be made", cause))?;
    for path in paths(config, machine) {
        remove_file(&path).map_err(failed)?;
    }
    let mut written = Written::default();
    if let Some(image) = image {
        let path = disk_path(config, machine);
        write_private(&path, &image, qemu).map_err(failed)?;
        written.disk = Some(path);
    }
    for file in seed.firmware() {
        let path = firmware_path(config, machine, file.name);
        write_private(&path, &file.content, qemu).map_err(failed)?;
        written.firmware.push(FirmwareEntry { name: file.name.name, file: path });
    }
    Ok(written)
}

/// Removes what was written, once QEMU has it. Blocks.
pub(super) fn remove(config: &Config, machine: MachineId) -> io::Result<()> {
    paths(config, machine).iter().try_for_each(|path| remove_file(path))
}

/// Writes a file that QEMU's group may read and nobody else: it holds what the pod's user wants kept.
fn write_private(path: &Path, contents: &[u8], qemu: QemuUser) -> io::Result<()> {
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).and_then(|mut file: File| {
        file.write_all(contents)?;
        chown(path, Some(0), Some(qemu.gid))?;
        file.set_permissions(PermissionsExt::from_mode(0o640))
    });
    if written.is_err() {
        // The error that matters is the first one.
        let _ = remove_file(path);
    }
    written
}

/// What annotations name, and copies, with what `read` finds in each volume.
fn sources(wishes: Wishes<'_>, read: impl Fn(&str, &Mount) -> Result<seed::Volume>) -> Result<Sources> {
    let Wishes { sandbox, container, annotations, objects, handler, .. } = wishes;
    let of_kubelet = |mount| config_volume(mount, &sandbox.uid);
    let mut sources = Sources { named: objects.clone(), copies: Vec::new() };
    for (key, source) in annotations.seed_sources() {
        let Source::Volume(name) = source else { continue };
        if sources.named.contains_key(source) {
            continue;
        }
        let Some(mount) = container.mounts.iter().find(|mount| of_kubelet(*mount) == Some(name.as_str())) else {
            let what = format!(
                "annotation {key}: no volume {name:?} is mounted in this container that is a ConfigMap, a Secret, a projected \
                 volume or the downward API; mount it whole, at {FOR_US}/{name} if the guest is not to see it"
            );
            return Err(Error::new(Kind::Invalid, what));
        };
        sources.named.insert(source.clone(), read(name, mount)?);
    }
    if handler.defaults.delivery(annotations) == ConfigDelivery::Seed {
        for mount in container.mounts.iter().filter(|mount| mount.container_path != TOKEN && !is_for_us(mount)) {
            if let Some(name) = of_kubelet(mount) {
                sources.copies.push((mount.container_path.clone(), read(name, mount)?));
            }
        }
    }
    Ok(sources)
}

/// The beginning of what kubelet mounts at `/etc/hosts`; empty if it mounts nothing there, or that cannot be read. kubelet's own lines come first.
fn hosts_file(sandbox: &SandboxConfig, container: &ContainerConfig) -> String {
    let of_kubelet = |mount: &Mount| {
        let dir = pod_dir::of_hosts_file(&mount.host_path, &sandbox.uid)?;
        (mount.container_path == HOSTS).then_some(dir)
    };
    let Some(dir) = container.mounts.iter().find_map(of_kubelet) else { return String::new() };
    match volume::head(&dir, pod_dir::HOSTS_FILE, MAX_HOSTS) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            let (pod, error) = (&sandbox.uid, Chain(&error));
            tracing::warn!(%pod, %error, "kubelet's hosts file of the pod not read; its guest is not told its name in DNS");
            String::new()
        }
    }
}

fn read(name: &str, mount: &Mount) -> Result<seed::Volume> {
    volume::read(Path::new(&mount.host_path)).map_err(|cause| {
        // A path of the node is of no use to the pod's user.
        Error::new(Kind::Invalid, format!("volume {name:?} cannot be read: {}", Chain(&cause)))
    })
}

/// The machine's disks as its guest sees them.
pub(super) fn guest_disks(disks: &[Disk], bus: DiskBus) -> Vec<GuestDisk> {
    let disk = |disk: &Disk| {
        let device = guest_device(&disk.serial, &disk.path, disk.read_only, bus);
        let partition = disk.partition();
        let link = match partition {
            0 => device.link,
            number => format!("{}-part{number}", device.link),
        };
        GuestDisk { partition, link, file_system: disk.file_system(), ..device }
    };
    disks.iter().map(disk).collect()
}

/// A disk that its guest has a link to, by the link that udev makes on its bus.
pub(super) fn guest_device(serial: &Serial, path: &str, read_only: bool, bus: DiskBus) -> GuestDisk {
    let prefix = match bus {
        DiskBus::Virtio => "virtio-",
        DiskBus::Scsi => "scsi-0QEMU_QEMU_HARDDISK_",
        DiskBus::Sata => "ata-QEMU_HARDDISK_",
    };
    let link = format!("/dev/disk/by-id/{prefix}{serial}");
    GuestDisk { serial: serial.to_string(), partition: 0, link, path: path.to_owned(), file_system: "", read_only }
}

/// What cloud-init is to mount: nothing where the agent does.
fn guest_mounts(wishes: Wishes<'_>, is_file: impl Fn(&Path) -> bool) -> Vec<GuestMount> {
    let Wishes { annotations, handler, share, .. } = wishes;
    let share = share.filter(|_| !handler.defaults.has_agent(annotations));
    let mounts = share.iter().flat_map(|share| &share.mounts);
    (0..)
        .zip(mounts)
        .map(|(entry, mount)| GuestMount {
            entry,
            path: mount.path.clone(),
            read_only: mount.read_only,
            is_file: is_file(&mount.source),
        })
        .collect()
}

#[cfg(test)]
mod tests;
