//! All controllers, each with the queue of what it has to look at.

use std::convert::Infallible;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use kube::runtime::controller::{Action, Config, Error as ControllerError, applier};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource};
use kubevirt::render::Options;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::{debug, warn};

use crate::cache::{Listener, cache, controller_of};
use crate::context::{Context, Error};
use crate::group::Group;
use crate::metrics::Metrics;
use crate::names::{VMI, VMI_UID};
use crate::objects::{Meta as _, Preset, ReplicaSet, ReplicaSetKind, Vm, VmPod, Vmi};
use crate::pending::Pending;
use crate::{replica_set, vm, vmi};

/// Objects of a kind that are looked at at a time.
const AT_A_TIME: u16 = 64;
/// News of an object that come together are one.
const DEBOUNCE: Duration = Duration::from_millis(50);
const SETS: &str = "replicaset";
/// Until what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// What a controller has to look at. It has no bound but the number of objects: what waits is told once.
struct Queue<K: Resource> {
    sender: UnboundedSender<ObjectRef<K>>,
    receiver: UnboundedReceiver<ObjectRef<K>>,
}

impl<K: Resource> Queue<K>
where
    K::DynamicType: Clone,
{
    fn new() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver }
    }

    /// Notes each touched object itself.
    fn own(&self, kind: K::DynamicType) -> Listener<K>
    where
        K: 'static,
        K::DynamicType: Clone + Send + Sync,
    {
        let sender = self.sender.clone();
        Box::new(move |object| drop(sender.send(ObjectRef::from_obj_with(object, kind.clone()))))
    }
}

/// Looks after all objects of the group, for ever.
pub async fn run(client: Client, group: Group, options: Options, metrics: Arc<Metrics>, instance: Option<String>) {
    let (vm_queue, vmi_queue, set_queue) = (Queue::<Vm>::new(), Queue::<Vmi>::new(), Queue::<ReplicaSet>::new());
    let pending = Arc::new(Pending::default());
    let (sets, sets_work) =
        cache(Api::<ReplicaSet>::all_with(client.clone(), &group), group, "", vec![set_queue.own(group)]);
    let (vms, vms_work) = cache(Api::<Vm>::all_with(client.clone(), &group), group, "", vec![vm_queue.own(group)]);
    let listeners = vec![
        vmi_queue.own(group),
        named(&vm_queue, group, |vmi: &Vmi| Some(vmi.name())),
        of_sets(&set_queue, sets.clone(), Arc::clone(&pending), group),
    ];
    let (vmis, vmis_work) = cache(Api::<Vmi>::all_with(client.clone(), &group), group, "", listeners);
    // By name: one that lost its owner, or has another, may have what an instance waits for.
    let pod_listeners = vec![named(&vmi_queue, group, |pod: &VmPod| pod.label(VMI))];
    let (pods, pods_work) = cache(Api::<VmPod>::all(client.clone()), (), VMI_UID, pod_listeners);
    let preset_listeners = vec![of_vms(&vm_queue, vms.clone(), group)];
    let (presets, presets_work) = cache(Api::<Preset>::all_with(client.clone(), &group), group, "", preset_listeners);
    let stores = (pods.clone(), vmis.clone(), presets.clone());
    let context = Arc::new(Context::new(client, group, options, stores, pending, instance));
    // Nothing is judged by half of what there is.
    let ready = {
        let (vms, vmis, sets, metrics) = (vms.clone(), vmis.clone(), sets.clone(), Arc::clone(&metrics));
        async move {
            // A watch that is dropped ends all of this with it.
            let _ = tokio::join!(
                pods.wait_until_ready(),
                vmis.wait_until_ready(),
                vms.wait_until_ready(),
                sets.wait_until_ready(),
                presets.wait_until_ready()
            );
            metrics.is_synced();
        }
        .shared()
    };
    let wait = || ready.clone();
    let controllers = vec![
        control(vms, vm_queue.receiver, vm::reconcile, (&context, &metrics, "virtualmachine"), wait()).boxed(),
        control(vmis, vmi_queue.receiver, vmi::reconcile, (&context, &metrics, "virtualmachineinstance"), wait())
            .boxed(),
        control(sets, set_queue.receiver, replica_set::reconcile, (&context, &metrics, SETS), wait()).boxed(),
    ];
    let watches = vec![sets_work.boxed(), vms_work.boxed(), vmis_work.boxed(), pods_work.boxed(), presets_work.boxed()];
    join_all(controllers.into_iter().chain(watches)).await;
}

