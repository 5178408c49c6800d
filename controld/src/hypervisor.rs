//! libvirt, as the rest of this crate wants it: async, under deadlines, and there again after libvirtd was not.
//!
//! One task keeps the connection ([`link`]). While there is none, [`Hypervisor::ready`] says why, and a call waits a moment for it
//! before it fails. After every new connection comes [`HvEvent::Resync`]: events of the time between are lost, so whoever
//! has a machine looks at it. Calls run off the reactor, a few at a time; one that outlives its deadline is left to end by
//! itself. [`cgroup`] is where a machine that libvirt started is put to count as its pod.

pub mod accel;
pub mod accelerator;
pub mod cgroup;
mod cut_start;
pub mod emulator;
mod features;
mod ffi;
mod link;
mod log;
mod meaning;
mod offer;
pub mod pinning;
mod policy;
mod press;
pub mod process;
mod secrets;
mod size;
mod start;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto::pause::Pause;
use proto::tap::QemuUser;
use tokio::sync::{Notify, broadcast, watch};
use uuid::Uuid;
pub use vmspec::Offer;
use vmspec::error::{Error, Kind, Result};

pub use self::features::{Features, Version};
pub use self::ffi::LibvirtError;
use self::ffi::{Connection, Domain, NO_DOMAIN, OPERATION_INVALID};
use self::link::{Answer, Keeper, Lane, Lines, Link, Turn};
use self::policy::Policy;
use self::press::{Press, Presses};
pub use self::start::{Growth, StartTurn};
use crate::model::domain::METADATA_NAMESPACE;

const QUICK_DEADLINE: Duration = Duration::from_secs(15);
const DEFINE_DEADLINE: Duration = Duration::from_secs(30);
const DESTROY_DEADLINE: Duration = Duration::from_secs(30);
/// How long a libvirtd that was there has to be there again.
const RETURNS: Duration = Duration::from_secs(20);
/// How long somebody who wants to know waits for the first connection after our start.
const FIRST: Duration = Duration::from_secs(5);
/// How long a call waits for its turn behind others.
const TURN_DEADLINE: Duration = Duration::from_secs(30);
/// How long a call waits for a connection that is being opened.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(5);
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
    policy: Policy,
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

/// A call that had no turn.
#[derive(Debug, thiserror::Error)]
#[error("libvirt was busy with calls about other machines for {} s; see its log", deadline.as_secs())]
struct Busy {
    deadline: Duration,
}

/// A call that did not end.
#[derive(Debug, thiserror::Error)]
#[error("libvirt did not {what} within {} s", deadline.as_secs())]
struct Late {
    what: &'static str,
    deadline: Duration,
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
        let (presses, policy) = (Presses::default(), Policy::default());
        let shared = Shared { uri: uri.to_owned(), link: seen, wanted, start_deadline, presses, policy };
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
    pub fn running(&self) -> [(&'static str, u64); 4] {
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

    /// Defines a machine, or defines it anew.
    ///
    /// # Errors
    /// When libvirt refuses the description, or does not answer.
    pub async fn define(&self, xml: String) -> Result<()> {
        self.call("define the machine", DEFINE_DEADLINE, move |connection| connection.define(&xml).map(drop)).await
    }

    /// Presses the power button (ACPI). Nothing is done while libvirt has not answered the last time: it waits for a QEMU that
    /// hangs without a deadline, and there are few turns.
    ///
    /// # Errors
    /// When the machine is not on, or libvirt does not answer.
    pub async fn shutdown(&self, id: Uuid) -> Result<()> {
        let Some(one) = Press::begin(&self.shared.presses, id) else { return Ok(()) };
        let press = move |connection: &Connection| {
            let _one = one;
            existing(connection, id)?.press_power_button()
        };
        self.call_in(Lane::Presses, "press the power button", QUICK_DEADLINE, press).await
    }

    /// Ends a machine; fine if it is off or there is none.
    ///
    /// # Errors
    /// When it would not end, or libvirt does not answer.
    pub async fn destroy(&self, id: Uuid) -> Result<()> {
        let destroy = move |connection: &Connection| match connection.look_up(id)? {
            Some(domain) => destroyed(&domain),
            None => Ok(()),
        };
        self.call_in(Lane::Ends, "destroy the machine", DESTROY_DEADLINE, destroy).await
    }

    /// Ends a machine and makes libvirt forget it; fine if it is off or there is none. Nothing can start it afterwards.
    ///
    /// # Errors
    /// When it would not end, or libvirt does not answer.
    pub async fn clear(&self, id: Uuid) -> Result<()> {
        let clear = move |connection: &Connection| {
            let Some(domain) = connection.look_up(id)? else { return Ok(()) };
            destroyed(&domain)?;
            match domain.undefine(connection.features) {
                Err(error) if error.code != NO_DOMAIN => Err(error),
                _ => Ok(()),
            }
        };
        self.call_in(Lane::Ends, "destroy and undefine the machine", DESTROY_DEADLINE, clear).await
    }

    /// Lets a machine go on that its full disk has paused; fine if nothing or somebody else has paused it, or there is none.
    ///
    /// # Errors
    /// When libvirt does not do it.
    pub async fn go_on(&self, id: Uuid) -> Result<()> {
        let go_on = move |connection: &Connection| {
            let Some(domain) = connection.look_up(id)? else { return Ok(()) };
            match meaning::state_of(domain.state()?).pause {
                Some(Pause::DiskFull) => domain.resume(),
                Some(Pause::ByHand) | None => Ok(()),
            }
        };
        self.call_in(Lane::Presses, "let the machine go on", QUICK_DEADLINE, go_on).await
    }

    /// Pauses a machine that runs; fine if it is paused.
    ///
    /// # Errors
    /// When it does not run, libvirt does not do it, or does not answer.
    pub async fn pause(&self, id: Uuid) -> Result<()> {
        let pause = move |connection: &Connection| existing(connection, id)?.suspend();
        self.call_in(Lane::Presses, "pause the machine", QUICK_DEADLINE, pause).await
    }

    /// Lets a machine go on, whoever has paused it; fine if nobody has.
    ///
    /// # Errors
    /// When it does not run, libvirt does not do it, or does not answer.
    pub async fn resume(&self, id: Uuid) -> Result<()> {
        let resume = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            match meaning::state_of(domain.state()?).pause {
                Some(Pause::DiskFull | Pause::ByHand) => domain.resume(),
                None => Ok(()),
            }
        };
        self.call_in(Lane::Presses, "let the machine go on", QUICK_DEADLINE, resume).await
    }

    /// Where a machine stands; `None` if there is none.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn state(&self, id: Uuid) -> Result<Option<DomainState>> {
        let state = move |connection: &Connection| connection.look_up(id)?.map(|domain| domain.state()).transpose();
        let state = self.call("tell the machine's state", QUICK_DEADLINE, state).await?;
        Ok(state.map(meaning::state_of))
    }

