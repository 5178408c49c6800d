//! Boots a kernel under an accelerator and waits for its init to speak.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Question, payload};

/// Longest line of the guest's console that is looked at.
const MAX_LINE: u64 = 4096;

/// Why a kernel did not reach its init.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    /// The initrd cannot be written.
    #[error("failed to write the probe's initrd `{}`", path.display())]
    Initrd {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// QEMU cannot be run.
    #[error("failed to run `{}`", emulator.display())]
    Run {
        emulator: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// QEMU ended without a word of the guest's init.
    #[error("QEMU ended before the kernel reached its init: {said}")]
    Ended {
        /// Its last line on standard error.
        said: String,
    },
    /// Nothing was heard in time.
    #[error("the kernel did not reach its init within {} s", deadline.as_secs())]
    Deadline {
        /// The time it had.
        deadline: Duration,
    },
}

/// Whether `kernel` reaches its init under `accel` within the question's deadline.
pub(super) async fn reaches_init(question: &Question, kernel: &Path, accel: &str) -> Result<(), ProbeError> {
    let path = question.work_dir.join("kvm-probe.initrd");
    let initrd_failed = |cause| ProbeError::Initrd { path: path.clone(), cause };
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    written.and_then(|mut file| file.write_all(&payload::initramfs())).map_err(initrd_failed)?;
    let booted = boot(question, kernel, accel, &path).await;
    // Written anew by the next probe.
    let _ = std::fs::remove_file(&path);
    booted
}

async fn boot(question: &Question, kernel: &Path, accel: &str, initrd: &Path) -> Result<(), ProbeError> {
    let failed = |cause| ProbeError::Run { emulator: question.emulator.clone(), cause };
    let mut command = Command::new(&question.emulator);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35", "-m", "256"]);
    command.args(["-accel", accel, "-cpu", if accel == "kvm" { "host" } else { "max" }]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initrd);
    command.args(["-append", "console=ttyS0 panic=-1 quiet", "-serial", "stdio", "-monitor", "none"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // The emulator may be a script around the real one: they are to end together.
    command.process_group(0);
    let mut qemu = command.spawn().map_err(failed)?;
    let heard = tokio::time::timeout(question.deadline, hear(&mut qemu)).await;
    // Killed and reaped, whatever was heard. It fails only if it has ended.
    if let Some(group) = qemu.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = qemu.kill().await;
    match heard {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(ProbeError::Ended { said: last_words(&mut qemu).await }),
        Ok(Err(cause)) => Err(failed(cause)),
        Err(_elapsed) => Err(ProbeError::Deadline { deadline: question.deadline }),
    }
}

/// Reads the console until the marker, or to its end.
async fn hear(qemu: &mut Child) -> io::Result<bool> {
    let Some(console) = qemu.stdout.take() else { return Ok(false) };
    let mut console = BufReader::new(console);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut console).take(MAX_LINE).read_until(b'\n', &mut line).await? == 0 {
            return Ok(false);
        }
        if String::from_utf8_lossy(&line).contains(payload::MARKER) {
            return Ok(true);
        }
    }
}

async fn last_words(qemu: &mut Child) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = qemu.stderr.take() {
        // QEMU has ended, so this ends too; what cannot be read is not said.
        let _ = stderr.take(64 * 1024).read_to_end(&mut said).await;
    }
    let said = String::from_utf8_lossy(&said);
    said.lines().last().map_or_else(|| "no reason given".to_owned(), |line| line.chars().take(200).collect())
}
