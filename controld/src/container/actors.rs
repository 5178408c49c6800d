//! The tasks of all containers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmspec::error::{Error, Kind, Result};
use vmspec::{ContainerId, MachineId};

use super::actor::Actor;
use super::host::Host;
use crate::hypervisor::HvEvent;
use crate::model::Container;

/// Machines of removed containers that are remembered: more than are removed while a call to libvirt can be under way.
const REMEMBERED: usize = 4096;

/// The tasks by their containers. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Actors {
    all: Arc<Mutex<All>>,
}

#[derive(Debug, Default)]
struct All {
    by_id: HashMap<ContainerId, (MachineId, Actor)>,
    /// libvirt tells of machines.
    by_machine: HashMap<MachineId, Actor>,
    /// Machines whose containers were removed, the last one last.
    removed: VecDeque<MachineId>,
}

impl Actors {
    /// Starts the task of a container.
    pub(super) fn add(&self, host: impl Host, container: &Container) {
        let actor = Actor::spawn(host, container.clone());
        let mut all = self.all();
        all.by_machine.insert(container.machine.id, actor.clone());
        all.by_id.insert(container.id, (container.machine.id, actor));
    }

    /// The task of a container.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn get(&self, id: ContainerId) -> Result<Actor> {
        let actor = self.all().by_id.get(&id).map(|(_, actor)| actor.clone());
        actor.ok_or_else(|| Error::new(Kind::NotFound, format!("no container `{id}`")))
    }

    /// Forgets the task of a container that was removed.
    pub(super) fn forget(&self, id: ContainerId) {
        let mut all = self.all();
        let Some((machine, _actor)) = all.by_id.remove(&id) else { return };
        all.by_machine.remove(&machine);
        all.removed.push_back(machine);
        if all.removed.len() > REMEMBERED {
            all.removed.pop_front();
        }
    }

    /// Whether a machine's container was removed of late: what libvirt still makes of it has to go, too.
    pub(super) fn was_removed(&self, id: MachineId) -> bool {
        self.all().removed.contains(&id)
    }

    /// Whether a machine is a container's.
    pub(super) fn has(&self, id: MachineId) -> bool {
        self.all().by_machine.contains_key(&id)
    }

    /// Hands an event of libvirt to those that it is about. Waits for nobody.
    pub(super) fn hear(&self, event: &HvEvent) {
        let all = self.all();
        match event {
            HvEvent::Lifecycle { id, .. } | HvEvent::Paused { id } | HvEvent::Reboot { id } => {
                if let Some(actor) = all.by_machine.get(&MachineId::from(*id)) {
                    actor.hear(event);
                }
            }
            HvEvent::Resync | HvEvent::Down => all.by_machine.values().for_each(|actor| actor.hear(event)),
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Nothing between lock and unlock can panic half way through a change.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
