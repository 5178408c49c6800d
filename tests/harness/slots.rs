//! How many cases run at a time: as many as keep the processors busy.
//!
//! Some cases compute, as their guests are emulated; others mostly wait for leases and deadlines of protocols. So there is a place for each
//! processor, and one more each time that one of these was idle and there was memory, up to a limit; and one less each time that none was.
//! A place that a case has left is taken at once: hundreds of them take a second each. An emulated guest costs more the longer it has to
//! wait for a processor, since its clock ticks meanwhile: so not more of them than are needed. Fewer run than there are threads, since
//! some threads only wait for the turn of their case in the [queue](crate::queue).

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;

/// Between two looks at the processors. A case that was started is seen at the next one.
const LOOK: Duration = Duration::from_secs(2);
/// There is one place more if so much of all processors was idle, and else one less.
const ROOM: f64 = 0.35;
/// And if so many KiB of memory are free. Those that were let in a moment ago take theirs later.
const FREE: u64 = 2 << 20;
/// So many times as many cases as there are processors, at the most: each has a node of its own, in memory and on the disk.
const MOST: usize = 5;

/// Cases that run, and the processors' time when it was last looked at.
#[derive(Debug)]
pub(crate) struct Slots {
    running: Mutex<Running>,
    changed: Condvar,
    least: usize,
    most: usize,
}

#[derive(Debug)]
struct Running {
    cases: usize,
    /// For how many there is room, as far as is known.
    places: usize,
    /// The ranks of those that wait.
    waiting: BTreeSet<usize>,
    looked: Instant,
    times: Option<Times>,
}

/// Of all processors, in ticks, as `/proc/stat` counts them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    idle: f64,
    all: f64,
}

/// Held while a case runs.
#[derive(Debug)]
pub(crate) struct Slot<'a>(&'a Slots);

impl Slots {
    /// As many as `args` say, and as said above if these say nothing; and in `args` threads for the cases that are `waiting`, besides.
    pub(crate) fn of(args: &mut Arguments, waiting: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let (least, most) = args.test_threads.map_or((processors, processors * MOST), |threads| (threads, threads));
        args.test_threads = Some(most + waiting);
        let running =
            Running { cases: 0, places: least, waiting: BTreeSet::new(), looked: Instant::now(), times: times() };
        Self { running: Mutex::new(running), changed: Condvar::new(), least, most }
    }

    /// Waits for one, and until nobody of a lower `rank` waits: those that take long are to begin first, and those of a node to follow
    /// each other.
    pub(crate) fn take(&self, rank: usize) -> Slot<'_> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.waiting.insert(rank);
        while running.waiting.first() != Some(&rank) || !running.has_place(self.least, self.most) {
            running = self.changed.wait_timeout(running, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        running.waiting.remove(&rank);
        running.cases += 1;
        // The next one may go, too.
        self.changed.notify_all();
        Slot(self)
    }

    /// One for a case that has waited for its turn, and is not to wait for a place as well, unless it was said how many there are.
    pub(crate) fn take_at_once(&self, rank: usize) -> Slot<'_> {
        if self.least == self.most {
            return self.take(rank);
        }
        self.running.lock().unwrap_or_else(PoisonError::into_inner).cases += 1;
        Slot(self)
    }
}

/// Lets so many in at a time as it is told.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inside: Mutex<usize>,
    left: Condvar,
}

/// Held while somebody is inside.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Gate);

impl Gate {
    /// Waits until fewer than `most` are inside.
    pub(crate) fn enter(&self, most: usize) -> Inside<'_> {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inside = self.left.wait_while(inside, |inside| *inside >= most).unwrap_or_else(PoisonError::into_inner);
        *inside += 1;
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.inside.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.left.notify_one();
    }
}

impl Running {
    fn has_place(&mut self, least: usize, most: usize) -> bool {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let (before, now) = (self.times, times());
            self.times = now;
            let idle = before.zip(now).map_or(0.0, |(before, now)| now.idle_since(before));
            self.seen(idle >= ROOM && has_memory(), least, most);
        }
        self.cases < self.places
    }

    /// What a look has shown: whether there was room for one more than run.
    fn seen(&mut self, has_room: bool, least: usize, most: usize) {
        let places = if has_room { self.places.max(self.cases + 1) } else { self.places - 1 };
        self.places = places.clamp(least, most);
    }
}

