//! Programs that checks ask: ours, and systemctl. Each has a deadline, after which it is killed: a daemon that hangs holds up
//! nobody but who asks it.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// Most bytes of an output.
const MAX_OUTPUT: u64 = 1 << 20;
/// What is told of a program's last words, in characters.
const MAX_WORDS: usize = 600;
/// Where our programs are looked for, behind the directory that virtletctl is in.
const DIRS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"];

/// What a program said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Why there is no answer. Printed in one line, so causes are a part of the texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("there is no program `{0}` beside virtletctl, in {dirs}", dirs = DIRS.join(", "))]
    Absent(String),
    #[error("failed to run `{shown}`: {cause}")]
    Run { shown: String, cause: std::io::Error },
    #[error("`{shown}` did not end within {} s", deadline.as_secs())]
    Hangs { shown: String, deadline: Duration },
    #[error("`{shown}` wrote more than {MAX_OUTPUT} bytes")]
    TooMuch { shown: String },
    /// It says why; the first words are its own name.
    #[error("{said}")]
    Failed { code: Option<i32>, said: String },
    #[error("`{shown}` answered something else than was asked ({cause}); is it of this version?")]
    Answer { shown: String, cause: String },
}

/// Finds one of our programs.
pub(crate) fn find(name: &str) -> Result<PathBuf, ProgramError> {
    let ours = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let dirs = ours.into_iter().chain(DIRS.map(PathBuf::from));
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file()).ok_or_else(|| ProgramError::Absent(name.to_owned()))
}

/// Runs a program to its end, however it ends.
pub(super) async fn run(program: &Path, args: &[&str], deadline: Duration) -> Result<Said, ProgramError> {
    let shown = || [&*program.to_string_lossy()].iter().chain(args).copied().collect::<Vec<_>>().join(" ");
    let failed = |cause| ProgramError::Run { shown: shown(), cause };
    let mut command = Command::new(program);
    // In English whatever the terminal speaks.
    command.args(args).env("LC_ALL", "C").kill_on_drop(true);
    // By these, tapmanager would tell of other directories than its daemon has.
    command.env_remove("CNI_PATH").env_remove("NETCONFPATH");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ending = async {
        let (stdout, stderr) = tokio::join!(text(stdout), text(stderr));
        Ok((stdout?, stderr?, child.wait().await?))
    };
    let (stdout, stderr, status) = timeout(deadline, ending)
        .await
        .map_err(|_elapsed| ProgramError::Hangs { shown: shown(), deadline })?
        .map_err(failed)?;
    if [&stdout, &stderr].iter().any(|text| text.len() as u64 > MAX_OUTPUT) {
        return Err(ProgramError::TooMuch { shown: shown() });
    }
    Ok(Said { status, stdout, stderr })
}

/// Up to one byte more than what is taken. Who writes on then gets a signal, or its deadline.
async fn text(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(MAX_OUTPUT + 1).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Asks a program of ours, with a configuration file if one is named. Exit codes in `fine` are answers, too.
pub(super) async fn ask<T>(
    name: &str,
    args: &[&str],
    config: Option<&Path>,
    fine: &[i32],
    read: fn(&str) -> Result<T, String>,
    deadline: Duration,
) -> Result<T, ProgramError> {
    let program = find(name)?;
    let config = config.map(|path| path.display().to_string());
    let mut words = args.to_vec();
    if let Some(config) = &config {
        words.extend(["--config", config]);
    }
    let said = run(&program, &words, deadline).await?;
    let code = said.status.code();
    if !said.status.success() && !code.is_some_and(|code| fine.contains(&code)) {
        let words = said.stderr.trim();
        let words = if words.is_empty() { format!("{name}: {}", said.status) } else { words.to_owned() };
        return Err(ProgramError::Failed { code, said: words.chars().take(MAX_WORDS).collect() });
    }
    read(&said.stdout).map_err(|cause| ProgramError::Answer { shown: format!("{name} {}", args.join(" ")), cause })
}

/// For [`ask`]: an answer in JSON.
pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_program_that_hangs_ends_with_its_deadline() {
        let short = Duration::from_millis(50);
        let hangs = run(Path::new("/bin/sleep"), &["1000"], short).await.expect_err("it sleeps");
        assert!(matches!(hangs, ProgramError::Hangs { .. }), "{hangs}");
    }

    #[tokio::test]
    async fn one_that_writes_without_end_is_cut() {
        let endless = run(Path::new("/usr/bin/yes"), &[], SOON).await.expect_err("it writes on");
        assert!(matches!(endless, ProgramError::TooMuch { .. }), "{endless}");
    }

    #[tokio::test]
    async fn both_outputs_and_the_end_are_told() {
        let said = run(Path::new("/bin/sh"), &["-c", "echo out; echo err >&2; exit 3"], SOON).await.expect("runs");
        assert_eq!((said.stdout.as_str(), said.stderr.as_str(), said.status.code()), ("out\n", "err\n", Some(3)));
        let absent = run(Path::new("/none"), &[], SOON).await.expect_err("no program").to_string();
        assert!(absent.starts_with("failed to run `/none`: No such file"), "{absent}");
    }
}
