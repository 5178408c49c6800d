//! How much memory the allocator keeps for itself.
//!
//! glibc gives each thread a heap of its own, up to eight for each processor, and none of them ever gets small. The
//! daemon's threads live for one operation each, so one heap does.

#![expect(unsafe_code, reason = "the allocator is set up by a call of C")]

use nix::libc;

/// Has the allocator keep one heap for all threads. To be called before there are any; the spawner inherits it.
pub fn keep_one_heap() {
    // SAFETY: takes two integers and no pointers, and nothing depends on its success.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
