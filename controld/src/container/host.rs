//! What the task of a container asks of the node, so that the task can be tested without one.

use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, off_reactor};
use nix::sys::statvfs::statvfs;
use proto::tap::ProcessId;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Span;
use vmspec::agent::{disks_of, setup_of};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{FileFormat, MachinePlan, VolumeDisk};
use vmspec::{Applied, ContainerId, Resources};

use super::checkpoint;
use super::gate::{self, Cuts};
use super::machine::Room;
use super::parts::{self, Part};
use super::start;
use super::uses::Uses;
use crate::container::resources::{confinement, resize};
use crate::disks::{flexvolume, growth, volume_disks};
use crate::guest::console::end::{self, CommandEnd};
use crate::guest::console::follow::Follower;
use crate::guest::console::tail;
use crate::guest::seed;
use crate::guest::share::watch;
use crate::hypervisor::DomainState;
use crate::model::{CheckpointNote, Container, span};
use crate::store::boot::Boot;

/// How long the volumes of a machine that waits for room may take to say how much they have. Its stop waits meanwhile.
const ROOM_DEADLINE: Duration = Duration::from_secs(5);
/// How long a guest may take to go on from its checkpoint, before that is tried again.
const GOES_ON: Duration = Duration::from_secs(30);
/// What stat(2) counts, in bytes.
const BLOCK: u64 = 512;

