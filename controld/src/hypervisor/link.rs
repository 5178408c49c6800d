//! Keeps [`super::Hypervisor`] connected: opens, notices the end, opens again.
//!
//! libvirtd takes few requests of one client at a time (`max_client_requests`, five by default). While that many are under
//! way it reads nothing more from the client, not even keepalive, and then takes it for dead: a handful of starts that
//! hang would hold up all other calls for half a minute and end the connection under them. So there are lanes, each a connection
//! of its own that never has as many calls under way: calls about machines that hang hold up neither the starts and stops of
//! others nor the questions. All end together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::tap::QemuUser;
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::features::Features;
use super::ffi::{self, Connection, LibvirtError};
use super::{HvEvent, meaning};

/// Calls that one connection has under way at once; one less than libvirtd takes.
const CALLS: usize = 4;
const OPEN_DEADLINE: Duration = Duration::from_secs(20);
/// Between two tries to connect: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Whether there is a way to libvirt.
#[derive(Debug, Clone)]
pub(super) enum Link {
    Up(Arc<Lines>),
    /// None.
    Down {
        /// What was the matter when it was last tried.
        cause: Option<LibvirtError>,
        /// When the last one ended, if there was one.
        lost: Option<Instant>,
    },
}

/// The connections to one libvirtd.
#[derive(Debug)]
pub(super) struct Lines {
    quick: Line,
    starts: Line,
    presses: Line,
    ends: Line,
    saves: Line,
    wakes: Line,
    lost: Arc<Notify>,
    /// Who this libvirtd runs QEMU as. Another one may be configured otherwise.
    pub(super) qemu_user: OnceCell<QemuUser>,
}

/// What a call goes over.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lane {
    /// All that only asks and notes.
    Quick,
    /// Starts: they wait for vmwrapper.
    Starts,
    /// Power buttons, and whatever else QEMU has to do: libvirt waits as long as it takes to answer, and one that hangs does not.
    Presses,
    /// Ends: they wait for QEMU's process to go, whose end is the end of all other calls about it.
    Ends,
    /// Memory that is written to files, which may be a file server's: minutes, of large machines.
    Saves,
    /// Memory that is read of files of the pod's own: as long.
    Wakes,
}

/// All lanes, with their names in the metrics.
pub(super) const LANES: [(Lane, &str); 6] = [
    (Lane::Quick, "quick"),
    (Lane::Starts, "starts"),
    (Lane::Presses, "presses"),
    (Lane::Ends, "ends"),
    (Lane::Saves, "saves"),
    (Lane::Wakes, "wakes"),
];

/// The right to make one call.
#[derive(Debug)]
pub(super) struct Turn {
    lane: Lane,
    _place: Option<OwnedSemaphorePermit>,
}

/// A connection and the right to use it.
#[derive(Debug)]
struct Line {
    connection: Connection,
    calls: Arc<Semaphore>,
}

/// The task that keeps the link.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) uri: String,
    pub(super) link: watch::Sender<Link>,
    pub(super) wanted: Arc<Notify>,
    pub(super) events: broadcast::Sender<HvEvent>,
}

// === impl Lines ===

impl Lines {
    /// Waits until a lane has room for one more call.
    pub(super) async fn turn(&self, lane: Lane) -> Turn {
        // The semaphore is never closed.
        Turn { lane, _place: self.line(lane).calls.clone().acquire_owned().await.ok() }
    }

    /// Runs `work` off the reactor. Its place in the lane is taken until it ends, also if nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        self: Arc<Self>,
        turn: Turn,
        work: impl FnOnce(&Connection) -> Result<T, LibvirtError> + Send + 'static,
    ) -> Result<Answer<T>, tokio::task::JoinError> {
        let called = spawn_blocking(move || {
            let connection = &self.line(turn.lane).connection;
            let result = work(connection);
            let alive = result.is_ok() || connection.is_alive();
            if !alive {
                // libvirt does not always tell: not if its keepalive gives up amid a call.
                self.lost.notify_one();
            }
            drop(turn);
            Answer { result, alive }
        });
        called.await
    }

    /// How many calls are under way on each lane.
    pub(super) fn running(&self) -> [(&'static str, u64); 6] {
        LANES.map(|(lane, name)| (name, CALLS.saturating_sub(self.line(lane).calls.available_permits()) as u64))
    }

    /// What libvirt can do.
    pub(super) fn features(&self) -> Features {
        self.quick.connection.features
    }

    fn line(&self, lane: Lane) -> &Line {
        match lane {
            Lane::Quick => &self.quick,
            Lane::Starts => &self.starts,
            Lane::Presses => &self.presses,
            Lane::Ends => &self.ends,
            Lane::Saves => &self.saves,
            Lane::Wakes => &self.wakes,
        }
    }
}

