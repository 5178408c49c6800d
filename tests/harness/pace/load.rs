//! How busy the machines are that the cases of this process run on: this one, and where this one is an emulated node, the one
//! outside of it as well, of which nothing else is seen in there ([`Config::outside`]).
//!
//! Read from `/proc/loadavg`, which every kernel has. Pressure (PSI) says that somebody waits for a processor, not how many do;
//! `/proc/schedstat` would say for how long they wait, and is in few kernels.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use nix::fcntl::OFlag;

use crate::config::Config;

/// Where a machine says how busy it is.
pub const LOADAVG: &str = "/proc/loadavg";

/// A machine that the cases of this process run on.
#[derive(Debug)]
struct Machine {
    loadavg: PathBuf,
    flags: OFlag,
    processors: u32,
}

/// How many want a processor.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    now: f64,
    /// And wanted one, or a disk, in the last minute.
    lately: f64,
}

/// This one, and the one outside of it.
static MACHINES: LazyLock<Vec<Machine>> = LazyLock::new(|| {
    let own = Machine { loadavg: LOADAVG.into(), flags: OFlag::empty(), processors: processors() };
    // 9p would keep what it has read, and knows no length of this file: the read has to go to the machine.
    let outside = Config::from_env().outside.map(|outside| Machine {
        loadavg: outside.loadavg,
        flags: OFlag::O_DIRECT,
        processors: outside.processors,
    });
    std::iter::once(own).chain(outside).collect()
});

/// What each who wants a processor has of one now. A machine that does not say how busy it is counts as quiet; see [`check`].
pub(super) fn share_now() -> f64 {
    share_of(|load| load.now)
}

/// The same of now or the last minute, whichever was busier.
pub(super) fn share_lately() -> f64 {
    share_of(|load| load.now.max(load.lately))
}

fn share_of(wanting: impl Fn(Load) -> f64) -> f64 {
    MACHINES.iter().map(|machine| machine.load().map_or(1.0, |load| share(wanting(load), machine.processors))).product()
}

/// Fails where this cannot be known.
///
/// # Errors
/// When a machine does not say how busy it is.
pub fn check() -> Result<()> {
    MACHINES.iter().try_for_each(|machine| machine.load().map(drop))
}

/// How many processors this machine has.
#[must_use]
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |all| u32::try_from(all.get()).unwrap_or(u32::MAX))
}

impl Machine {
    fn load(&self) -> Result<Load> {
        let mut text = String::new();
        File::options()
            .read(true)
            .custom_flags(self.flags.bits())
            .open(&self.loadavg)
            .and_then(|mut file| file.read_to_string(&mut text))
            .ok()
            .and_then(|_| Load::of(&text))
            .with_context(|| format!("`{}` does not say how busy the machine is: `{text}`", self.loadavg.display()))
    }
}

impl Load {
    /// By the text of `/proc/loadavg`: `LAST-MINUTE 0.18 0.12 RUNNABLE/ALL LAST`. The reader keeps nobody waiting.
    fn of(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let lately = words.next()?.parse().ok()?;
        let runnable: u32 = words.nth(2)?.split_once('/')?.0.parse().ok()?;
        Some(Self { now: f64::from(runnable.saturating_sub(1)), lately })
    }
}

/// What each of those who want a processor has of one.
pub(super) fn share(wanting: f64, processors: u32) -> f64 {
    (f64::from(processors) / wanting.max(1.0)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_many_want_a_processor() {
        assert_eq!(Load::of("5.94 2.55 1.00 9/147 22697\n"), Some(Load { now: 8.0, lately: 5.94 }));
        assert_eq!(Load::of("0.00 0.00 0.00 1/147 22697\n"), Some(Load { now: 0.0, lately: 0.0 }));
        assert_eq!(Load::of(""), None);
    }

    #[test]
    fn this_machine_says_so() {
        check().unwrap();
        assert!(share_now() > 0.0 && share_now() <= 1.0);
    }

    #[test]
    fn who_wants_a_processor_has_a_whole_one_at_most() {
        assert_eq!([0.0, 2.0, 4.0, 8.0].map(|wanting| share(wanting, 2)), [1.0, 1.0, 0.5, 0.25]);
    }
}
