//! Volumes, but for cloud-init's.

use std::collections::BTreeSet;

use common::quantity;

use crate::Path;
use crate::finding::Findings;
use crate::types::{ContainerDisk, Volume};

/// Where an image has its disk.
const DISK_DIR: &str = "/disk/";
/// Least and most of a disk that is made.
const DISK_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=16 << 40;

pub(super) fn check(volumes: &[Volume], at: &Path, found: &mut Findings) {
    let mut names = BTreeSet::new();
    for (nth, volume) in volumes.iter().enumerate() {
        let at = at.item(nth);
        let is_new = names.insert(&volume.name);
        found.unless(is_new, &at.field("name"), format!("\"{}\" is the name of another volume", volume.name));
        match volume.sources()[..] {
            [source] => self::source(volume, &at.field(source), found),
            // A source that is refused was told.
            [] if found.has_error_at(&at) => {}
            [] => found.error(&at, "has no source"),
            ref several => found.error(&at, format!("has several sources: {}", several.join(", "))),
        }
    }
}

fn source(volume: &Volume, at: &Path, found: &mut Findings) {
    if let Some(image) = &volume.container_disk {
        container_disk(image, at, found);
    }
    if let Some(disk) = &volume.empty_disk {
        let is_fine = quantity::bytes(&disk.capacity).is_ok_and(|bytes| DISK_BYTES.contains(&bytes));
        found.unless(is_fine, &at.field("capacity"), format!("{:?} is not from 16Mi to 16Ti", disk.capacity));
    }
    if let Some(sysprep) = &volume.sysprep {
        let is_one = sysprep.secret.is_some() != sysprep.config_map.is_some();
        found.unless(is_one, at, "needs one of secret and configMap");
    }
}

fn container_disk(image: &ContainerDisk, at: &Path, found: &mut Findings) {
    if let Some(path) = &image.path {
        let is_there = path.strip_prefix(DISK_DIR).is_some_and(|file| !file.is_empty() && !file.contains('/'));
        found.unless(is_there, &at.field("path"), "not supported: an image has its one disk in /disk");
    }
}
