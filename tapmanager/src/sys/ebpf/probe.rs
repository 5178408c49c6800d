//! Asks the kernel what a loaded program says about a frame, without a link. For tests.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

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

/// Shows `frame` to `program`. The kernel does not show all frames: it wants something behind the Ethernet header, and
/// behind that of IP a whole IP header.
pub(crate) fn run(program: &OwnedFd, frame: &[u8]) -> Option<Verdict> {
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(frame.len()).expect("short"),
        data_in: frame.as_ptr().addr() as u64,
        repeat: 1,
        ..TestRun::default()
    };
    match bpf(PROG_TEST_RUN, &mut attr) {
        Err(Errno::EINVAL) => return None,
        done => done.expect("a test run"),
    };
    Some(match attr.retval {
        2 => Verdict::Dropped,
        7 => Verdict::Redirected,
        other => Verdict::Other(other),
    })
}