/// The node, as the task of a container needs it. Each call ends by a deadline of its own.
pub(super) trait Host: Clone + Send + Sync + 'static {
    /// The copying of a machine's console.
    type Console: Send + 'static;

    /// Starts the container's machine, until `unwanted` gives it up.
    ///
    /// An error does not say that there is no machine.
    fn start(
        &self,
        container: &Container,
        unwanted: &CancellationToken,
    ) -> impl Future<Output = Result<Option<Self::Console>>> + Send;

    /// Where the machine stands; `None` if libvirt has none.
    fn state(&self, container: &Container) -> impl Future<Output = Result<Option<DomainState>>> + Send;

    /// Lets a machine go on that its full disk has paused; fine if it is not so.
    fn go_on(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Pauses the machine; fine if it is paused.
    fn pause(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Does what a start that held the guest has left to do, which is to let it run, its root disk grown and NICs without a carrier before;
    /// or all but that, if its pod wants it to wait. One that goes on from a checkpoint runs and has its NICs then.
    fn let_run(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Lets the machine go on, whoever has paused it; fine if nobody has.
    fn resume(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Writes the machine for a checkpoint that is on record, until `unwanted` gives it up: whether its guest is known to go on then, and
    /// whether there is a checkpoint. If not, files of it may be left. Cancels `goes_on` as soon as the guest has been paused and runs again.
    fn checkpoint(
        &self,
        container: &Container,
        note: &CheckpointNote,
        unwanted: &CancellationToken,
        goes_on: &CancellationToken,
    ) -> impl Future<Output = (bool, Result<()>)> + Send;

    /// Ends what is still written of the machine's memory, and lets the guest go on; fine if it does, or is gone.
    fn end_save(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Removes what is there of a checkpoint that is not whole; fine if there is nothing.
    fn clear_checkpoint(&self, container: &Container, note: &CheckpointNote)
    -> impl Future<Output = Result<()>> + Send;

    /// The file system that the machine writes to.
    fn room(&self, container: &Container) -> impl Future<Output = io::Result<Room>> + Send;

    /// Has the agent in the guest told how the guest is to be, now and after each of its boots, and what shares its volumes watched;
    /// again is fine. Has one go on that waits at the gate; `cuts` asks for a checkpoint of it.
    fn set_up(&self, container: &Container, cuts: &Cuts);

    /// How the machine's command has ended, if the guest has said it. The machine was for one. With `wait` it may be on its way.
    fn command_end(
        &self,
        container: &Container,
        wait: bool,
    ) -> impl Future<Output = io::Result<Option<CommandEnd>>> + Send;

    /// What the guest has printed last on its console.
    fn last_words(&self, container: &Container) -> impl Future<Output = io::Result<String>> + Send;

    /// Asks the guest to power off: its command to end, if it is for one.
    fn press(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Ends the machine and leaves it defined; fine if it is off or there is none.
    fn destroy(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Ends the machine and makes libvirt forget it; fine if there is none. Its seed and its cgroup go with it.
    fn clear(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Removes the seed of a machine that has read it. Its start does that, if it comes to its end.
    fn seed_is_read(&self, container: &Container) -> io::Result<()>;

    /// Holds a machine that runs to its resources. Its start does that, if it comes to its end.
    fn confine(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Gives a machine that runs these resources, and on a failure takes back what can be taken back; what it has then.
    fn resize(&self, container: &Container, wanted: &Resources) -> impl Future<Output = (Applied, Result<()>)> + Send;

    /// What is known of [`Container::process`] of a machine that was started.
    fn process(&self, container: &Container) -> Option<ProcessId>;

    /// What [`Container::pod_oom_kills`] of a machine is that is started now.
    fn pod_oom_kills(&self, container: &Container) -> u64;

    /// Whether the kernel has killed the machine for want of memory.
    fn was_oom_killed(&self, container: &Container) -> bool;

    /// Whether the machine was destroyed because nothing shared its volumes any more.
    fn is_unshared(&self, container: &Container) -> bool;

    /// Makes the record durable and shows it.
    fn put(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Shows a record that could not be made durable.
    fn show(&self, container: &Container);

    /// The record of a container, as it is shown; `None` if it was removed.
    fn record(&self, id: ContainerId) -> Option<Container>;

    /// Removes what the container has on disk, its record last. The machine is gone.
    fn forget(&self, container: &Container) -> impl Future<Output = Result<()>> + Send;

    /// Copies the console of a machine that was started before, if it is to be copied.
    fn follow(&self, container: &Container) -> impl Future<Output = io::Result<Option<Self::Console>>> + Send;

    /// Copies the rest of a console. With `wait` what was printed last is still on its way. Whether all has come that the machine has
    /// written, to other files too.
    fn finish(&self, console: Self::Console, wait: bool) -> impl Future<Output = bool> + Send;

    /// The pod's log was renamed away: goes on in a new file.
    fn reopen(&self, console: &Self::Console) -> impl Future<Output = io::Result<()>> + Send;

    /// How often a guest is asked to power off.
    fn press_interval(&self) -> Duration;

    /// The boot of the node that we are in.
    fn boot(&self) -> &Boot;

    /// The span of all work on the container.
    fn span(&self, container: &Container) -> Span;
}

impl Host for Arc<Uses> {
    type Console = Follower;

    async fn start(&self, container: &Container, unwanted: &CancellationToken) -> Result<Option<Follower>> {
        start::machine(self, container, unwanted).await
    }

    async fn state(&self, container: &Container) -> Result<Option<DomainState>> {
        self.hypervisor.state(container.machine.id.uuid()).await
    }

    async fn go_on(&self, container: &Container) -> Result<()> {
        self.hypervisor.go_on(container.machine.id.uuid()).await
    }

    async fn pause(&self, container: &Container) -> Result<()> {
        self.hypervisor.pause(container.machine.id.uuid()).await
    }

    async fn let_run(&self, container: &Container) -> Result<()> {
        if container.restore.is_some() {
            // Done again; a stop is to be heard meanwhile.
            let late = |_| Err(Error::new(Kind::Deadline, "the guest has not gone on from its checkpoint yet"));
            return timeout(GOES_ON, checkpoint::go_on(self, container)).await.unwrap_or_else(late);
        }
        let beginning = start::beginning(self, container).await?;
        self.hypervisor.let_run(container.machine.id.uuid(), beginning).await
    }

    async fn resume(&self, container: &Container) -> Result<()> {
        self.hypervisor.resume(container.machine.id.uuid()).await
    }

    async fn checkpoint(
        &self,
        container: &Container,
        note: &CheckpointNote,
        unwanted: &CancellationToken,
        goes_on: &CancellationToken,
    ) -> (bool, Result<()>) {
        checkpoint::write(self, container, note, unwanted, goes_on).await
    }

    async fn end_save(&self, container: &Container) -> Result<()> {
        checkpoint::let_run(self, container).await
    }

    async fn clear_checkpoint(&self, container: &Container, note: &CheckpointNote) -> Result<()> {
        checkpoint::clear(self, container, note).await
    }

    async fn room(&self, container: &Container) -> io::Result<Room> {
        let looked = volume_disks::work_on(&container.machine, ROOM_DEADLINE, |plan| {
            room_of(&places(plan)).map_err(|cause| Error::because(Kind::Internal, "no file system looked at", cause))
        });
        looked.await.map_err(io::Error::other)
    }

    fn set_up(&self, container: &Container, cuts: &Cuts) {
        self.agents.log_in(container.machine.id, self.span(container));
        self.agents.thaw_left(container.machine.id);
        let (plan, config) = (&container.machine, &container.config);
        if let Some(setup) = setup_of(&plan.guest, plan.share.as_ref(), disks_of(plan), config) {
            self.agents.set_up(container.machine.id, setup);
        }
        if container.machine.share.is_some() {
            watch::start(&self.shares, container, self.span(container));
        }
        growth::watch(&self.disks, container, self.span(container));
        // Of one that begins with a checkpoint all else is done first.
        if container.restore.is_none() {
            gate::keep(self, container, cuts.clone());
        }
    }

    async fn command_end(&self, container: &Container, wait: bool) -> io::Result<Option<CommandEnd>> {
        let dir = self.console_dir(container);
        if wait { end::read_soon(&self.watcher, &dir).await } else { off_reactor(move || end::read(&dir)).await }
    }

    async fn last_words(&self, container: &Container) -> io::Result<String> {
        let dir = self.console_dir(container);
        off_reactor(move || tail::read(&dir)).await
    }

    async fn press(&self, container: &Container) -> Result<()> {
        let id = container.machine.id;
        if container.machine.guest.command.is_some() {
            match self.agents.stop(id).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::debug!(error = %Chain(&error), "the machine's command is not asked to end; its guest is")
                }
            }
        }
        // Both at once: an agent may hang, and a guest may have nobody who hears its power button.
        tokio::join!(self.hypervisor.shutdown(id.uuid()), self.agents.power_off(id)).0
    }

    async fn destroy(&self, container: &Container) -> Result<()> {
        self.hypervisor.destroy(container.machine.id.uuid()).await
    }

    async fn clear(&self, container: &Container) -> Result<()> {
        self.hypervisor.clear(container.machine.id.uuid()).await?;
        flexvolume::forget(&self.disks, container).await?;
        self.agents.forget(container.machine.id);
        for part in [Part::Seed, Part::Cgroup] {
            if let Err(error) = part.undo(self, container) {
                let error = Chain(&error);
                tracing::warn!(?part, %error, "part of a machine that is gone not removed; removing the container tries again");
            }
        }
        Ok(())
    }

    fn seed_is_read(&self, container: &Container) -> io::Result<()> {
        // It is put there once the guest has left its checkpoint.
        if !seed::is_in_place(&self.config, container.machine.id) {
            return Ok(());
        }
        Part::Seed.undo(self, container)
    }

    async fn confine(&self, container: &Container) -> Result<()> {
        confinement::confine(self, container).await
    }

    async fn resize(&self, container: &Container, wanted: &Resources) -> (Applied, Result<()>) {
        resize::machine(self, container, wanted).await
    }

    fn process(&self, container: &Container) -> Option<ProcessId> {
        self.processes.told(container.machine.id.uuid())
    }

    fn pod_oom_kills(&self, container: &Container) -> u64 {
        confinement::pod_oom_kills(self, container)
    }

    fn was_oom_killed(&self, container: &Container) -> bool {
        confinement::was_oom_killed(self, container)
    }

    fn is_unshared(&self, container: &Container) -> bool {
        self.shares.is_unshared(container.machine.id)
    }

    async fn put(&self, container: &Container) -> Result<()> {
        self.store.put_container(container.clone()).await?;
        Ok(())
    }

    fn show(&self, container: &Container) {
        self.store.show_container(container.clone());
    }

    fn record(&self, id: ContainerId) -> Option<Container> {
        self.store.container(id).map(|container| container.as_ref().clone())
    }

    async fn forget(&self, container: &Container) -> Result<()> {
        parts::undo_all(self, container)
            .await
            .map_err(|cause| Error::because(Kind::Internal, "files of the container not removed", cause))?;
        Ok(self.store.remove_container(container.id).await?)
    }

    async fn follow(&self, container: &Container) -> io::Result<Option<Follower>> {
        start::follow(self, container, true).await
    }

    async fn finish(&self, console: Follower, wait: bool) -> bool {
        console.finish(wait).await
    }

    async fn reopen(&self, console: &Follower) -> io::Result<()> {
        console.reopen().await
    }

    fn press_interval(&self) -> Duration {
        self.config.machine.press_interval
    }

    fn boot(&self) -> &Boot {
        &self.boot
    }

    fn span(&self, container: &Container) -> Span {
        span::of_container(container, self.store.sandbox(&container.sandbox).as_deref())
    }
}

/// Where a machine's guest writes.
struct Place {
    dir: PathBuf,
    /// The raw file there, if it is one.
    raw: Option<PathBuf>,
}

impl Place {
    /// Whether all of the disk has its room already, so that it is no matter what else there is.
    fn is_allocated(&self) -> bool {
        let found = self.raw.as_ref().and_then(|raw| raw.symlink_metadata().ok());
        found.is_some_and(|found| found.blocks().saturating_mul(BLOCK) >= found.len())
    }
}

/// Where the guest of a machine writes to files.
fn places(plan: &MachinePlan) -> Vec<Place> {
    let written = || plan.disks.iter().filter(|disk| !disk.read_only);
    let files = written().filter_map(|disk| disk.source.file());
    let mut places: Vec<Place> = files.map(|file| Place { dir: file.dir.clone(), raw: Some(file.path()) }).collect();
    let of_volumes = written().filter_map(|disk| disk.source.volume()).chain(&plan.root.volume);
    places.extend(of_volumes.filter_map(|volume| {
        let raw = match volume {
            VolumeDisk::File(file) if file.format == FileFormat::Raw => Some(file.path()),
            VolumeDisk::File(_) | VolumeDisk::Overlay(_) => None,
        };
        Some(Place { dir: volume.written_in()?.to_owned(), raw })
    }));
    let is_own = plan.root.persistent.is_none() && plan.root.volume.is_none();
    let own = plan.root.overlay.parent().filter(|_| is_own);
    places.extend(own.map(|dir| Place { dir: dir.to_owned(), raw: None }));
    places
}

/// The least room of these: it is not told which of a machine's disks found none. Where nothing is missing is left out, unless that is all there is.
/// Blocks.
fn room_of(places: &[Place]) -> io::Result<Room> {
    let (full, open): (Vec<&Place>, Vec<&Place>) = places.iter().partition(|place| place.is_allocated());
    let room = |place: &&Place| {
        let stat = statvfs(&place.dir)?;
        let unit = stat.fragment_size();
        Ok(Room { size: stat.blocks() * unit, available: stat.blocks_available() * unit })
    };
    let asked = if open.is_empty() { full } else { open };
    let rooms = asked.iter().map(room).collect::<io::Result<Vec<Room>>>()?;
    let least = rooms.into_iter().min_by_key(|room| (room.is_enough(), room.available));
    least.ok_or_else(|| io::Error::other("none of the machine's disks is a file"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_disk_with_all_its_room_waits_for_none() {
        let dir = tempfile::tempdir().expect("tempdir");
        let [full, holes] = ["full", "holes"].map(|name| dir.path().join(name));
        fs::write(&full, vec![7; 1 << 20]).expect("written");
        File::create(&holes).and_then(|file| file.set_len(1 << 20)).expect("made");
        File::open(&full).and_then(|file| file.sync_all()).expect("on the disk");
        // A place that is left out is not asked, or this one would fail.
        let gone = dir.path().join("gone");
        let left_out = || Place { dir: gone.clone(), raw: Some(full.clone()) };
        let asked = |raw| Place { dir: dir.path().to_owned(), raw };
        room_of(&[left_out(), asked(Some(holes))]).expect("asked");
        room_of(&[asked(None), left_out()]).expect("asked");
        room_of(&[left_out()]).expect_err("all there is");
        room_of(&[]).expect_err("none");
    }
}
