//! The tiny guest with our agent in it, which its init starts, and again when it has ended.
//!
//! The agent is in another initramfs before the guest's own, since it is built anew more often than guests are. (Not after it: the
//! kernel finds no end of an LZ4 archive with something behind it.)

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::case::Bed;
use crate::command::{command, run};

/// Makes the image; where it is.
///
/// # Errors
/// When a tool or a file is missing.
pub fn tiny_with_agent(bed: &Bed) -> Result<PathBuf> {
    let (dir, image) = (bed.dir.join("agent-image"), bed.dir.join("tiny-agent.qcow2"));
    let root = dir.join("root");
    fs::create_dir_all(root.join("usr/bin"))?;
    let agent = bed.config.dist()?.join("virtlet-agent");
    fs::copy(&agent, root.join("usr/bin/virtlet-agent")).with_context(|| format!("no {}", agent.display()))?;
    let tiny = bed.config.guest("tiny.qcow2")?;
    let script = format!(
        "set -e; cd {}; export MTOOLS_SKIP_CHECK=1\n\
         (cd root && find . | cpio -o -H newc -R 0:0 --quiet) >agent.img\n\
         qemu-img convert -O raw {} raw; mcopy -i raw@@1M ::/syslinux.cfg .\n\
         sed -i 's,INITRD /initrd.*,INITRD /agent.img\\,/initrd,' syslinux.cfg\n\
         mcopy -o -i raw@@1M agent.img syslinux.cfg ::/; qemu-img convert -O qcow2 raw {}",
        dir.display(),
        tiny.display(),
        image.display(),
    );
    run(&mut command("/bin/bash", ["-c", &script]))?;
    fs::remove_dir_all(dir)?;
    Ok(image)
}
