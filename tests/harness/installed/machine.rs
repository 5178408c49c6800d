//! The machine, from without.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::frame::{Frame, Running};
use super::saved;
use super::wire::{Order, Word, send};
use crate::case::Bed;
use crate::cost::{Wait, spent};
use crate::wait::wait_for;

const TOOL_DEADLINE: Duration = Duration::from_secs(180);
/// Its services end, pods of kubelet's among them.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(240);

/// Which Debian a machine has.
#[derive(Debug, Clone, Copy)]
pub enum Debian {
    /// With libvirt and QEMU of its backports.
    Twelve,
    /// With its own.
    Thirteen,
}

impl Debian {
    /// The guest builder's name of it.
    const fn guest(self) -> &'static str {
        match self {
            Self::Twelve => "installed",
            Self::Thirteen => "installed-13",
        }
    }
}

/// A booted machine; it ends when this is dropped.
#[derive(Debug)]
pub struct Machine {
    frame: Frame,
    running: Running,
}

impl Machine {
    /// One as it is after its first boot. It is not what is tested, so it is booted once and saved; each case goes on from there.
    ///
    /// # Errors
    /// When the image was not built, or the machine does not come up.
    pub fn boot(bed: &Bed, debian: Debian) -> Result<Self> {
        Self::boot_with(bed, debian, None)
    }

    /// [`Machine::boot`] with the other end of its card at `tap`, a tap of the cell.
    ///
    /// # Errors
    /// When the image was not built, or the machine does not come up.
    pub fn boot_on(bed: &Bed, debian: Debian, tap: &str) -> Result<Self> {
        Self::boot_with(bed, debian, Some(tap))
    }

    fn boot_with(bed: &Bed, debian: Debian, tap: Option<&str>) -> Result<Self> {
        let image: PathBuf = bed.config.guest(debian.guest())?.canonicalize()?;
        spent(Wait::Node, || {
            let saved = saved::machine(&image, &bed.dir)?;
            let mut frame = Frame::over(&saved.disk, &image, &bed.dir, tap)?;
            let running = frame.resume(&saved.memory)?;
            Ok(Self { frame, running })
        })
    }

    /// Has it run `script` with bash, and says what that said, on both of its outputs.
    ///
    /// # Errors
    /// When the script fails, or does not end by `deadline`.
    pub fn run(&mut self, script: &str, deadline: Duration) -> Result<String> {
        let (code, said) = self.attempt(script, deadline)?;
        ensure!(code == Some(0), "`{script}` ended with {code:?}: {said}");
        Ok(said)
    }

    /// [`Machine::run`], however the script ends.
    ///
    /// # Errors
    /// When it does not end by `deadline`.
    pub fn attempt(&mut self, script: &str, deadline: Duration) -> Result<(Option<i32>, String)> {
        send(&mut self.running.wire, &Order { script: script.to_owned() })?;
        match self.running.word(deadline) {
            Ok(Some(Word::Ended { code, said })) => Ok((code, said)),
            Ok(Some(word)) => bail!("the machine says {word:?} while `{script}` ran"),
            Ok(None) => bail!("`{script}` runs for more than {} s", deadline.as_secs()),
            Err(ended) => Err(ended.context(format!("boot {}, while `{script}` ran", self.frame.boots()))),
        }
    }

    /// Asks `script` again and again until it succeeds, and says what it said then.
    ///
    /// # Errors
    /// When it does not by `deadline`: the error has what it said last.
    pub fn wait(&mut self, what: &str, script: &str, deadline: Duration) -> Result<String> {
        let mut last = String::new();
        let seen = wait_for(what, deadline, || {
            let (code, said) = self.attempt(script, deadline)?;
            last.clone_from(&said);
            Ok((code == Some(0)).then_some(said))
        });
        seen.with_context(|| format!("last: {last}"))
    }

    /// Has it reboot by its own `reboot`, and waits until it is up again.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn reboot(&mut self) -> Result<()> {
        let (code, said) = self.attempt("systemctl --no-block reboot", TOOL_DEADLINE)?;
        ensure!(code == Some(0), "it does not reboot: {said}");
        self.running.end(SHUTDOWN_DEADLINE)?;
        self.running = spent(Wait::Node, || self.frame.boot())?;
        Ok(())
    }
}
