//! VirtualMachines: each is a run after another, as its strategy says.
//!
//! A run is a VirtualMachineInstance with the VM's own name, so there are never two of them. [`decide`] says what is to be done,
//! [`status`] what is to be said, [`presets`] whether another run would have more or less of them; here it is done.

mod decide;
mod made;
mod presets;
pub(crate) mod request;
mod spec;
mod status;
mod step;

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::events::EventType;
use serde_json::{Value, json};

use self::decide::{Verdict, decide};
use self::made::{Made, make};
use self::step::Step;
use crate::cache::known;
use crate::context::{Context, Error};
use crate::names::{POWER_REQUEST, VMI_FINALIZER};
use crate::objects::{Meta as _, Vm, VmPod, Vmi};
use crate::vmi::pod_name;
use crate::write::{delete, finalizers, merge, write_status};

/// Until something that was not as it was known is looked at again, if no news of it comes.
const AGAIN: Duration = Duration::from_secs(5);

/// Until an instance that was refused is asked for again.
const REFUSED: Duration = Duration::from_secs(30);

/// Brings one nearer to what is wanted of it. Called again at each news of it or of its instance.
///
/// # Errors
/// When the API server does not do what it is asked for; it is to be called again then.
pub(crate) async fn reconcile(vm: Arc<Vm>, context: Arc<Context>) -> Result<Action, Error> {
    let now = context.now();
    let vmis: Api<Vmi> = Api::namespaced_with(context.client.clone(), vm.namespace(), &context.group);
    let mut vmi = known(&context.vmis, context.group, vm.namespace(), vm.name());
    if vmi.is_none() && vm.is_going() && vm.has_finalizer(VMI_FINALIZER) {
        // The last look at it: what the watch tells may be late.
        vmi = vmis.get_opt(vm.name()).await?.map(Arc::new);
    }
    let Verdict { step, status, events } = decide(&vm, vmi.as_deref(), &now);
    let its = vmi.as_deref().filter(|vmi| vmi.is_of(vm.uid()) && !vmi.status.is_final());
    let changes = its.map(|vmi| presets::changes(vmi, &context.presets)).unwrap_or_default();
    let status = status::with_presets(&vm, status, &changes, &now);
    for (type_, reason, note) in events {
        context.tell(&*vm, type_, reason, note).await;
    }
    // What is to be done stands in the status first: whoever goes on with it later finds it there.
    if write_status(&context, &*vm, &status).await? {
        return Ok(Action::requeue(AGAIN));
    }
    match step {
        Step::Claim => finalizers(&context, &*vm, |all| all.push(VMI_FINALIZER.to_owned())).await?,
        Step::Release => finalizers(&context, &*vm, |all| all.retain(|name| name != VMI_FINALIZER)).await?,
        Step::Forget => {
            merge(&context, &*vm, json!({"metadata": {"annotations": {POWER_REQUEST: Value::Null}}})).await?;
        }
        Step::Set(strategy) => {
            merge(&context, &*vm, json!({"spec": {"running": Value::Null, "runStrategy": strategy}})).await?;
        }
        Step::Stop { grace } => {
            if let Some(vmi) = vmi {
                stop(&vmis, &vmi, grace, &context).await?;
            }
        }
        Step::Start => match start(&vm, &context).await? {
            Made::Held(left) => return Ok(Action::requeue(left)),
            Made::Yes => context.tell(&*vm, EventType::Normal, "SuccessfulCreate", "made its instance").await,
            Made::Stale => {}
            Made::Refused(why) => {
                context.holds.hold(vm.uid(), REFUSED);
                context.tell(&*vm, EventType::Warning, "FailedCreate", &why).await;
                let failed = status::refused(&vm, status, &why, &now);
                write_status(&context, &*vm, &failed).await?;
                return Ok(Action::requeue(REFUSED));
            }
        },
        Step::Wait(until) => return Ok(Action::requeue(until)),
        Step::Nothing => return Ok(Action::await_change()),
    }
    Ok(Action::requeue(AGAIN))
}

/// Makes an instance, unless one was refused a moment ago.
async fn start(vm: &Vm, context: &Context) -> Result<Made, Error> {
    match context.holds.left(vm.uid()) {
        Some(left) => Ok(Made::Held(left)),
        None => make(vm, context).await,
    }
}

/// Deletes an instance; its pod first, where it is to have another time than its own.
async fn stop(vmis: &Api<Vmi>, vmi: &Vmi, grace: Option<u32>, context: &Context) -> Result<(), Error> {
    if let Some(grace) = grace
        && let Some(pod) = known(&context.pods, (), vmi.namespace(), &pod_name(vmi))
        && pod.is_of(vmi.uid())
        && !pod.is_over()
    {
        let pods: Api<VmPod> = Api::namespaced(context.client.clone(), vmi.namespace());
        delete(&pods, &pod, Some(grace)).await?;
    }
    if vmi.is_going() { Ok(()) } else { delete(vmis, vmi, None).await }
}
