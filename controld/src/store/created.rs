//! When what is made now counts as made.
//!
//! Of the sandboxes and containers of a pod kubelet takes those that were made last for the ones that count. They have to be
//! that even if the node's clock was set back since the earlier ones.

use super::Store;

impl Store {
    /// Time of a sandbox that is made `now` for a pod: later than that of any sandbox of the pod on record.
    #[must_use]
    pub fn sandbox_time(&self, now: i64, pod_uid: &str) -> i64 {
        let sandboxes = self.sandboxes();
        let earlier = sandboxes.iter().filter(|sandbox| sandbox.config.uid == pod_uid);
        after(now, earlier.map(|sandbox| sandbox.created_at))
    }

    /// Time of a container that is made `now` for a pod: later than that of any container of the pod on record, also of its
    /// other sandboxes.
    #[must_use]
    pub fn container_time(&self, now: i64, pod_uid: &str) -> i64 {
        let sandboxes = self.sandboxes();
        let of_pod = sandboxes.iter().filter(|sandbox| sandbox.config.uid == pod_uid);
        let earlier = of_pod.flat_map(|sandbox| self.containers_of(&sandbox.id));
        after(now, earlier.map(|container| container.created_at))
    }
}

/// `now`, unless one of the `earlier` times is as late. In nanoseconds.
pub(crate) fn after(now: i64, earlier: impl Iterator<Item = i64>) -> i64 {
    earlier.max().map_or(now, |newest| now.max(newest.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use vmspec::{ContainerId, SandboxConfig};

    use super::*;
    use crate::api::cri::convert::tests as records;
    use crate::model::{Container, Sandbox};

    fn sandbox(id: &str, uid: &str, created_at: i64) -> Sandbox {
        let config = SandboxConfig { uid: uid.into(), ..SandboxConfig::default() };
        let id = id.parse().expect("id");
        Sandbox { id, config, created_at, ..records::sandbox() }
    }

    #[tokio::test]
    async fn what_is_made_is_the_newest_of_its_pod_whatever_the_clock_says() {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = Store::open(&dir.path().join("db")).expect("opened");
        assert_eq!((store.sandbox_time(5, "web"), store.container_time(5, "web")), (5, 5), "the first of the pod");
        for (id, uid, made) in [("a", "web", 100), ("b", "web", 200), ("c", "db", 900)] {
            store.put_sandbox(sandbox(id, uid, made)).await.expect("put");
            let (sandbox, created_at) = (id.parse().expect("id"), made + 50);
            let container = Container { id: ContainerId::random(), sandbox, created_at, ..records::container() };
            store.put_container(container).await.expect("put");
        }
        for (case, now, of_sandbox, of_container) in
            [("set back", 5, 201, 251), ("stands still", 200, 201, 251), ("goes on", 300, 300, 300)]
        {
            let times = (store.sandbox_time(now, "web"), store.container_time(now, "web"));
            assert_eq!(times, (of_sandbox, of_container), "{case}");
        }
    }
}