/// What came of a call, and whether its connection still stands.
#[derive(Debug)]
pub(super) struct Answer<T> {
    pub(super) result: Result<T, LibvirtError>,
    pub(super) alive: bool,
}

// === impl Keeper ===

impl Keeper {
    /// Connects, again and again.
    pub(super) async fn run(self) {
        ffi::init();
        let mut backoff = BACKOFF.0;
        loop {
            let lost = Arc::new(Notify::new());
            match self.open(&lost).await {
                Ok(lines) => {
                    backoff = BACKOFF.0;
                    tracing::info!(uri = self.uri, "connected to libvirt");
                    self.link.send_replace(Link::Up(Arc::new(lines)));
                    // Without a listener there is nobody to tell.
                    let _ = self.events.send(HvEvent::Resync);
                    lost.notified().await;
                    tracing::warn!("connection to libvirt lost");
                    let gone = self.link.send_replace(Link::Down { cause: None, lost: Some(Instant::now()) });
                    let _ = self.events.send(HvEvent::Down);
                    // Closing the one that still stands, if one does, is a call.
                    drop(spawn_blocking(move || drop(gone)));
                }
                Err(cause) => {
                    self.say_down(cause);
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(BACKOFF.1),
                        // Somebody needs it now; but not more often than the shortest wait.
                        () = self.wanted.notified() => tokio::time::sleep(BACKOFF.0).await,
                    }
                }
            }
        }
    }

    async fn open(&self, lost: &Arc<Notify>) -> Result<Lines, LibvirtError> {
        let (uri, events, lost) = (self.uri.clone(), self.events.clone(), lost.clone());
        let mut opening = spawn_blocking(move || open(&uri, &events, lost));
        loop {
            match tokio::time::timeout(OPEN_DEADLINE, &mut opening).await {
                Ok(Ok(opened)) => return opened,
                Ok(Err(_cancelled)) => return Err(own_error("controld is shutting down".into())),
                // libvirtd hangs. The try cannot be taken back, so there is no second beside it.
                Err(_elapsed) => {
                    self.say_down(own_error(format!("no connection within {} s", OPEN_DEADLINE.as_secs())));
                }
            }
        }
    }

    fn say_down(&self, cause: LibvirtError) {
        let (known, lost) = match &*self.link.borrow() {
            Link::Down { cause: before, lost } => (before.as_ref() == Some(&cause), *lost),
            Link::Up(_) => (false, None),
        };
        if !known {
            tracing::warn!(error = %cause, "not connected to libvirt; trying on");
        }
        self.link.send_replace(Link::Down { cause: Some(cause), lost });
    }
}

fn open(uri: &str, events: &broadcast::Sender<HvEvent>, lost: Arc<Notify>) -> Result<Lines, LibvirtError> {
    let mut quick = Connection::open(uri)?;
    let starts = Connection::open(uri)?;
    let presses = Connection::open(uri)?;
    let ends = Connection::open(uri)?;
    let saves = Connection::open(uri)?;
    let wakes = Connection::open(uri)?;
    let endings = Mutex::new(meaning::Endings::default());
    let lifecycle = events.clone();
    quick.on_lifecycle(Box::new(move |event| {
        let ending = endings.lock().unwrap_or_else(PoisonError::into_inner).of(event);
        let told = match ending {
            None if meaning::is_pause(event) => HvEvent::Paused { id: event.id },
            ending => HvEvent::Lifecycle { id: event.id, ending },
        };
        let _ = lifecycle.send(told);
    }))?;
    let reboots = events.clone();
    quick.on_reboot(Box::new(move |event| drop(reboots.send(HvEvent::Reboot { id: event.id }))))?;
    for connection in [&quick, &starts, &presses, &ends, &saves, &wakes] {
        let lost = lost.clone();
        connection.on_close(Box::new(move || lost.notify_one()))?;
    }
    let line = |connection| Line { connection, calls: Arc::new(Semaphore::new(CALLS)) };
    let (quick, starts, presses) = (line(quick), line(starts), line(presses));
    let (ends, saves, wakes) = (line(ends), line(saves), line(wakes));
    Ok(Lines { quick, starts, presses, ends, saves, wakes, lost, qemu_user: OnceCell::new() })
}

fn own_error(message: String) -> LibvirtError {
    LibvirtError { code: 0, message }
}
