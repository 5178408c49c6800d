//! The directory by which a guest sees volumes: controld writes what is to be shared, and `fswrapper`, which libvirt starts, does the rest.

mod process;
mod subpaths;
pub(crate) mod watch;

use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::bounded;
use proto::share::{Bind, FILE, WRAPPER};
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Share, SharedMount};

pub(crate) use self::process::processes;
pub(crate) use self::subpaths::check_subpaths;
use crate::config::Config;
use crate::files::remove;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::process::Processes;
use crate::model::Container;
use crate::model::domain::Shared;
use crate::store::Store;

/// libvirt's name of the device, by which it names virtiofsd's log and the file with its process id.
const ALIAS: &str = "fs0";
/// What a unit with `PrivateTmp=` does not see of the node.
const OF_UNITS: [&str; 2] = ["/tmp", "/var/tmp"];
/// What a line of fswrapper's begins with.
const WRAPPER_LINE: &str = "fswrapper[";
/// Bytes at the end of virtiofsd's log that are read: it writes there what it likes.
const MAX_LOG: u64 = 64 << 10;
/// Most of what virtiofsd said last that is told.
const MAX_SAID: usize = 500;

/// What shares volumes with guests, as far as this controld has seen it.
#[derive(Debug)]
pub struct Shares {
    config: Arc<Config>,
    store: Store,
    hypervisor: Hypervisor,
    processes: Arc<Processes>,
    machines: Mutex<HashMap<MachineId, Seen>>,
}

/// Of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Watched,
    /// Its virtiofsd has ended, and the machine is to.
    Unshared,
}

impl Shares {
    /// What there is of none so far.
    #[must_use]
    pub fn new(config: Arc<Config>, store: Store, hypervisor: Hypervisor, processes: Arc<Processes>) -> Self {
        Self { config, store, hypervisor, processes, machines: Mutex::default() }
    }

    /// Whether the machine was, or is being, destroyed because its virtiofsd has ended.
    #[must_use]
    pub fn is_unshared(&self, machine: MachineId) -> bool {
        self.machines().get(&machine) == Some(&Seen::Unshared)
    }

    fn machines(&self) -> MutexGuard<'_, HashMap<MachineId, Seen>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the machine's share is described.
pub(crate) fn dir(config: &Config, machine: MachineId) -> PathBuf {
    config.run_dir.join("share").join(machine.to_string())
}

/// Where libvirt logs what the machine's virtiofsd says.
pub(crate) fn log(config: &Config, domain: &str) -> PathBuf {
    config.libvirt_log_dir.join(format!("{domain}-{ALIAS}-virtiofsd.log"))
}

/// Whether a share can be made. Blocks.
///
/// # Errors
/// When the node has no virtiofsd, or a volume is nothing that a guest can see.
pub(crate) fn check(config: &Config, share: &Share) -> Result<()> {
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    for (setting, program) in [("virtiofsd", &config.virtiofsd), ("fswrapper", &config.fswrapper)] {
        if !is_program(program) {
            let what = format!(
                "the pod's volumes are shared by virtiofs, and `{}` is not there; install it, set `{setting}`, or have no \
                 volumes in guests by setting `shared_fs` of the runtime handler, or annotation `virtlet.cloud/shared-fs`, \
                 to `none`",
                program.display()
            );
            return Err(Error::new(Kind::State, what));
        }
    }
    share.mounts.iter().try_for_each(look)
}

fn look(SharedMount { source, path, .. }: &SharedMount) -> Result<()> {
    let shown = source.display();
    let found = match fs::metadata(source) {
        Ok(found) => found,
        // controld's unit has directories of its own there. fswrapper sees the node's, and fails for what is not there.
        Err(_absent) if OF_UNITS.iter().any(|dir| source.starts_with(dir)) => return Ok(()),
        Err(cause) => {
            let what = format!("volume mount at `{path}`: `{shown}` is not there on the node");
            return Err(Error::because(Kind::Invalid, what, cause));
        }
    };
    let kind = found.file_type();
    let what = match () {
        () if kind.is_dir() || kind.is_file() => return Ok(()),
        () if kind.is_socket() => "a socket",
        () if kind.is_fifo() => "a named pipe",
        () => "a device",
    };
    let text = format!("volume mount at `{path}`: `{shown}` is {what}, which a guest cannot see; unset it");
    Err(Error::new(Kind::Invalid, text))
}

/// Describes the share of a machine that is to be started; again is fine. Blocks.
pub(crate) fn prepare(config: &Config, container: &Container, share: &Share) -> io::Result<Shared> {
    let dir = dir(config, container.machine.id);
    remove(&dir)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let bind =
        |SharedMount { source, path: _, read_only, recursive, follows, filled, options: _ }: &SharedMount| Bind {
            source: source.clone(),
            read_only: *read_only,
            recursive: *recursive,
            follows: *follows,
            filled: *filled,
        };
    let share =
        proto::share::Share { virtiofsd: config.virtiofsd.clone(), mounts: share.mounts.iter().map(bind).collect() };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(FILE))?;
    file.write_all(&share.encode()?)?;
    let fswrapper = dir.join(WRAPPER);
    symlink(&config.fswrapper, &fswrapper)?;
    Ok(Shared { dir, fswrapper })
}

/// Why fswrapper did not become virtiofsd, if it did not. Blocks.
pub(crate) fn said_last(config: &Config, domain: &str) -> Option<String> {
    said_last_in(&log(config, domain))
}

fn said_last_in(log: &Path) -> Option<String> {
    let text = bounded::last(log, MAX_LOG).ok()?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let last = last.get(last.find(WRAPPER_LINE)?..)?;
    Some(last.chars().filter(|c| !c.is_control()).take(MAX_SAID).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn of_a_log_without_end_its_end_is_read() {
        let dir = tempfile::tempdir().expect("tempdir");
        let log = dir.path().join("virtiofsd.log");
        assert_eq!(said_last_in(&log), None);
        // Longer than memory.
        let mut file = File::create(&log).expect("made");
        file.set_len(1 << 40).expect("extended");
        io::Seek::seek(&mut file, io::SeekFrom::End(0)).expect("at its end");
        file.write_all(b"\nfswrapper[71]: no such directory\n\n").expect("written");
        assert_eq!(said_last_in(&log).as_deref(), Some("fswrapper[71]: no such directory"));
    }
}
