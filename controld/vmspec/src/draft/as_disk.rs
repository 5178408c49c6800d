//! A volume that the guest has as a disk: whether it can be where the pod wants it, and what the guest knows it by. Pure.

use std::path::Path;

use super::disks::{TAKEN, is_place};
use crate::Mount;
use crate::plan::{Hardware, Serial};

/// The serial of the disk of `volume`, which the pod mounts as `mount`. Others have serials that are `taken`.
///
/// # Errors
/// Why it cannot be a disk there.
pub(super) fn serial(
    volume: &str,
    mount: &Mount,
    hardware: &Hardware,
    taken: impl Fn(&Serial) -> bool,
) -> Result<Serial, String> {
    let at = &mount.container_path;
    if !is_place(Path::new(at)) {
        return Err(format!("volume \"{volume}\" cannot be at `{at}`; choose another `mountPath`"));
    }
    if (mount.readonly || hardware.is_read_only(volume)) && !hardware.may_be_read_only(volume) {
        return Err(format!("volume \"{volume}\" is read-only, which no disk on the bus `sata` can be"));
    }
    let serial = hardware.said_serial(volume).unwrap_or_else(|| Serial::of_name(volume));
    if TAKEN.contains(&serial.as_str()) || taken(&serial) {
        return Err(format!("volume \"{volume}\" would have the serial `{serial}` of another disk; rename it"));
    }
    Ok(serial)
}
