//! A node with one pod: libvirt, database and controld's tasks, of which each may fail, hang or be killed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proto::pause::Pause;
use proto::tap::ProcessId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};
use vmspec::{Applied, ContainerId, MachineId, Resources};

use super::container;
use crate::container::actors::Actors;
use crate::container::admission::{self, Admission};
use crate::container::checkpoint;
use crate::container::gate::Cuts;
use crate::container::host::Host;
use crate::container::machine::Room;
use crate::guest::console::end::CommandEnd;
use crate::hypervisor::{DomainPhase, DomainState, Ending, HvEvent};
use crate::model::{CheckpointNote, Container, ContainerState, ExitReason, RestoreNote};
use crate::store::boot::Boot;
use crate::store::created;
use crate::trace;

/// When a call that was given up has its effect all the same.
pub(super) const LATE: Duration = Duration::from_secs(45);
/// When it is given up.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a call waits for libvirt's connection.
const CONNECTION: Duration = Duration::from_secs(5);

/// What becomes of a call to libvirt or the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is done and answered.
    None,
    /// It is not done, and says so.
    Refused,
    /// It is done, and the answer is lost.
    NoReply,
    /// It is given up and done later.
    Late,
}

/// A machine that libvirt has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domain {
    On,
    Off(Ending),
}

#[derive(Debug, Default)]
struct World {
    /// Of controld: what an earlier one has under way does not go on.
    generation: u32,
    actors: Actors,
    disk: BTreeMap<ContainerId, Container>,
    shown: BTreeMap<ContainerId, Container>,
    domains: BTreeMap<ContainerId, Domain>,
    /// Of the pod's processes, as the kernel counts them.
    oom_kills: u64,
    /// The machines of all containers that were ever made.
    machines: BTreeMap<ContainerId, MachineId>,
    /// What the node's clock says. It goes on when it is read.
    clock: i64,
    /// Why machines that are on do not run.
    paused: BTreeMap<ContainerId, Pause>,
    /// Free bytes of the volumes' file system, of a thousand.
    free: u64,
    defined: BTreeSet<ContainerId>,
    /// Seeds that are there.
    seeds: BTreeSet<ContainerId>,
    /// Machines to which all was done that a start does to one that it holds.
    prepared: BTreeSet<ContainerId>,
    /// Machines that libvirt is still starting.
    coming_up: BTreeSet<ContainerId>,
    /// Consoles that are copied in this life.
    followed: BTreeSet<ContainerId>,
    /// Machines whose start belongs in the trace of a call.
    traced: BTreeSet<ContainerId>,
    /// So many more consoles cannot be followed.
    no_console: u32,
    faults: VecDeque<Fault>,
    libvirt_down: bool,
    /// The next call to libvirt panics.
    panics: bool,
    /// So many more writes fit.
    room: Option<u32>,
    /// Whether starts get no turn.
    no_turns: watch::Sender<bool>,
    /// Whether resizes hang.
    no_resizes: watch::Sender<bool>,
    /// Whether checkpoints hang.
    no_checkpoints: watch::Sender<bool>,
    /// Whether those hang whose guests go on.
    no_finishes: watch::Sender<bool>,
    /// Directories with a checkpoint that is not whole.
    halves: BTreeSet<PathBuf>,
    /// Whether those do not answer.
    no_answer: bool,
    /// The sandbox is there and has its network.
    sandbox_ready: bool,
    /// What must never be, and was.
    wrong: Vec<String>,
}

/// controld's view of it. Clones share it.
#[derive(Debug, Clone)]
pub(in crate::container) struct FakeHost {
    world: Arc<Mutex<World>>,
    generation: u32,
    boot: Arc<Boot>,
}

/// The node, as its one controld and a client see it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    host: FakeHost,
    gate: Arc<tokio::sync::Mutex<()>>,
}

// === impl World ===

impl World {
    /// The machine of a container, also of one that was removed.
    fn machine(&self, id: ContainerId) -> Uuid {
        self.machines.get(&id).copied().map(MachineId::uuid).unwrap_or_default()
    }

    fn tell(&self, id: ContainerId, ending: Option<Ending>) {
        if !self.libvirt_down {
            let id = self.machine(id);
            self.actors.hear(&HvEvent::Lifecycle { id, ending });
        }
    }

