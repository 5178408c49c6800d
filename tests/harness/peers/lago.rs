//! A repository of Lago's templates: JSON beside the files, as its tools lay it out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::disk::{Disk, sum};

/// A repository in a directory that some server serves.
#[derive(Debug)]
pub struct Repository {
    dir: PathBuf,
    templates: BTreeMap<String, BTreeMap<String, Value>>,
}

impl Repository {
    /// An empty one in `dir`.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned(), templates: BTreeMap::new() })
    }

    /// Adds a version of a template, packed by xz or not.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn add(&mut self, template: &str, version: &str, timestamp: f64, disk: &Disk, packed: bool) -> Result<()> {
        let handle = format!("{template}-{version}.qcow2");
        if packed {
            fs::copy(disk.packed("xz", ".xz")?, self.dir.join(format!("{handle}.xz")))?;
        } else {
            fs::copy(&disk.path, self.dir.join(&handle))?;
        }
        // Lago's own have no newline.
        fs::write(self.dir.join(format!("{handle}.hash")), sum("sha1sum", &disk.path)?)?;
        let metadata =
            json!({"distro": "el7", "root-partition": "/dev/vda3", "arch": "x86_64", "root-password": "guess"});
        fs::write(self.dir.join(format!("{handle}.metadata")), metadata.to_string())?;
        let entry = json!({"source": "here", "handle": handle, "timestamp": timestamp});
        self.templates.entry(template.to_owned()).or_default().insert(version.to_owned(), entry);
        Ok(())
    }

    /// Writes `repo.metadata`; files are at `url`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn publish(&self, url: &str) -> Result<()> {
        let templates: BTreeMap<_, _> =
            self.templates.iter().map(|(name, versions)| (name, json!({"versions": versions}))).collect();
        let repository = json!({
            "name": "bed", "sources": {"here": {"type": "http", "args": {"baseurl": url}}}, "templates": templates,
        });
        Ok(fs::write(self.dir.join("repo.metadata"), repository.to_string())?)
    }
}
