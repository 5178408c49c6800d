//! Keys by which QEMU logs in to Ceph clusters. libvirt has one, in its memory, while it starts the machine: QEMU keeps what it is told, and
//! needs no one to tell it again.
//!
//! They are read from where kubelet has them when they are handed over. A controld that is killed in between leaves them at libvirt,
//! until the next one connects ([`sweep`]) or the container is cleared away ([`forget`]).

use std::path::Path;

use common::{Chain, Reason, off_reactor};
use uuid::Uuid;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};
use vmspec::flexvolume::{FlexVolume, Key};
use vmspec::plan::{RbdImage, Serial};

use super::{not_had, read};
use crate::disks::Uses;
use crate::model::domain::DiskSecret;
use crate::model::{Container, ContainerState};

/// What QEMU says where it has no driver for such disks.
const NO_DRIVER: &str = "Unknown driver 'rbd'";

/// Does what starts a container's machine, while libvirt has the keys of its disks.
///
/// # Errors
/// Those of the start, and when libvirt could not be given the keys.
pub(crate) async fn with_keys(
    uses: &Uses,
    container: &Container,
    start: impl Future<Output = Result<()>>,
) -> Result<()> {
    if images(container).next().is_none() {
        return start.await;
    }
    let (instance, machine) = (uses.instance, container.machine.id);
    let wanted: Vec<_> = with_login(container).map(|(serial, image)| (serial.clone(), image.clone())).collect();
    let keys = off_reactor(move || read_all(instance, machine, wanted)).await?;
    let started = async {
        uses.hypervisor.give_secrets(keys).await?;
        start.await
    };
    let started = started.await;
    if let Err(error) = forget(uses, container).await {
        tracing::warn!(error = %Chain(&error), "libvirt keeps the keys of a machine's disks; the next connection tries again");
    }
    started.map_err(|error| explained(container, error))
}

/// Makes libvirt forget the keys of a container's machine; fine if it has none.
///
/// # Errors
/// When it does not.
pub(crate) async fn forget(uses: &Uses, container: &Container) -> Result<()> {
    let id = |(serial, _): (&Serial, _)| DiskSecret::of(uses.instance, container.machine.id, serial).id;
    let ids: Vec<Uuid> = with_login(container).map(id).collect();
    uses.hypervisor.take_secrets(ids).await
}

/// Makes libvirt forget what an earlier life has left: keys of ours whose machines are not being started.
///
/// # Errors
/// When libvirt does not tell, or does not do it.
pub(crate) async fn sweep(uses: &Uses) -> Result<()> {
    let all = uses.hypervisor.secrets().await?;
    // A start that has had its keys listed is on record as one: of an earlier life, it is uncertain by now.
    let containers = uses.store.containers();
    let is_starting = |machine: MachineId| {
        containers.iter().any(|one| one.machine.id == machine && one.state == ContainerState::Starting)
    };
    let is_left =
        |usage: &str| DiskSecret::machine_of(usage, uses.instance).is_some_and(|machine| !is_starting(machine));
    let left: Vec<Uuid> = all.into_iter().filter(|(_, usage)| is_left(usage)).map(|(id, _)| id).collect();
    if !left.is_empty() {
        tracing::info!(count = left.len(), "libvirt forgets keys of disks that an earlier life has left");
    }
    uses.hypervisor.take_secrets(left).await
}

fn images(container: &Container) -> impl Iterator<Item = (&Serial, &RbdImage)> {
    container.machine.disks.iter().filter_map(|disk| Some((&disk.serial, disk.source.rbd()?)))
}

fn with_login(container: &Container) -> impl Iterator<Item = (&Serial, &RbdImage)> {
    images(container).filter(|(_, image)| image.user.is_some())
}

fn read_all(instance: Uuid, machine: MachineId, wanted: Vec<(Serial, RbdImage)>) -> Result<Vec<(DiskSecret, Key)>> {
    let read = |(serial, image): (Serial, RbdImage)| {
        let key = key(&image).map_err(|cause| not_had(Kind::State, &name(&image.dir), cause))?;
        Ok((DiskSecret::of(instance, machine, &serial), key))
    };
    wanted.into_iter().map(read).collect()
}

