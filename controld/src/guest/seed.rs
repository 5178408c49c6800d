//! The seed of a container's machine: which volumes it is made of, and where it lies. What is in it is [`vmspec::seed`]'s.
//!
//! Looked at when the container is made, and again at each start: what kubelet has changed in a volume since is in it then.

pub(crate) mod api;
pub(crate) mod disks;
mod volume;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use common::Chain;
use proto::tap::QemuUser;
use vmspec::error::{Error, Kind, Result};
use vmspec::seed::{self, FirmwareName, Seed, Wishes};
use vmspec::{ContainerConfig, MachineId, Mount, SandboxConfig, pod_dir};

use crate::config::Config;
use crate::files::{io_failed, remove as remove_file};
use crate::model::Warm;
use crate::model::domain::FirmwareEntry;

/// Most bytes that are read of kubelet's hosts file: `hostAliases` may make it long.
const MAX_HOSTS: u64 = 64 << 10;

/// Bytes of the seeds of guests that begin at the gate: a kernel looks once how large a disk is.
const WARM_SIZE: usize = 1 << 20;
/// How names end of seeds that are not in their places, and of those that are by now.
const ASIDE: &str = "aside";
const USED: &str = "used";
const TOO_LARGE: &str = "the pod's seed has more than 1 MiB, which is the most of a warm start";

/// A seed that was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    /// The disk.
    pub(crate) disk: Option<PathBuf>,
    pub(crate) firmware: Vec<FirmwareEntry>,
}

/// Where files of a machine's seed may lie.
pub(crate) fn paths(config: &Config, machine: MachineId) -> Vec<PathBuf> {
    let firmware = FirmwareName::ALL.map(|name| firmware_path(config, machine, name));
    [disk_path(config, machine), aside_path(config, machine), used_path(config, machine)]
        .into_iter()
        .chain(firmware)
        .chain(disks::paths(config, machine))
        .collect()
}

fn disk_path(config: &Config, machine: MachineId) -> PathBuf {
    config.run_dir.join("seed").join(format!("{machine}.iso"))
}

/// Where a seed lies that is to be put into its place.
fn aside_path(config: &Config, machine: MachineId) -> PathBuf {
    disk_path(config, machine).with_extension(ASIDE)
}

/// And one that is there, of a guest that has yet to boot anew with it.
fn used_path(config: &Config, machine: MachineId) -> PathBuf {
    disk_path(config, machine).with_extension(USED)
}

fn firmware_path(config: &Config, machine: MachineId, name: FirmwareName) -> PathBuf {
    config.run_dir.join("seed").join(format!("{machine}.{}", name.suffix))
}

/// Makes a seed, with the program of the agent if that is to be in it. Blocks.
///
/// # Errors
/// When a volume is not there or has not what it is to have, or what the pod wants cannot reach the guest.
pub(crate) fn assemble(wishes: Wishes<'_>, agent: Option<&[u8]>) -> Result<Seed> {
    let hosts = || hosts_file(wishes.sandbox, wishes.container);
    let is_file = |source: &Path| std::fs::metadata(source).is_ok_and(|found| !found.is_dir());
    wishes.assemble(agent, read, hosts, is_file)
}

