//! Runs a program that can reach nothing but its standard input and output.
//!
//! A thread of its own restricts itself with Landlock, starts the program, waits for it and ends, so that the daemon's
//! other threads keep their rights and the program dies with this one (and so with the daemon). Between fork and exec
//! the program also gets ([`sys`]): namespaces of its own for users and networks, which takes all capabilities and all
//! links; limits on time, memory, open files and what it writes; and a filter that refuses sockets, signals, new
//! namespaces, tracing, and changes of metadata, which Landlock does not know.
//!
//! It may read libraries, and itself. Both ends are files that are open already; it opens them by `/proc/self/fd`.

mod filter;
mod sys;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::future;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::jail::FilterError;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::ConvertLimits;
use crate::error::{ErrorKind, in_seconds, of_io};

/// Newest rules that are asked for; older kernels have fewer.
const RULES: ABI = ABI::V6;
/// Where libraries are; those that a system does not have are left out.
const LIBRARIES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];
const LOADER_CACHE: &str = "/etc/ld.so.cache";
/// How much of what a program says is kept.
const MESSAGE: usize = 4096;
/// How often it is said of a program that was killed that it is not gone.
const STILL_THERE: Duration = Duration::from_secs(30);

/// How gladly the kernel ends it for want of memory; see proc(5), `oom_score_adj`.
const OOM_SCORE: &str = "500";

/// What to run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) input: File,
    /// Further files that it may open by their names, to read.
    pub(super) more_inputs: Vec<PathBuf>,
    pub(super) output: File,
    pub(super) limits: ConvertLimits,
    /// How long it may take to be gone once it was killed. `None`: it is waited for until then, however long the kernel has it wait for
    /// a disk, since nobody else may have the output before.
    pub(super) patience: Option<Duration>,
}

/// Why a program could not be run, or failed.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No thread, no runtime.
    #[error("failed to prepare a sandbox")]
    Prepare(#[source] io::Error),
    /// The kernel does not take the rules.
    #[error("failed to restrict a sandbox with Landlock")]
    Landlock(#[from] RulesetError),
    /// The kernel has no Landlock.
    #[error(
        "this kernel has no Landlock, so no sandbox for `qemu-img`, which converts images (`images.convert`) and copies them to devices"
    )]
    NoLandlock,
    /// There is nothing to run it on.
    #[error("an image without a file")]
    NoImage,
    /// No filter for this machine.
    #[error("failed to make a filter of system calls")]
    Filter(#[source] FilterError),
    /// It could not be started.
    #[error("failed to start `{}` in a sandbox", program.display())]
    Start {
        program: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// It ended with a failure.
    #[error("`{}` failed ({status}): {}", program.display(), message.escape_debug())]
    Failed {
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        message: String,
    },
    /// It took too long.
    #[error("`{}` took longer than {}", program.display(), in_seconds(*.deadline))]
    Deadline {
        program: PathBuf,
        /// How long it was given.
        deadline: Duration,
    },
    /// It was not wanted any more. It is gone.
    #[error("`{}` was stopped", program.display())]
    Stopped { program: PathBuf },
    /// The thread ended without a word.
    #[error("the thread of a sandbox ended early")]
    Lost,
}

impl SandboxError {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Prepare(error) => of_io(error),
            Self::Deadline { .. } => ErrorKind::Deadline,
            // What it stumbles over is the image.
            Self::Failed { .. } => ErrorKind::Refused,
            Self::Landlock(_)
            | Self::NoLandlock
            | Self::NoImage
            | Self::Filter(_)
            | Self::Start { .. }
            | Self::Stopped { .. }
            | Self::Lost => ErrorKind::Internal,
        }
    }
}

/// Runs the job to its end. Dropping the future kills the program.
pub(super) async fn run(job: Job) -> Result<(), SandboxError> {
    run_until(job, future::pending()).await
}

/// Runs the job until it ends or is `unwanted`; it is gone then. Dropping the future kills the program.
pub(super) async fn run_until(job: Job, unwanted: impl Future<Output = ()>) -> Result<(), SandboxError> {
    let (stop, stopped) = oneshot::channel();
    let (done, mut outcome) = oneshot::channel();
    let (up, pid) = oneshot::channel();
    let thread = std::thread::Builder::new().name("image-convert".into());
    thread.spawn(move || on_own_thread(&job, up, stopped, done)).map_err(SandboxError::Prepare)?;
    // If it does not come up, the outcome says why.
    if let Ok(pid) = pid.await {
        offer_to_oom_killer(pid);
    }
    let ended = tokio::select! {
        ended = &mut outcome => ended,
        () = unwanted => {
            drop(stop);
            outcome.await
        }
    };
    ended.unwrap_or(Err(SandboxError::Lost))
}

/// The daemon is spared when the node has no memory, which the program has inherited: it is to go before a machine does. Its own thread
/// may not say so, since it may open no such file.
fn offer_to_oom_killer(pid: u32) {
    if let Err(error) = std::fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_SCORE) {
        tracing::debug!(%error, pid, "the kernel spares a program in a sandbox as it spares this daemon");
    }
}

