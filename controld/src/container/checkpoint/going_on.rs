//! The start of a machine from its memory, and how its guest goes on ([`super::waking`] has all steps).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::dns::host_name;
use common::{Chain, off_reactor};
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use vmspec::error::{Error, Kind, Result};

use super::memory::{empty, memory_of, remove_memories};
use super::{net_of, pass, source};
use crate::container::slots::Slots;
use crate::container::uses::Uses;
use crate::files::io_failed;
use crate::hypervisor::StartTurn;
use crate::model::Container;

/// How long a guest that was woken has no carriers: its kernel sees that at once, and whoever asks for its addresses a moment later.
/// Nothing tells that they have.
const NO_CARRIER: Duration = Duration::from_millis(300);
/// And how much longer at the most where an agent is known to be, which tells that the guest runs.
const ANSWER: Duration = Duration::from_secs(5);

/// Starts a machine that is defined by `description` from its memory, and holds its guest, until `unwanted` gives it up.
///
/// # Errors
/// When the memory is not there, or the machine does not start.
pub(in crate::container) async fn launch(
    uses: &Uses,
    container: &Container,
    description: String,
    (turn, log): (StartTurn, &Path),
    unwanted: &CancellationToken,
) -> Result<()> {
    let memory = memory_of(&container.machine);
    let file = memory.clone();
    let described = move || {
        let not_described = |cause| io_failed("the head of the guest's memory not written", cause);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(CWD, &file, flags, Mode::empty());
        let file = File::from(opened.map_err(|cause| {
            let what = "the guest's memory is not there any more, from which it was to go on; restore the pod anew, or let it boot";
            Error::because(Kind::State, what, cause)
        })?);
        let bytes = source::memory_at(&file)
            .map_err(|why| Error::because(Kind::DataLoss, "the guest's memory cannot be restored", why))?
            .with(&description)
            .map_err(|why| Error::because(Kind::State, "the guest's memory cannot have another head", why))?;
        file.write_all_at(&bytes, 0).map_err(not_described)?;
        Ok::<_, Error>(file.metadata().map_err(not_described)?.len())
    };
    let len = off_reactor(described).await?;
    uses.hypervisor.wake(turn, container.machine.id.uuid(), (memory.as_path(), log), pass(len), unwanted).await
}

/// Lets a guest run that [`launch`] holds, and has it ask for its addresses anew. Again is fine, also if it runs.
///
/// # Errors
/// When libvirt does not do it.
pub(in crate::container) async fn go_on(uses: &Arc<Uses>, container: &Container) -> Result<()> {
    let (id, memory) = (container.machine.id.uuid(), memory_of(&container.machine));
    let nics = nics_with_carrier(uses, container)?;
    let not_removed = |cause| io_failed("the guest's memory not removed", cause);
    // What runs writes to its disks, of which the memory knows nothing: it is restored no second time.
    let emptied = memory.clone();
    if off_reactor(move || empty(&emptied)).await.map_err(not_removed)? {
        uses.hypervisor.run_woken(id, nics.clone()).await?;
        // From here on whoever pauses it is not undone.
        off_reactor(move || remove_memories(&memory)).await.map_err(not_removed)?;
    }
    let learns = container.restore.as_ref().map(|note| &*note.learns).unwrap_or_default();
    if container.restore.as_ref().is_some_and(|note| note.is_warm) {
        // Nothing in it has had an address yet, and it is let go on when it is another machine.
        let (name, gate) = (name_of(uses, container).unwrap_or_default(), uses.agents.gate(container.machine.id));
        tokio::select! {
            woken = uses.agents.woken_at_gate(container.machine.id, learns, &name) => woken?,
            // As nobody was there for so long it has gone on as what it was. From a reset its devices have their own addresses, and it has its seed.
            true = gate.is_passed() => uses.hypervisor.reset(id).await?,
        }
        return uses.hypervisor.give_carriers(id, nics).await;
    }
    if learns.is_empty() {
        // An agent that answers has run without carriers, however slow its guest is.
        let answer = async {
            if container.machine.guest.has_agent {
                drop(timeout(ANSWER, uses.agents.learn(container.machine.id, learns)).await);
            }
        };
        tokio::join!(sleep(NO_CARRIER), answer);
    } else {
        uses.agents.learn(container.machine.id, learns).await?;
    }
    uses.hypervisor.give_carriers(id, nics).await?;
    tell(uses.clone(), container);
    Ok(())
}

/// The NICs that a guest has with a carrier from its start, each by its place among vmwrapper's.
fn nics_with_carrier(uses: &Uses, container: &Container) -> Result<Vec<usize>> {
    let net = net_of(uses, container).ok_or_else(|| Error::new(Kind::State, "the sandbox has no network"))?;
    let machine = &container.machine;
    let down = Slots::of(&net, machine.passed.devices.len(), &machine.hardware.described)?.down;
    Ok((0..net.nics.len()).filter(|nic| !down.contains(nic)).collect())
}

/// The host name of a container's pod.
fn name_of(uses: &Uses, container: &Container) -> Option<String> {
    let sandbox = uses.store.sandbox(&container.sandbox)?;
    Some(host_name(&sandbox.config.hostname, &sandbox.config.name).to_owned())
}

/// Has the guest told what it cannot see, beside all else: many have no agent.
fn tell(uses: Arc<Uses>, container: &Container) {
    let is_clone = container.restore.as_ref().is_some_and(|note| note.is_clone);
    let name = name_of(&uses, container).filter(|_| is_clone);
    let (of, id) = (container.id, container.machine.id);
    let tell = async move {
        // It may have been written amid somebody's freeze.
        if let Err(error) = uses.agents.thaw(id).await {
            tracing::debug!(error = %Chain(&error), "no agent of QEMU's thaws what may have been frozen at the checkpoint");
        }
        // It may have ended meanwhile.
        if uses.store.container(of).is_none() {
            return;
        }
        match uses.agents.woken(id, name.as_deref()).await {
            Ok(()) => tracing::info!(is_clone, "the guest has gone on from a checkpoint, and its agent has told it so"),
            Err(error) => tracing::warn!(
                is_clone,
                error = %Chain(&error),
                "the guest has gone on from a checkpoint, and nobody has set its clock, or its host name, machine id and keys if it is a clone"
            ),
        }
    };
    tokio::spawn(tell.in_current_span());
}