    fn set(&mut self, id: ContainerId, domain: Option<Domain>) {
        let before = match domain {
            Some(domain) => self.domains.insert(id, domain),
            None => self.domains.remove(&id),
        };
        if domain == Some(Domain::On) && self.domains.values().filter(|other| **other == Domain::On).count() > 1 {
            self.wrong.push(format!("{id} is the pod's second machine"));
        }
        let ending = match (before, domain) {
            (Some(Domain::On), Some(Domain::Off(ending))) => Some(ending),
            (Some(Domain::On), None) => Some(Ending::Destroyed),
            _ => None,
        };
        self.tell(id, ending);
        self.clear_removed();
    }

    /// What `Containers::hear` does for containers that were removed.
    fn clear_removed(&mut self) {
        if !self.libvirt_down {
            let machines = &self.machines;
            self.domains.retain(|id, _| machines.get(id).is_none_or(|machine| !self.actors.was_removed(*machine)));
        }
    }

    /// What `Store::container_time` says.
    fn creation_time(&mut self) -> i64 {
        self.clock += 1;
        created::after(self.clock, self.shown.values().map(|container| container.created_at))
    }

    fn show(&mut self, container: &Container) {
        if container.state == ContainerState::Exited && self.domains.get(&container.id) == Some(&Domain::On) {
            self.wrong.push(format!("{} is shown as ended while its machine is on", container.id));
        }
        self.shown.insert(container.id, container.clone());
    }
}

// === impl FakeHost ===

impl FakeHost {
    pub(in crate::container) fn new() -> Self {
        let world = World { sandbox_ready: true, free: 1000, ..World::default() };
        let boot = Arc::new(Boot::of_test("one"));
        Self { world: Arc::new(Mutex::new(world)), generation: 0, boot }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test thread has panicked")
    }

    /// Returns while this controld lives.
    async fn alive(&self) {
        if self.world().generation != self.generation {
            std::future::pending().await
        }
    }

    async fn libvirt<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut World) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.alive().await;
        if self.world().libvirt_down {
            tokio::time::sleep(CONNECTION).await;
            return Err(Error::new(Kind::Unavailable, "no connection to libvirt"));
        }
        let panics = std::mem::take(&mut self.world().panics);
        assert!(!panics, "the test is of a call that panics");
        let fault = self.world().faults.pop_front().unwrap_or(Fault::None);
        match fault {
            Fault::None => effect(&mut self.world()),
            Fault::Refused => Err(Error::new(Kind::Internal, "libvirt refused")),
            Fault::NoReply => {
                let _ = effect(&mut self.world());
                Err(Error::new(Kind::Unavailable, "connection to libvirt lost"))
            }
            Fault::Late => {
                let world = self.world.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    effect(&mut world.lock().expect("no test thread has panicked")).map(drop)
                });
                tokio::time::sleep(DEADLINE).await;
                self.alive().await;
                Err(Error::new(Kind::Deadline, "libvirt did not answer"))
            }
        }
    }

    async fn write(&self, effect: impl FnOnce(&mut World)) -> Result<()> {
        self.alive().await;
        // A commit takes a moment.
        tokio::task::yield_now().await;
        self.alive().await;
        let mut world = self.world();
        match world.room {
            Some(0) => return Err(Error::new(Kind::Exhausted, "no space left")),
            Some(room) => world.room = Some(room - 1),
            None => {}
        }
        effect(&mut world);
        Ok(())
    }
}

impl Host for FakeHost {
    type Console = ();

    async fn start(&self, container: &Container, unwanted: &CancellationToken) -> Result<Option<()>> {
        let mut no_turns = self.world().no_turns.subscribe();
        if unwanted.run_until_cancelled(no_turns.wait_for(|none| !none)).await.is_none() {
            return Err(Error::new(Kind::State, "stopped before its turn"));
        }
        let id = container.id;
        self.alive().await;
        self.world().seeds.insert(id);
        if trace::here().is_some() {
            self.world().traced.insert(id);
        }
        let define = move |world: &mut World| {
            world.defined.insert(id);
            if !world.domains.contains_key(&id) {
                world.set(id, Some(Domain::Off(Ending::Unseen)));
            }
            Ok(())
        };
        self.libvirt(define).await?;
        let start = move |world: &mut World| match world.domains.get(&id) {
            Some(Domain::Off(_)) => {
                world.set(id, Some(Domain::On));
                Ok(())
            }
            Some(Domain::On) => Err(Error::new(Kind::State, "runs already")),
            None => Err(Error::new(Kind::NotFound, "no such machine")),
        };
        self.libvirt(start).await?;
        tokio::task::yield_now().await;
        self.alive().await;
        let mut world = self.world();
        world.seeds.remove(&id);
        world.followed.insert(id);
        Ok(Some(()))
    }

