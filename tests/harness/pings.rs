//! Whether a guest is reached all the time, while something else is done.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::wait::wait_for;

/// Between two pings.
const INTERVAL: Duration = Duration::from_millis(200);
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// A ping five times a second, in the background.
#[derive(Debug)]
pub struct Pings {
    child: Child,
    log: PathBuf,
}

impl Pings {
    /// Starts it; what it prints goes to a file in `dir`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(dir: &Path, to: IpAddr) -> Result<Self> {
        let log = dir.join(format!("pings-{to}"));
        let interval = INTERVAL.as_secs_f64().to_string();
        let child = Command::new("busybox")
            .args(["ping", "-W", "2", "-i", &interval, &to.to_string()])
            .stdin(Stdio::null())
            .stdout(fs::File::create(&log)?)
            .spawn()?;
        Ok(Self { child, log })
    }

    fn answers(&self) -> Result<Vec<usize>> {
        let text = fs::read_to_string(&self.log)?;
        let of = |line: &str| line.split("seq=").nth(1)?.split(' ').next()?.parse().ok();
        Ok(text.lines().filter_map(of).collect())
    }

    /// Waits for so many more answers.
    ///
    /// # Errors
    /// When they do not come in time.
    pub fn wait_answers(&self, more: usize) -> Result<()> {
        let wanted = self.answers()?.len() + more;
        wait_for("answers to pings", ANSWER_DEADLINE, || Ok((self.answers()?.len() >= wanted).then_some(())))
    }

    /// Ends it; fails when two in a row, or more than two in all, were not answered.
    ///
    /// # Errors
    /// See above.
    pub fn stop_and_count_lost(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        let answers = self.answers()?;
        let lost: Vec<usize> =
            (0..*answers.last().context("no answers")?).filter(|seq| !answers.contains(seq)).collect();
        ensure!(lost.windows(2).all(|pair| pair[1] - pair[0] > 1), "pings lost in a row: {lost:?}");
        ensure!(lost.len() <= 2, "pings lost: {lost:?} of {}", answers.len());
        Ok(())
    }
}
