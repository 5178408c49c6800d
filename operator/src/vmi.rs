//! VirtualMachineInstances: each is one pod, and one run of a VM.
//!
//! [`decide`] says what is to be done about one, by what is known of it and of its pod; [`status`] what is to be said of it. Here it is
//! done. Whatever the caches say, there are never two pods of one instance that are alive: its pod has a name of its own, which two pods
//! cannot have, and before the first is made the API server is asked whether there was one.

mod decide;
mod made;
mod status;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::events::EventType;

use self::decide::{Seen, Step, step};
pub(crate) use self::made::pod_name;
use self::made::{MakeError, make};
use crate::cache::known;
use crate::context::{Context, Error};
use crate::names::{NO_CLAIM, POD_FINALIZER};
use crate::objects::{Condition, Meta as _, VmPod, Vmi, condition};
use crate::write::{delete, finalizers, write_status};

/// Between attempts of what failed: as long as it has failed so far, within these.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));

/// Longest until a claim is looked for again that was not there: no news tells of one that is made.
const RETRY_CLAIM: Duration = Duration::from_secs(15);

/// Brings one nearer to what is wanted of it. Called again at each news of it or of its pod.
///
/// # Errors
/// When the API server does not do what it is asked for; it is to be called again then.
pub(crate) async fn reconcile(vmi: Arc<Vmi>, context: Arc<Context>) -> Result<Action, Error> {
    let now = context.now();
    let pod = known(&context.pods, (), vmi.namespace(), &pod_name(&vmi));
    let mut seen = pod.map_or(Seen::Unknown, Seen::Pod);
    let mut failure = None;
    let pods: Api<VmPod> = Api::namespaced(context.client.clone(), vmi.namespace());
    if step(&vmi, &seen) == Step::Look {
        seen = look(&pods, &vmi).await?;
    }
    let step_now = step(&vmi, &seen);
    if step_now == Step::Make
        && let Some(left) = context.holds.left(vmi.uid())
    {
        return Ok(Action::requeue(left));
    }
    match step_now {
        Step::Claim => {
            // Its news leads here again.
            finalizers(&context, &*vmi, |all| all.push(POD_FINALIZER.to_owned())).await?;
            return Ok(Action::await_change());
        }
        Step::Make => match make(&vmi, &context).await {
            Ok(pod) => seen = Seen::Pod(Arc::new(pod)),
            Err(MakeError::Stale) => return Ok(Action::requeue(RETRY.0)),
            Err(MakeError::Failed(why)) => failure = Some(why),
        },
        Step::Stop(pod) => {
            delete(&pods, &*pod, None).await?;
            context.tell(&*vmi, EventType::Normal, "ShuttingDown", "its pod is to end").await;
        }
        Step::Release | Step::Look | Step::Nothing => {}
    }
    let after = status::of(&vmi, &seen, failure.as_ref(), &now);
    for event in status::events(&vmi, &after) {
        context.tell(&*vmi, event.0, event.1, &event.2).await;
    }
    if !write_status(&context, &*vmi, &after).await? && step(&vmi, &seen) == Step::Release {
        finalizers(&context, &*vmi, |all| all.retain(|name| name != POD_FINALIZER)).await?;
    }
    if failure.is_some() {
        let again = retry_after(&after.conditions, &now);
        context.holds.hold(vmi.uid(), again);
        return Ok(Action::requeue(again));
    }
    // Whose pod has its name may not be told.
    let is_taken = condition(&after.conditions, "Synchronized").is_some_and(|condition| !condition.holds());
    Ok(if is_taken { Action::requeue(RETRY.1) } else { Action::await_change() })
}

/// The pod as the API server has it.
async fn look(pods: &Api<VmPod>, vmi: &Vmi) -> Result<Seen, Error> {
    Ok(pods.get_opt(&pod_name(vmi)).await?.map_or(Seen::Gone, |pod| Seen::Pod(Arc::new(pod))))
}

fn retry_after(conditions: &[Condition], now: &Time) -> Duration {
    let synchronized = condition(conditions, "Synchronized");
    let has_no_claim = synchronized.is_some_and(|condition| condition.reason.as_deref() == Some(NO_CLAIM));
    let most = if has_no_claim { RETRY_CLAIM } else { RETRY.1 };
    let since = synchronized.and_then(|condition| condition.last_transition_time.as_ref());
    let failed_for = since.and_then(|since| Duration::try_from(now.0.duration_since(since.0)).ok());
    failed_for.unwrap_or_default().clamp(RETRY.0, most)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn a_claim_that_is_made_late_is_found_soon() {
        let at = |second| Time(Timestamp::from_second(second).expect("a time"));
        let after = |reason: &str, seconds: i64| {
            let failed = Condition::new("Synchronized", false, reason, "").since(&[], &at(0));
            retry_after(&[failed], &at(seconds)).as_secs()
        };
        assert_eq!([0, 9, 1000].map(|seconds| after("FailedCreate", seconds)), [2, 9, 300]);
        assert_eq!([0, 9, 1000].map(|seconds| after(NO_CLAIM, seconds)), [2, 9, 15]);
        assert_eq!(retry_after(&[], &at(9)), RETRY.0);
    }
}
