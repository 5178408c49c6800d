//! The start of a machine, step by step, and the way back.
//!
//! Order: console directory and log (so that nothing is lost from power-on) -> seed -> tapmanager is told who QEMU is and
//! arms the pod -> define, with the token in the machine's environment -> libvirt starts it -> the seed is unlinked, QEMU
//! has it open. A definition is made anew at every start, because the token is.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::tap::{PodNet, QemuUser};

use super::super::parts::Parts;
use crate::annotations::PodAnnotations;
use crate::console::follow::Follower;
use crate::domain::{self, DomainSpec, WrapperEnv};
use crate::error::{Chain, Error, Kind, Result, is_disk_full};
use crate::model::{Container, Sandbox};
use crate::seed::{self, SeedInput};
use crate::volumes::make_dir;

/// First PCI slot of `pcie.0` that vmwrapper's NICs take; the domain's own devices stay below.
const FIRST_NIC_SLOT: usize = 0x10;

/// Starts the machine and the copying of its console.
pub(super) async fn machine(parts: &Arc<Parts>, container: &Container) -> Result<Option<Follower>> {
    let sandbox = parts
        .store
        .sandbox(&container.sandbox)
        .ok_or_else(|| Error::new(Kind::NotFound, format!("no sandbox `{}`", container.sandbox)))?;
    let net = sandbox.net.as_ref().ok_or_else(|| Error::new(Kind::State, "the sandbox has no network"))?;
    let qemu = parts.qemu_user().await?;
    make_dir(&parts.console_dir(container), 0o755)
        .map_err(|cause| Error::because(Kind::Internal, "console directory not made", cause))?;
    let follower = follow(parts, container).map_err(|cause| io_failed("pod's log not opened", cause))?;

    let started = async {
        let seed = write_seed(parts, container, &sandbox, net, qemu)?;
        // Says who QEMU is at every start: tapmanager may have lost its state directory since.
        let token = parts.tap.arm(sandbox.id.clone(), qemu).await?;
        let spec = DomainSpec {
            id: container.id.uuid(),
            name: container.machine.domain.clone(),
            sandbox: sandbox.id.to_string(),
            pod_uid: sandbox.config.uid.clone(),
            instance: parts.instance,
            accel: parts.accel.get().await,
            vcpus: container.machine.vcpus,
            memory: container.machine.memory,
            vmwrapper: parts.config.vmwrapper.clone(),
            env: WrapperEnv {
                handoff: parts.config.handoff_socket(),
                token,
                emulator: parts.config.emulator.clone(),
                nic_slots: (0..net.nics.len()).map(|n| FIRST_NIC_SLOT + n).collect(),
                deadline_ms: parts.config.machine.handoff_deadline_s * 1000,
            },
            root: container.machine.root.clone(),
            bases: container.machine.bases(),
            seed: Some(seed.clone()),
            console_socket: parts.console_socket(container.id),
            console_log: parts.console_dir(container).join("serial.log"),
            smbios_uuid: container.machine.smbios,
        };
        let xml = domain::xml(&spec)
            .map_err(|cause| Error::because(Kind::Invalid, "the machine cannot be described to libvirt", cause))?;
        parts.hypervisor.define(xml).await?;
        let log = parts.config.libvirt_log_dir.join(format!("{}.log", container.machine.domain));
        parts.hypervisor.start(container.id.uuid(), &log).await?;
        remove_file(&seed).map_err(|cause| io_failed("seed not removed", cause))
    };
    match started.await {
        Ok(()) => Ok(follower),
        Err(error) => {
            if let Some(follower) = follower {
                follower.finish(false).await;
            }
            Err(error)
        }
    }
}

/// Takes back what a failed start may have made. Each part is tried whatever becomes of the others.
pub(super) async fn undo(parts: &Arc<Parts>, container: &Container) {
    let id = container.id.uuid();
    for (what, done) in [
        ("machine not destroyed", parts.hypervisor.destroy(id).await),
        ("machine not undefined", parts.hypervisor.undefine(id).await),
    ] {
        if let Err(error) = done {
            tracing::warn!(error = %Chain(&error), "{what}");
        }
    }
    if let Err(error) = remove_seed(parts, container) {
        tracing::warn!(%error, "seed of a failed start not removed");
    }
}

/// Removes the seed, if the start did not come to that.
pub(super) fn remove_seed(parts: &Parts, container: &Container) -> io::Result<()> {
    remove_file(&seed_path(parts, container))
}

/// Copies the console to the pod's log, if the pod has one.
pub(super) fn follow(parts: &Arc<Parts>, container: &Container) -> io::Result<Option<Follower>> {
    let Some(sandbox) = parts.store.sandbox(&container.sandbox) else { return Ok(None) };
    let Some(log) = container.log_path(&sandbox.config) else { return Ok(None) };
    Follower::start(&parts.watcher, &parts.console_dir(container), log).map(Some)
}

/// Removes what a container has on disk beside the pod's disks and its log.
pub(super) fn remove_files(parts: &Arc<Parts>, container: &Container) -> io::Result<()> {
    remove_seed(parts, container)?;
    remove_file(&parts.console_socket(container.id))?;
    match std::fs::remove_dir_all(parts.console_dir(container)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn write_seed(
    parts: &Arc<Parts>,
    container: &Container,
    sandbox: &Sandbox,
    net: &PodNet,
    qemu: QemuUser,
) -> Result<PathBuf> {
    let invalid = |cause| Error::because(Kind::Invalid, "the pod's cloud-init seed cannot be made", cause);
    let annotations = PodAnnotations::parse(&container.machine_annotations)
        .map_err(|cause| Error::because(Kind::Invalid, "the pod cannot become a machine", cause))?;
    let input = SeedInput {
        pod_name: &sandbox.config.name,
        namespace: &sandbox.config.namespace,
        uid: &sandbox.config.uid,
        hostname: &sandbox.config.hostname,
        annotations: &annotations,
        net,
    };
    let iso = seed::assemble(&input).and_then(|seed| seed.to_iso()).map_err(invalid)?;
    let path = seed_path(parts, container);
    let written = write_private(&path, &iso, qemu);
    written.map_err(|cause| io_failed("seed not written", cause))?;
    Ok(path)
}

/// Writes a file that QEMU's group may read and nobody else: it holds what the pod's user wants kept.
fn write_private(path: &Path, contents: &[u8], qemu: QemuUser) -> io::Result<()> {
    remove_file(path)?;
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).and_then(|mut file: File| {
        file.write_all(contents)?;
        chown(path, Some(0), Some(qemu.gid))?;
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640))
    });
    if written.is_err() {
        // The error that matters is the first one.
        let _ = remove_file(path);
    }
    written
}

fn seed_path(parts: &Parts, container: &Container) -> PathBuf {
    parts.config.run_dir.join("seed").join(format!("{}.iso", container.id))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn io_failed(what: &'static str, cause: io::Error) -> Error {
    let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
    Error::because(kind, what, cause)
}