fn key(image: &RbdImage) -> std::result::Result<Key, Reason> {
    match read(&image.dir)? {
        FlexVolume::Ceph { login: Some(login), .. } if Some(&login.user) == image.user.as_ref() => Ok(login.key),
        _ => {
            Err(Reason::new("its description has changed since the container was created, and has no key of its user"))
        }
    }
}

fn name(dir: &Path) -> String {
    dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned()
}

/// QEMU says that it does not know the word, and of a cluster that does not answer nothing at all.
fn explained(container: &Container, error: Error) -> Error {
    if Chain(&error).to_string().contains(NO_DRIVER) {
        let what = "the node's QEMU has no driver for RBD, which a flexvolume of type `ceph` needs; install it (Debian: \
                    package `qemu-block-extra`)";
        return Error::because(Kind::State, what, error);
    }
    if error.kind() != Kind::Deadline {
        return error;
    }
    let image = |(_, image): (_, &RbdImage)| {
        let monitors: Vec<_> = image.monitors.iter().map(ToString::to_string).collect();
        format!("`{}` of {}", image.name(), monitors.join(", "))
    };
    let all: Vec<_> = images(container).map(image).collect();
    let what = format!("the machine waits for Ceph's monitors, which have not answered: {}", all.join("; "));
    Error::because(Kind::Deadline, what, error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use vmspec::MountOptions;
    use vmspec::flexvolume::FILE;
    use vmspec::plan::{Disk, DiskSource};

    use super::*;
    use crate::api::cri::convert::tests::container;

    fn with(dir: PathBuf) -> Container {
        let image = RbdImage {
            monitors: vec!["10.0.0.1".parse().expect("monitor"), "[fd00::1]".parse().expect("monitor")],
            pool: "rbd".into(),
            image: "web".into(),
            user: Some("admin".into()),
            dir,
            on: None,
        };
        let serial = Serial::of_name("data");
        let disk = Disk {
            name: String::new(),
            serial,
            source: DiskSource::Rbd(image),
            path: "/data".into(),
            read_only: false,
            options: MountOptions::default(),
        };
        let mut container = container();
        container.machine.disks = vec![disk];
        container
    }

    #[test]
    fn a_key_is_read_for_each_start_from_where_kubelet_has_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let container = with(dir.path().to_owned());
        let read = || {
            let wanted = with_login(&container).map(|(serial, image)| (serial.clone(), image.clone())).collect();
            read_all(Uuid::nil(), container.machine.id, wanted).map_err(|error| Chain(&error).to_string())
        };
        assert!(read().expect_err("nothing there").contains("was not read"));
        let write = |user: &str| {
            let text = format!(
                r#"{{"type": "ceph", "monitor": "m", "pool": "p", "volume": "v", "user": "{user}", "secret": "a2V5"}}"#
            );
            fs::write(dir.path().join(FILE), text).expect("written");
        };
        write("other");
        assert!(read().expect_err("another user").contains("has changed"));
        write("admin");
        let keys = read().expect("read");
        assert_eq!(keys[0].1, Key(b"key".to_vec()));
        assert_eq!(keys[0].0, DiskSecret::of(Uuid::nil(), container.machine.id, &Serial::of_name("data")));
    }

    #[test]
    fn a_start_that_fails_for_the_cluster_says_so() {
        let container = with("/d".into());
        let said = |kind, text: &'static str| {
            let error = explained(&container, Error::new(kind, text));
            (error.kind(), Chain(&error).to_string())
        };
        let (kind, text) = said(Kind::Internal, "-blockdev ...: Unknown driver 'rbd'");
        assert!(kind == Kind::State && text.contains("`qemu-block-extra`"), "{text}");
        let (kind, text) = said(Kind::Deadline, "late");
        assert_eq!(
            (kind, text.as_str()),
            (
                Kind::Deadline,
                "the machine waits for Ceph's monitors, which have not answered: `rbd/web` of 10.0.0.1:6789, [fd00::1]:6789: late"
            )
        );
        assert_eq!(said(Kind::Internal, "other"), (Kind::Internal, "other".into()));
    }
}
