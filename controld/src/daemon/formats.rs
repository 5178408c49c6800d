//! The forms of the records that this release does not start on if a newer one wrote them: `controld formats`. Packages ask before
//! they replace this release by another one, whose daemon would then not start (`deploy/deb/virtlet/preinst`).
//!
//! A name stays what it is for ever. Whoever has a new kind of record that keeps a daemon from its start adds it here.

use crate::config::Config;
use crate::model::{CONTAINER_VERSION, SANDBOX_VERSION};
use crate::orphans::instance;
use crate::store::{LINE_VERSION, Recorded};
use crate::volumes::{self, Volumes};

const SANDBOXES: (&str, u32) = ("sandboxes", SANDBOX_VERSION);
const CONTAINERS: (&str, u32) = ("containers", CONTAINER_VERSION);
/// Lines of the log beside the database.
const LINES: (&str, u32) = ("lines", LINE_VERSION);
const DISKS: (&str, u32) = ("disks", volumes::FORMAT);
/// It is there once controld was started, with pods and without.
const INSTANCE: (&str, u32) = ("instance", instance::FORMAT);

/// What this release writes, and reads up to: a line for each kind, with its name and version.
#[must_use]
pub fn written() -> String {
    lines([SANDBOXES, CONTAINERS, LINES, DISKS, INSTANCE].map(|kind| (kind, true)))
}

/// Those of them that are on record in the configured state directory, or may be: while a daemon has the database, nobody else
/// knows what is in it.
#[must_use]
pub fn recorded(config: &Config) -> String {
    let [sandboxes, containers, has_lines] = match Recorded::look(&super::database(config)) {
        Ok(Recorded { sandboxes, containers, unread, has_lines }) => {
            let unread = |(table, _): (&str, u32)| unread.iter().any(|unread| unread.table == table);
            [!sandboxes.is_empty() || unread(SANDBOXES), !containers.is_empty() || unread(CONTAINERS), has_lines]
        }
        Err(_unknown) => [true; 3],
    };
    let volumes = super::volumes_dir(config);
    let disks = volumes.exists() && Volumes::peek(volumes).folders().map_or(true, |folders| !folders.is_empty());
    let instance = instance::is_noted(&config.state_dir).unwrap_or(true);
    let kinds = [SANDBOXES, CONTAINERS, LINES, DISKS, INSTANCE];
    let there = [sandboxes, containers, has_lines, disks, instance];
    lines(kinds.into_iter().zip(there))
}

fn lines(kinds: impl IntoIterator<Item = ((&'static str, u32), bool)>) -> String {
    let there = kinds.into_iter().filter(|(_, there)| *there);
    there.map(|((name, version), _)| format!("{name} {version}\n")).collect()
}

#[cfg(test)]
mod tests;
