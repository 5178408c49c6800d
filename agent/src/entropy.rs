//! A guest that was woken from a checkpoint has its kernel draw new random numbers.
#![expect(unsafe_code, reason = "nix has no function for this ioctl")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;

/// `RNDRESEEDCRNG` of `linux/random.h`: the generator begins anew from the pool. Without it that is up to a minute away.
const RESEED: libc::c_ulong = 0x5207;

/// Has the kernel's generator begin anew, for all processors.
///
/// # Errors
/// When there is no such device, or the kernel has not seen enough yet (`ENODATA`).
pub(crate) fn reseed() -> io::Result<()> {
    let random = OpenOptions::new().write(true).open("/dev/urandom")?;
    // SAFETY: it takes no argument, and the descriptor is open.
    if unsafe { libc::ioctl(random.as_raw_fd(), RESEED, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
