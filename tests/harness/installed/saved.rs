//! Machines as they are after their first boot, in files beside their image: disk and memory.
//!
//! Whoever wants one first makes it. They are kept by what they depend on: QEMU's version and the machine's hardware.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use super::frame::{BOOT_DEADLINE, Frame, made_of};
use super::wire::{Word, send};
use crate::pace::at_worst;
use crate::wait::wait_for;

/// Some hundreds of MiB are written.
const SAVE_DEADLINE: Duration = Duration::from_secs(180);

/// A machine that can go on any number of times.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) disk: PathBuf,
    pub(super) memory: PathBuf,
}

/// The machine of `image`, made in `dir` if it is not there.
pub(super) fn machine(image: &Path, dir: &Path) -> Result<Saved> {
    let mut hasher = DefaultHasher::new();
    made_of()?.hash(&mut hasher);
    let kept = image.join(format!("saved-{:016x}", hasher.finish()));
    let lock = File::create(image.join("saved.lock"))?;
    let _alone = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, cause)| cause).context("no lock")?;
    if !kept.exists() {
        let new = kept.with_extension("new");
        // Of one who was killed.
        let _none = fs::remove_dir_all(&new);
        fs::create_dir(&new)?;
        save(image, &dir.join("saved"), &new).context("failed to save the machine")?;
        fs::rename(&new, &kept)?;
    }
    Ok(Saved { disk: kept.join("disk.qcow2"), memory: kept.join("memory") })
}

fn save(image: &Path, dir: &Path, to: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    let mut frame = Frame::over(&image.join("disk.qcow2"), image, dir, None)?;
    let mut running = frame.boot_idle()?;
    running.tell("settle")?;
    running.expect(&Word::Settled)?;
    let mut monitor = Monitor::connect(&frame.monitor())?;
    // It runs on until all is written, and so does one that goes on from there.
    monitor.ask("migrate", &json!({"uri": format!("file:{}", to.join("memory").display())}))?;
    wait_for("memory of the machine in its file", SAVE_DEADLINE, || {
        let told = monitor.ask("query-migrate", &json!({}))?;
        match told["status"].as_str() {
            Some("completed") => Ok(Some(())),
            Some("failed") | None => bail!("it is not saved: {told}"),
            Some(_) => Ok(None),
        }
    })?;
    monitor.ask("quit", &json!({}))?;
    running.end(BOOT_DEADLINE)?;
    fs::copy(frame.disk(), to.join("disk.qcow2"))?;
    Ok(())
}

/// QEMU's, in JSON.
struct Monitor {
    writes: UnixStream,
    reads: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(socket: &Path) -> Result<Self> {
        let writes = UnixStream::connect(socket).context("no monitor")?;
        writes.set_read_timeout(Some(at_worst(SAVE_DEADLINE)))?;
        let reads = BufReader::new(writes.try_clone()?);
        let mut monitor = Self { writes, reads };
        monitor.ask("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// The answer to a command. Greeting and events stand before it.
    fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        send(&mut self.writes, &json!({"execute": command, "arguments": arguments}))?;
        loop {
            let mut line = String::new();
            self.reads.read_line(&mut line).with_context(|| format!("no answer to `{command}`"))?;
            let mut said: Value = serde_json::from_str(&line).with_context(|| format!("`{command}`: `{line}`"))?;
            if let Some(failed) = said.get("error") {
                return Err(anyhow!("`{command}`: {failed}"));
            }
            if let Some(answer) = said.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }
}
