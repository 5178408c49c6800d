//! Sizes of disks that QEMU knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vmspec::MachineId;
use vmspec::plan::Serial;

/// Sizes of disks that QEMU knows, as far as this controld has seen it.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    machines: Mutex<HashMap<MachineId, Known>>,
}

/// In bytes, of the disks of one machine.
pub(crate) type Known = BTreeMap<Serial, u64>;

impl Sizes {
    pub(crate) fn machines(&self) -> MutexGuard<'_, HashMap<MachineId, Known>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self, machine: MachineId, serial: &Serial) -> Option<u64> {
        self.machines().get(&machine)?.get(serial).copied()
    }

    pub(crate) fn learn(&self, machine: MachineId, serial: &Serial, bytes: u64) {
        if let Some(known) = self.machines().get_mut(&machine) {
            known.insert(serial.clone(), bytes);
        }
    }
}
