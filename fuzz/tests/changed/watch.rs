//! Ends the process when one input keeps a worker busy for too long, and says which: a thread cannot be ended from outside, and a test that
//! does not end says nothing.
//!
//! What counts is the time that the worker's thread has had of processors: a machine that is busy with other things is no fault of the input.

use std::io::{self, Write as _};
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::unistd::gettid;
use procfs::process::Process;

/// As `fuzz/run.sh` has it.
const LONGEST: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// All workers.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    workers: Mutex<Vec<Arc<Worker>>>,
}

/// A thread that runs inputs.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: i32,
    under_way: Mutex<Option<UnderWay>>,
}

/// An input that is being run.
#[derive(Debug)]
struct UnderWay {
    target: &'static str,
    input: Vec<u8>,
    /// What the thread had had of processors when it was first looked at.
    seen: Option<Duration>,
}

impl Watch {
    /// The thread that calls, as a worker.
    pub(crate) fn worker(&self) -> Arc<Worker> {
        let worker = Arc::new(Worker { thread: gettid().as_raw(), under_way: Mutex::default() });
        self.workers.lock().unwrap().push(Arc::clone(&worker));
        worker
    }

    /// Looks after the workers until the sender of `done` is gone.
    pub(crate) fn look_until(&self, done: &Receiver<()>) {
        while done.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            for worker in &*self.workers.lock().unwrap() {
                let Some(fault) = used(worker.thread).and_then(|used| worker.fault(used)) else { continue };
                // By no macro: what those print is kept for a test that ends.
                let _told = writeln!(io::stderr(), "{fault}");
                process::exit(1);
            }
        }
    }
}

impl Worker {
    /// Runs an input of a target.
    pub(crate) fn run(&self, target: &'static str, input: &[u8], run: impl FnOnce()) {
        *self.under_way.lock().unwrap() = Some(UnderWay { target, input: input.to_owned(), seen: None });
        run();
        *self.under_way.lock().unwrap() = None;
    }

    /// What is wrong if its input is under way for too long, by what its thread has `used` of processors until now.
    fn fault(&self, used: Duration) -> Option<String> {
        let mut under_way = self.under_way.lock().unwrap();
        let UnderWay { target, input, seen } = under_way.as_mut()?;
        let took = used.saturating_sub(*seen.get_or_insert(used));
        (took > LONGEST).then(|| {
            let took = took.as_secs();
            format!("{target}: not done after {took} s of a processor's time\n  by b\"{}\"", input.escape_ascii())
        })
    }
}

/// What a thread of this process has had of processors until now; `None` if it has ended.
fn used(thread: i32) -> Option<Duration> {
    let stat = Process::myself().and_then(|process| process.task_from_tid(thread)?.stat()).ok()?;
    Some(Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second()))
}

#[test]
fn one_input_that_takes_too_long_is_named_and_many_that_take_as_long_are_not() {
    let watch = Watch::default();
    let worker = watch.worker();
    used(worker.thread).expect("told of a thread that runs");
    assert_eq!(worker.fault(LONGEST * 9), None, "nothing is under way");
    for begun in [LONGEST, LONGEST * 2, LONGEST * 3] {
        worker.run("dhcp4", b"fine", || {
            assert_eq!([begun, begun + LONGEST].map(|used| worker.fault(used)), [None, None]);
        });
    }
    worker.run("dhcp4", b"a\0", || {
        assert_eq!(worker.fault(LONGEST), None, "it has just begun");
        let fault = worker.fault(LONGEST * 2 + LOOK_EVERY).expect("too long");
        assert_eq!(fault, "dhcp4: not done after 11 s of a processor's time\n  by b\"a\\x00\"");
    });
}
