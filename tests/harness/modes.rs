//! Who may read the files of a directory, by their modes and those of the directories above them.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
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
    if mode(&fs::symlink_metadata(dir).with_context(|| format!("failed to look at {}", dir.display()))?) & 0o011 == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))? {
        let path = entry?.path();
        let found = match fs::symlink_metadata(&path) {
            // What has gone meanwhile is nobody's to open.
            Err(gone) if gone.kind() == ErrorKind::NotFound => continue,
            found => found.with_context(|| format!("failed to look at {}", path.display()))?,
        };
        if found.is_dir() {
            walk(root, &path, open)?;
        } else if !found.is_symlink() && mode(&found) & 0o077 != 0 {
            open.push(Open { path: path.strip_prefix(root)?.display().to_string(), mode: mode(&found) });
        }
    }
    Ok(())
}

fn mode(found: &Metadata) -> u32 {
    found.permissions().mode() & 0o777
}
