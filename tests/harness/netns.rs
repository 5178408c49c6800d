//! Work inside network namespaces, and the namespaces that stand for guests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, setns};

use crate::command::{command, run, sh};

const DIR: &str = "/run/netns";

/// Runs `work` on a fresh thread inside the namespace mounted at `path`.
///
/// # Errors
/// When there is none, and whatever `work` fails with.
pub fn inside<T: Send>(path: &Path, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let namespace = File::open(path).with_context(|| format!("no network namespace {}", path.display()))?;
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            #[expect(clippy::disallowed_methods, reason = "this thread ends with its work")]
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            work()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A command that runs `line` inside the namespace mounted at `path`.
#[must_use]
pub fn command_in(path: &Path, line: &str) -> Command {
    let mut words = vec![format!("--net={}", path.display()), "--".to_owned()];
    words.extend(line.split_whitespace().map(str::to_owned));
    command("nsenter", words)
}

/// Runs `line` inside the namespace mounted at `path`; what it printed.
///
/// # Errors
/// When it fails.
pub fn run_in(path: &Path, line: &str) -> Result<String> {
    run(&mut command_in(path, line))
}

/// Makes a namespace of the bed's own, with its loopback up.
///
/// # Errors
/// When there is one of that name.
pub fn create(name: &str) -> Result<PathBuf> {
    sh(&format!("ip netns add {name}"))?;
    sh(&format!("ip -n {name} link set lo up"))?;
    Ok(Path::new(DIR).join(name))
}

/// Removes a namespace of the bed's own.
///
/// # Errors
/// When there is none.
pub fn remove(name: &str) -> Result<()> {
    sh(&format!("ip netns del {name}"))?;
    Ok(())
}
