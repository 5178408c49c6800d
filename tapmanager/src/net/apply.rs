//! Does the steps that [`super::plan`] decided on: all of them, or none. If a step fails, those before it are undone in
//! reverse.
//!
//! Called by [`crate::net`] inside the pod's namespace with [`super::kernel`]'s verbs; tests pass a fake that fails at
//! each step in turn. Every undo may run twice. An undo that fails does not stop the others; the error says what is
//! left behind.

use std::fmt;
use std::io;

use proto::tap::{IfName, MacAddr};

use super::filter::Guard;
use super::step::Step;
use crate::faults::{Faults, InjectedFault};
use crate::sys::netlink::NetlinkError;
use crate::sys::tap::TapError;
use crate::sys::tc::{Hook, Redirect};

/// Makes and removes links of ours.
pub(crate) trait Makes {
    /// Makes a persistent tap; fails if it is there.
    fn create_tap(&mut self, tap: &IfName, queues: u16) -> Result<(), StepError>;
    /// Removes it; fine if it is gone.
    fn delete_tap(&mut self, tap: &IfName, queues: u16) -> Result<(), StepError>;
    /// Makes a bridge; fails if it is there.
    fn create_bridge(&mut self, bridge: &IfName, mac: MacAddr) -> Result<(), StepError>;
    /// Makes a macvtap on a link; fails if it is there.
    fn create_macvtap(&mut self, tap: &IfName, link: &IfName) -> Result<(), StepError>;
    /// Removes a bridge or a macvtap; fine if it is gone.
    fn delete_link(&mut self, link: &IfName) -> Result<(), StepError>;
}

/// Changes links.
pub(crate) trait Links {
    /// Takes the packet queues off a tap.
    fn set_noqueue(&mut self, tap: &IfName) -> Result<(), StepError>;
    /// Sets a tap's MTU and silences it.
    fn shape_tap(&mut self, tap: &IfName, mtu: u32) -> Result<(), StepError>;
    /// Adds the queueing discipline for filters; fails if one is there.
    fn add_clsact(&mut self, link: &IfName) -> Result<(), StepError>;
    /// Removes it with all filters; fine if it is gone.
    fn delete_clsact(&mut self, link: &IfName) -> Result<(), StepError>;
    /// Puts a guard in place of the one that stands there, if any.
    fn replace_guard(&mut self, link: &IfName, hook: Hook, guard: &Guard) -> Result<(), StepError>;
    /// Adds a guard that drops all that comes in.
    fn drop_ingress(&mut self, link: &IfName) -> Result<(), StepError>;
    /// Puts a redirect in place of the one that stands there, if any.
    fn replace_redirect(&mut self, from: &IfName, to: &IfName, redirect: Redirect) -> Result<(), StepError>;
    /// Makes a link a port of a bridge.
    fn set_master(&mut self, link: &IfName, bridge: &IfName) -> Result<(), StepError>;
    /// Makes it none; fine if the link is gone.
    fn unset_master(&mut self, link: &IfName) -> Result<(), StepError>;
    /// Has the bridge of a port send what is for an address there.
    fn replace_fdb_entry(&mut self, port: &IfName, mac: MacAddr) -> Result<(), StepError>;
    /// Brings a link up.
    fn set_up(&mut self, link: &IfName) -> Result<(), StepError>;
    /// Brings a link down; fine if it is gone.
    fn set_down(&mut self, link: &IfName) -> Result<(), StepError>;
}

/// Opens packet sockets.
pub(crate) trait Listeners {
    /// An open one; dropping it closes it.
    type Listener;
    /// Opens one for what the guest asks of its pod, and for the permanent neighbours of its link.
    fn listen(&mut self, tap: &IfName, link: &IfName) -> Result<Self::Listener, StepError>;
}