    async fn state(&self, container: &Container) -> Result<Option<DomainState>> {
        let id = container.id;
        self.libvirt(move |world| {
            Ok(world.domains.get(&id).map(|domain| match domain {
                Domain::On => DomainState {
                    phase: DomainPhase::On,
                    pause: world.paused.get(&id).copied(),
                    coming_up: world.coming_up.contains(&id),
                    going_down: false,
                },
                Domain::Off(ending) => {
                    DomainState { phase: DomainPhase::Off(*ending), pause: None, coming_up: false, going_down: false }
                }
            }))
        })
        .await
    }

    async fn go_on(&self, container: &Container) -> Result<()> {
        let id = container.id;
        self.libvirt(move |world| {
            if world.paused.get(&id) == Some(&Pause::DiskFull) {
                world.paused.remove(&id);
                world.tell(id, None);
            }
            Ok(())
        })
        .await
    }

    async fn pause(&self, container: &Container) -> Result<()> {
        let id = container.id;
        self.libvirt(move |world| {
            world.paused.entry(id).or_insert(Pause::ByHand);
            world.tell(id, None);
            Ok(())
        })
        .await
    }

    async fn let_run(&self, container: &Container) -> Result<()> {
        let (id, waits) = (container.id, container.machine.hardware.described.start_paused);
        self.libvirt(move |world| {
            world.prepared.insert(id);
            if !waits {
                world.paused.remove(&id);
                world.tell(id, None);
            }
            Ok(())
        })
        .await
    }

    async fn resume(&self, container: &Container) -> Result<()> {
        let id = container.id;
        self.libvirt(move |world| {
            world.paused.remove(&id);
            world.tell(id, None);
            Ok(())
        })
        .await
    }

    async fn room(&self, _container: &Container) -> std::io::Result<Room> {
        Ok(Room { size: 1000, available: self.world().free })
    }

    fn set_up(&self, _container: &Container, _cuts: &Cuts) {}

    async fn command_end(&self, _container: &Container, _wait: bool) -> std::io::Result<Option<CommandEnd>> {
        Ok(None)
    }

    async fn last_words(&self, container: &Container) -> std::io::Result<String> {
        Ok(format!("last words of {}", container.id))
    }

    async fn press(&self, _container: &Container) -> Result<()> {
        // This guest does not hear.
        self.libvirt(|_world| Ok(())).await
    }

    async fn destroy(&self, container: &Container) -> Result<()> {
        let id = container.id;
        self.libvirt(move |world| {
            if world.domains.get(&id) == Some(&Domain::On) {
                world.set(id, Some(Domain::Off(Ending::Destroyed)));
            }
            Ok(())
        })
        .await
    }

    async fn clear(&self, container: &Container) -> Result<()> {
        let id = container.id;
        self.libvirt(move |world| {
            if world.domains.contains_key(&id) {
                world.set(id, None);
            }
            world.seeds.remove(&id);
            Ok(())
        })
        .await
    }

    fn seed_is_read(&self, container: &Container) -> std::io::Result<()> {
        self.world().seeds.remove(&container.id);
        Ok(())
    }

    async fn confine(&self, _container: &Container) -> Result<()> {
        Ok(())
    }

    async fn resize(&self, container: &Container, wanted: &Resources) -> (Applied, Result<()>) {
        let mut hang = self.world().no_resizes.subscribe();
        // As long as there is a machine to wait for.
        let on = async {
            while self.world().domains.get(&container.id) == Some(&Domain::On) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            _ = hang.wait_for(|hang| !hang) => {}
            () = on => {}
        }
        // Memory comes after vCPUs, which stay.
        let applied = Applied { vcpus: wanted.cpus().unwrap_or(1), memory: container.applied().memory };
        let is_small = wanted.memory_limit < 0;
        (applied, if is_small { Err(Error::new(Kind::State, "no machine is so small")) } else { Ok(()) })
    }

