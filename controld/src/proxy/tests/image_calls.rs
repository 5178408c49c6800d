//! Images without a key while a side does not answer.

use super::*;

fn image(id: &str, tag: &str) -> Image {
    Image { id: id.into(), repo_tags: vec![tag.into()], size: 1, ..Default::default() }
}

fn of_pod(id: &str, uid: &str, state: PodSandboxState) -> PodSandbox {
    let metadata = Some(PodSandboxMetadata { uid: uid.into(), ..Default::default() });
    PodSandbox { metadata, state: state.into(), ..sandbox(id) }
}

impl Node {
    async fn pulled(&self, uid: &str) -> Result<String, Status> {
        let metadata = Some(PodSandboxMetadata { uid: uid.into(), ..Default::default() });
        let sandbox_config = Some(PodSandboxConfig { metadata, ..Default::default() });
        let request = PullImageRequest { image: spec("x"), sandbox_config, auth: None };
        Ok(self.image_calls().pull_image(request).await?.into_inner().image_ref)
    }

    async fn image(&self, name: &str) -> Result<Option<String>, Status> {
        let request = ImageStatusRequest { image: spec(name), verbose: false };
        Ok(self.image_calls().image_status(request).await?.into_inner().image.map(|image| image.id))
    }
}

/// What containerd has once pulled, it has from then on, and no machine is made of it.
#[tokio::test]
async fn while_ours_does_not_answer_no_machines_image_is_pulled_for_containers() {
    let node = Node::hasty_with_ours().await;
    node.default.says("PullImage", &PullImageResponse { image_ref: "sha256:c".into() });
    node.default.says("ImageStatus", &ImageStatusResponse::default());
    node.own.has().sandboxes = vec![of_pod("vm1", "u-vm", PodSandboxState::SandboxReady)];
    for trouble in ["hangs", "panics", "starts"] {
        node.own.has().hangs = trouble == "hangs";
        node.own.has().panics = trouble == "panics";
        if trouble == "starts" {
            node.opener.waits_for("its database");
            let unknown = node.image("x").await.expect_err("not known to be nowhere");
            assert!(unknown.code() == Code::Unavailable && unknown.message().contains("its database"), "{unknown}");
        }
        let refused = node.pulled("u-vm").await.expect_err(trouble);
        assert_ne!(refused.code(), Code::NotFound, "{trouble}: {refused}");
        assert!(node.default.asked("PullImage").is_empty(), "{trouble}");
    }
    // What the default is known to have, and what is said to be of no pod, goes on.
    node.default.says(
        "ListPodSandbox",
        &ListPodSandboxResponse { items: vec![of_pod("a", "u-c", PodSandboxState::SandboxReady)] },
    );
    let _ = node.listed().await;
    assert_eq!(node.pulled("u-c").await.expect("pulled"), "sha256:c");
    assert_eq!(node.pulled("").await.expect("pulled"), "sha256:c");
    node.default
        .says("ImageStatus", &ImageStatusResponse { image: Some(image("sha256:c", "x")), ..Default::default() });
    assert_eq!(node.image("x").await.expect("answered").as_deref(), Some("sha256:c"));
}

#[tokio::test]
async fn a_pod_that_was_of_the_other_side_pulls_for_the_sandbox_that_is_ready() {
    let node = Node::up().await;
    node.default.says("PullImage", &PullImageResponse { image_ref: "sha256:c".into() });
    let (ready, not) = (PodSandboxState::SandboxReady, PodSandboxState::SandboxNotready);
    for (ours, theirs, wanted) in [
        (ready, not, "sha256:ours"),
        (not, ready, "sha256:c"),
        (not, not, "sha256:ours"),
        (ready, ready, "sha256:ours"),
    ] {
        node.own.has().sandboxes = vec![of_pod("vm1", "u", ours)];
        node.default.says("ListPodSandbox", &ListPodSandboxResponse { items: vec![of_pod("a", "u", theirs)] });
        node.listed().await.expect("a list");
        assert_eq!(node.pulled("u").await.expect("pulled"), wanted, "{ours:?} {theirs:?}");
    }
}

/// As a containerd whose database is locked: it answers `Version`, and nothing about images.
#[tokio::test]
async fn an_image_of_ours_is_told_although_the_default_never_answers() {
    let node = Node::hasty().await;
    node.default.replies("ImageStatus", Reply::Never);
    node.own.has().images = vec![image("sha256:vm", "disk:latest")];
    let versions = node.default.asked("Version").len();
    let ours = tokio::time::timeout(LONG, node.image("disk:latest")).await.expect("in time");
    assert_eq!(ours.expect("answered").as_deref(), Some("sha256:vm"));
    until(|| node.default.asked("Version").len() > versions).await;
    // What ours does not tell of.
    node.opener.waits_for("its database");
    let unknown = node.image("nginx").await.expect_err("either may have it");
    assert_eq!(unknown.code(), Code::DeadlineExceeded);
}

