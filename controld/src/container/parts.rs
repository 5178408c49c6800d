//! What is made on the node for each part of a machine's plan, and the undo of it. The root disk is the pod's, and goes with
//! the pod.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use common::off_reactor;

use super::checkpoint::memory_of;
use super::uses::Uses;
use crate::container::resources::confinement;
use crate::files::{remove, remove_log};
use crate::guest::{agents, screen, seed, share};
use crate::model::Container;

/// What a start makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Seed,
    /// What the guest sees of the pod's volumes. What virtiofsd has mounted goes with virtiofsd, which libvirt ends with QEMU, or the look at
    /// a start that was cut off.
    Share,
    /// The serial port's socket, its log, and how far that is copied.
    Console,
    /// The directory of the screen's socket.
    Screen,
    /// The sockets of both agents in the guest, and until when it is frozen.
    Agents,
    /// What QEMU, libvirt and virtiofsd say of the machine. No other machine has the name, so nobody else would remove it: libvirt's
    /// logrotate leaves small ones.
    LibvirtLog,
    /// What UEFI remembered, of a machine that an earlier release started.
    EarlierUefiVariables,
    /// The memory that a guest was to go on from, and did not.
    Memory,
    /// With what a restarted libvirtd leaves of its own.
    Cgroup,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::Seed,
        Self::Share,
        Self::Console,
        Self::Screen,
        Self::Agents,
        Self::LibvirtLog,
        Self::EarlierUefiVariables,
        Self::Memory,
        Self::Cgroup,
    ];

    /// Where it lies.
    fn paths(self, uses: &Uses, container: &Container) -> Vec<PathBuf> {
        let machine = &container.machine;
        match self {
            Self::Seed => seed::paths(&uses.config, machine.id),
            Self::Share => vec![share::dir(&uses.config, machine.id)],
            Self::Console => vec![uses.console_socket(machine.id), uses.console_dir(container)],
            Self::Screen => vec![screen::dir(&uses.config, machine.id)],
            Self::Agents => {
                let dir = agents::dir(&uses.config);
                let id = machine.id;
                vec![agents::qemu_socket(&dir, id), agents::our_socket(&dir, id), agents::frozen_file(&dir, id)]
            }
            Self::LibvirtLog => vec![
                uses.config.libvirt_log_dir.join(format!("{}.log", machine.domain)),
                share::log(&uses.config, &machine.domain),
            ],
            Self::EarlierUefiVariables => vec![uses.earlier_uefi_variables(machine.id)],
            Self::Memory => vec![memory_of(machine)],
            Self::Cgroup => Vec::new(),
        }
    }

    /// Removes what was made for it; fine if nothing was.
    pub(super) fn undo(self, uses: &Uses, container: &Container) -> io::Result<()> {
        match self {
            Self::Cgroup => confinement::remove(uses, container),
            Self::LibvirtLog => self.paths(uses, container).iter().try_for_each(|path| remove_log(path)),
            _ => self.paths(uses, container).iter().try_for_each(|path| remove(path)),
        }
    }
}

/// The undo of every part, also after an earlier undo.
pub(super) async fn undo_all(uses: &Arc<Uses>, container: &Container) -> io::Result<()> {
    let (uses, container) = (uses.clone(), container.clone());
    off_reactor(move || Part::ALL.iter().try_for_each(|part| part.undo(&uses, &container))).await
}

pub(super) fn libvirt_log(uses: &Uses, container: &Container) -> PathBuf {
    Part::LibvirtLog.paths(uses, container).remove(0)
}