    /// Machines that this instance of controld made, by their metadata. Others are none of our business.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn list_ours(&self, instance: Uuid) -> Result<Vec<Marked>> {
        let mark = instance.to_string();
        let list = move |connection: &Connection| {
            let mut ours = Vec::new();
            for domain in connection.domains()? {
                match marked(&domain) {
                    Ok(Some((instance, marked))) if instance == mark => ours.push(marked),
                    // Gone since it was listed.
                    Err(error) if error.code != NO_DOMAIN => return Err(error),
                    _ => {}
                }
            }
            Ok(ours)
        };
        self.call("list the machines", QUICK_DEADLINE, list).await
    }

    /// Files of a machine's disks, not what they stand on; `None` if there is no such machine.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn disks(&self, id: Uuid) -> Result<Option<Vec<PathBuf>>> {
        let xml = move |connection: &Connection| match connection.look_up(id)?.map(|domain| domain.xml()).transpose() {
            // Gone since it was looked up.
            Err(error) if error.code == NO_DOMAIN => Ok(None),
            xml => xml,
        };
        let xml = self.call("tell the machine's disks", QUICK_DEADLINE, xml).await?;
        Ok(xml.map(|xml| meaning::disks_of(&xml)))
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

    async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        deadline: Duration,
        work: impl FnOnce(&Connection) -> Result<T, LibvirtError> + Send + 'static,
    ) -> Result<T> {
        self.call_in(Lane::Quick, what, deadline, work).await
    }

    async fn call_in<T: Send + 'static>(
        &self,
        lane: Lane,
        what: &'static str,
        deadline: Duration,
        work: impl FnOnce(&Connection) -> Result<T, LibvirtError> + Send + 'static,
    ) -> Result<T> {
        let (lines, turn) = self.turn(what, lane, TURN_DEADLINE).await?;
        call(what, deadline, lines.run(turn, work)).await
    }

    /// A turn to call. One of a connection that was lost meanwhile is not taken: there is another connection to wait for.
    async fn turn(&self, what: &'static str, lane: Lane, deadline: Duration) -> Result<(Arc<Lines>, Turn)> {
        let had = async {
            loop {
                let lines = self.lines().await?;
                let turn = lines.turn(lane).await;
                if matches!(&*self.shared.link.borrow(), Link::Up(now) if Arc::ptr_eq(now, &lines)) {
                    return Ok((lines, turn));
                }
            }
        };
        let late = |_elapsed| Error::because(Kind::Deadline, format!("failed to {what}"), Busy { deadline });
        tokio::time::timeout(deadline, had).await.map_err(late)?
    }

    async fn lines(&self) -> Result<Arc<Lines>> {
        let mut link = self.shared.link.clone();
        if let Link::Up(lines) = &*link.borrow() {
            return Ok(lines.clone());
        }
        self.shared.wanted.notify_one();
        let up = tokio::time::timeout(CONNECTION_DEADLINE, link.wait_for(|link| matches!(link, Link::Up(_)))).await;
        match up {
            Ok(Ok(link)) => match &*link {
                Link::Up(lines) => Ok(lines.clone()),
                Link::Down { cause, .. } => Err(self.not_connected(cause.clone())),
            },
            _ => Err(self.ready().err().unwrap_or_else(|| self.not_connected(None))),
        }
    }

    fn not_connected(&self, cause: Option<LibvirtError>) -> Error {
        let what = format!("no connection to libvirt at `{}`; is libvirtd running?", self.shared.uri);
        match cause {
            Some(cause) => Error::because(Kind::Unavailable, what, cause),
            None => Error::new(Kind::Unavailable, what),
        }
    }
}