impl Times {
    fn idle_since(self, before: Self) -> f64 {
        (self.idle - before.idle) / (self.all - before.all).max(1.0)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).cases -= 1;
        // All: whoever comes first has to see it.
        self.0.changed.notify_all();
    }
}

fn times() -> Option<Times> {
    parsed(&fs::read_to_string("/proc/stat").ok()?)
}

/// So it is as well where the kernel does not tell.
fn has_memory() -> bool {
    fs::read_to_string("/proc/meminfo").ok().and_then(|told| available(&told)).is_none_or(|free| free >= FREE)
}

/// In KiB.
fn available(meminfo: &str) -> Option<u64> {
    let told = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    told.trim().strip_suffix(" kB")?.parse().ok()
}

/// The first line is `cpu user nice system idle iowait irq softirq steal ...` (proc(5)). Guests' time is in `user` as well.
fn parsed(stat: &str) -> Option<Times> {
    let ticks: Vec<f64> = stat.lines().next()?.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
    Some(Times { idle: ticks.get(3)? + ticks.get(4)?, all: ticks.iter().sum() })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::wait::wait_until;

    #[test]
    fn idle_time_is_that_without_work_and_that_of_waiting_for_disks() {
        let before = parsed("cpu  100 0 100 300 100 0 0 0 7 7\ncpu0 1 1 1 1\n").unwrap();
        let now = parsed("cpu  150 0 110 320 120 0 0 0 57 7\ncpu0 1 1 1 1\n").unwrap();

        assert_eq!(before, Times { idle: 400.0, all: 600.0 });
        assert!((now.idle_since(before) - 0.4).abs() < 1e-9);
        assert_eq!(parsed("intr 1 2 3"), None);
    }

    #[test]
    fn memory_is_what_the_kernel_could_give() {
        let told = "MemTotal:       24684032 kB\nMemFree:          204800 kB\nMemAvailable:    2097152 kB\n";

        assert_eq!(available(told), Some(FREE));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn there_are_more_places_while_processors_idle_and_fewer_while_none_does() {
        let mut args = Arguments::default();
        let mut slots = Slots::of(&mut args, 0);
        let running = slots.running.get_mut().unwrap();
        running.places = 2;
        let seen = |(cases, has_room): (usize, bool)| {
            running.cases = cases;
            running.seen(has_room, 2, 5);
            running.places
        };

        let looks =
            [(2, true), (3, true), (3, true), (4, false), (3, false), (0, false), (4, true), (9, true), (9, false)];
        assert_eq!(looks.map(seen), [3, 4, 4, 3, 2, 2, 5, 5, 4]);
    }

    #[test]
    fn as_many_run_as_were_asked_for() {
        let mut args = Arguments { test_threads: Some(3), ..Arguments::default() };
        let slots = Slots::of(&mut args, 5);

        let _two = (slots.take(0), slots.take_at_once(1));
        let running = slots.running.lock().unwrap();
        assert_eq!((running.cases, slots.least, slots.most, args.test_threads), (2, 3, 3, Some(8)));
    }

    #[test]
    fn a_place_goes_to_the_lowest_rank_that_waits() {
        let mut args = Arguments { test_threads: Some(1), ..Arguments::default() };
        let slots = Slots::of(&mut args, 0);
        let (sender, order) = mpsc::channel();

        std::thread::scope(|scope| {
            let first = slots.take(9);
            for rank in [5, 1, 7, 3] {
                let (slots, sender) = (&slots, sender.clone());
                scope.spawn(move || {
                    let _slot = slots.take(rank);
                    sender.send(rank)
                });
            }
            let waiting = || slots.running.lock().unwrap().waiting.len();
            // Threads that start take no time to speak of.
            let all = wait_until("all that wait", Duration::from_secs(30), || waiting() == 4);
            drop(first);
            all.unwrap();
        });
        drop(sender);

        assert_eq!(order.iter().collect::<Vec<_>>(), [1, 3, 5, 7]);
    }
}
