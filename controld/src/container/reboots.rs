//! How often guests were rebooted, which their containers do not show: they run on.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use vmspec::MachineId;

/// libvirt may tell of one reboot twice, by QEMU's words for the request and for the reset. No guest is rebooted again as soon as that.
const ONE: Duration = Duration::from_secs(1);

/// Reboots since controld began.
#[derive(Debug, Default)]
pub struct Reboots(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    count: u64,
    /// When those were heard of that may be told of again.
    last: HashMap<MachineId, Instant>,
}

impl Reboots {
    /// Takes down that libvirt has told of one; whether it is another one.
    pub(super) fn hear(&self, id: MachineId, now: Instant) -> bool {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.last.retain(|_, last| now.saturating_duration_since(*last) < ONE);
        if counted.last.contains_key(&id) {
            return false;
        }
        counted.last.insert(id, now);
        counted.count += 1;
        true
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reboot_that_is_told_twice_is_one() {
        let (reboots, began) = (Reboots::default(), Instant::now());
        let (one, other) = (MachineId::random(), MachineId::random());
        let at = |millis| began + Duration::from_millis(millis);
        let heard = [(one, at(0)), (one, at(900)), (other, at(900)), (one, at(1500)), (one, at(2900))];
        let heard = heard.map(|(id, now)| reboots.hear(id, now));
        assert_eq!((heard, reboots.count()), ([true, false, true, true, true], 4));
    }
}