    async fn checkpoint(
        &self,
        container: &Container,
        note: &CheckpointNote,
        unwanted: &CancellationToken,
        goes_on: &CancellationToken,
    ) -> (bool, Result<()>) {
        let (id, note) = (container.id, note.clone());
        let (mut hang, mut late) = {
            let world = self.world();
            (world.no_checkpoints.subscribe(), world.no_finishes.subscribe())
        };
        let dir = note.dir.clone();
        let begun = self.libvirt(move |world| {
            if world.disk.get(&id).is_none_or(|noted| noted.checkpoint.as_ref() != Some(&note)) {
                world.wrong.push(format!("{id} is paused for a checkpoint that is not on record"));
            }
            world.halves.insert(note.dir);
            world.paused.insert(id, Pause::ByHand);
            let id = world.machine(id);
            world.actors.hear(&HvEvent::Paused { id });
            Ok(())
        });
        if let Err(error) = begun.await {
            return (false, Err(error));
        }
        if unwanted.run_until_cancelled(hang.wait_for(|hang| !hang)).await.is_none() {
            return (false, Err(Error::new(Kind::State, "given up")));
        }
        self.alive().await;
        let done = self.libvirt(move |world| {
            world.paused.remove(&id);
            world.tell(id, None);
            Ok(())
        });
        if let Err(error) = done.await {
            return (false, Err(error));
        }
        goes_on.cancel();
        if unwanted.run_until_cancelled(late.wait_for(|late| !late)).await.is_none() {
            return (true, Err(Error::new(Kind::State, "given up")));
        }
        self.alive().await;
        self.world().halves.remove(&dir);
        (true, Ok(()))
    }

    async fn end_save(&self, container: &Container) -> Result<()> {
        let id = container.id;
        self.libvirt(move |world| {
            if world.paused.remove(&id).is_some() {
                world.tell(id, None);
            }
            Ok(())
        })
        .await
    }

    async fn clear_checkpoint(&self, _container: &Container, note: &CheckpointNote) -> Result<()> {
        self.alive().await;
        if self.world().no_answer {
            tokio::time::sleep(DEADLINE).await;
            return Err(Error::new(Kind::Deadline, "the directory did not answer"));
        }
        self.world().halves.remove(&note.dir);
        Ok(())
    }

    fn process(&self, _container: &Container) -> Option<ProcessId> {
        None
    }

    fn pod_oom_kills(&self, _container: &Container) -> u64 {
        self.world().oom_kills
    }

    fn was_oom_killed(&self, container: &Container) -> bool {
        self.world().oom_kills > container.pod_oom_kills
    }

    fn is_unshared(&self, _container: &Container) -> bool {
        false
    }

    async fn put(&self, container: &Container) -> Result<()> {
        let container = container.clone();
        self.write(move |world| {
            world.disk.insert(container.id, container.clone());
            world.show(&container);
        })
        .await
    }

    fn show(&self, container: &Container) {
        let mut world = self.world();
        if world.generation == self.generation {
            world.show(container);
        }
    }

    fn record(&self, id: ContainerId) -> Option<Container> {
        self.world().shown.get(&id).cloned()
    }

    async fn forget(&self, container: &Container) -> Result<()> {
        let id = container.id;
        self.write(move |world| {
            if world.domains.contains_key(&id) {
                world.wrong.push(format!("{id} is removed and has a machine"));
            }
            world.disk.remove(&id);
            world.shown.remove(&id);
        })
        .await
    }

    async fn follow(&self, container: &Container) -> std::io::Result<Option<()>> {
        let mut world = self.world();
        if world.no_console > 0 {
            world.no_console -= 1;
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        world.followed.insert(container.id);
        Ok(Some(()))
    }

    async fn finish(&self, _console: (), _wait: bool) -> bool {
        true
    }

    async fn reopen(&self, _console: &()) -> std::io::Result<()> {
        Ok(())
    }

    fn press_interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn boot(&self) -> &Boot {
        &self.boot
    }

    fn span(&self, _container: &Container) -> tracing::Span {
        tracing::Span::none()
    }
}

// === impl Node: what may happen to it ===

impl Node {
    pub(super) fn new() -> Self {
        Self { host: FakeHost::new(), gate: Arc::default() }
    }