/// Writes a seed for QEMU to read. Blocks.
///
/// # Errors
/// When it cannot be written; there is nothing of it then.
pub(crate) fn write(
    config: &Config,
    machine: MachineId,
    seed: &Seed,
    warm: Option<&Warm>,
    qemu: QemuUser,
) -> Result<Written> {
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
    if !seed.on_link().is_empty() {
        let nics = seed.on_link().join(", ");
        tracing::warn!(
            %nics,
            "no NIC of the guest comes up if its cloud-init uses ifupdown's or sysconfig's files: a route of these NICs has no \
             gateway, and no default route with a gateway outside of the NIC's subnets takes its place"
        );
    }
    let invalid = |cause| Error::because(Kind::Invalid, "the pod's cloud-init seed cannot be made", cause);
    let image = seed.to_iso().map_err(invalid)?;
    for path in paths(config, machine) {
        remove_file(&path).map_err(failed)?;
    }
    let mut written = Written::default();
    if let Some(mut image) = image {
        let path = disk_path(config, machine);
        match warm {
            Some(Warm::Leaves(_)) if fits_warm(&image) => {
                image.resize(WARM_SIZE, 0);
                // QEMU has no business with it.
                let roots = QemuUser { uid: 0, gid: 0 };
                write_private(&aside_path(config, machine), &image, roots).map_err(failed)?;
                image = seed.emptied().to_iso().map_err(invalid)?.unwrap_or_default();
                image.resize(WARM_SIZE, 0);
            }
            Some(Warm::Begins(_)) if !fits_warm(&image) => {
                return Err(Error::new(Kind::State, TOO_LARGE));
            }
            Some(Warm::Begins(_)) => image.resize(WARM_SIZE, 0),
            Some(Warm::Leaves(_)) => tracing::info!("the pod leaves no checkpoint for warm starts: {TOO_LARGE}"),
            None => {}
        }
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

/// Whether an image can be the seed of a guest that has seen another one at the gate.
///
/// # Errors
/// When it cannot.
pub(crate) fn check_warm(seed: &Seed) -> Result<()> {
    let image = seed.to_iso().map_err(|cause| Error::because(Kind::Invalid, "no seed", cause))?;
    if image.is_some_and(|image| fits_warm(&image)) { Ok(()) } else { Err(Error::new(Kind::State, TOO_LARGE)) }
}

fn fits_warm(image: &[u8]) -> bool {
    image.len() <= WARM_SIZE
}

/// Whether a machine has an empty seed, and its own is to be put into its place. Blocks.
pub(crate) fn is_aside(config: &Config, machine: MachineId) -> bool {
    aside_path(config, machine).exists()
}

/// Whether its guest has read the empty one, and is to boot anew. Blocks.
pub(crate) fn is_used(config: &Config, machine: MachineId) -> bool {
    used_path(config, machine).exists()
}

/// Whether a machine's own seed is where its guest reads it, if it has one. Blocks.
pub(crate) fn is_in_place(config: &Config, machine: MachineId) -> bool {
    !is_aside(config, machine) && !is_used(config, machine)
}

/// Puts a seed into the place of the empty one that QEMU has open. Again is fine. Blocks.
pub(crate) fn put(config: &Config, machine: MachineId) -> io::Result<()> {
    let image = match std::fs::read(aside_path(config, machine)) {
        // It was put there.
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(()),
        image => image?,
    };
    match OpenOptions::new().write(true).open(disk_path(config, machine)) {
        // As its name goes first.
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.write_all(&image),
    }
}

/// Notes that the guest has read the empty one. Again is fine. Blocks.
pub(crate) fn note_used(config: &Config, machine: MachineId) -> io::Result<()> {
    match std::fs::rename(aside_path(config, machine), used_path(config, machine)) {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Ok(()),
        noted => noted,
    }
}

/// Removes all names of a seed that is in its place. Blocks.
pub(crate) fn forget_aside(config: &Config, machine: MachineId) -> io::Result<()> {
    let names = [disk_path(config, machine), aside_path(config, machine), used_path(config, machine)];
    names.iter().try_for_each(|name| remove_file(name))
}

/// Removes what was written, once QEMU has it. Blocks.
pub(crate) fn remove(config: &Config, machine: MachineId) -> io::Result<()> {
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

/// The beginning of what kubelet mounts at `/etc/hosts`; empty if it mounts nothing there, or that cannot be read. kubelet's own lines come first.
fn hosts_file(sandbox: &SandboxConfig, container: &ContainerConfig) -> String {
    let of_kubelet = |mount| pod_dir::of_hosts_file(mount, &sandbox.uid);
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

#[cfg(test)]
mod tests;
