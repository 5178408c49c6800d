//! `bed installed-agent`, in the machine: runs what the case says.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use super::wire::{Order, Word, send};
use crate::wait::wait_for;

/// As udev names it.
const PORT: &str = "/dev/virtio-ports/bed";
const PORT_DEADLINE: Duration = Duration::from_secs(60);
/// A file, since what a script leaves running would hold a pipe open.
const SAID: &str = "/run/installed-agent.said";

/// Runs one script after the other until the machine goes down.
///
/// # Errors
/// When there is no wire, or it breaks.
pub fn serve() -> Result<()> {
    let port = Path::new(PORT);
    wait_for("virtio-serial port", PORT_DEADLINE, || Ok(port.exists().then_some(())))?;
    let reads = OpenOptions::new().read(true).write(true).open(port)?;
    let mut writes = reads.try_clone()?;
    send(&mut writes, &Word::Up)?;
    for line in BufReader::new(reads).lines() {
        let Order { script } = serde_json::from_str(&line?)?;
        let said = File::create(SAID)?;
        let status = Command::new("bash")
            .args(["-c", &script])
            .current_dir("/root")
            .env("HOME", "/root")
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .status()?;
        let said = String::from_utf8_lossy(&fs::read(SAID)?).into_owned();
        send(&mut writes, &Word::Ended { code: status.code(), said })?;
    }
    Ok(())
}
