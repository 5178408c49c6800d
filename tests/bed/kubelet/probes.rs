//! Exec probes: kubelet learns of a guest what a command in it says. Its pod has an init container, and this kubelet has such feature gates
//! on as change how it asks a runtime; all other cases have its defaults.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::controld_metrics::{self, ADDRESS, answered};
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, gates, manifest};
use tests::node::Node;
use tests::pace;
use tests::wait::wait_for;

use super::{DEADLINE, POD_DEADLINE, is_running};

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::probes_run_commands_in_the_guest", deadline: DEADLINE, run: probes }];

/// kubelet hears by events that containers have ended, has lists in pieces, and takes what pods use from the runtime alone.
const GATES: [&str; 3] = ["EventedPLEG", "CRIListStreaming", "PodAndContainerStatsFromCRI"];
/// An init container's guest ends by itself. The next one has the same disk.
const FIRST: &str = "#!/bin/sh\n[ \"$(cat /data/boots)\" = 1 ] && poweroff\n:\n";

/// The guest boots for longer than its liveness probe would bear, if no agent to ask were a failure.
fn probes(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, &format!("metrics.address = '{ADDRESS}'"))?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let kubelet = Kubelet::configured(bed, &gates(&GATES))?;
    kubelet.has_gates(&GATES)?;
    let mut pod = manifest("vm", &image, &json!({"VirtletCloudInitUserDataScript": FIRST}));
    let mut first = pod["spec"]["containers"][0].clone();
    first["name"] = json!("first");
    pod["spec"]["initContainers"] = json!([first]);
    let probe = |line: &str, failures: u32| {
        let exec = json!({"command": ["sh", "-c", line]});
        json!({"exec": exec, "periodSeconds": 1, "timeoutSeconds": pace::stretched_seconds(5), "failureThreshold": failures})
    };
    let container = &mut pod["spec"]["containers"][0];
    container["readinessProbe"] = probe("test -e /tmp/ready", 1);
    // One may take longer than its second on a machine that does much else. The boot takes longer there, too.
    container["livenessProbe"] = probe("! test -e /tmp/sick", 3);
    container["livenessProbe"]["timeoutSeconds"] = json!(pace::stretched_seconds(1));
    kubelet.apply("vm", &pod)?;
    let pod = kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
    has_begun_once(&pod)?;
    let id = node.crictl(&["ps", "-q"])?.stdout.trim().to_owned();
    let touch = |file: &str| {
        let ended = node.crictl(&["exec", "--sync", &id, "touch", file])?;
        ensure!(ended.code == Some(0), "{ended:?}");
        anyhow::Ok(())
    };
    // Waits for the guest.
    touch("/tmp/booted")?;
    let pod = kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
    ensure!(field(&pod, "ready") == Some(json!(false)) && field(&pod, "restartCount") == Some(json!(0)), "{pod}");
    touch("/tmp/ready")?;
    kubelet.wait_pod("ready pod", POD_DEADLINE, |pod| field(pod, "ready") == Some(json!(true)))?;
    touch("/tmp/sick")?;
    let pod = kubelet.wait_pod("second start", POD_DEADLINE, |pod| {
        field(pod, "restartCount") == Some(json!(1)) && is_running(pod)
    })?;
    let last = pod.pointer("/status/containerStatuses/0/lastState/terminated").context("no last state")?;
    ensure!(last["exitCode"].is_i64(), "{last}");
    has_begun_once(&pod)?;
    asked_as_the_gates_say(&kubelet)?;
    kubelet.delete("vm")
}

/// That the init container was made once, and has ended well.
fn has_begun_once(pod: &Value) -> Result<()> {
    let first = pod.pointer("/status/initContainerStatuses/0").context("no init container")?;
    let end = &first["state"]["terminated"];
    ensure!(first["restartCount"] == 0 && end["exitCode"] == 0 && end["reason"] == "Completed", "{first}");
    Ok(())
}

/// What shows that a gate is more than a word in kubelet's settings.
fn asked_as_the_gates_say(kubelet: &Kubelet) -> Result<()> {
    let own = kubelet.metrics("/metrics")?;
    for line in ["success_count 1", "error_count 0"].map(|end| format!("kubelet_evented_pleg_connection_{end}")) {
        ensure!(own.lines().any(|said| said == line), "not `{line}`");
    }
    let heard =
        own.lines().find_map(|line| line.strip_prefix("kubelet_evented_pleg_connection_latency_seconds_count "));
    ensure!(heard.is_some_and(|count| count != "0"), "no event: {heard:?}");
    wait_for("figures by CRI of the machine", POD_DEADLINE, || {
        let of_pods = kubelet.metrics("/metrics/cadvisor")?;
        let is_machines =
            |line: &str| line.starts_with("container_cpu_usage_seconds_total{") && line.contains("container=\"vm\"");
        Ok(of_pods.lines().any(is_machines).then_some(()))
    })?;
    let used = kubelet.stats_summary()?;
    ensure!(used.pointer("/pods/0/containers/0/cpu/usageCoreNanoSeconds").is_some_and(Value::is_u64), "{used}");
    let page = controld_metrics::page()?;
    for call in
        ["StreamPodSandboxes", "StreamContainers", "StreamImages", "StreamPodSandboxStats", "StreamPodSandboxMetrics"]
    {
        ensure!(answered(&page, call) > 0, "kubelet has not called {call}");
    }
    ensure!(answered(&page, "ListPodSandbox") == 0, "kubelet lists without streams");
    Ok(())
}

fn field(pod: &Value, name: &str) -> Option<Value> {
    pod.pointer("/status/containerStatuses/0")?.get(name).cloned()
}
