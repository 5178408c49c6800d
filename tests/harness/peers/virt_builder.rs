//! A repository as virt-builder reads it: an index of sections, signed in clear, and packed images beside it; and the
//! real virt-builder, to read it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::disk::{Disk, sum};
use super::gpg::Key;
use crate::command::{command, run};

/// Where virt-builder looks for repositories; the cell's own.
pub const REPOSITORIES: &str = "/etc/virt-builder/repos.d";

/// A repository in a directory that some server serves.
#[derive(Debug)]
pub struct Repository {
    dir: PathBuf,
    /// By name and architecture.
    sections: BTreeMap<(String, String), String>,
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
        Ok(Self { dir: dir.to_owned(), sections: BTreeMap::new(), key: Key::create(home, "rsa2048")? })
    }

    /// Adds a disk, packed by xz, as a section; or a revision in place of another. `more` are lines of further fields.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn add(&mut self, name: &str, arch: &str, revision: u32, disk: &Disk, more: &str) -> Result<()> {
        let packed = disk.packed("xz", ".xz")?;
        let file = format!("{name}-{arch}-{revision}.xz");
        fs::copy(&packed, self.dir.join(&file))?;
        let (checksum, size) = (sum("sha512sum", &packed)?, fs::metadata(&packed)?.len());
        let section = format!(
            "[{name}]\nname=Test bed's {name}\narch={arch}\nfile={file}\nrevision={revision}\nformat=qcow2\n\
             checksum[sha512]={checksum}\nsize={}\ncompressed_size={size}\n{more}",
            64 << 20
        );
        self.sections.insert((name.to_owned(), arch.to_owned()), section);
        Ok(())
    }

    /// Writes `index` and `index.asc`, and has virt-index-validate read both.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn publish(&self) -> Result<()> {
        let (index, signed) = (self.dir.join("index"), self.dir.join("index.asc"));
        let sections: Vec<&str> = self.sections.values().map(String::as_str).collect();
        // One empty line between sections and none inside: what every version of virt-builder reads.
        fs::write(&index, sections.join("\n"))?;
        self.key.clearsign(&index, &signed)?;
        for file in [index, signed] {
            run(&mut command("virt-index-validate", [file]))?;
        }
        Ok(())
    }

    /// What the real virt-builder lists of the index at `url`, as JSON.
    ///
    /// # Errors
    /// When it refuses it.
    pub fn listed_by_virt_builder(&self, url: &str) -> Result<Value> {
        self.introduce(url)?;
        listed()
    }

    /// How an operator writes down the index at `url`.
    ///
    /// # Errors
    /// When the key cannot be exported.
    pub fn source(&self, id: &str, url: &str) -> Result<String> {
        Ok(source(id, url, &self.key.export()?))
    }

    /// The packed file that the real virt-builder downloads of a section of the index at `url`.
    ///
    /// # Errors
    /// When it refuses it.
    pub fn fetched_by_virt_builder(&self, url: &str, section: &str) -> Result<PathBuf> {
        self.introduce(url)?;
        let cache = self.dir.join("cache-of-virt-builder");
        run(virt_builder(&["--cache-all-templates"]).env("XDG_CACHE_HOME", &cache))?;
        Ok(cache.join("virt-builder").join(section))
    }

    /// Leaves virt-builder this repository only.
    fn introduce(&self, url: &str) -> Result<()> {
        introduce(&[("bed.conf", &self.source("bed", url)?)])
    }
}

/// A source, and the key that signs it.
#[must_use]
pub fn source(id: &str, url: &str, key: &Path) -> String {
    format!("[{id}]\nuri={url}\ngpgkey=file://{}\n", key.display())
}

/// Leaves virt-builder these files of sources only.
///
/// # Errors
/// When they cannot be written.
pub fn introduce(files: &[(&str, &str)]) -> Result<()> {
    if Path::new(REPOSITORIES).exists() {
        fs::remove_dir_all(REPOSITORIES)?;
    }
    fs::create_dir_all(REPOSITORIES)?;
    files.iter().try_for_each(|(name, text)| Ok(fs::write(Path::new(REPOSITORIES).join(name), text)?))
}

/// What the real virt-builder lists of all its sources, as JSON.
///
/// # Errors
/// When it refuses one.
pub fn listed() -> Result<Value> {
    Ok(serde_json::from_str(&run(&mut virt_builder(&["--list", "--list-format", "json"]))?)?)
}

fn virt_builder(args: &[&str]) -> std::process::Command {
    let mut virt_builder = command("virt-builder", args);
    // Its answers would begin with those of the person who runs the bed.
    virt_builder.env("XDG_CONFIG_HOME", "/nonexistent").env("XDG_CONFIG_DIRS", "/nonexistent");
    virt_builder
}
