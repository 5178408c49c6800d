//! Inputs of the corpora with changes drawn at random, for each target: what `make test` has of fuzzing.
//!
//! libFuzzer looks at which code an input reaches, and so finds far more (`make fuzz`); but it needs a build of its own of nearly all
//! of this workspace. A change that breaks a parser plainly is found by these.
//!
//! An input is to take little time and memory, as libFuzzer demands, too. One that keeps a worker busy ends the process, which says so
//! ([`watch`]). Memory is bounded for the process by its address space: what asks for more ends it with nothing but the size that was asked
//! for, as a stack does that is too small, and nobody can say of which input that was. So it is in `changed-TARGET` of cargo's `target/tmp`.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "changed/watch.rs"]
mod watch;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestError, TestRunner};

use watch::{Watch, Worker};

/// Inputs for each target.
const INPUTS: u32 = 2000;
/// As `fuzz/run.sh` has it: longer ones show nothing more.
const LONGEST: usize = 4096;
/// Address space of the process, in bytes. Far more than its threads, which reserve some for each, and their inputs need; and less than makes
/// a machine swap.
const ROOM: u64 = 8 << 30;

/// One change of an input.
#[derive(Debug, Clone)]
enum Change {
    /// A bit is another one.
    Flip(Index, u8),
    /// Bytes are gone.
    Cut(Index, Index),
    /// Bytes are there twice.
    Repeat(Index, Index),
    /// Bytes come in.
    Insert(Index, Vec<u8>),
    /// Bytes are others, as lengths and counts are of so many bytes.
    Overwrite(Index, Vec<u8>),
    /// It goes on as another input of the corpus does.
    Splice(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (at(), at()).prop_map(|(from, to)| Change::Cut(from, to)),
        (at(), at()).prop_map(|(from, to)| Change::Repeat(from, to)),
        (at(), some_bytes()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (at(), some_bytes()).prop_map(|(at, bytes)| Change::Overwrite(at, bytes)),
        (at(), at(), at()).prop_map(|(at, other, from)| Change::Splice(at, other, from)),
    ]
}

/// Numbers at the edges of their types, in either order of bytes, and what is no number.
fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    let edges =
        [0_u64, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX.cast_unsigned(), u64::MAX];
    let number = (select(edges.to_vec()), select(vec![1_usize, 2, 4, 8]), any::<bool>());
    prop_oneof![
        number.prop_map(|(number, width, big)| {
            if big { number.to_be_bytes()[8 - width..].to_vec() } else { number.to_le_bytes()[..width].to_vec() }
        }),
        vec(any::<u8>(), 1..16),
    ]
}

/// `input` with a change; `corpus` has what it may be spliced with.
fn changed(mut input: Vec<u8>, change: Change, corpus: &[Vec<u8>]) -> Vec<u8> {
    let within = |at: Index, input: &[u8]| at.index(input.len() + 1);
    let range = |from: Index, to: Index, input: &[u8]| {
        let (from, to) = (within(from, input), within(to, input));
        from.min(to)..from.max(to)
    };
    match change {
        Change::Flip(at, bit) => {
            let length = input.len().max(1);
            if let Some(byte) = input.get_mut(at.index(length)) {
                *byte ^= 1 << bit;
            }
        }
        Change::Cut(from, to) => drop(input.drain(range(from, to, &input))),
        Change::Repeat(from, to) => {
            let range = range(from, to, &input);
            let again = input[range.clone()].to_vec();
            input.splice(range.end..range.end, again);
        }
        Change::Insert(at, bytes) => {
            let at = within(at, &input);
            input.splice(at..at, bytes);
        }
        Change::Overwrite(at, bytes) => {
            let at = within(at, &input);
            let end = input.len().min(at + bytes.len());
            input.splice(at..end, bytes);
        }
        Change::Splice(at, other, from) => {
            let other = &corpus[other.index(corpus.len())];
            input.truncate(within(at, &input));
            input.extend_from_slice(&other[within(from, other)..]);
        }
    }
    input.truncate(LONGEST);
    input
}

/// Runs one target over inputs made from its corpus; the smallest that shows a fault is in the answer.
fn fault(worker: &Worker, name: &'static str, run: fn(&[u8])) -> Option<String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("changed-{name}"));
    let under_way = File::create(&place).unwrap();
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let mut files: Vec<_> = fs::read_dir(Path::new(&crate_dir).join("corpus").join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // A folder's order is any; what is drawn by one seed has to be the same everywhere.
    files.sort();
    let corpus: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let inputs = (any::<Index>(), vec(change(), 1..6)).prop_map(|(one, changes)| {
        let begun = corpus[one.index(corpus.len())].clone();
        changes.into_iter().fold(begun, |input, change| changed(input, change, &corpus))
    });
    let config = Config { cases: INPUTS, failure_persistence: None, ..Config::default() };
    let found = TestRunner::new(config).run(&inputs, |input| {
        under_way.write_all_at(&input, 0).and_then(|()| under_way.set_len(input.len() as u64)).unwrap();
        worker.run(name, &input, || run(&input));
        Ok(())
    });
    fs::remove_file(&place).unwrap();
    match found {
        Ok(()) => None,
        Err(TestError::Fail(why, input)) => Some(format!("{name}: {why}\n  by b\"{}\"", input.escape_ascii())),
        Err(other) => Some(format!("{name}: {other}")),
    }
}

#[test]
fn changed_inputs_of_the_corpora_find_no_fault() {
    let (_, most) = getrlimit(Resource::RLIMIT_AS).unwrap();
    setrlimit(Resource::RLIMIT_AS, ROOM.min(most), most).unwrap();
    let (next, watch) = (AtomicUsize::new(0), Watch::default());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let faults: Vec<_> = thread::scope(|scope| {
        // Closed with this scope's end, also by a panic.
        let (_works, done) = mpsc::channel();
        scope.spawn({
            let watch = &watch;
            move || watch.look_until(&done)
        });
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let (worker, mut faults) = (watch.worker(), Vec::new());
                    while let Some((name, run)) = fuzz::TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                        faults.extend(fault(&worker, name, *run));
                    }
                    faults
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "a fault: keep its input in the corpus of its target\n{}", faults.join("\n"));
}
