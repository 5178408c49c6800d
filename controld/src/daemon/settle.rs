//! Waits at the start until libvirt has told how those starts of machines came out that the end of the last life cut off.
//!
//! Called by [`super::start`], before anybody is answered. kubelet stops a container of which nobody knows whether it runs, and makes
//! another: an upgrade amid a start would cost the machine that came up meanwhile.

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::model::ContainerState;
use crate::store::Store;

/// Beyond that the node is of more use with one container that is stopped.
const WITHIN: Duration = Duration::from_secs(10);

/// Waits for a while; at once if there are none.
pub(super) async fn cut_off_starts(store: &Store) {
    settled(store, WITHIN).await;
}

async fn settled(store: &Store, within: Duration) {
    let mut changes = store.changes();
    let told = async {
        while is_any_unknown(store) {
            if let Err(RecvError::Closed) = changes.recv().await {
                return;
            }
        }
    };
    if timeout(within, told).await.is_err() {
        let seconds = within.as_secs();
        tracing::warn!(
            "libvirt has not told within {seconds} s how starts came out that were cut off; kubelet may stop these"
        );
    }
}

/// Nobody has started any in this life yet.
fn is_any_unknown(store: &Store) -> bool {
    let unknown = |state| matches!(state, ContainerState::Starting | ContainerState::Uncertain);
    store.containers().iter().any(|container| unknown(container.state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cri::convert::tests::container;
    use crate::model::Container;

    const AMPLE: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_start_that_was_cut_off_is_waited_for_until_it_is_known() {
        let dir = tempfile::tempdir().expect("directory");
        let store = Store::open(&dir.path().join("meta.redb")).expect("opens");
        settled(&store, AMPLE).await;
        let unknown = Container { state: ContainerState::Starting, ..container() };
        store.put_container(unknown.clone()).await.expect("put");
        let waiting = settled(&store, AMPLE);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        store.put_container(Container { state: ContainerState::Running, ..unknown.clone() }).await.expect("put");
        waiting.await;

        store.put_container(unknown).await.expect("put");
        settled(&store, WITHIN).await;
    }
}
