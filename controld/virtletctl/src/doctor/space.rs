//! Room on the file systems of the image store, of the records and of the sockets.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};

use super::facts::{Facts, NO_SETTINGS, Settings};
use super::finding::Finding;
use super::host::Host;
use crate::text::size;

const CHECKS: [&str; 3] = ["space.images", "space.state", "space.run"];
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Of the store: what pulls can still take before it is told.
const LITTLE: u64 = 10 * GIB;
/// Disks of pods grow in the state directory; with nothing left, machines stop and no record is written.
const STATE: (u64, u64) = (64 * MIB, 2 * GIB);
/// Seeds and sockets are small.
const RUN: (u64, u64) = (MIB, 16 * MIB);

/// A file system.
#[derive(Debug, Clone, Copy)]
struct Room {
    free: u64,
    all: u64,
    /// Files that can still be made; `None` where the file system does not count them.
    files: Option<u64>,
    read_only: bool,
}

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    let Ok(settings) = &facts.controld else {
        return CHECKS.map(|check| Finding::unknown(check, NO_SETTINGS)).into();
    };
    wanted(settings).map(|(check, dir, least)| looked(host, check, dir, least)).into()
}

/// Which directory is to have how much: with less than the first nothing works, with less than the second not for long.
fn wanted(settings: &Settings) -> [(&'static str, &Path, (Least, u64)); 3] {
    let [images, state, run] = CHECKS;
    let reserve = settings.images_reserve;
    [
        (images, &settings.images_dir, (Least::Reserve(reserve), reserve.saturating_add(LITTLE))),
        (state, &settings.state_dir, (Least::Bytes(STATE.0), STATE.1)),
        (run, &settings.run_dir, (Least::Bytes(RUN.0), RUN.1)),
    ]
}

/// What has to be free at least.
#[derive(Debug, Clone, Copy)]
enum Least {
    Bytes(u64),
    /// As the image store has it: a twentieth of the file system if that is less.
    Reserve(u64),
}

fn looked(host: &Host, check: &'static str, dir: &Path, least: (Least, u64)) -> Finding {
    let (there, is_made) = nearest(host, dir);
    match room(&host.at(&there)) {
        Ok(room) => judged(check, dir, is_made, room, least),
        Err(error) => {
            Finding::unknown(check, format!("failed to look at the file system of `{}`: {error}", there.display()))
        }
    }
}

/// The directory, or the nearest one above it that is there.
fn nearest(host: &Host, dir: &Path) -> (PathBuf, bool) {
    let there = dir.ancestors().find(|dir| host.has(dir)).unwrap_or(Path::new("/"));
    (there.to_owned(), there == dir)
}

fn room(path: &Path) -> nix::Result<Room> {
    let found = statvfs(path)?;
    // Its types differ from one architecture to the next.
    let unit = found.fragment_size();
    Ok(Room {
        free: found.blocks_available().saturating_mul(unit),
        all: found.blocks().saturating_mul(unit),
        files: (found.files() > 0).then(|| found.files_available()),
        read_only: found.flags().contains(FsFlags::ST_RDONLY),
    })
}

fn judged(check: &'static str, dir: &Path, is_made: bool, room: Room, (least, little): (Least, u64)) -> Finding {
    let least = match least {
        Least::Bytes(bytes) => bytes,
        Least::Reserve(bytes) => bytes.min(room.all / 20),
    };
    let little = little.min(room.all / 10);
    let dir = dir.display();
    let made = if is_made { "" } else { ", which is not made yet" };
    let seen = format!("{} of {} free for `{dir}`{made}", size(room.free), size(room.all));
    let mend = match check {
        "space.images" => "virtletctl image gc, or set `images.dir` to a larger file system".to_owned(),
        _ => format!("make room on the file system of `{dir}`; virtletctl orphans shows what nobody has"),
    };
    if room.read_only {
        return Finding::failure(
            check,
            format!("`{dir}` is on a read-only file system"),
            "mount -o remount,rw it, and see dmesg",
        );
    }
    if room.files == Some(0) {
        return Finding::failure(check, format!("{seen}, but no file can be made"), mend);
    }
    if room.free <= least {
        return Finding::failure(check, format!("{seen}: less than the {} that stay free", size(least)), mend);
    }
    if room.free < little {
        return Finding::warning(check, seen, mend);
    }
    Finding::ok(check, seen)
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::tests::{facts, tree};
    use super::*;

    fn state(free: u64, all: u64, more: impl FnOnce(&mut Room)) -> State {
        let mut room = Room { free, all, files: Some(9), read_only: false };
        more(&mut room);
        judged("space.images", Path::new("/images"), true, room, (Least::Reserve(2 * GIB), 12 * GIB)).state
    }

    #[test]
    fn the_reserve_counts_and_not_the_size() {
        assert_eq!(state(100 * GIB, 200 * GIB, |_| ()), State::Ok);
        assert_eq!(state(5 * GIB, 200 * GIB, |_| ()), State::Warning);
        assert_eq!(state(2 * GIB, 200 * GIB, |_| ()), State::Failure);
        // A small file system has a small reserve.
        assert_eq!(state(2 * GIB, 10 * GIB, |_| ()), State::Ok);
        assert_eq!(state(100 * GIB, 200 * GIB, |room| room.files = Some(0)), State::Failure);
        assert_eq!(state(100 * GIB, 200 * GIB, |room| room.files = None), State::Ok);
        assert_eq!(state(100 * GIB, 200 * GIB, |room| room.read_only = true), State::Failure);
    }

    #[test]
    fn a_directory_that_is_not_made_is_looked_for_above() {
        let (_dir, host) = tree(&[("var/lib/x", "")]);
        let (there, is_made) = nearest(&host, Path::new("/var/lib/virtlet/images"));
        assert_eq!((there.as_path(), is_made), (Path::new("/var/lib"), false));
        let findings = look(&host, &facts());
        assert!(findings.iter().all(|finding| finding.seen.contains("not made yet")), "{findings:?}");
    }
}