/// As a containerd that pulls.
#[tokio::test]
async fn an_image_that_ours_has_not_is_waited_for_as_long_as_kubelet_does() {
    let node = Node::hasty().await;
    let now = std::sync::Arc::new(tokio::sync::Notify::new());
    let has = ImageStatusResponse { image: Some(image("sha256:c", "nginx")), ..Default::default() };
    node.default.replies("ImageStatus", Reply::Late(has.encode_to_vec().into(), now.clone()));
    let versions = node.default.asked("Version").len();
    let mut asked = std::pin::pin!(node.image("nginx"));
    tokio::select! {
        early = asked.as_mut() => panic!("not waited for: {early:?}"),
        () = until(|| node.default.asked("Version").len() > versions) => {}
    }
    // Behind the deadline of lists, which has raised a doubt.
    now.notify_one();
    let told = tokio::time::timeout(LONG, asked).await.expect("in time").expect("answered");
    assert_eq!(told.as_deref(), Some("sha256:c"));
}

#[tokio::test]
async fn what_the_default_says_of_an_image_that_it_has_is_what_kubelet_reads() {
    let node = Node::up().await;
    node.own.has().images = vec![image("sha256:vm", "disk:latest")];
    let failed = "ImageVolumeMountFailed: no such directory";
    node.default.replies("CreateContainer", Reply::Failed(Status::unknown(failed)));
    let create = async || {
        let config = Some(ContainerConfig { image: spec("disk:latest"), ..Default::default() });
        let request = CreateContainerRequest { pod_sandbox_id: "ab".into(), config, sandbox_config: None };
        node.runtime().create_container(request).await.expect_err("refused")
    };
    for (reply, is_own) in [
        (Some(image("sha256:c", "disk:latest")), true),
        // Nothing else is known of why it failed.
        (None, false),
    ] {
        node.default.says("ImageStatus", &ImageStatusResponse { image: reply, ..Default::default() });
        assert_eq!(create().await.message() == failed, is_own);
    }
    node.default.replies("ImageStatus", Reply::Failed(Status::internal("broken")));
    assert_eq!(create().await.message(), failed, "it may have it");
}

#[tokio::test]
async fn images_of_containers_are_removed_whatever_machines_do() {
    let node = Node::up().await;
    let list = |ids: &[&str]| ListImagesResponse { images: ids.iter().map(|id| image(id, "t")).collect() };
    let listed = async || {
        let list = node.image_calls().list_images(ListImagesRequest::default()).await.expect("a list").into_inner();
        list.images.into_iter().map(|image| image.id).collect::<Vec<_>>()
    };
    let remove = async |id: &str| node.image_calls().remove_image(RemoveImageRequest { image: spec(id) }).await;
    node.default.says("ListImages", &list(&["sha256:c", "sha256:d"]));
    assert_eq!(listed().await, ["sha256:c", "sha256:d"]);
    node.default.says("RemoveImage", &RemoveImageResponse {});
    node.default
        .says("ImageStatus", &ImageStatusResponse { image: Some(image("sha256:c", "t")), ..Default::default() });
    node.opener.waits_for("its database");
    remove("sha256:c").await.expect("it had it");
    node.default.says("ImageStatus", &ImageStatusResponse::default());
    let unknown = remove("sha256:d").await.expect_err("ours may have it");
    assert_eq!(unknown.code(), Code::Unavailable);
    node.opener.open(node.own.routes());
    remove("sha256:d").await.expect("both were asked");
    node.default.kill();
    node.is_down().await;
    assert!(listed().await.is_empty(), "what was removed is in no last list");
}

/// CRI-O 1.36 takes what begins with `sha256:` for a short name, and refuses it in each call. kubelet has the id from the list of both.
#[tokio::test]
async fn an_image_of_ours_is_removed_by_its_id_whatever_the_default_makes_of_that() {
    let node = Node::up().await;
    let ours = format!("sha256:{}", "0a".repeat(32));
    let refusal = Status::unknown(format!("short-name \"{ours}\" did not resolve to an alias"));
    for call in ["ImageStatus", "RemoveImage", "CreateContainer"] {
        node.default.replies(call, Reply::Failed(refusal.clone()));
    }
    node.own.has().images = vec![image(&ours, "disk:latest")];
    assert_eq!(node.image(&ours).await.expect("answered").as_deref(), Some(&*ours));
    let remove = async |id: &str| node.image_calls().remove_image(RemoveImageRequest { image: spec(id) }).await;
    remove(&ours).await.expect("removed");
    assert!(node.own.has().asked.contains(&format!("RemoveImage {ours}")));
    assert!(node.default.asked("RemoveImage").is_empty());
    // A container of it says what is wrong.
    let config = Some(ContainerConfig { image: spec(&ours), ..Default::default() });
    let request = CreateContainerRequest { pod_sandbox_id: "ab".into(), config, sandbox_config: None };
    let refused = node.runtime().create_container(request).await.expect_err("no image of containers");
    assert!(refused.code() == Code::FailedPrecondition && refused.message().contains("virtual machines"), "{refused}");
    // What ours has not is the default's to judge, and so is what is no id.
    for other in [format!("sha256:{}", "0b".repeat(32)), "disk:latest".into()] {
        let refused = remove(&other).await.expect_err("refused");
        assert!(refused.message().contains("short-name"), "{refused}");
    }
}