    /// controld is killed and started again.
    pub(super) fn restart(&self) -> Self {
        self.restart_in(self.host.boot.clone())
    }

    /// The node is, and libvirt is not there yet.
    pub(super) fn reboot(&self, boot: &str) -> Self {
        {
            let mut world = self.host.world();
            world.libvirt_down = true;
            // Machines are defined on disk, and none of them has ended as libvirt would have seen.
            world.domains.values_mut().for_each(|domain| *domain = Domain::Off(Ending::Unseen));
        }
        self.restart_in(Arc::new(Boot::of_test(boot)))
    }

    fn restart_in(&self, boot: Arc<Boot>) -> Self {
        let mut world = self.host.world();
        world.generation += 1;
        world.actors = Actors::default();
        world.followed.clear();
        world.shown = world.disk.clone();
        let host = FakeHost { world: self.host.world.clone(), generation: world.generation, boot };
        let (actors, records) = (world.actors.clone(), world.disk.clone());
        let down = world.libvirt_down;
        drop(world);
        for container in records.values() {
            // What a record says, not what was in memory.
            let state = match container.state {
                ContainerState::Uncertain => ContainerState::Starting,
                state => state,
            };
            actors.add(host.clone(), &Container { state, pause: None, ..container.clone() });
        }
        if !down {
            actors.hear(&HvEvent::Resync);
        }
        Self { host, gate: Arc::default() }
    }

    pub(super) fn libvirt(&self, up: bool) {
        self.host.world().libvirt_down = !up;
        if up {
            self.host.world().clear_removed();
            self.actors().hear(&HvEvent::Resync);
        }
    }

    pub(super) fn faults(&self, faults: &[Fault]) {
        self.host.world().faults.extend(faults);
    }

    pub(super) fn no_more_faults(&self) {
        self.host.world().faults.clear();
    }

    /// The next call to libvirt panics.
    pub(super) fn panics(&self) {
        self.host.world().panics = true;
    }

    pub(super) fn oom_kill(&self) {
        self.host.world().oom_kills += 1;
    }

    pub(super) fn disk_full(&self, full: bool) {
        self.host.world().room = full.then_some(0);
    }

    pub(super) fn full_after_puts(&self, puts: u32) {
        self.host.world().room = Some(puts);
    }

    /// So many attempts to follow a console fail.
    pub(super) fn no_console(&self, attempts: u32) {
        self.host.world().no_console = attempts;
    }

    /// libvirt is still starting the machine, or not any more. It tells of neither.
    pub(super) fn coming_up(&self, id: ContainerId, so: bool) {
        let mut world = self.host.world();
        if so {
            world.coming_up.insert(id)
        } else {
            world.coming_up.remove(&id)
        };
    }

    /// The node's clock is set.
    pub(super) fn clock_set(&self, by: i64) {
        self.host.world().clock += by;
    }

    pub(super) fn no_turns(&self, none: bool) {
        self.host.world().no_turns.send_replace(none);
    }

    pub(super) fn no_resizes(&self, none: bool) {
        self.host.world().no_resizes.send_replace(none);
    }

    pub(super) fn no_checkpoints(&self, none: bool) {
        self.host.world().no_checkpoints.send_replace(none);
    }

    /// Checkpoints do not come to their end once their guests go on, or do again.
    pub(super) fn no_finishes(&self, none: bool) {
        self.host.world().no_finishes.send_replace(none);
    }

    /// Directories of checkpoints do not answer, or do again.
    pub(super) fn no_answer(&self, none: bool) {
        self.host.world().no_answer = none;
    }

    /// Every machine that is on ends like this.
    pub(super) fn all_end(&self, ending: Ending) {
        let mut world = self.host.world();
        for id in world.domains.keys().copied().collect::<Vec<_>>() {
            if world.domains.get(&id) == Some(&Domain::On) {
                world.set(id, Some(Domain::Off(ending)));
            }
        }
    }

