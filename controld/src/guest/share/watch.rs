//! A watch on each virtiofsd. A guest whose virtiofsd has ended waits for its volumes for ever, and QEMU does not connect to another one: so
//! the machine is destroyed, and kubelet makes the container anew.

use std::collections::hash_map::Entry;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, off_reactor};
use tokio::time::{sleep, timeout};
use tracing::{Instrument as _, Span};

use super::process::{end_of, open, virtiofsd};
use super::{Seen, Shares, dir};
use crate::hypervisor::DomainPhase;
use crate::hypervisor::process::STATUS_DIR;
use crate::model::{Container, ContainerState};

/// A machine that ends takes its virtiofsd with it: for so long QEMU may outlive that, unless its guest has powered off.
const ENDING: Duration = Duration::from_secs(1);
/// When what could not be seen or done is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Watches the virtiofsd of a machine that runs; again is fine.
pub(crate) fn start(shares: &Arc<Shares>, container: &Container, span: Span) {
    let machine = container.machine.id;
    match shares.machines().entry(machine) {
        Entry::Occupied(_) => return,
        Entry::Vacant(place) => drop(place.insert(Seen::Watched)),
    }
    let (shares, container) = (shares.clone(), container.clone());
    let watching = async move {
        until_ended(&shares, &container).await;
        shares.machines().remove(&machine);
    };
    tokio::spawn(watching.instrument(span));
}

/// Looks again and again, until the container has ended: what cannot be seen now may be later.
async fn until_ended(shares: &Arc<Shares>, container: &Container) {
    let lives = || shares.store.container(container.id).is_some_and(|now| now.state != ContainerState::Exited);
    let mut has_failed = false;
    while lives() {
        match unshared(shares, container).await {
            Ok(false) => {}
            Ok(true) => destroy(shares, container).await,
            Err(error) if has_failed => tracing::debug!(error = %Chain(&error), "virtiofsd of a machine not watched"),
            Err(error) => {
                has_failed = true;
                tracing::error!(error = %Chain(&error), "virtiofsd of a machine not watched; trying again");
            }
        }
        sleep(AGAIN).await;
    }
}

/// Waits for the end of virtiofsd; whether QEMU runs on without it.
async fn unshared(shares: &Arc<Shares>, container: &Container) -> io::Result<bool> {
    let (dir, plan) = (dir(&shares.config, container.machine.id), container.machine.clone());
    let processes = shares.processes.clone();
    let opened = off_reactor(move || {
        let qemu = processes.pid(Path::new(STATUS_DIR), &plan.domain, plan.id.uuid())?;
        let Some(qemu) = qemu.map(open).transpose()?.flatten() else { return Ok(None) };
        Ok::<_, io::Error>(Some((virtiofsd(&dir)?, qemu)))
    });
    // Without QEMU the machine has ended, or libvirt does not say yet that it has one.
    let Some((virtiofsd, qemu)) = opened.await? else { return Ok(false) };
    if let Some(virtiofsd) = virtiofsd {
        end_of(virtiofsd.process).await?;
    }
    Ok(timeout(ENDING, end_of(qemu)).await.is_err())
}

/// Destroys a machine that runs, or is paused. One that has powered off, or that libvirt is ending, needs nobody.
async fn destroy(shares: &Arc<Shares>, container: &Container) {
    let id = container.machine.id;
    match shares.hypervisor.state(id.uuid()).await {
        Ok(Some(now)) if now.phase == DomainPhase::On && !now.going_down => {}
        Ok(_) => return,
        Err(error) => return tracing::error!(error = %Chain(&error), "machine without volumes not found; trying again"),
    }
    shares.machines().insert(id, Seen::Unshared);
    tracing::error!("virtiofsd has ended under a machine that runs, which is destroyed");
    if let Err(error) = shares.hypervisor.destroy(id.uuid()).await {
        tracing::error!(error = %Chain(&error), "machine without volumes not destroyed; trying again");
    }
}
