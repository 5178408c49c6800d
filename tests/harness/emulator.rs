//! Emulators of a cell's own, which are scripts in front of Debian's QEMU.
//!
//! One of them is for machines that have several vCPUs without KVM: QEMU with one thread for all of them. With a thread for each, QEMU 10.0 ends
//! now and then on a busy machine while the guest's kernel gives its devices addresses (`iotlb_to_section: Assertion ... failed`, QEMU's
//! issue 1921). Cases are not about that.
//!
//! Where such a machine's CPU is of a named model, that is one of AMD's. Of several processors of Intel's Linux compares the time stamps when it
//! starts them, and 6.1 now and then waits for ever: the new processor for the first one, which has meanwhile found that the time stamps are not
//! to be trusted, and so compares none (`check_tsc_sync_target`). Of AMD's without an invariant time stamp neither does.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Result;

use crate::case::Bed;

/// Where vmwrapper reads which emulator libvirt is to judge by.
pub const NAMED: &str = "/etc/virtlet/emulator";
const ONE_THREAD: &str = "#!/bin/sh\nfor word; do\n\tshift\n\t[ \"$word\" != tcg ] || word=tcg,thread=single\n\tset -- \"$@\" \"$word\"\ndone\n\
                      exec /usr/bin/qemu-system-x86_64 \"$@\"\n";

/// The emulator with one thread, put into the cell; what controld's configuration has to say.
///
/// # Errors
/// When a file cannot be written.
pub fn of_one_thread(bed: &Bed) -> Result<String> {
    put(bed, ONE_THREAD)
}

/// Puts a script into the cell, in place of the one before; what controld's configuration has to say.
///
/// # Errors
/// When a file cannot be written.
pub fn put(bed: &Bed, script: &str) -> Result<String> {
    let path = bed.dir.join("emulator");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    fs::write(NAMED, format!("{}\n", path.display()))?;
    Ok(format!("emulator = '{}'\n", path.display()))
}
