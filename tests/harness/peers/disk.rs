//! Small disks, and the forms in which they are handed out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::command::{command, run, sh};

/// A disk.
#[derive(Debug, Clone)]
pub struct Disk {
    /// Where it is.
    pub path: PathBuf,
    /// Id of the image: `sha256:` and the digest of the file.
    pub id: String,
}

impl Disk {
    /// Makes `DIR/NAME.qcow2`, of 64 MiB: a mebibyte of `mark`, then nothing.
    ///
    /// # Errors
    /// When QEMU's tools fail.
    pub fn create(dir: &Path, name: &str, mark: u8) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join(format!("{name}.qcow2"));
        sh(&format!("qemu-img create -q -f qcow2 {} 64M", path.display()))?;
        let write = format!("write -q -P {mark} 0 1M");
        run(&mut command("qemu-io", ["-f", "qcow2", "-c", &write, &path.display().to_string()]))?;
        Self::of(&path)
    }

    /// One that is there already.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), id: format!("sha256:{}", sum("sha256sum", path)?) })
    }

    /// Packs it with `xz`, `gzip`, `zstd` or `bzip2`, beside itself; the packed file.
    ///
    /// # Errors
    /// When the tool fails.
    pub fn packed(&self, tool: &str, suffix: &str) -> Result<PathBuf> {
        run(&mut command(tool, ["-q", "-k", "-f", &self.path.display().to_string()]))?;
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        ensure!(Path::new(&path).exists(), "{tool} made no {}", path.display());
        Ok(path.into())
    }

    /// Size of the file.
    ///
    /// # Errors
    /// When it is gone.
    pub fn size(&self) -> Result<u64> {
        Ok(fs::metadata(&self.path)?.len())
    }
}

/// Digest of a file as hexadecimal, by `sha256sum` and its like.
///
/// # Errors
/// When the tool fails.
pub fn sum(tool: &str, path: &Path) -> Result<String> {
    let said = sh(&format!("{tool} {}", path.display()))?;
    Ok(said.split(' ').next().context("no digest")?.to_owned())
}
