//! controld's database, while controld is down.

use std::path::Path;

use anyhow::{Context as _, Result};
use redb::{Database, ReadableTable as _, TableDefinition};
use serde_json::Value;

/// controld's database.
pub const DATABASE: &str = "/var/lib/virtlet/meta.redb";

/// The tables whose records have a version.
pub const VERSIONED: [&str; 2] = ["sandboxes", "containers"];
/// No release comes so soon.
const NEWER: u64 = 100;

/// Makes the records of these tables such as no release writes; how many.
///
/// # Errors
/// When controld has the database, or a record is none.
pub fn make_unreadable(tables: &[&str]) -> Result<usize> {
    change_versions(tables, |_version| Some(0))
}

/// Makes the records of these tables such as a newer release would write; how many.
///
/// # Errors
/// When controld has the database, or a record is none.
pub fn make_newer(tables: &[&str]) -> Result<usize> {
    change_versions(tables, |version| version.checked_add(NEWER))
}

/// Takes [`make_newer`] back; how many.
///
/// # Errors
/// As there.
pub fn make_known(tables: &[&str]) -> Result<usize> {
    change_versions(tables, |version| version.checked_sub(NEWER))
}

fn change_versions(tables: &[&str], change: impl Fn(u64) -> Option<u64>) -> Result<usize> {
    let db = Database::open(Path::new(DATABASE))?;
    let write = db.begin_write()?;
    let mut changed = 0;
    for name in tables {
        let mut table = write.open_table(TableDefinition::<&str, &[u8]>::new(name))?;
        let records: Vec<(String, Vec<u8>)> = table
            .iter()?
            .map(|row| row.map(|(key, value)| (key.value().to_owned(), value.value().to_owned())))
            .collect::<Result<_, _>>()?;
        for (key, value) in records {
            let mut record: Value = serde_json::from_slice(&value)?;
            let version = record.get_mut("version").context("a record without a version")?;
            *version = version.as_u64().and_then(&change).context("a record of another version than expected")?.into();
            table.insert(key.as_str(), record.to_string().as_bytes())?;
            changed += 1;
        }
    }
    write.commit()?;
    Ok(changed)
}