async fn call<T>(
    what: &'static str,
    deadline: Duration,
    run: impl Future<Output = Result<Answer<T>, tokio::task::JoinError>>,
) -> Result<T> {
    match tokio::time::timeout(deadline, run).await {
        Err(_elapsed) => Err(Error::because(Kind::Deadline, format!("failed to {what}"), Late { what, deadline })),
        Ok(Err(_cancelled)) => Err(Error::new(Kind::Unavailable, "controld is shutting down")),
        Ok(Ok(Answer { result: Ok(value), .. })) => Ok(value),
        Ok(Ok(Answer { result: Err(cause), alive })) => Err(failed(what, cause, alive)),
    }
}

fn destroyed(domain: &Domain) -> Result<(), LibvirtError> {
    not_cut_off(domain)?;
    match domain.destroy() {
        Err(error) if !matches!(error.code, OPERATION_INVALID | NO_DOMAIN) => Err(error),
        _ => Ok(()),
    }
}

/// That libvirt does not wait for a start that its own death has cut off.
fn not_cut_off(domain: &Domain) -> Result<(), LibvirtError> {
    if !domain.state().is_ok_and(|raw| meaning::state_of(raw).coming_up) {
        return Ok(());
    }
    let name = domain.name()?;
    let told = |message| Err(LibvirtError { code: OPERATION_INVALID, message });
    match cut_start::is_cut(Path::new(cut_start::STATUS_DIR), &name) {
        Ok(false) => Ok(()),
        Ok(true) => told(format!(
            "libvirtd died while it started `{name}`, and the one that runs now waits for ever for that start; restart \
             libvirtd (machines run on)"
        )),
        Err(error) => {
            tracing::warn!(machine = name, %error, "status that libvirt keeps of a machine not read");
            Ok(())
        }
    }
}

/// The instance that a machine's mark names, if it has one, and the rest of it.
fn marked(domain: &Domain) -> Result<Option<(String, Marked)>, LibvirtError> {
    let Some(mark) = domain.metadata(METADATA_NAMESPACE)?.and_then(|element| meaning::mark_of(&element)) else {
        return Ok(None);
    };
    let meaning::Mark { instance, sandbox, pod_uid } = mark;
    let runs = meaning::state_of(domain.state()?).phase == DomainPhase::On;
    Ok(Some((instance, Marked { id: domain.id()?, name: domain.name()?, sandbox, pod_uid, runs, disks: Vec::new() })))
}

fn existing(connection: &Connection, id: Uuid) -> Result<Domain, LibvirtError> {
    let absent = || LibvirtError { code: NO_DOMAIN, message: format!("no machine `{id}`") };
    connection.look_up(id)?.ok_or_else(absent)
}

fn failed(what: &'static str, cause: LibvirtError, alive: bool) -> Error {
    let mut action = format!("failed to {what}");
    if meaning::is_start_forbidden(&cause.message) {
        action.push_str(
            ": AppArmor, SELinux or a file's mode forbids to start vmwrapper; `virtletctl doctor` says which, and what mends it",
        );
    }
    if let Some(error) = meaning::wrapper_line_of(&cause.message) {
        // EX_UNAVAILABLE of sysexits: vmwrapper could not reach tapmanager, or was refused.
        let kind = if error.code == 69 { Kind::Unavailable } else { Kind::Internal };
        return Error::because(kind, action, error);
    }
    let kind = match cause.code {
        _ if !alive => Kind::Unavailable,
        NO_DOMAIN => Kind::NotFound,
        OPERATION_INVALID => Kind::State,
        _ => Kind::Internal,
    };
    Error::because(kind, action, cause)
}

#[cfg(test)]
mod tests;
