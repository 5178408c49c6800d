//! Sandboxes without machines: many at a time, and requests that make no sense.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ListPodSandboxRequest, PodSandboxConfig, StatusRequest};
use tests::case::{Bed, Case};
use tests::cri;
use tests::node::Node;
use tests::wait::wait_for;
use tests::world::World;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::fifty_sandboxes_eight_at_a_time_leave_counts_as_before", deadline: DEADLINE, run: many },
    Case { name: "cri::a_hundred_and_twenty_sandboxes_at_once", deadline: DEADLINE, run: all_at_once },
    Case { name: "cri::senseless_requests_are_refused", deadline: DEADLINE, run: senseless },
];

fn many(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    // The first makes what stays: the bridge, connections, threads.
    node.cri.remove_sandbox(&node.cri.run_sandbox(&node.pod("first")?)?)?;
    let before = World::settled()?;
    let counts = || anyhow::Ok((node.controld.descriptors()?, node.net.tapmanager.descriptors()?));
    let (controld, tapmanager) = counts()?;
    std::thread::scope(|scope| {
        let lane = |lane: usize| {
            let node = &node;
            scope.spawn(move || -> Result<()> {
                for pod in (0..50).filter(|pod| pod % 8 == lane) {
                    let pod = node.pod(&format!("pod-{pod}"))?;
                    node.cri.remove_sandbox(&node.cri.run_sandbox(&pod)?)?;
                }
                Ok(())
            })
        };
        let lanes: Vec<_> = (0..8).map(lane).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    before.assert_same()?;
    wait_for(&format!("descriptors as before ({controld}, {tapmanager})"), Duration::from_secs(10), || {
        let now = counts()?;
        Ok((now.0 <= controld && now.1 <= tapmanager).then_some(()))
    })?;
    let all =
        node.cri.call(|mut client| async move { client.list_pod_sandbox(ListPodSandboxRequest::default()).await })?;
    ensure!(all.items.is_empty(), "still listed: {:?}", all.items);
    Ok(())
}

/// As after a reboot: none is refused, and the node is ready all the time.
fn all_at_once(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    node.cri.remove_sandbox(&node.cri.run_sandbox(&node.pod("first")?)?)?;
    let before = World::settled()?;
    let (node, done) = (&node, AtomicBool::new(false));
    let conditions = || -> Result<()> {
        let mut asked = 0;
        while !done.load(Ordering::SeqCst) {
            let said = node.cri.call(|mut client| async move { client.status(StatusRequest::default()).await })?;
            let conditions = said.status.context("no status")?.conditions;
            ensure!(conditions.iter().all(|condition| condition.status), "not ready after {asked}: {conditions:?}");
            asked += 1;
        }
        ensure!(asked > 0, "nobody asked");
        Ok(())
    };
    let made = std::thread::scope(|scope| {
        let watch = scope.spawn(conditions);
        let runs: Vec<_> = (0..120)
            .map(|n| scope.spawn(move || anyhow::Ok(node.cri.run_sandbox(&node.pod(&format!("pod-{n}"))?)?)))
            .collect();
        let made: Result<Vec<String>> = runs.into_iter().map(joined).collect();
        let made = made.and_then(|made| {
            let count = made.len();
            let remove = |id: String| scope.spawn(move || anyhow::Ok(node.cri.remove_sandbox(&id)?));
            let removals: Vec<_> = made.into_iter().map(remove).collect();
            removals.into_iter().try_for_each(joined).map(|()| count)
        });
        done.store(true, Ordering::SeqCst);
        joined(watch)?;
        made
    })?;
    ensure!(made == 120, "{made} sandboxes");
    before.assert_same()
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn senseless(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let before = World::look()?;
    let refused = node.cri.run_sandbox(&PodSandboxConfig::default()).err().context("a sandbox of nothing")?;
    ensure!(refused.code() == Code::InvalidArgument, "{refused}");
    let mut escaping = node.pod("escaping")?;
    escaping.metadata.get_or_insert_default().uid = "../../etc".into();
    if let Ok(sandbox) = node.cri.run_sandbox(&escaping) {
        let refused = node.cri.create(&sandbox, &cri::container("absent", [].into()), &escaping).err();
        ensure!(refused.is_some(), "a uid that is a path");
        node.cri.remove_sandbox(&sandbox)?;
    }

    let pod = node.pod("sound")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let twice = node.cri.run_sandbox(&pod);
    ensure!(twice.is_err() || twice.is_ok_and(|again| again == sandbox), "one pod, two sandboxes");
    for (image, annotations, code) in [
        ("absent", vec![], Code::NotFound),
        ("", vec![], Code::InvalidArgument),
        ("absent", vec![("VirtletVCPUCount", "many")], Code::InvalidArgument),
        ("absent", vec![("VirtletVCPUcount", "1")], Code::InvalidArgument),
    ] {
        let annotations: std::collections::HashMap<_, _> =
            annotations.iter().map(|(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut pod = pod.clone();
        pod.annotations.extend(annotations.clone());
        let refused = node.cri.create(&sandbox, &cri::container(image, annotations.clone()), &pod).err();
        let refused = refused.with_context(|| format!("`{image}` {annotations:?} was taken"))?;
        ensure!(
            refused.code() == code || annotations.len() == 1 && refused.code() == Code::NotFound,
            "`{image}` {annotations:?}: {refused}"
        );
    }
    for call in [
        node.cri.start("absent"),
        node.cri.container("absent").map(drop).map_err(|error| tonic::Status::not_found(error.to_string())),
    ] {
        ensure!(call.is_err_and(|error| error.code() == Code::NotFound), "an absent container was found");
    }
    node.cri.stop("absent", Duration::ZERO).context("stopping what is not there")?;
    node.cri.remove("absent").context("removing what is not there")?;
    node.cri.remove_sandbox("absent").context("removing a sandbox that is not there")?;
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same()
}
