//! That a pod has one sandbox that is ready, whatever kubelet believes.

use super::*;

fn metadata(uid: &str, attempt: u32) -> Option<PodSandboxMetadata> {
    Some(PodSandboxMetadata { name: "web".into(), namespace: "shop".into(), uid: uid.into(), attempt })
}

fn of_pod(id: &str, uid: &str, attempt: u32) -> PodSandbox {
    PodSandbox { metadata: metadata(uid, attempt), ..sandbox(id) }
}

fn not_ready(sandbox: PodSandbox) -> PodSandbox {
    PodSandbox { state: PodSandboxState::SandboxNotready.into(), ..sandbox }
}

impl Node {
    async fn run(&self, handler: &str, uid: &str, attempt: u32) -> Result<String, Status> {
        let config = Some(PodSandboxConfig { metadata: metadata(uid, attempt), ..Default::default() });
        let request = RunPodSandboxRequest { config, runtime_handler: handler.into() };
        Ok(self.runtime().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    fn has(&self, items: Vec<PodSandbox>) {
        self.default.says("ListPodSandbox", &ListPodSandboxResponse { items });
    }
}

async fn up() -> Node {
    let node = Node::up().await;
    node.default.says("RunPodSandbox", &RunPodSandboxResponse { pod_sandbox_id: "c1".into() });
    node.has(Vec::new());
    node
}

fn exists(refused: Result<String, Status>, id: &str) {
    let refused = refused.expect_err(id);
    assert!(refused.code() == Code::AlreadyExists && refused.message().contains(&format!("`{id}`")), "{refused}");
    assert!(refused.message().contains("`shop/web`"), "{refused}");
}

/// As when the annotation is taken away from a pod that runs.
#[tokio::test]
async fn a_machine_that_is_ready_gets_no_container_beside_it() {
    let node = up().await;
    node.own.has().sandboxes = vec![of_pod("vm1", "u", 0)];
    for attempt in [0, 1] {
        exists(node.run("", "u", attempt).await, "vm1");
    }
    assert!(node.default.asked("RunPodSandbox").is_empty());
    assert_eq!(node.run("", "another", 0).await.expect("made"), "c1");
    node.own.has().sandboxes = vec![not_ready(of_pod("vm1", "u", 0))];
    assert_eq!(node.run("", "u", 1).await.expect("made"), "c1");
    // Containers need nothing of us.
    node.own.has().sandboxes = vec![of_pod("vm1", "v", 0)];
    node.opener.waits_for("its database");
    assert_eq!(node.run("", "v", 0).await.expect("made"), "c1");
}

#[tokio::test]
async fn a_container_that_is_ready_gets_no_machine_beside_it() {
    let node = up().await;
    node.has(vec![of_pod("a", "u", 0)]);
    exists(node.run("virtlet", "u", 0).await, "a");
    node.listed().await.expect("a list");
    exists(node.run("virtlet", "u", 1).await, "a");
    // It was stopped, and the list that is kept does not know it.
    node.has(vec![not_ready(of_pod("a", "u", 0))]);
    assert_eq!(node.run("virtlet", "u", 1).await.expect("made"), "vm01");
    // What was made through us is known without a question.
    assert_eq!(node.run("", "w", 0).await.expect("made"), "c1");
    node.has(vec![of_pod("b", "v", 0), of_pod("c1", "w", 0)]);
    exists(node.run("virtlet", "w", 1).await, "c1");
    // A default that cannot be asked has what it had.
    node.listed().await.expect("a list");
    node.default.kill();
    node.is_down().await;
    exists(node.run("virtlet", "v", 0).await, "b");
    assert_eq!(node.run("virtlet", "another", 0).await.expect("made"), "vm01", "machines are not concerned");
}

#[tokio::test]
async fn machines_are_made_at_a_default_that_was_never_there() {
    let node = Node::new();
    assert_eq!(node.run("virtlet", "u", 0).await.expect("made"), "vm01");
}

#[tokio::test]
async fn a_machine_that_is_ready_gets_no_other_attempt() {
    let node = up().await;
    node.own.has().sandboxes = vec![of_pod("vm1", "u", 3)];
    exists(node.run("virtlet", "u", 4).await, "vm1");
    exists(node.run("virtlet", "u", 0).await, "vm1");
    // The same one again is ours to answer, with the same id.
    assert_eq!(node.run("virtlet", "u", 3).await.expect("given"), "vm01");
    node.own.has().sandboxes = vec![not_ready(of_pod("vm1", "u", 3))];
    assert_eq!(node.run("virtlet", "u", 4).await.expect("made"), "vm01");
    node.own.has().panics = true;
    node.run("virtlet", "u", 5).await.expect_err("not known");
}

/// As clients that are no kubelet send it.
#[tokio::test]
async fn pods_without_a_uid_are_not_one_pod() {
    let node = up().await;
    node.own.has().sandboxes = vec![of_pod("vm1", "", 0)];
    assert_eq!(node.run("", "", 0).await.expect("made"), "c1");
}

#[tokio::test]
async fn what_is_restored_is_listed_while_the_default_is_away() {
    let node = up().await;
    node.default.says("ListContainers", &ListContainersResponse::default());
    node.listed().await.expect("a list");
    let containers = async || {
        let list = node.runtime().list_containers(ListContainersRequest::default()).await.expect("a list").into_inner();
        list.containers
            .into_iter()
            .map(|one| (one.id, one.pod_sandbox_id, one.metadata.unwrap_or_default().name))
            .collect::<Vec<_>>()
    };
    assert_eq!(containers().await, []);
    let restored = RestoredContainer { name: "app".into(), container_id: "c2".into() };
    node.default
        .says("RestorePod", &RestorePodResponse { pod_sandbox_id: "s2".into(), restored_containers: vec![restored] });
    let named = Some(ContainerMetadata { name: "app".into(), attempt: 0 });
    let request = RestorePodRequest {
        config: Some(PodSandboxConfig { metadata: metadata("u", 0), ..Default::default() }),
        container_configs: vec![ContainerConfig { metadata: named, ..Default::default() }],
        ..Default::default()
    };
    node.runtime().restore_pod(request).await.expect("restored");
    node.default.kill();
    node.is_down().await;
    assert_eq!(node.listed().await.expect("a list"), ["s2"]);
    assert_eq!(containers().await, [("c2".into(), "s2".into(), "app".into())]);
}
