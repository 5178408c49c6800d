//! What is on record, for a person (`tapmanager dump-state`), and in which forms, for a package that is to replace this release
//! (`tapmanager formats`, asked by `deploy/deb/virtlet/preinst`): an older daemon neither starts on records of a newer release
//! nor gives back by them what pods have.
//!
//! `main` calls it. No daemon is needed or asked, and nothing is changed. A name of a form stays what it is for ever; whoever has a
//! new kind of record adds it here.

use common::Chain;
use serde_json::{Value, json};

use super::DaemonError;
use crate::config::Config;
use crate::instance::{self, InstanceId};
use crate::journal::{self, Journal, Loaded};
use crate::vf::ClaimNotes;

const NETWORKS: (&str, u32) = ("networks", journal::FORMAT);
/// Of virtual functions.
const CLAIMS: (&str, u32) = ("claims", sriov::claim::FORMAT);
/// It is there once tapmanager was started, with pods and without.
const INSTANCE: (&str, u32) = ("network-instance", instance::FORMAT);

/// What is on record.
#[derive(Debug)]
pub struct Dump {
    /// All that can be read, and the names of what cannot.
    pub state: Value,
    /// How many cannot.
    pub unreadable: usize,
}

/// Something is on record that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0} records cannot be read; `unreadable` names them, and what is wrong with each")]
pub struct SomeUnreadable(pub usize);

/// What the configured state directory holds, as JSON for people.
///
/// # Errors
/// When a directory there cannot be read, or there is no journal.
pub fn dump(config: &Config) -> Result<Dump, DaemonError> {
    let Loaded { records, unreadable } = Journal::peek(&config.state_dir).load()?;
    let mut unreadable: Vec<String> = unreadable.iter().map(|file| Chain(file).to_string()).collect();
    let claims = ClaimNotes::peek(&config.state_dir).all().map_err(|error| DaemonError::State(error.into()))?;
    unreadable.extend(claims.1.iter().map(|file| Chain(file).to_string()));
    unreadable.extend(InstanceId::peek(&config.state_dir).err().map(|error| Chain(&error).to_string()));
    let state = json!({ "pods": records, "claims": claims.0, "unreadable": unreadable });
    Ok(Dump { state, unreadable: unreadable.len() })
}

/// The forms that this release writes, and reads up to: a line for each kind, with its name and version.
#[must_use]
pub fn formats() -> String {
    lines([NETWORKS, CLAIMS, INSTANCE].map(|kind| (kind, true)))
}

/// Those of them that are on record in the configured state directory, or may be.
#[must_use]
pub fn formats_recorded(config: &Config) -> String {
    let networks = Journal::peek(&config.state_dir).newest();
    let claims = ClaimNotes::peek(&config.state_dir).all();
    let claims = claims.map_or(true, |(claims, unreadable)| !claims.is_empty() || !unreadable.is_empty());
    let instance = InstanceId::peek(&config.state_dir).map_or(true, |instance| instance.is_some());
    let networks = ((NETWORKS.0, networks.unwrap_or(NETWORKS.1)), networks.is_some());
    lines([networks, (CLAIMS, claims), (INSTANCE, instance)])
}

fn lines(kinds: impl IntoIterator<Item = ((&'static str, u32), bool)>) -> String {
    let there = kinds.into_iter().filter(|(_, there)| *there);
    there.map(|((name, version), _)| format!("{name} {version}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::daemon::startup::read_state;

    fn config(dir: &Path) -> Config {
        Config { state_dir: dir.to_owned(), ..Config::default() }
    }

    #[test]
    fn what_a_newer_release_wrote_is_named_and_shown() {
        for ((name, version), file, refused) in [
            (NETWORKS, "pods/p1.json", true),
            // Its pod is kept, and its VF with it.
            (CLAIMS, "claims/0000:3b:02.1.json", false),
            (INSTANCE, "instance", true),
        ] {
            let dir = tempfile::tempdir().expect("tempdir");
            let config = config(dir.path());
            let journal = Journal::open(dir.path()).expect("journal");
            fs::create_dir_all(dir.path().join("claims")).expect("made");
            let path = dir.path().join(file);
            fs::write(&path, json!({ "version": version + 1, "of": "a later time" }).to_string()).expect("written");
            let line = format!("{name} {version}\n");
            assert!(formats().contains(&line), "{}", formats());
            assert_eq!(formats_recorded(&config), line);
            let Dump { state, unreadable } = dump(&config).expect("shown");
            assert_eq!(unreadable, 1, "{state:#}");
            assert!(state["unreadable"][0].as_str().is_some_and(|told| told.contains(file)), "{state:#}");
            assert_eq!(read_state(&journal, dir.path()).is_err(), refused, "{name}");
        }
    }

    #[test]
    fn what_is_on_no_record_keeps_nobody_from_an_older_release() {
        let dir = tempfile::tempdir().expect("tempdir");
        let config = config(dir.path());
        assert_eq!(formats_recorded(&config), "");
        assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0, "a look makes something");
        let journal = Journal::open(dir.path()).expect("journal");
        read_state(&journal, dir.path()).expect("starts");
        assert_eq!(formats_recorded(&config), lines([(INSTANCE, true)]), "a start leaves more");
    }
}
