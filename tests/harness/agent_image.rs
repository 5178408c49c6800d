//! Guests with our agent in them: the tiny one, whose init starts it, and again when it has ended, and Debian's cloud image, whose boot waits at the
//! gate.
//!
//! The tiny one's agent is in another initramfs before the guest's own, since it is built anew more often than guests are. (Not after it: the
//! kernel finds no end of an LZ4 archive with something behind it.)

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::case::Bed;
use crate::command::{command, run};

/// What the tiny guest's console says early in each boot.
pub const BOOTS: &str = "kernel handed over";

/// Makes the image; where it is.
///
/// # Errors
/// When a tool or a file is missing.
pub fn tiny_with_agent(bed: &Bed) -> Result<PathBuf> {
    tiny_with(bed, "tiny-agent", "virtlet-agent")
}

/// The same, whose boot has no gate: what it calls there ends at once, and the agent is started behind that by another name.
///
/// # Errors
/// When a tool or a file is missing.
pub fn tiny_without_gate(bed: &Bed) -> Result<PathBuf> {
    tiny_with(bed, "tiny-no-gate", "the-agent")
}

/// The tiny guest with the agent by this name. By another one than its own, that is a script which does without its gate.
fn tiny_with(bed: &Bed, image: &str, name: &str) -> Result<PathBuf> {
    let (dir, image) = (bed.dir.join("agent-image"), bed.dir.join(format!("{image}.qcow2")));
    let root = dir.join("root");
    let programs = root.join("usr/bin");
    fs::create_dir_all(&programs)?;
    let agent = bed.config.dist()?.join("virtlet-agent");
    fs::copy(&agent, programs.join(name)).with_context(|| format!("no {}", agent.display()))?;
    if name != "virtlet-agent" {
        let script = programs.join("virtlet-agent");
        fs::write(&script, format!("#!/bin/sh\n[ \"$1\" = gate ] || exec {name} \"$@\"\n"))?;
        fs::set_permissions(script, fs::Permissions::from_mode(0o755))?;
    }
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

/// The unit that docs/guest-agent.md has people install.
const DOCUMENT: &str = include_str!("../../docs/guest-agent.md");
/// Where the image's only partition begins, in bytes.
const PARTITION: u64 = 1 << 20;

/// Makes Debian's cloud image with the agent and its unit, as the documentation says; where it is.
///
/// # Errors
/// When a tool or a file is missing, or the documentation has no unit.
pub fn debian_with_gate(bed: &Bed) -> Result<PathBuf> {
    let (dir, image) = (bed.dir.join("gate-image"), bed.dir.join("debian-gate.qcow2"));
    fs::create_dir_all(&dir)?;
    let is_unit = |block: &&str| block.contains("virtlet-agent gate\n");
    let unit = DOCUMENT.split("```\n").find(is_unit).context("docs/guest-agent.md has no unit with the gate")?;
    fs::write(dir.join("unit"), unit)?;
    let agent = bed.config.dist()?.join("virtlet-agent");
    let system = "/etc/systemd/system";
    let orders = format!(
        "write {} /usr/local/sbin/virtlet-agent\nset_inode_field /usr/local/sbin/virtlet-agent mode 0100755\n\
         write unit {system}/virtlet-agent.service\nmkdir {system}/sysinit.target.wants\n\
         symlink {system}/sysinit.target.wants/virtlet-agent.service {system}/virtlet-agent.service\n",
        agent.display()
    );
    fs::write(dir.join("orders"), orders)?;
    let script = format!(
        "set -e; cd {}; qemu-img convert -O raw {} raw\n\
         /usr/sbin/debugfs -w -f orders 'raw?offset={PARTITION}' >said 2>&1\n\
         /usr/sbin/debugfs -R 'cat {system}/sysinit.target.wants/virtlet-agent.service' 'raw?offset={PARTITION}' 2>/dev/null\n\
         qemu-img convert -O qcow2 raw {}",
        dir.display(),
        bed.config.guest("debian.qcow2")?.display(),
        image.display(),
    );
    let said = run(&mut command("/bin/bash", ["-c", &script]))?;
    ensure!(
        said.trim() == unit.trim() || said.is_empty(),
        "not the unit: {said}; {}",
        fs::read_to_string(dir.join("said"))?
    );
    fs::remove_dir_all(dir)?;
    Ok(image)
}
