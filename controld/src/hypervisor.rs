//! libvirt, as the rest of this crate wants it: async, under deadlines, and there again after libvirtd was not.
//!
//! One task keeps the connection ([`link`]). While there is none, [`Hypervisor::ready`] says why, and a call waits a moment for it
//! before it fails ([`calls`]). After every new connection comes [`HvEvent::Resync`]: events of the time between are lost, so whoever
//! has a machine looks at it. Calls run off the reactor, a few at a time; one that outlives its deadline is left to end by
//! itself. [`machines`] is what is done to machines that are defined, [`start`] how one is started, [`save`] how its memory is written
//! to a file and its disks are copied, [`wake`] how one goes on from such a file, whose head [`saved`] knows, and [`cgroup`] where one that
//! libvirt started is put to count as its pod.

pub mod accel;
pub mod accelerator;
mod calls;
pub mod cgroup;
mod cut_start;
pub mod emulator;
mod features;
mod ffi;
mod link;
mod log;
mod machines;
mod meaning;
mod monitor;
mod offer;
pub mod pinning;
mod policy;
mod press;
pub mod process;
mod save;
mod saved;
mod secrets;
mod size;
mod start;
mod wake;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto::pause::Pause;
use proto::tap::QemuUser;
use tokio::sync::{Notify, broadcast, watch};
use uuid::Uuid;
pub use vmspec::Offer;
use vmspec::error::{Error, Kind, Result};

use self::calls::QUICK_DEADLINE;
pub use self::features::{Features, Version};
use self::ffi::Connection;
pub use self::ffi::LibvirtError;
use self::link::{Keeper, Link};
use self::policy::Policy;
use self::press::Presses;
pub use self::save::{NotSaved, Stood};
pub use self::saved::{HEAD, QEMUS, SavedHead, Unrestorable};
pub use self::start::{Beginning, Growth, StartTurn};

/// How long a libvirtd that was there has to be there again.
const RETURNS: Duration = Duration::from_secs(20);
/// How long somebody who wants to know waits for the first connection after our start.
const FIRST: Duration = Duration::from_secs(5);
/// Events that may wait for a slow listener; one that missed some is told to look at everything.
const EVENT_QUEUE: usize = 1024;

/// Way to libvirt. Clones share it.
#[derive(Debug, Clone)]
pub struct Hypervisor {
    shared: Arc<Shared>,
}

/// What libvirt tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HvEvent {
    /// A machine's life went on; `ending` is set if that was its end.
    Lifecycle {
        /// The machine.
        id: Uuid,
        /// How it ended, if it did.
        ending: Option<Ending>,
    },
    /// The machine was paused.
    Paused {
        /// The machine.
        id: Uuid,
    },
    /// The guest rebooted; the machine runs on.
    Reboot {
        /// The machine.
        id: Uuid,
    },
    /// Events may have been missed: look at every machine.
    Resync,
    /// The connection is lost.
    Down,
}

/// How a machine ended, as libvirt tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The guest powered off.
    Shutdown,
    /// Somebody pulled the plug.
    Destroyed,
    /// The guest's kernel panicked.
    Panicked,
    /// QEMU died.
    Failed,
    /// Gone, and nobody saw how.
    Unseen,
}

/// A machine with our mark, and what the mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    pub id: Uuid,
    /// libvirt's name of it.
    pub name: String,
    /// Id of its pod's sandbox.
    pub sandbox: String,
    pub pod_uid: String,
    /// Whether it is on.
    pub runs: bool,
    /// It is off, and its last start was cut off by libvirtd's death: nobody was told that it would run.
    pub was_cut_off: bool,
    /// Files of its disks, if they were asked for.
    pub disks: Vec<PathBuf>,
}

/// Where a machine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainState {
    /// On, or how it went off.
    pub phase: DomainPhase,
    /// Why it does not run although it is on.
    pub pause: Option<Pause>,
    /// libvirt is still starting it: QEMU may not have opened its files yet.
    pub coming_up: bool,
    /// Its guest has powered off, and libvirt is about to end QEMU.
    pub going_down: bool,
}

/// Whether a machine is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainPhase {
    /// On, perhaps paused.
    On,
    Off(Ending),
}

#[derive(Debug)]
struct Shared {
    uri: String,
    link: watch::Receiver<Link>,
    wanted: Arc<Notify>,
    start_deadline: Duration,
    presses: Presses,
    /// Saves that are being ended.
    aborts: Presses,
    policy: Policy,
    /// Who asks what the emulator can do: libvirt works that out once for all, and meanwhile each who asks would keep others from their turn.
    offering: tokio::sync::Mutex<()>,
}

