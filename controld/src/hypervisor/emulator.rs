//! Whether the emulator starts at all: for people, who else would learn it from the first pod.
//!
//! `emulator --version` is run once for each emulator that is installed, and again after a pause while it fails.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use common::Chain;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::accel::Fingerprint;

/// A QEMU that does not know its version by then would start no machine either.
const DEADLINE: Duration = Duration::from_secs(5);
/// Between two tries of one that does not start.
const PAUSE: Duration = Duration::from_secs(30);
/// What is told of the emulator's last words, in bytes.
const MAX_WORDS: usize = 300;

/// The emulator. Clones share it.
#[derive(Debug, Clone)]
pub struct Emulator {
    path: Arc<PathBuf>,
    tried: Arc<Mutex<Option<Tried>>>,
}

/// What came of the last try.
#[derive(Debug)]
struct Tried {
    what: Fingerprint,
    when: Instant,
    trouble: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum EmulatorError {
    #[error("failed to run `{} --version`", path.display())]
    Run {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("`{} --version` ended with {status}: {said}", path.display())]
    Ended { path: PathBuf, status: std::process::ExitStatus, said: String },
    #[error("`{} --version` did not end within {} s", path.display(), DEADLINE.as_secs())]
    Hangs { path: PathBuf },
}

impl Emulator {
    /// The emulator at `path`.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path: Arc::new(path), tried: Arc::default() }
    }

    /// Why it does not start, as of the last try.
    pub async fn trouble(&self) -> Option<String> {
        let emulator = self.clone();
        // To its end also if who asks does not wait for it: then the next one has the answer.
        let looked = tokio::spawn(async move { emulator.look().await }).await;
        looked.unwrap_or_else(|bug| Some(format!("the look at the emulator ended in a bug: {bug}")))
    }

    async fn look(&self) -> Option<String> {
        // Who comes while it is tried waits for the same answer.
        let mut tried = self.tried.lock().await;
        let now = match Fingerprint::of(&self.path) {
            Ok(now) => now,
            Err(error) => return Some(format!("failed to look at emulator `{}`: {error}", self.path.display())),
        };
        if let Some(last) = &*tried
            && last.what == now
            && (last.trouble.is_none() || last.when.elapsed() < PAUSE)
        {
            return last.trouble.clone();
        }
        let trouble = self.run().await.err().map(|error| Chain(&error).to_string());
        *tried = Some(Tried { what: now, when: Instant::now(), trouble: trouble.clone() });
        trouble
    }

    async fn run(&self) -> Result<(), EmulatorError> {
        let path = || self.path.to_path_buf();
        let mut command = Command::new(&*self.path);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |cause| EmulatorError::Run { path: path(), cause };
        let ended =
            timeout(DEADLINE, command.output()).await.map_err(|_elapsed| EmulatorError::Hangs { path: path() })?;
        let ended = ended.map_err(failed)?;
        if ended.status.success() {
            return Ok(());
        }
        let said = ended.stderr.get(..MAX_WORDS).unwrap_or(&ended.stderr);
        let said = String::from_utf8_lossy(said).trim().escape_debug().to_string();
        Err(EmulatorError::Ended { path: path(), status: ended.status, said })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::FutureExt as _;

    use super::*;

    /// A program of the system in the emulator's place.
    fn install(dir: &Path, program: &str) -> PathBuf {
        let (half, path) = (dir.join("emulator.new"), dir.join("emulator"));
        std::os::unix::fs::symlink(program, &half).expect("linked");
        std::fs::rename(half, &path).expect("installed");
        path
    }

    #[tokio::test]
    async fn who_does_not_wait_leaves_the_answer_to_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let emulator = Emulator::new(install(dir.path(), "/bin/false"));
        assert!(emulator.trouble().now_or_never().is_none(), "it takes a moment");
        let known = async {
            while emulator.tried.lock().await.is_none() {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, known).await.expect("it was tried all the same");
    }

    #[tokio::test]
    async fn one_that_does_not_start_is_told_until_another_is_installed() {
        let dir = tempfile::tempdir().expect("a directory");
        let emulator = Emulator::new(dir.path().join("emulator"));
        let told = emulator.trouble().await.expect("absent");
        assert!(told.starts_with("failed to look at emulator `") && told.contains("No such file"), "{told}");
        let path = install(dir.path(), "/bin/false");
        let told = emulator.trouble().await.expect("it fails");
        assert_eq!(told, format!("`{} --version` ended with exit status: 1: ", path.display()));
        install(dir.path(), "/bin/true");
        assert_eq!(emulator.trouble().await, None);
        install(dir.path(), "/etc/passwd");
        let told = emulator.trouble().await.expect("no program");
        assert!(told.starts_with("failed to run `") && told.contains("Permission denied"), "{told}");
    }
}
