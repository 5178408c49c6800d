//! Takes over the pods of an earlier run of the daemon.
//!
//! Called at the start of the daemon, before it listens. Every pod on record gets its actor and is shown as on record,
//! *being recovered*, before a client can ask for it. The actor recovers the pod first ([`super::actor`]), and requests
//! about the pod wait for that: no client is told that a pod is unknown, gone or well before the daemon knows.

use std::sync::Arc;
use std::time::Duration;

use proto::tap::{PodId, PodNet};
use tokio::sync::watch;
use tokio::time::timeout;

use super::actor::Inherited;
use super::error::PodError;
use super::world::World;
use super::{Pods, View};
use crate::journal::Loaded;

impl<W: World> Pods<W> {
    /// Starts the actors of the pods on record, also of those whose file is not understood. Ends at once; they are
    /// recovered afterwards.
    pub(crate) fn take_over(&self, Loaded { records, unreadable }: Loaded) {
        let mut guard = self.shared.lock();
        let Some(handles) = guard.as_mut() else { return };
        let unread = unreadable.iter().filter_map(|file| {
            let pod = file.pod()?;
            Some((pod.clone(), Inherited::unread(&self.shared.operations.names, pod, file)))
        });
        let left = records.into_iter().map(|(pod, record)| (pod, Inherited::record(record)));
        for (pod, left) in left.chain(unread) {
            let handle = self.shared.start(pod.clone(), Some(left));
            handles.insert(pod, handle);
        }
    }

    /// How many pods are being recovered.
    pub(crate) fn recovering(&self) -> usize {
        let handles = self.shared.lock();
        let views = handles.iter().flat_map(|handles| handles.values());
        views.filter(|handle| handle.view.borrow().as_ref().is_some_and(|view| view.recovering)).count()
    }

    /// Why the records of pods are not understood that are on record now, in the order of the pods' ids.
    pub(crate) fn unread(&self) -> Vec<Arc<str>> {
        let handles = self.shared.lock();
        let views = handles.iter().flat_map(|handles| handles.values()).map(|handle| handle.view.borrow());
        views.filter_map(|view| view.as_ref().filter(|view| view.unread)?.trouble.clone()).collect()
    }

    /// Waits until all pods that were taken over are recovered.
    pub(crate) async fn recovered(&self) {
        let views: Vec<_> = {
            let handles = self.shared.lock();
            handles.iter().flat_map(|handles| handles.values()).map(|handle| handle.view.clone()).collect()
        };
        for view in views {
            settled(view).await;
        }
    }

    /// As [`Self::usable`], but waits for a pod that is being recovered, for as long as `within`.
    pub(crate) async fn soon_usable(&self, pod: &PodId, within: Duration) -> Result<Arc<PodNet>, PodError> {
        let view = self.shared.lock().as_ref().and_then(|handles| Some(handles.get(pod)?.view.clone()));
        if let Some(view) = view {
            // What comes of it is told below.
            let _ = timeout(within, settled(view)).await;
        }
        self.usable(pod)
    }
}

/// Waits until it is known how the pod is.
async fn settled(mut view: watch::Receiver<Option<View>>) {
    // An actor that ended has said so itself.
    let _ = view.wait_for(|view| view.as_ref().is_none_or(|view| !view.recovering)).await;
}