/// vmwrapper's own word on why a machine did not start.
#[derive(Debug, thiserror::Error)]
#[error("{line}")]
pub struct WrapperError {
    /// Exit code, as of sysexits.
    pub code: i32,
    /// Its line on standard error.
    pub line: String,
}

/// Opens a connection of its own and asks for what [`Hypervisor::features`] tells. Blocks as long as libvirt does.
///
/// # Errors
/// When libvirt does not answer, or is too old.
pub fn ask_features(uri: &str) -> std::result::Result<Features, LibvirtError> {
    ffi::init();
    Ok(Connection::open(uri)?.features)
}

// === impl Hypervisor ===

impl Hypervisor {
    /// Begins to connect, and keeps connected. The receiver misses nothing.
    #[must_use]
    pub fn connect(uri: &str, start_deadline: Duration) -> (Self, broadcast::Receiver<HvEvent>) {
        let (sender, events) = broadcast::channel(EVENT_QUEUE);
        let (link, seen) = watch::channel(Link::Down { cause: None, lost: None });
        let wanted = Arc::new(Notify::new());
        let keeper = Keeper { uri: uri.to_owned(), link, wanted: wanted.clone(), events: sender };
        tokio::spawn(keeper.run());
        let (presses, aborts, policy) = (Presses::default(), Presses::default(), Policy::default());
        let shared = Shared {
            uri: uri.to_owned(),
            link: seen,
            wanted,
            start_deadline,
            presses,
            aborts,
            policy,
            offering: tokio::sync::Mutex::default(),
        };
        let hypervisor = Self { shared: Arc::new(shared) };
        (hypervisor, events)
    }

    /// Which security policy keeps machines from starting as `vmwrapper`, and what to do, as of the last starts and looks at the
    /// emulator.
    #[must_use]
    pub fn forbidden(&self, vmwrapper: &Path) -> Option<String> {
        self.shared.policy.trouble(Path::new("/"), vmwrapper)
    }

    /// Whether there is a connection.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<()> {
        match &*self.shared.link.borrow() {
            Link::Up(_) => Ok(()),
            Link::Down { cause, .. } => Err(self.not_connected(cause.clone())),
        }
    }

    /// The same for kubelet, which leaves all pods of the node alone while there is none, and may call the node unready: a
    /// libvirtd that is started again takes seconds, and that costs no machine anything.
    ///
    /// # Errors
    /// When there is no connection and was none for a while.
    pub async fn serves(&self) -> Result<()> {
        let mut link = self.shared.link.clone();
        let tried = link.wait_for(|link| !matches!(link, Link::Down { cause: None, lost: None }));
        // Late is not known.
        drop(tokio::time::timeout(FIRST, tried).await);
        let returns =
            matches!(&*self.shared.link.borrow(), Link::Down { lost: Some(at), .. } if at.elapsed() < RETURNS);
        if returns { Ok(()) } else { self.ready() }
    }

    /// How many calls are under way on each lane.
    #[must_use]
    pub fn running(&self) -> [(&'static str, u64); 6] {
        match &*self.shared.link.borrow() {
            Link::Up(lines) => lines.running(),
            Link::Down { .. } => link::LANES.map(|(_, name)| (name, 0)),
        }
    }

    /// Version of the libvirt that is connected to, if one is.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        match &*self.shared.link.borrow() {
            Link::Up(lines) => Some(lines.features().version),
            Link::Down { .. } => None,
        }
    }

    /// What machines may be made with.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn features(&self) -> Result<Features> {
        Ok(self.lines().await?.features())
    }

    /// Who libvirt runs QEMU as: its DAC base label, which passwd may contradict.
    ///
    /// # Errors
    /// When libvirt does not answer, or runs QEMU as root.
    pub async fn qemu_user(&self) -> Result<QemuUser> {
        let lines = self.lines().await?;
        let ask = || async {
            let xml = self.call("tell its capabilities", QUICK_DEADLINE, Connection::capabilities).await?;
            let user = meaning::qemu_user_of(&xml).ok_or_else(|| {
                Error::new(
                    Kind::Internal,
                    "libvirt does not say who it runs QEMU as; its DAC security driver is needed",
                )
            })?;
            if user.uid == 0 {
                let what = "libvirt runs QEMU as root; set user and group in libvirt's qemu.conf";
                return Err(Error::new(Kind::State, what));
            }
            Ok(user)
        };
        lines.qemu_user.get_or_try_init(ask).await.copied()
    }
}

#[cfg(test)]
mod tests;