/// Body of the thread.
fn on_own_thread(
    job: &Job,
    up: oneshot::Sender<u32>,
    stopped: oneshot::Receiver<()>,
    mut done: oneshot::Sender<Result<(), SandboxError>>,
) {
    // Before the restrictions, which it would stumble over.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(async {
            tokio::select! {
                outcome = confined(job, up, stopped) => Some(outcome),
                // Nobody waits any more; what was started is killed when it is dropped.
                () = done.closed() => None,
            }
        }),
        Err(error) => Some(Err(SandboxError::Prepare(error))),
    };
    if let Some(outcome) = outcome {
        // Somebody who has just gone does not miss it.
        let _ = done.send(outcome);
    }
}

async fn confined(job: &Job, up: oneshot::Sender<u32>, stopped: oneshot::Receiver<()>) -> Result<(), SandboxError> {
    let Job { program, limits, .. } = job;
    let filter = filter::program().map_err(SandboxError::Filter)?;
    let stdin = job.input.try_clone().map_err(SandboxError::Prepare)?;
    let stdout = job.output.try_clone().map_err(SandboxError::Prepare)?;
    let mut command = Command::new(program);
    command
        .args(&job.arguments)
        .env_clear()
        .current_dir("/")
        .stdin(stdin)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    sys::confine(&mut command, *limits, filter);
    restrict(job)?;
    let start = |cause| SandboxError::Start { program: program.clone(), cause };
    let mut child = command.spawn().map_err(start)?;
    if let Some(pid) = child.id() {
        // Who has given up does not need it.
        let _ = up.send(pid);
    }
    let stderr = child.stderr.take();
    let ended = async {
        let message = first_words(stderr).await;
        (child.wait().await, message)
    };
    let ended = tokio::select! {
        ended = timeout(limits.time, ended) => {
            ended.map_err(|_late| SandboxError::Deadline { program: program.clone(), deadline: limits.time })
        }
        // The sender is dropped.
        _ = stopped => Err(SandboxError::Stopped { program: program.clone() }),
    };
    match ended {
        Ok((Ok(status), _)) if status.success() => Ok(()),
        Ok((status, message)) => {
            Err(SandboxError::Failed { program: program.clone(), status: status.map_err(start)?, message })
        }
        Err(why) => {
            child.start_kill().map_err(start)?;
            gone(&mut child, job).await?;
            Err(why)
        }
    }
}

/// Waits until a program that was killed is gone, and cannot write any more. One that waits for a disk in the kernel is killed when
/// that lets it.
async fn gone(child: &mut Child, job: &Job) -> Result<(), SandboxError> {
    let (began, pid) = (Instant::now(), child.id());
    loop {
        let left = job.patience.map(|patience| patience.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(SandboxError::Lost);
        }
        match timeout(left.unwrap_or(STILL_THERE).min(STILL_THERE), child.wait()).await {
            Ok(ended) => {
                let lost = |cause| SandboxError::Start { program: job.program.clone(), cause };
                return ended.map(drop).map_err(lost);
            }
            Err(_late) => {
                let (program, seconds) = (job.program.display(), began.elapsed().as_secs());
                tracing::error!(%program, pid, seconds, "was killed and is not gone; it may still write what it has begun to write");
            }
        }
    }
}

/// The beginning of all that is said, to its end.
async fn first_words(said: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut said) = said else { return String::new() };
    let mut kept = Vec::new();
    let mut room = [0; MESSAGE];
    // A pipe that fails is at its end.
    while let Ok(more @ 1..) = said.read(&mut room).await {
        let left = MESSAGE - kept.len();
        kept.extend_from_slice(&room[..more.min(left)]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// Restricts the calling thread, and what it starts, to what the job needs.
fn restrict(job: &Job) -> Result<(), SandboxError> {
    let read = AccessFs::ReadFile;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?;
    let mut rules = allow(rules, &job.program, read | AccessFs::Execute)?;
    for directory in LIBRARIES {
        rules = allow(rules, Path::new(directory), read | AccessFs::ReadDir | AccessFs::Execute)?;
    }
    for more in &job.more_inputs {
        rules = allow(rules, more, read.into())?;
    }
    let mut writes = read | AccessFs::WriteFile | AccessFs::Truncate;
    if job.output.metadata().is_ok_and(|found| found.file_type().is_block_device()) {
        // Its sectors are asked for, and zeros are told it, by these.
        writes |= AccessFs::IoctlDev;
    }
    let rules = allow(rules, Path::new(LOADER_CACHE), read.into())?
        .add_rule(PathBeneath::new(&job.input, read))?
        .add_rule(PathBeneath::new(&job.output, writes))?;
    match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err(SandboxError::NoLandlock),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// What is not there needs no rule.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, SandboxError> {
    match PathFd::new(path) {
        Ok(path) => Ok(rules.add_rule(PathBeneath::new(path, access))?),
        Err(_) => Ok(rules),
    }
}
