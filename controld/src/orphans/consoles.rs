//! Console logs, sockets, seeds and shares of machines: each is named by the id of its machine.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use vmspec::MachineId;

use super::Orphans;
use crate::guest::seed;

impl Orphans {
    /// Machines that are on no record and have left something.
    pub(super) fn left_consoles(&self) -> BTreeSet<MachineId> {
        let mut ids = BTreeSet::new();
        for (dir, suffix) in self.console_places() {
            let Ok(entries) = std::fs::read_dir(dir) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name().to_string_lossy().into_owned();
                ids.extend(name.strip_suffix(&*suffix).and_then(|id| id.parse::<MachineId>().ok()));
            }
        }
        &ids - &self.uses.store.machines()
    }

    /// What the log takes of the disk, in bytes.
    pub(super) fn console_bytes(&self, id: MachineId) -> u64 {
        let dir = self.uses.config.state_dir.join("console").join(id.to_string());
        let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
    }

    /// Removes all of it. Fine if there is nothing.
    pub(super) fn remove_console(&self, id: MachineId) -> io::Result<()> {
        for (dir, suffix) in self.console_places() {
            let path = dir.join(format!("{id}{suffix}"));
            match remove_at(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn remove_at(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
}

impl Orphans {
    fn console_places(&self) -> Vec<(PathBuf, Cow<'static, str>)> {
        let config = &self.uses.config;
        let of_run_dir = [
            ("console", ".sock"),
            ("console", ".agent"),
            ("console", ".exec"),
            ("console", ""),
            ("seed", ".iso"),
            ("seed", ".aside"),
            ("seed", ".used"),
            ("seed", ".ignition"),
            ("seed", ".keys"),
            ("share", ""),
        ];
        let mut places = vec![(config.state_dir.join("console"), Cow::Borrowed(""))];
        places.extend(of_run_dir.map(|(dir, suffix)| (config.run_dir.join(dir), suffix.into())));
        places.extend(seed::disks::suffixes().map(|suffix| (config.run_dir.join("seed"), suffix.into())));
        places
    }
}
