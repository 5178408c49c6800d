//! What the operator knows of the cluster's objects: one watch for each kind, whose news any number of controllers hear of.
//!
//! kube's own shared stores tell their subscribers nothing of an object that is gone, and an instance whose pod is gone has to know.
//! So each touched object, made, changed or gone, is told to whoever listens, and a list that is made anew is compared with the one before.
//! An object that cannot be read is as one that is not there: nothing is done about it, and the others are looked after.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, future};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::objects::{Legible, Meta as _};

/// Whoever hears of each touched object. Called from the watch: it only notes.
pub(crate) type Listener<K> = Box<dyn Fn(&K) + Send + Sync>;

/// Watches objects for ever. Returns what is known, and the work, which somebody has to do.
pub(crate) fn cache<K>(
    api: Api<K>,
    kind: K::DynamicType,
    selector: &str,
    listeners: Vec<Listener<K>>,
) -> (Store<K>, impl Future<Output = ()>)
where
    K: Legible + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Debug + Unpin,
{
    let mut writer = reflector::store::Writer::<K>::new(kind.clone());
    let known = writer.as_reader();
    let before = known.clone();
    let config = watcher::Config::default().labels(selector).streaming_lists();
    let work = async move {
        let read = |event| future::ready(Ok(legible(event, &kind)));
        let mut events = watch(api, config).default_backoff().try_filter_map(read).boxed();
        loop {
            let event = match events.try_next().await {
                Ok(Some(event)) => event,
                // It never ends by itself.
                Ok(None) => return,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    warn!(kind = %K::plural(&kind), error = %common::Chain(error), "objects are not watched; tries again");
                    continue;
                }
            };
            let gone = if matches!(event, Event::InitDone) { of(&before, &kind) } else { HashMap::new() };
            writer.apply_watcher_event(&event);
            let tell = |object: &K| listeners.iter().for_each(|listener| listener(object));
            match &event {
                Event::Apply(object) | Event::Delete(object) => tell(object),
                Event::Init | Event::InitApply(_) => {}
                Event::InitDone => {
                    let now = of(&before, &kind);
                    gone.iter().filter(|(key, _)| !now.contains_key(key)).for_each(|(_, object)| tell(object));
                    now.values().for_each(|object| tell(object));
                }
            }
        }
    };
    (known, work)
}

fn of<K>(store: &Store<K>, kind: &K::DynamicType) -> HashMap<ObjectRef<K>, Arc<K>>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    store.state().into_iter().map(|object| (ObjectRef::from_obj_with(&*object, kind.clone()), object)).collect()
}

/// An event whose object can be read: any other is told of as if it were gone, or not at all.
fn legible<K: Legible>(event: Event<K>, kind: &K::DynamicType) -> Option<Event<K>> {
    let (Event::Apply(object) | Event::InitApply(object)) = &event else { return Some(event) };
    let Some(why) = object.wrong() else { return Some(event) };
    let (kind, namespace, name) = (K::kind(kind), object.namespace(), object.name());
    warn!(
        %kind, namespace, name, why,
        "an object is not looked after, as its spec cannot be read; give it another spec"
    );
    match event {
        Event::Apply(object) => Some(Event::Delete(object)),
        _ => None,
    }
}

/// The object of a name in a namespace, if it is known.
pub(crate) fn known<K>(store: &Store<K>, kind: K::DynamicType, namespace: &str, name: &str) -> Option<Arc<K>>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    store.get(&ObjectRef::new_with(name, kind).within(namespace))
}

/// What an object's controller is called, if that is of this kind.
pub(crate) fn controller_of<K: Resource, C>(object: &K, kind: &C::DynamicType) -> Option<ObjectRef<C>>
where
    C: Resource,
    C::DynamicType: Clone,
{
    let owner = object.controller()?;
    ObjectRef::from_owner_ref(Some(object.namespace()), owner, kind.clone())
}
