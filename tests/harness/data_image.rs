//! Images of disks that hold a file and no system: what pods have as image volumes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::{command, run};

/// An image `<name>.qcow2` in `dir` with an ext4 that has the file `word`, on the first partition or on all of the disk.
///
/// # Errors
/// When it cannot be made.
pub fn data_image(dir: &Path, name: &str, word: &str, partitioned: bool) -> Result<PathBuf> {
    let (root, image) = (dir.join(format!("{name}-root")), dir.join(format!("{name}.qcow2")));
    fs::create_dir_all(&root)?;
    fs::write(root.join("word"), format!("{word}\n"))?;
    let (table, offset) = if partitioned { ("echo 2048,,L | sfdisk -q $raw", 1 << 20) } else { ("", 0) };
    let script = format!(
        "set -e; raw={0}.raw; truncate -s 16M $raw; {table}\n\
         mke2fs -q -F -t ext4 -m 0 -E offset={offset} -d {0} $raw 14M\n\
         qemu-img convert -O qcow2 $raw {1}; rm -r $raw {0}",
        root.display(),
        image.display(),
    );
    run(&mut command("/bin/bash", ["-c", &script]))?;
    Ok(image)
}
