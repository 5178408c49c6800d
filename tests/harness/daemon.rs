//! A daemon under test: started, killed without warning, started again; its output is appended to a log.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::wait_for;

/// How long a daemon may take to leave when asked.
const LEAVE_DEADLINE: Duration = Duration::from_secs(20);

/// A daemon that stands still meanwhile.
#[derive(Debug)]
pub struct Held(Pid);

impl Drop for Held {
    fn drop(&mut self) {
        // If it fails the daemon is gone, which whoever waits for it sees.
        let _gone = kill(self.0, Signal::SIGCONT);
    }
}

/// A program that runs beside the case.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    /// Starts `program`; `log` gets what it prints.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        name: &str,
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        log: impl Into<PathBuf>,
    ) -> Result<Self> {
        let args = args.into_iter().map(Into::into).collect();
        let mut daemon = Self { name: name.to_owned(), program: program.into(), args, log: log.into(), child: None };
        daemon.start_again()?;
        Ok(daemon)
    }

    /// Starts it with the same words as before.
    ///
    /// # Errors
    /// When it cannot be started, or still runs.
    pub fn start_again(&mut self) -> Result<()> {
        if self.child.is_some() {
            bail!("{} already runs", self.name);
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("failed to start {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Its process id.
    ///
    /// # Errors
    /// When it was stopped.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().with_context(|| format!("{} does not run", self.name))?.id())
    }

    /// Stops it where it is until what is returned is dropped.
    ///
    /// # Errors
    /// When it does not run.
    pub fn hold(&self) -> Result<Held> {
        let pid = Pid::from_raw(self.pid()?.cast_signed());
        kill(pid, Signal::SIGSTOP)?;
        Ok(Held(pid))
    }

    /// Fails when it ended by itself, with the end of its log.
    ///
    /// # Errors
    /// See above.
    pub fn still_runs(&mut self) -> Result<()> {
        let child = self.child.as_mut().with_context(|| format!("{} does not run", self.name))?;
        if let Some(status) = child.try_wait()? {
            bail!("{} ended by itself: {status}: {}", self.name, self.log()?);
        }
        Ok(())
    }

    /// Kills it without warning, and reaps it.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill9(&mut self) -> Result<()> {
        let mut child = self.child.take().with_context(|| format!("{} does not run", self.name))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks it to leave, and waits until it did; its exit code.
    ///
    /// # Errors
    /// When it does not run, or does not leave.
    pub fn terminate(&mut self) -> Result<Option<i32>> {
        let mut child = self.child.take().with_context(|| format!("{} does not run", self.name))?;
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
        let status =
            wait_for(&format!("end of {} after SIGTERM", self.name), LEAVE_DEADLINE, || Ok(child.try_wait()?))?;
        Ok(status.code())
    }

    /// Waits until it ends by itself; its exit code.
    ///
    /// # Errors
    /// When it does not run, or does not end within `deadline`.
    pub fn ended(&mut self, deadline: Duration) -> Result<Option<i32>> {
        let child = self.child.as_mut().with_context(|| format!("{} does not run", self.name))?;
        let status = wait_for(&format!("end of {}", self.name), deadline, || Ok(child.try_wait()?))?;
        self.child = None;
        Ok(status.code())
    }

    /// All that it printed, over all its lives.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Number of descriptors that it has open.
    ///
    /// # Errors
    /// When it does not run.
    pub fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid()?))?.count())
    }
}