/// Notes what has the name, in its namespace, that an object leads to.
fn named<C, K>(queue: &Queue<K>, kind: Group, name: fn(&C) -> Option<&str>) -> Listener<C>
where
    C: Resource + 'static,
    K: Resource<DynamicType = Group> + 'static,
{
    let sender = queue.sender.clone();
    Box::new(move |object| {
        if let Some(name) = name(object) {
            drop(sender.send(ObjectRef::new_with(name, kind).within(object.namespace())));
        }
    })
}

/// Notes the set of each touched instance, or the sets that may want it.
fn of_sets(queue: &Queue<ReplicaSet>, sets: Store<ReplicaSet>, pending: Arc<Pending>, group: Group) -> Listener<Vmi> {
    let sender = queue.sender.clone();
    Box::new(move |vmi| {
        if let Some(owner) = vmi.controller() {
            if owner.kind == <ReplicaSetKind as crate::objects::Kind>::NAME {
                pending.seen(&owner.uid, vmi.name(), vmi.uid(), vmi.is_going());
                if let Some(set) = controller_of::<Vmi, ReplicaSet>(vmi, &group) {
                    drop(sender.send(set));
                }
            }
            return;
        }
        for set in sets.state_filter(|set| set.namespace() == vmi.namespace()) {
            drop(sender.send(ObjectRef::from_obj_with(&*set, group)));
        }
    })
}

/// Notes the VMs that a touched preset may be for: those of its namespace.
fn of_vms(queue: &Queue<Vm>, vms: Store<Vm>, group: Group) -> Listener<Preset> {
    let sender = queue.sender.clone();
    Box::new(move |preset| {
        for vm in vms.state_filter(|vm| vm.namespace() == preset.namespace()) {
            drop(sender.send(ObjectRef::from_obj_with(&*vm, group)));
        }
    })
}

async fn control<K, F, W>(
    known: Store<K>,
    queue: UnboundedReceiver<ObjectRef<K>>,
    mut reconcile: impl FnMut(Arc<K>, Arc<Context>) -> F + Send,
    (context, metrics, kind): (&Arc<Context>, &Arc<Metrics>, &'static str),
    ready: W,
) where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Unpin + Send + Sync,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
    W: Future<Output = ()> + Send,
{
    ready.await;
    let queue = UnboundedReceiverStream::new(queue).map(Ok::<_, Infallible>);
    // Each news begins that time anew, and of a set of a thousand there are always some.
    let debounce = if kind == SETS { Duration::ZERO } else { DEBOUNCE };
    let config = Config::default().debounce(debounce).concurrency(AT_A_TIME);
    let timed = |object, context| {
        let (metrics, work) = (Arc::clone(metrics), reconcile(object, context));
        async move {
            let since = Instant::now();
            let done = work.await;
            metrics.reconciled(kind, done.is_ok(), since.elapsed());
            done
        }
        .boxed()
    };
    let again = |_: Arc<K>, _: &Error, _: Arc<Context>| Action::requeue(AGAIN);
    applier(timed, again, Arc::clone(context), known, queue, config)
        .for_each(|done| async move {
            match done {
                Ok(_) => {}
                // It is gone.
                Err(ControllerError::ObjectNotFound(object)) => debug!(%object, "nothing to look after"),
                Err(ControllerError::ReconcilerFailed(Error::Kube(error), object))
                    if crate::write::is_stale(&error) =>
                {
                    debug!(%object, "is not as it was known; looks again");
                }
                Err(ControllerError::ReconcilerFailed(error, object)) => {
                    warn!(%object, error = %common::Chain(&error), "not done; tries again");
                }
                Err(error) => warn!(kind, error = %common::Chain(&error), "not done"),
            }
        })
        .await;
}
