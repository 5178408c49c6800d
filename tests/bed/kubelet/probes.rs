//! Exec probes: kubelet learns of a guest what a command in it says.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest};
use tests::node::Node;
use tests::pace;

use super::{DEADLINE, POD_DEADLINE, is_running};

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::probes_run_commands_in_the_guest", deadline: DEADLINE, run: probes }];

/// The guest boots for longer than its liveness probe would bear, if no agent to ask were a failure.
fn probes(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let kubelet = Kubelet::start(bed)?;
    let mut pod = manifest("vm", &image, &json!({}));
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
    kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;
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
    kubelet.delete("vm")
}

fn field(pod: &Value, name: &str) -> Option<Value> {
    pod.pointer("/status/containerStatuses/0")?.get(name).cloned()
}
