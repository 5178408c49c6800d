//! VirtualMachineInstanceReplicaSets: as many instances of a template as are wanted.
//!
//! [`decide`] says what is to be done, by what is known of a set and of its namespace's instances. What is known may be late: what was just
//! made or deleted is pending (`crate::pending`) until the watch tells of it.

mod decide;
mod made;
mod own;
mod status;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::events::EventType;
use serde_json::json;

use self::decide::{Wanted, decide};
use self::made::instance;
use crate::context::{Context, Error};
use crate::objects::{Meta as _, ReplicaSet, Vmi};
use crate::pending;
use crate::write::{creating, delete, merge, text_of, write_status};

/// Calls of one set at a time.
const AT_A_TIME: usize = 16;
/// Until what was refused is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// Brings one nearer to what is wanted of it. Called again at each news of it or of its instances.
///
/// # Errors
/// When the API server does not do what it is asked for; it is to be called again then.
pub(crate) async fn reconcile(set: Arc<ReplicaSet>, context: Arc<Context>) -> Result<Action, Error> {
    let now = context.now();
    let pending = context.pending.of(set.uid());
    let all = context.vmis.state_filter(|vmi| vmi.namespace() == set.namespace());
    let verdict = decide(&set, &all, &pending, &now);
    // Failed starts are counted before what failed is gone.
    write_status(&context, &*set, &verdict.status).await?;
    let vmis: Api<Vmi> = Api::namespaced_with(context.client.clone(), set.namespace(), &context.group);
    for vmi in &verdict.release {
        owners(&context, vmi, &set, false).await?;
    }
    if !verdict.adopt.is_empty() && is_there_still(&set, &context).await? {
        for vmi in &verdict.adopt {
            owners(&context, vmi, &set, true).await?;
        }
    }
    let deleted = stream::iter(verdict.delete).map(async |vmi: Arc<Vmi>| {
        context.pending.deleted(set.uid(), vmi.uid());
        let deleted = delete(&vmis, &*vmi, None).await;
        if deleted.is_err() {
            context.pending.not_deleted(set.uid(), vmi.uid());
        }
        deleted
    });
    // Each is waited for: of one that is dropped nobody knows whether it was done.
    let deleted: Vec<Result<(), Error>> = deleted.buffer_unordered(AT_A_TIME).collect().await;
    deleted.into_iter().collect::<Result<(), Error>>()?;
    if verdict.create > 0
        && let Some(left) = context.holds.left(set.uid())
    {
        return Ok(Action::requeue(left));
    }
    let made = stream::iter(0..verdict.create).map(|_| make(&set, &vmis, &context));
    let made: Vec<Result<(), kube::Error>> = made.buffer_unordered(AT_A_TIME).collect().await;
    if let Some(error) = made.into_iter().find_map(Result::err) {
        context.holds.hold(set.uid(), AGAIN);
        let text = text_of(&error);
        context.tell(&*set, EventType::Warning, "FailedCreate", &text).await;
        let failed = status::refused(&set, verdict.status, &text, &now);
        write_status(&context, &*set, &failed).await?;
        return Ok(Action::requeue(AGAIN));
    }
    Ok(match verdict.wanted {
        Wanted::Later(after) => Action::requeue(after),
        // The watch may never tell of what was made or not.
        Wanted::Now if context.pending.is_any(set.uid()) => Action::requeue(pending::LONGEST + AGAIN),
        Wanted::Now => Action::await_change(),
    })
}

async fn make(set: &ReplicaSet, vmis: &Api<Vmi>, context: &Context) -> Result<(), kube::Error> {
    let vmi = instance(set, context.group);
    let name = vmi.name().to_owned();
    context.pending.made(set.uid(), &name);
    match vmis.create(&creating(), &vmi).await {
        Ok(_) => {
            context.tell(set, EventType::Normal, "SuccessfulCreate", format!("made instance {name}")).await;
            Ok(())
        }
        Err(error) => {
            // One of which nobody knows whether it was made is pending for a while.
            if matches!(error, kube::Error::Api(_)) {
                context.pending.not_made(set.uid(), &name);
            }
            Err(error)
        }
    }
}

/// Whether a set is there, as the API server has it, so that it may take instances.
async fn is_there_still(set: &ReplicaSet, context: &Context) -> Result<bool, Error> {
    let api: Api<ReplicaSet> = Api::namespaced_with(context.client.clone(), set.namespace(), &context.group);
    let fresh = api.get_opt(set.name()).await?;
    Ok(fresh.is_some_and(|fresh| fresh.uid() == set.uid() && !fresh.is_going()))
}

/// Makes an instance a set's, or nobody's.
async fn owners(context: &Context, vmi: &Vmi, set: &ReplicaSet, is_its: bool) -> Result<(), Error> {
    let mut all = vmi.metadata.owner_references.clone().unwrap_or_default();
    all.retain(|owner| owner.uid != set.uid());
    if is_its {
        all.push(set.owner(context.group));
    }
    merge(context, vmi, json!({"metadata": {"ownerReferences": all}})).await
}