    pub(super) fn ends(&self, id: ContainerId, ending: Ending) {
        self.host.world().set(id, Some(Domain::Off(ending)));
    }

    pub(super) fn ends_unheard(&self, id: ContainerId, ending: Ending) {
        self.host.world().domains.insert(id, Domain::Off(ending));
    }

    pub(super) fn set_domain(&self, id: ContainerId, domain: Domain) {
        self.host.world().domains.insert(id, domain);
    }

    /// libvirt pauses the machine, or sees it paused.
    pub(super) fn pauses(&self, id: ContainerId, pause: Pause) {
        let mut world = self.host.world();
        world.paused.insert(id, pause);
        let id = world.machine(id);
        world.actors.hear(&HvEvent::Paused { id });
    }

    /// Somebody at libvirt lets it go on.
    pub(super) fn goes_on(&self, id: ContainerId) {
        let mut world = self.host.world();
        world.paused.remove(&id);
        world.tell(id, None);
    }

    /// Free bytes of the volumes' file system, of a thousand.
    pub(super) fn free(&self, bytes: u64) {
        self.host.world().free = bytes;
    }

    pub(super) async fn pass(&self, seconds: u64) {
        // The clock is the test's: nobody waits.
        tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
    }
}

// === impl Node: what is seen of it ===

impl Node {
    pub(super) fn actors(&self) -> Actors {
        self.host.world().actors.clone()
    }

    pub(super) fn shown(&self) -> Vec<Arc<Container>> {
        self.host.world().shown.values().cloned().map(Arc::new).collect()
    }

    pub(super) fn machine(&self, id: ContainerId) -> Uuid {
        self.host.world().machine(id)
    }

    pub(super) fn state(&self, id: ContainerId) -> ContainerState {
        self.host.world().shown[&id].state
    }

    /// Why it is shown as paused.
    pub(super) fn pause(&self, id: ContainerId) -> Option<Pause> {
        self.host.world().shown[&id].pause
    }

    /// Why it is paused.
    pub(super) fn is_paused(&self, id: ContainerId) -> Option<Pause> {
        self.host.world().paused.get(&id).copied()
    }

    pub(super) fn on_disk(&self, id: ContainerId) -> Option<ContainerState> {
        self.host.world().disk.get(&id).map(|container| container.state)
    }

    pub(super) fn reason(&self, id: ContainerId) -> Option<ExitReason> {
        self.host.world().shown[&id].exit.as_ref().map(|exit| exit.reason)
    }

    pub(super) fn message(&self, id: ContainerId) -> String {
        self.host.world().shown[&id].exit.as_ref().map(|exit| exit.message.clone()).unwrap_or_default()
    }

    pub(super) fn domain(&self, id: ContainerId) -> Option<Domain> {
        self.host.world().domains.get(&id).copied()
    }

    /// All machines, but for one kind: those that libvirt defined for a container which a later controld has removed. Nobody
    /// knows whose they are; they are off, and shown to people.
    pub(super) fn domains(&self) -> BTreeMap<ContainerId, Domain> {
        let world = self.host.world();
        let strange = |id: &ContainerId, domain: &Domain| {
            world.generation > 0 && !world.shown.contains_key(id) && *domain == Domain::Off(Ending::Unseen)
        };
        world.domains.iter().filter(|(id, domain)| !strange(id, domain)).map(|(id, domain)| (*id, *domain)).collect()
    }

    pub(super) fn has_seed(&self, id: ContainerId) -> bool {
        self.host.world().seeds.contains(&id)
    }

    pub(super) fn is_prepared(&self, id: ContainerId) -> bool {
        self.host.world().prepared.contains(&id)
    }

    pub(super) fn is_followed(&self, id: ContainerId) -> bool {
        self.host.world().followed.contains(&id)
    }

    pub(super) fn was_defined(&self, id: ContainerId) -> bool {
        self.host.world().defined.contains(&id)
    }

    pub(super) fn sandbox_ready(&self) -> bool {
        self.host.world().sandbox_ready
    }

    /// The checkpoint that is on record, on disk.
    pub(super) fn checkpoint_noted(&self, id: ContainerId) -> Option<CheckpointNote> {
        self.host.world().disk.get(&id).and_then(|container| container.checkpoint.clone())
    }

