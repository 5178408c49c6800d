//! How many cases run at a time: fewer than there are threads, since some threads only wait for the turn of their case.
//!
//! The case whose turn it is has a place of its own. All of these run one after the other, so nothing takes longer than they do
//! together, and none is to wait for a place as well.

use std::num::NonZero;
use std::sync::{Condvar, Mutex, PoisonError};

use libtest_mimic::Arguments;

/// As many as cases may run at a time.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// Held while a case runs.
#[derive(Debug)]
pub(crate) struct Slot<'a>(&'a Slots);

impl Slots {
    /// As many as `args` say, or as there are processors, with a place for one of the `waiting` cases among them; and in `args`
    /// threads besides, for these.
    pub(crate) fn of(args: &mut Arguments, waiting: usize) -> Self {
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let at_once = args.test_threads.unwrap_or_else(processors);
        let places = at_once.saturating_sub(waiting.min(1)).max(1);
        args.test_threads = Some(places + waiting);
        Self { free: Mutex::new(places), freed: Condvar::new() }
    }

    /// Waits for one.
    pub(crate) fn take(&self) -> Slot<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
