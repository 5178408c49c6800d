//! A repository as virt-builder reads it: an index of sections, signed in clear, and packed images beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::disk::{Disk, sum};
use super::gpg::Key;
use crate::command::{command, run};

/// A repository in a directory that some server serves.
#[derive(Debug)]
pub struct Repository {
    dir: PathBuf,
    index: String,
    /// Who signs.
    pub key: Key,
}

impl Repository {
    /// An empty one in `dir`; the key's home is `home`.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn create(dir: &Path, home: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned(), index: String::new(), key: Key::create(home, "rsa2048")? })
    }

    /// Adds a disk, packed by xz, as a section. `more` are lines of further fields.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn add(&mut self, name: &str, arch: &str, revision: u32, disk: &Disk, more: &str) -> Result<()> {
        let packed = disk.packed("xz", ".xz")?;
        let file = format!("{name}-{arch}-{revision}.xz");
        fs::copy(&packed, self.dir.join(&file))?;
        if !self.index.is_empty() {
            // One empty line between sections and none inside: what every version of virt-builder reads.
            self.index.push('\n');
        }
        let (checksum, size) = (sum("sha512sum", &packed)?, fs::metadata(&packed)?.len());
        write!(
            self.index,
            "[{name}]\nname={name} of the test bed\narch={arch}\nfile={file}\nrevision={revision}\nformat=qcow2\n\
             checksum[sha512]={checksum}\nsize={}\ncompressed_size={size}\n{more}",
            64 << 20
        )?;
        Ok(())
    }

    /// Writes `index` and `index.asc`; the first one's path.
    ///
    /// # Errors
    /// When `gpg` fails.
    pub fn publish(&self) -> Result<PathBuf> {
        let index = self.dir.join("index");
        fs::write(&index, &self.index)?;
        self.key.clearsign(&index, &self.dir.join("index.asc"))?;
        Ok(index)
    }

    /// What the real virt-builder makes of the index at `url`, as JSON.
    ///
    /// # Errors
    /// When it refuses it.
    pub fn listed_by_virt_builder(&self, url: &str) -> Result<Value> {
        let key = self.key.export()?.display().to_string();
        let mut virt_builder = command("virt-builder", ["--list", "--list-format", "json", "--no-cache"]);
        virt_builder.args(["--source", url, "--fingerprint", &self.key.fingerprint]).env("XDG_CONFIG_DIRS", &self.dir);
        // It imports the key into a ring of its own; the index says who signed.
        run(virt_builder.env("VIRT_BUILDER_DIRS", key)).and_then(|said| Ok(serde_json::from_str(&said)?))
    }
}