    /// The checkpoint that its guest is to go on from, on disk.
    pub(super) fn goes_on_from(&self, id: ContainerId) -> Option<RestoreNote> {
        self.host.world().disk.get(&id).and_then(|container| container.restore.clone())
    }

    /// How many directories have a checkpoint that is not whole.
    pub(super) fn halves(&self) -> usize {
        self.host.world().halves.len()
    }

    pub(super) fn wrong(&self) -> Vec<String> {
        self.host.world().wrong.clone()
    }
}

// === impl Node: calls, as the services make them ===

impl Node {
    pub(super) async fn create(&self, attempt: u32) -> Result<ContainerId> {
        self.create_as(attempt, |_| ()).await
    }

    /// The same of a container that is otherwise.
    pub(super) async fn create_as(&self, attempt: u32, change: impl FnOnce(&mut Container)) -> Result<ContainerId> {
        let _pass = self.gate.lock().await;
        self.check_sandbox()?;
        let mut new = container("vm", attempt);
        change(&mut new);
        let replaced = match admission::judge(&self.shown(), &new.config)? {
            Admission::Same(id) => return Ok(id),
            Admission::New(replaced) => replaced,
        };
        for other in &replaced {
            self.actors().get(*other)?.make_way().await?;
        }
        for other in &replaced {
            self.actors().get(*other)?.replaced(attempt).await?;
        }
        let new = Container { created_at: self.host.world().creation_time(), ..new };
        self.host.world().machines.insert(new.id, new.machine.id);
        self.host.put(&new).await?;
        self.actors().add(self.host.clone(), &new);
        Ok(new.id)
    }

    pub(super) async fn start(&self, id: ContainerId) -> Result<()> {
        self.check_sandbox()?;
        self.actors().get(id)?.start().await
    }

    /// Whether the start belonged in the trace of a call.
    pub(super) fn is_traced(&self, id: ContainerId) -> bool {
        self.host.world().traced.contains(&id)
    }

    /// [`Node::start`], beside the test.
    pub(super) fn starting(&self, id: ContainerId) -> JoinHandle<Result<()>> {
        let node = self.clone();
        tokio::spawn(async move { node.start(id).await })
    }

    pub(super) async fn stop(&self, id: ContainerId, grace: Duration) -> Result<()> {
        match self.actors().get(id) {
            Ok(actor) => actor.stop(grace).await,
            Err(_absent) => Ok(()),
        }
    }

    /// What `virtletctl pause` asks for.
    pub(super) async fn hold(&self, id: ContainerId) -> Result<()> {
        self.actors().get(id)?.pause().await
    }

    /// What `virtletctl resume` asks for.
    pub(super) async fn let_go(&self, id: ContainerId) -> Result<()> {
        self.actors().get(id)?.resume().await
    }

    /// What CheckpointPod asks for, beside the test.
    pub(super) fn checkpointing(&self, id: ContainerId, unwanted: &CancellationToken) -> JoinHandle<Result<()>> {
        let (node, unwanted) = (self.clone(), unwanted.clone());
        let note = checkpoint::note("/checkpoint".into());
        tokio::spawn(async move { node.actors().get(id)?.checkpoint(note, unwanted).await })
    }

    pub(super) async fn remove(&self, id: ContainerId) -> Result<()> {
        let Ok(actor) = self.actors().get(id) else { return Ok(()) };
        actor.stop(Duration::ZERO).await?;
        actor.remove().await?;
        self.actors().forget(id);
        Ok(())
    }

    pub(super) async fn stop_sandbox(&self) -> Result<()> {
        let _pass = self.gate.lock().await;
        for container in self.shown() {
            self.stop(container.id, Duration::ZERO).await?;
        }
        self.host.world().sandbox_ready = false;
        Ok(())
    }

    pub(super) async fn remove_sandbox(&self) -> Result<()> {
        self.stop_sandbox().await?;
        let _pass = self.gate.lock().await;
        for container in self.shown() {
            self.remove(container.id).await?;
        }
        Ok(())
    }

    fn check_sandbox(&self) -> Result<()> {
        if self.sandbox_ready() { Ok(()) } else { Err(Error::new(Kind::State, "the sandbox is not ready")) }
    }
}
