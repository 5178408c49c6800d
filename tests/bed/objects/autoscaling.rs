//! A set of VMs that `kubectl autoscale` has grown, by what their pods use: kubelet counts it by controld, metrics-server asks kubelet, and the
//! autoscaler of Kubernetes reads the set's scale and writes it.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tests::controllers::Controllers;
use tests::daemon::Daemon;
use tests::wait::wait_for;

use crate::kubelet::whole::STEP_DEADLINE;

const NAME: &str = "workers";
const MOST: u32 = 2;

/// A set of one, and its autoscaler: of the processor it asks for, a VM uses more at rest than that wants.
pub(super) fn begin(plane: &mut Controllers, instance: &Value) -> Result<()> {
    plane.apply(&[json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": {"name": NAME},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"set": NAME}},
            "template": {"metadata": {"labels": {"set": NAME}}, "spec": instance},
        },
    })])?;
    plane.kubectl(&["autoscale", &set(), "--min=1", &format!("--max={MOST}"), "--cpu=1%"]).map(drop)
}

/// Waits until it has read a figure, asked for more, and these are ready.
pub(super) fn grown(plane: &mut Controllers, operator: &mut Daemon) -> Result<()> {
    let mut last = Value::Null;
    let grown = wait_for("set that its autoscaler has grown", STEP_DEADLINE, || {
        operator.still_runs()?;
        let scaler: Value = serde_json::from_str(&plane.kubectl(&["get", "hpa", NAME, "-o", "json"])?)?;
        last = scaler["status"].clone();
        let conditions = last["conditions"].as_array();
        let is_active =
            conditions.into_iter().flatten().any(|one| one["type"] == "ScalingActive" && one["status"] == "True");
        let ready = plane.kubectl(&["get", &set(), "-o", "jsonpath={.status.readyReplicas}"])?;
        Ok((is_active && last["desiredReplicas"] == MOST && ready == MOST.to_string()).then_some(()))
    });
    grown.with_context(|| format!("the autoscaler says {last}"))
}

/// Has both go.
pub(super) fn end(plane: &mut Controllers) -> Result<()> {
    plane.kubectl(&["delete", &format!("hpa/{NAME}"), &set(), "--wait=false"]).map(drop)
}

fn set() -> String {
    format!("vmirs/{NAME}")
}
