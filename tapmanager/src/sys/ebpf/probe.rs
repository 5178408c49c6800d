//! Asks the kernel what a loaded program says about a frame, without a link. For tests.

use std::os::fd::{AsRawFd, OwnedFd};

use super::bpf;

/// What a program did with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Dropped,
    Redirected,
    /// `TC_ACT_OK` or any other: the namespace's stack hears the frame.
    Other(u32),
}

/// What `PROG_TEST_RUN` reads of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

const PROG_TEST_RUN: libc::c_int = 10;

/// Shows `frame`, longer than an Ethernet header, to `program`.
pub(crate) fn run(program: &OwnedFd, frame: &[u8]) -> Verdict {
    time(program, frame, 1).0
}

/// Shows it `times` times; gives the nanoseconds that one took on average too.
pub(crate) fn time(program: &OwnedFd, frame: &[u8], times: u32) -> (Verdict, u32) {
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(frame.len()).expect("short"),
        data_in: frame.as_ptr().addr() as u64,
        repeat: times,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attr).expect("a test run");
    let verdict = match attr.retval {
        2 => Verdict::Dropped,
        7 => Verdict::Redirected,
        other => Verdict::Other(other),
    };
    (verdict, attr.duration)
}
