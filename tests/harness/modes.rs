//! Who may read the files of a directory, by their modes and those of the directories above them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A file that others than root may open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its path below the directory.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
}

/// All files and sockets below `root` that others may open: neither 0600 nor in a directory that is root's alone.
///
/// # Errors
/// When a directory cannot be read.
pub fn open_to_others(root: &Path) -> Result<Vec<Open>> {
    let mut open = Vec::new();
    walk(root, root, &mut open)?;
    open.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(open)
}

fn walk(root: &Path, dir: &Path, open: &mut Vec<Open>) -> Result<()> {
    if mode(dir)? & 0o011 == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            walk(root, &path, open)?;
        } else if !kind.is_symlink() && mode(&path)? & 0o077 != 0 {
            open.push(Open { path: path.strip_prefix(root)?.display().to_string(), mode: mode(&path)? });
        }
    }
    Ok(())
}

fn mode(path: &Path) -> Result<u32> {
    let found = fs::symlink_metadata(path).with_context(|| format!("failed to look at {}", path.display()))?;
    Ok(found.permissions().mode() & 0o777)
}
