//! The pod's volumes and disks, each seen at its path after those above it: a volume may be below a disk, and a disk below a volume.
//!
//! The kernel may find a disk late. What is below its path waits for it, and nothing else does. It is not mounted without the disk, which
//! would hide it if it came later.

use std::io;
use std::path::Path;
use std::time::Instant;

use proto::agent::{Disk, Mount, Setup};

use super::disks::Disks;
use super::look::{FOUND, Look};
use super::mounts::Share;
use crate::arrivals::Arrivals;

/// What the pod has at a path of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    Volume(&'a Mount),
    Disk(&'a Disk),
}

/// What is not seen.
#[derive(Debug, Default)]
struct Unseen<'a> {
    /// Which and why, a line each.
    lines: Vec<String>,
    disks: Vec<&'a Disk>,
}

/// Has all volumes and disks seen at their paths, within [`FOUND`]; what is not and why, a line each.
pub(super) fn see(setup: &Setup, share: &Share, disks: &Disks) -> Vec<String> {
    let deadline = Instant::now() + FOUND;
    let (volumes, mut failed) = share.ready(&setup.mounts);
    let look = |place: Place<'_>| match place {
        Place::Volume(volume) => share.bind(volume).map(|()| Look::Seen),
        Place::Disk(disk) => disks.see(disk),
    };
    let mut arrivals: Option<Arrivals> = None;
    let wait = || match &arrivals {
        Some(heard) => heard.wait(deadline),
        // Heard from before the next look, so none is missed.
        None => {
            arrivals = Some(Arrivals::listen()?);
            Ok(true)
        }
    };
    failed.extend(see_all(in_order(volumes, &setup.disks), look, wait));
    failed
}

/// What is above comes first; beside each other, disks do.
fn in_order<'a>(volumes: Vec<&'a Mount>, disks: &'a [Disk]) -> Vec<Place<'a>> {
    let mut all: Vec<_> = disks.iter().map(Place::Disk).chain(volumes.into_iter().map(Place::Volume)).collect();
    all.sort_by_key(|place| place.path().components().count());
    all
}

/// Looks after each, in this order, and again after those that are left, as long as `wait` says that the kernel has found something.
fn see_all<'a>(
    order: Vec<Place<'a>>,
    mut look: impl FnMut(Place<'a>) -> Result<Look, String>,
    mut wait: impl FnMut() -> io::Result<bool>,
) -> Vec<String> {
    let mut unseen = Unseen::default();
    let mut left = unseen.round(order, &mut look);
    let end = loop {
        if left.is_empty() {
            return unseen.lines;
        }
        match wait() {
            Ok(true) => left = unseen.round(left, &mut look),
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    unseen.round(left, |place| match (look(place)?, &end) {
        (Look::Seen, _) => Ok(Look::Seen),
        (Look::NotYet(why), Ok(())) => Err(why),
        (Look::NotYet(_), Err(error)) => Err(format!("not found, and not waited for: {error}")),
    });
    unseen.lines
}

// === impl Unseen ===

impl<'a> Unseen<'a> {
    /// One look at each, but for those below a disk that is not there; those that the next round is for.
    fn round(
        &mut self,
        order: Vec<Place<'a>>,
        mut look: impl FnMut(Place<'a>) -> Result<Look, String>,
    ) -> Vec<Place<'a>> {
        let mut left: Vec<Place<'a>> = Vec::new();
        for place in order {
            if let Some(disk) = self.disks.iter().find(|disk| place.is_below(&disk.path)) {
                let why = format!("it is below `{}`, where disk `{}` is not", disk.path, disk.serial);
                self.lines.push(place.failure(&why));
                continue;
            }
            if left.iter().any(|above| place.is_below(above.path())) {
                left.push(place);
                continue;
            }
            match look(place) {
                Ok(Look::Seen) => {}
                Ok(Look::NotYet(_)) => left.push(place),
                Err(why) => {
                    self.lines.push(place.failure(&why));
                    if let Place::Disk(disk) = place {
                        self.disks.push(disk);
                    }
                }
            }
        }
        left
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    fn path(self) -> &'a Path {
        Path::new(match self {
            Self::Volume(volume) => &volume.path,
            Self::Disk(disk) => &disk.path,
        })
    }

    fn is_below(self, path: impl AsRef<Path>) -> bool {
        self.path().starts_with(path)
    }

    fn failure(self, why: &str) -> String {
        match self {
            Self::Volume(volume) => format!("volume `{}` was not mounted in the guest: {why}", volume.path),
            Self::Disk(disk) => format!("disk `{}` is not at `{}` in the guest: {why}", disk.serial, disk.path),
        }
    }
}

#[cfg(test)]
mod tests;
