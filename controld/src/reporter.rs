//! Tells the cluster what its pods do not say of VMs: that a guest is paused, that an agent answers in it, and what that tells.
//!
//! For pods of VirtualMachineInstances alone (label [`VMI`]), where the node is given a way to the API server, and never in the way: nothing waits
//! for it, and what could not be told is told later, as it is then. There is a task for each such VM that runs. Once it is [`settled`] what is known
//! of it, it asks the guest from time to time ([`look`]), as agents do not speak of their own accord, and tells of changes ([`follow`]). What is told
//! is put together by [`report`], and [`way`] takes it to the server.

mod follow;
mod look;
mod report;
mod settled;
mod way;

use std::collections::HashMap;
use std::sync::Arc;

use proto::vm::guest::VMI;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use vmspec::ContainerId;

use self::follow::follow;
use self::settled::settled;
use self::way::Way;
use crate::config::Config;
use crate::guest::agents::Agents;
use crate::hypervisor::Hypervisor;
use crate::model::{Container, ContainerState};
use crate::store::Store;
use crate::store::feed::{Record, Shown};

/// What tells of one VM. It ends when this is dropped.
#[derive(Debug)]
struct Told {
    container: watch::Sender<Arc<Container>>,
    _task: AbortOnDropHandle<()>,
}

/// All VMs that are told of.
#[derive(Debug)]
struct Reporter {
    store: Store,
    agents: Arc<Agents>,
    hypervisor: Hypervisor,
    way: Arc<Way>,
    told: HashMap<ContainerId, Told>,
}

/// Tells of this node's VMs until the records end, if the node is given a way to do so.
pub(crate) async fn keep(config: Arc<Config>, store: Store, agents: Arc<Agents>, hypervisor: Hypervisor) {
    let Some(kubeconfig) = config.report_kubeconfig.clone() else { return };
    let mut changes = store.changes();
    let way = Arc::new(Way::new(kubeconfig));
    let mut reporter = Reporter { store, agents, hypervisor, way, told: HashMap::new() };
    reporter.look_at_all();
    loop {
        match changes.recv().await {
            Ok(Shown { record: Record::Container { now: Some(container), .. }, .. }) => reporter.take(&container),
            Ok(Shown { record: Record::Container { before: Some(container), .. }, .. }) => {
                reporter.told.remove(&container.id);
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => reporter.look_at_all(),
            Err(RecvError::Closed) => return,
        }
    }
}

impl Reporter {
    /// What changes cannot have told of.
    fn look_at_all(&mut self) {
        self.told.retain(|id, _| self.store.container(*id).is_some());
        self.store.containers().iter().for_each(|container| self.take(container));
    }

    /// A container is as it is now.
    fn take(&mut self, container: &Arc<Container>) {
        if container.state != ContainerState::Running {
            self.told.remove(&container.id);
        } else if let Some(told) = self.told.get(&container.id) {
            told.container.send_replace(container.clone());
        } else if self.store.sandbox(&container.sandbox).is_some_and(|of| of.config.labels.contains_key(VMI)) {
            let (sender, mut receiver) = watch::channel(container.clone());
            let (store, agents, way) = (self.store.clone(), self.agents.clone(), self.way.clone());
            let (hypervisor, machine) = (self.hypervisor.clone(), container.machine.id.uuid());
            let work = async move {
                let ask = || async {
                    let state = hypervisor.state(machine).await?;
                    Ok::<_, vmspec::error::Error>(state.is_some_and(|state| state.pause.is_some()))
                };
                settled(ask, &mut receiver).await;
                follow(store, agents, way, receiver).await;
            };
            let task = AbortOnDropHandle::new(tokio::spawn(work));
            self.told.insert(container.id, Told { container: sender, _task: task });
        }
    }
}
