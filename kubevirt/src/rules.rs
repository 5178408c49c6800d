//! What holds between the fields of a VirtualMachineInstance's spec, beyond what the table says of each. Of objects that have all their
//! defaults.

mod boot;
mod cloud_init;
mod defaults;
mod disks;
mod networks;
mod others;
mod size;
mod volumes;

pub(super) use self::cloud_init::user_data;
pub(super) use self::defaults::fill;

use super::Path;
use super::finding::Findings;
use super::types::Spec;

/// Notes all that is wrong with a spec.
pub(super) fn check(spec: &Spec, at: &Path, found: &mut Findings) {
    let domain = at.field("domain");
    let devices = domain.field("devices");
    size::check(&spec.domain, &domain, found);
    volumes::check(&spec.volumes, &at.field("volumes"), found);
    disks::check(spec, &devices.field("disks"), found);
    networks::check(spec, at, &devices, found);
    boot::check(spec, at, found);
    cloud_init::check(spec, at, found);
    others::check(spec, at, found);
}
