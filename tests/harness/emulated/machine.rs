//! The emulator that is a node: its arguments.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::kind::{EMULATED, Kind};
use crate::config::{Config, Outside};
use crate::pace::{LOADAVG, processors};

/// Where the node has this machine's files, those under `/tmp` too.
const SHARE: &str = "/host";

/// The files that a node's emulator makes in its directory.
pub(super) fn console(dir: &Path) -> PathBuf {
    dir.join("console")
}

pub(super) fn complaints(dir: &Path) -> PathBuf {
    dir.join("complaints")
}

pub(super) fn socket(dir: &Path) -> PathBuf {
    dir.join("agent")
}

/// QEMU's own monitor.
pub(super) fn monitor(dir: &Path) -> PathBuf {
    dir.join("monitor")
}

/// Starts a program that has four times as much of the processors as a cell: a guest in a node costs more the longer the node waits for
/// one, and each case with a card waits for all before it. Where a kernel shares processors out by sessions, that is said of a session.
const FIRST: &str = "{ echo -6 >/proc/self/autogroup; } 2>/dev/null; exec nice -n -6 \"$@\"";

/// The emulator of a node of `kind`, with its files in `dir`.
pub(super) fn emulator(kind: &Kind, config: &Config, dir: &Path) -> Result<Command> {
    let shared = |path: &Path| -> Result<String> {
        let path = path.canonicalize().with_context(|| format!("no `{}`", path.display()))?;
        Ok(format!("{SHARE}{}", path.display()))
    };
    let node = config.guest(kind.image)?.canonicalize()?;
    let mut words = vec![
        // Words with a `=` that the kernel does not know become the environment of its first process.
        EMULATED.to_owned(),
        format!("modules={}", node.join("modules").display()),
        format!("bed={}", shared(&std::env::current_exe()?)?),
    ];
    words.extend(kind.words.iter().map(|word| (*word).to_owned()));
    for (name, path) in config.places()? {
        words.push(format!("{name}={}", shared(&path)?));
    }
    words.push(Outside { loadavg: shared(Path::new(LOADAVG))?.into(), processors: processors() }.word());
    let mut command = if kind.one_at_a_time() {
        let mut first = Command::new("setsid");
        first.args(["sh", "-c", FIRST, "sh", "qemu-system-x86_64"]);
        first
    } else {
        Command::new("qemu-system-x86_64")
    };
    command
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        .args(["-machine", kind.machine, "-accel", kind.accelerator, "-cpu", kind.processor])
        .args(["-smp", &kind.processors.to_string()])
        .args(["-m", &kind.memory_mib.to_string()])
        .arg("-kernel")
        .arg(node.join("vmlinux"))
        .arg("-initrd")
        .arg(node.join("initrd"))
        .arg("-append")
        .arg(words.join(" "))
        .arg("-serial")
        .arg(format!("file:{}", console(dir).display()))
        .arg("-monitor")
        .arg(format!("unix:{},server=on,wait=off", monitor(dir).display()))
        // The IOMMU comes before what is behind it, and the port of the first virtio-serial device is the bed's.
        .args(kind.devices)
        .args(["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"])
        .arg("-chardev")
        .arg(format!("socket,id=agent,path={},server=on,wait=off", socket(dir).display()))
        .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=bed"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(complaints(dir))?);
    Ok(command)
}
