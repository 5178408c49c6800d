//! Checkpoints for warm starts, each in a directory by its name below `warm` of the state directory. What is used is kept, and the rest goes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::statvfs;

use crate::config::Config;
use crate::container::checkpoint::{image_in, manifest_in};
use crate::files;

/// How many are kept: each has the memory that a guest has used until the gate.
const MOST: usize = 8;
/// How names end of what is being removed.
const GONE: &str = "gone";
/// Whoever removes some has the turn, so that nobody is told of another's.
static TURN: Mutex<()> = Mutex::new(());

fn all(config: &Config) -> PathBuf {
    config.state_dir.join("warm")
}

/// Where the one of this name is.
pub(super) fn of(config: &Config, key: &str) -> PathBuf {
    all(config).join(key)
}

/// Whether there is a whole one, which is used then. Blocks.
pub(super) fn is_whole(dir: &Path) -> bool {
    let is_there = manifest_in(dir).is_file();
    if is_there && let Err(error) = fs::File::open(dir).and_then(|dir| dir.set_modified(SystemTime::now())) {
        tracing::warn!(%error, dir = %dir.display(), "use of a checkpoint for warm starts not noted");
    }
    is_there
}

/// Makes the directory of a new one, unless there is a whole one by now. Blocks.
///
/// # Errors
/// When it cannot be made, or the disk has less room than images leave, too.
pub(super) fn begin(config: &Config, key: &str) -> io::Result<Option<PathBuf>> {
    let dir = of(config, key);
    if is_whole(&dir) {
        return Ok(None);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let (room, wanted) = (statvfs(&dir)?, config.images.limits.reserve);
    if room.f_bavail.saturating_mul(room.f_frsize) < wanted {
        fs::remove_dir(&dir)?;
        return Err(io::Error::other(format!(
            "less than {wanted} bytes are free, which images.limits.reserve_gib leaves"
        )));
    }
    Ok(Some(dir))
}

/// After the one of this name was made, or was not: removes its directory if nothing is in it, and those that were used longest ago beyond what is
/// kept. Blocks.
///
/// # Errors
/// When one cannot be removed; the others are, all the same.
pub(super) fn ended(config: &Config, key: &str) -> io::Result<()> {
    let _turn = turn();
    // One that is not empty has the checkpoint, or what its task has yet to remove.
    let _not_empty = fs::remove_dir(of(config, key));
    let (mut whole, mut all_went) = (Vec::new(), Ok(()));
    for entry in fs::read_dir(all(config))? {
        let dir = entry?.path();
        if is_left(&dir) {
            all_went = all_went.and(files::remove(&dir));
        } else if manifest_in(&dir).is_file() {
            whole.push((fs::metadata(&dir)?.modified()?, dir));
        }
    }
    whole.sort();
    let many = whole.len().saturating_sub(MOST);
    whole.iter().take(many).fold(all_went, |all_went, (_, dir)| all_went.and(remove(dir)))
}

/// Removes those of other images than `here`, those that cannot be read, and what was left of a removal; the names of the first two, and whether
/// all went. Blocks.
pub(super) fn forget_all(
    config: &Config,
    here: impl FnOnce() -> io::Result<BTreeSet<String>>,
) -> (Vec<String>, io::Result<()>) {
    let _turn = turn();
    // Not before the turn: a checkpoint may have come with its image meanwhile.
    let (entries, here) = match fs::read_dir(all(config)).and_then(|entries| Ok((entries, here()?))) {
        Err(none) if none.kind() == io::ErrorKind::NotFound => return (Vec::new(), Ok(())),
        Err(error) => return (Vec::new(), Err(error)),
        Ok(both) => both,
    };
    let (mut gone, mut all_went) = (Vec::new(), Ok(()));
    for entry in entries {
        match entry.and_then(|entry| forgotten(&entry.path(), &here)) {
            Ok(key) => gone.extend(key),
            // The others go all the same.
            Err(error) => all_went = Err(error),
        }
    }
    (gone, all_went)
}

/// The name of one that has gone, if it was to.
fn forgotten(dir: &Path, here: &BTreeSet<String>) -> io::Result<Option<String>> {
    if is_left(dir) {
        return files::remove(dir).map(|()| None);
    }
    if !manifest_in(dir).is_file() || image_in(dir).is_ok_and(|image| here.contains(&image)) {
        return Ok(None);
    }
    remove(dir)?;
    Ok(dir.file_name().and_then(|name| name.to_str()).map(str::to_owned))
}

/// Whether it is what a removal that was killed has left.
fn is_left(dir: &Path) -> bool {
    dir.extension().is_some_and(|end| end == GONE)
}

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes one; fine if there is none. Blocks. A pod that is being made of it boots, if not all of its files were copied.
pub(super) fn forget(config: &Config, key: &str) -> io::Result<()> {
    let _turn = turn();
    match remove(&of(config, key)) {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Under another name first: half of one would be in the way of the next.
fn remove(dir: &Path) -> io::Result<()> {
    let gone = dir.with_extension(GONE);
    // Of a removal that was killed.
    files::remove(&gone)?;
    fs::rename(dir, &gone)?;
    fs::remove_dir_all(gone)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn those_that_are_used_stay() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut config = Config { state_dir: dir.path().into(), ..Config::default() };
        config.images.limits.reserve = 0;
        let made = |key: &str| begin(&config, key).expect("made").expect("there was none");
        let names: Vec<_> = (0..MOST + 2).map(|nth| format!("k{nth:02}")).collect();
        for (age, name) in names.iter().enumerate() {
            let dir = made(name);
            fs::create_dir(dir.join("checkpoint")).expect("made");
            fs::write(manifest_in(&dir), "{}").expect("written");
            let then = SystemTime::now() - Duration::from_secs(1000 - age as u64);
            fs::File::open(&dir).and_then(|dir| dir.set_modified(then)).expect("set");
        }
        let (half, empty) = (made("half"), made("empty"));
        fs::create_dir(half.join("checkpoint.partial")).expect("made");
        fs::create_dir_all(dir.path().join("warm/k99.gone/checkpoint")).expect("of one that was killed amid a removal");
        assert_eq!(begin(&config, "k00").expect("there"), None, "used");
        assert_eq!(empty, of(&config, "empty"));
        ended(&config, "empty").expect("pruned");
        let gone: Vec<_> = names.iter().filter(|name| !of(&config, name).exists()).collect();
        assert_eq!(gone, ["k01", "k02"]);
        assert!(half.exists() && !empty.exists() && !dir.path().join("warm/k99.gone").exists());
        forget(&config, "k00").expect("removed");
        forget(&config, "k00").expect("again is fine");
        assert!(!is_whole(&of(&config, "k00")));
        config.images.limits.reserve = u64::MAX;
        let error = begin(&config, "full").expect_err("no room").to_string();
        assert!(error.contains("reserve_gib") && !of(&config, "full").exists(), "{error}");
    }

    #[test]
    fn those_of_images_that_are_gone_go() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut config = Config { state_dir: dir.path().into(), ..Config::default() };
        config.images.limits.reserve = 0;
        let (none, all_went) = forget_all(&config, || Ok(BTreeSet::new()));
        assert!(none.is_empty() && all_went.is_ok());
        let manifest = |image: &str| {
            serde_json::json!({
                "version": 1, "made_at": 7, "namespace": "ns", "pod": "web", "container": "vm", "image_id": image,
                "emulator": { "qemu": "10.0.2", "libvirt": "11.3.0", "accelerator": "kvm" },
                "machine": {
                    "type": "q35", "firmware": "bios", "disk_bus": "virtio", "cpu": null,
                    "vcpus": 1, "max_vcpus": 1, "memory": 1, "max_memory": 1, "devices": {},
                },
                "nics": [], "disks": [], "files": [],
            })
        };
        let made = |key: &str, text: &str| {
            let dir = begin(&config, key).expect("made").expect("there was none");
            fs::create_dir(dir.join("checkpoint")).expect("made");
            fs::write(manifest_in(&dir), text).expect("written");
        };
        made("here", &manifest("sha256:0").to_string());
        made("gone", &manifest("sha256:1").to_string());
        made("damaged", "{");
        for left in ["gone.gone", "earlier.gone"] {
            fs::create_dir_all(dir.path().join("warm").join(left).join("checkpoint"))
                .expect("of a removal that was killed");
        }
        let half = begin(&config, "half").expect("made").expect("there was none");
        let (mut forgotten, all_went) = forget_all(&config, || Ok(["sha256:0".to_owned()].into()));
        forgotten.sort();
        assert_eq!(forgotten, ["damaged", "gone"]);
        all_went.expect("all went");
        assert!(is_whole(&of(&config, "here")) && half.exists(), "one that is being made stays");
        assert!(["gone", "damaged", "gone.gone", "earlier.gone"].iter().all(|name| !of(&config, name).exists()));
    }
}
