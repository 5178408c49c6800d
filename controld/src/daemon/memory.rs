//! How much memory the allocator keeps for itself.
//!
//! glibc gives each thread a heap of its own, up to eight for each processor, and none of them ever gets small. Threads here
//! come and go and share little work at a time: one heap does, and with fifty sandboxes it is 5 MiB less.
//!
//! glibc asks the kernel for large pieces one by one, and gives each back when it is freed. But with the first one that is
//! freed it takes all of that size for worth keeping (mallopt(3), "dynamic mmap threshold"), and from then on a daemon has
//! the blocks of its largest pull for ever. A threshold that is set stays.

#![expect(unsafe_code, reason = "the allocator is set up by a call of C; nothing outside this file makes it")]

/// From this size on, in bytes: below the blocks of a pull (1 MiB), above what comes and goes
/// all the time. The value that glibc begins with.
const LARGE: libc::c_int = 128 * 1024;

/// Has the allocator keep one heap, and give large pieces back when they are freed. To be called before there are threads.
pub(super) fn keep_little() {
    // SAFETY: takes two integers and no pointers, and nothing depends on its success.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}
