//! What our agent in a guest is told of the guest, and the command that the machine is for. Who tells it is controld, at each boot.

use nix::libc::SIGTERM;
use proto::agent::{self, Disk, Main, Mount, Setup, Size, Start};

use crate::plan::{Disk as PlannedDisk, Guest, MachinePlan, Share, SharedMount};
use crate::{ContainerConfig, MountOptions};

/// Of a terminal, until a client says what it has.
pub const FIRST_SIZE: Size = Size { width: 80, height: 24 };

/// What the agent of a container's guest is told; `None` if nothing.
#[must_use]
pub fn setup_of(guest: &Guest, share: Option<&Share>, disks: Vec<Disk>, config: &ContainerConfig) -> Option<Setup> {
    if guest.says_nothing() && share.is_none() && disks.is_empty() {
        return None;
    }
    let main = guest.command.as_ref().map(|command| {
        let start = Start {
            stdin: config.stdin,
            tty: config.tty.then_some(FIRST_SIZE),
            ..config.process.start(command.argv.clone())
        };
        let stop_signal = u8::try_from(SIGTERM).unwrap_or_default();
        Main { start, read_only_root: command.read_only_root, stop_signal }
    });
    let sysctls = guest.sysctls.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mount = |(entry, mount): (u16, &SharedMount)| Mount {
        entry,
        path: mount.path.clone(),
        read_only: mount.read_only,
        options: told(mount.options),
    };
    let mounts = (0..).zip(share.iter().flat_map(|share| &share.mounts)).map(mount).collect();
    Some(Setup { sysctls, main, mounts, resolver: guest.resolver.clone(), disks })
}

/// What it is told of the disks beside the root disk.
#[must_use]
pub fn disks_of(plan: &MachinePlan) -> Vec<Disk> {
    plan.disks.iter().filter(|disk| !disk.path.is_empty()).map(planned).collect()
}

/// What it is told of a disk.
#[must_use]
pub fn planned(disk: &PlannedDisk) -> Disk {
    let file_system = disk.file_system().to_owned();
    Disk {
        file_system,
        partition: disk.partition(),
        options: told(disk.options),
        ..link(disk.serial.as_str(), &disk.path, disk.read_only)
    }
}

const fn told(MountOptions { noexec, nodev, nosuid }: MountOptions) -> agent::MountOptions {
    agent::MountOptions { noexec, nodev, nosuid }
}

/// A disk that the guest sees as a link.
#[must_use]
pub fn link(serial: &str, path: &str, read_only: bool) -> Disk {
    Disk { serial: serial.to_owned(), path: path.to_owned(), read_only, ..Disk::default() }
}
