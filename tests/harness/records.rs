//! controld's database, while controld is down.

use std::path::Path;

use anyhow::{Context as _, Result};
use redb::{Database, ReadableTable as _, TableDefinition};
use serde_json::Value;

/// controld's database.
pub const DATABASE: &str = "/var/lib/virtlet/meta.redb";

/// Gives all records of pods and containers another version, as a release of another version would; how many.
///
/// # Errors
/// When controld has the database, or a record is none.
pub fn set_versions(version: u32) -> Result<usize> {
    set_versions_of(&["sandboxes", "containers"], version)
}

/// Gives all records of these tables another version; how many.
///
/// # Errors
/// When controld has the database, or a record is none.
pub fn set_versions_of(tables: &[&str], version: u32) -> Result<usize> {
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
            *record.get_mut("version").context("a record without a version")? = version.into();
            table.insert(key.as_str(), record.to_string().as_bytes())?;
            changed += 1;
        }
    }
    write.commit()?;
    Ok(changed)
}
