//! Presses of power buttons, and orders to end a save: one at a time of each for each machine, so that a QEMU that hangs takes no more than one
//! turn.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

/// Machines whose power button is being pressed, or whose save is being ended.
pub(super) type Presses = Arc<Mutex<BTreeSet<Uuid>>>;

/// A press under way, until libvirt has answered.
pub(super) struct Press {
    presses: Presses,
    id: Uuid,
}

impl Press {
    /// `None` while there is one.
    pub(super) fn begin(presses: &Presses, id: Uuid) -> Option<Self> {
        let first = presses.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        first.then(|| Self { presses: presses.clone(), id })
    }
}

impl Drop for Press {
    fn drop(&mut self) {
        self.presses.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
