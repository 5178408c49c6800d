//! The emulator of machines that have several vCPUs without KVM: Debian's QEMU with one thread for all of them.
//!
//! With a thread for each, QEMU 10.0 ends now and then on a busy machine while the guest's kernel gives its devices addresses
//! (`iotlb_to_section: Assertion ... failed`, QEMU's issue 1921). Cases are not about that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Result;

use crate::case::Bed;

/// Where vmwrapper reads which emulator libvirt is to judge by.
const NAMED: &str = "/etc/virtlet/emulator";
const SCRIPT: &str = "#!/bin/sh\nfor word; do\n\tshift\n\t[ \"$word\" != tcg ] || word=tcg,thread=single\n\tset -- \"$@\" \"$word\"\ndone\n\
                      exec /usr/bin/qemu-system-x86_64 \"$@\"\n";

/// Puts it into the cell, before its daemons start; what controld's configuration has to say.
///
/// # Errors
/// When a file cannot be written.
pub fn of_one_thread(bed: &Bed) -> Result<String> {
    let path = bed.dir.join("emulator");
    fs::write(&path, SCRIPT)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    fs::write(NAMED, format!("{}\n", path.display()))?;
    Ok(format!("emulator = '{}'\n", path.display()))
}