/// Why a step failed, or its undo.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The tap.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The kernel's answer.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Somebody else filters there.
    #[error("link `{link}` has an ingress qdisc already; a CNI plugin filters there, which excludes a virtual machine")]
    QdiscTaken {
        /// The link.
        link: IfName,
    },
    /// The name of a link of ours is taken.
    #[error("a link `{link}` exists already in the pod's namespace")]
    Exists {
        /// Its name.
        link: IfName,
    },
    /// A link that was there is not.
    #[error("link `{link}` is gone")]
    LinkGone {
        /// The link.
        link: IfName,
    },
    /// The packet socket.
    #[error("failed to open a packet socket")]
    Listen(#[source] io::Error),
    /// A test wants it so.
    #[error(transparent)]
    Fault(#[from] InjectedFault),
}

/// Where applying a plan stopped.
#[derive(Debug, thiserror::Error)]
#[error("network setup stopped at step {at} of {total}, to {step}{left_behind}")]
pub(crate) struct ApplyError {
    /// Which step, from 1.
    pub(crate) at: usize,
    /// Of how many.
    pub(crate) total: usize,
    /// What it was.
    pub(crate) step: Step,
    /// Why it failed.
    #[source]
    pub(crate) cause: StepError,
    /// What could not be undone.
    pub(crate) left_behind: LeftBehind,
}

/// Undos that failed. Displays as nothing if there are none.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind(pub(crate) Vec<(Step, StepError)>);

/// Does all `steps`, or none. Gives the listeners in the order of their steps.
pub(crate) fn apply<K: Makes + Links + Listeners>(
    kernel: &mut K,
    steps: &[Step],
    faults: &Faults,
) -> Result<Vec<K::Listener>, Box<ApplyError>> {
    let mut listeners = Vec::new();
    for (done, step) in steps.iter().enumerate() {
        let performed = perform(kernel, step, &mut listeners);
        let whole = if performed.is_ok() { done + 1 } else { done };
        if let Err(cause) = performed.and_then(|()| Ok(faults.after(step.done())?)) {
            // First these: an open packet socket must not outlive its tap.
            drop(listeners);
            let left_behind = undo_all(kernel, steps.get(..whole).unwrap_or_default());
            let (at, total, step) = (done + 1, steps.len(), step.clone());
            return Err(Box::new(ApplyError { at, total, step, cause, left_behind }));
        }
    }
    Ok(listeners)
}

fn perform<K: Makes + Links + Listeners>(
    kernel: &mut K,
    step: &Step,
    listeners: &mut Vec<K::Listener>,
) -> Result<(), StepError> {
    match step {
        Step::CreateTap { tap, queues } => kernel.create_tap(tap, *queues),
        Step::SetNoqueue { tap } => kernel.set_noqueue(tap),
        Step::ShapeTap { tap, mtu } => kernel.shape_tap(tap, *mtu),
        Step::CreateBridge { bridge, mac } => kernel.create_bridge(bridge, *mac),
        Step::CreateMacvtap { tap, link } => kernel.create_macvtap(tap, link),
        Step::AddClsact { link } => kernel.add_clsact(link),
        Step::AddGuard { link, hook, guard } => kernel.replace_guard(link, *hook, guard),
        Step::DropIngress { link } => kernel.drop_ingress(link),
        Step::AddRedirect { from, to, redirect } => kernel.replace_redirect(from, to, *redirect),
        Step::SetMaster { link, bridge } => kernel.set_master(link, bridge),
        Step::ReplaceFdbEntry { port, mac } => kernel.replace_fdb_entry(port, *mac),
        Step::SetUp { link } => kernel.set_up(link),
        Step::Listen { tap, link } => kernel.listen(tap, link).map(|listener| listeners.push(listener)),
    }
}

fn undo_all<K: Makes + Links>(kernel: &mut K, done: &[Step]) -> LeftBehind {
    let failed = done.iter().rev().filter_map(|step| undo(kernel, step).err().map(|error| (step.clone(), error)));
    LeftBehind(failed.collect())
}

fn undo<K: Makes + Links>(kernel: &mut K, step: &Step) -> Result<(), StepError> {
    match step {
        Step::CreateTap { tap, queues } => kernel.delete_tap(tap, *queues),
        Step::CreateBridge { bridge: link, .. } | Step::CreateMacvtap { tap: link, .. } => kernel.delete_link(link),
        Step::AddClsact { link } => kernel.delete_clsact(link),
        Step::SetMaster { link, .. } => kernel.unset_master(link),
        Step::SetUp { link } => kernel.set_down(link),
        // Gone with the tap, with the bridge, with the clsact or, as the listeners, before. A filter that was replaced was
        // not as it should be.
        Step::SetNoqueue { .. }
        | Step::ShapeTap { .. }
        | Step::AddGuard { .. }
        | Step::DropIngress { .. }
        | Step::AddRedirect { .. }
        | Step::ReplaceFdbEntry { .. }
        | Step::Listen { .. } => Ok(()),
    }
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (step, error)) in self.0.iter().enumerate() {
            let lead = if place == 0 { "; could not undo: " } else { ", " };
            write!(f, "{lead}{step} ({error})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
