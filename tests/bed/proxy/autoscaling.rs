//! Autoscalers over machines and over containers: kubelet counts either kind by controld, metrics-server asks kubelet, and a Deployment
//! that uses more than it is to gets one pod more.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tests::controllers::Controllers;
use tests::wait::wait_for;

use crate::kubelet::whole::STEP_DEADLINE;

/// With one pod more than a Deployment begins with.
pub(super) const MOST: u32 = 2;
/// Of a Deployment, what is counted, and less than one pod of it uses at rest: a container that does nothing has no processor time to count.
const LEAST: [(&str, &str, &str); 2] = [("machine", "cpu", "1m"), ("container", "memory", "64Ki")];

/// An autoscaler for each Deployment.
pub(super) fn objects() -> [Value; 2] {
    LEAST.map(|(deployment, name, least)| {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": deployment},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
                "minReplicas": 1, "maxReplicas": MOST,
                "metrics": [{
                    "type": "Resource",
                    "resource": {"name": name, "target": {"type": "AverageValue", "averageValue": least}},
                }],
            },
        })
    })
}

/// Waits until each has read a figure of its pods, and its Deployment has a pod more that is ready.
pub(super) fn grown(plane: &mut Controllers) -> Result<()> {
    for (deployment, name, _) in LEAST {
        let mut last = Value::Null;
        let grown = wait_for(&format!("another {deployment}"), STEP_DEADLINE, || {
            let scaler: Value = serde_json::from_str(&plane.kubectl(&["get", "hpa", deployment, "-o", "json"])?)?;
            last = scaler["status"].clone();
            let figure = last.pointer("/currentMetrics/0/resource/current/averageValue").and_then(Value::as_str);
            let ready = plane.kubectl(&["get", "deployment", deployment, "-o", "jsonpath={.status.readyReplicas}"])?;
            Ok((figure.is_some_and(|figure| figure != "0") && ready == MOST.to_string()).then_some(()))
        });
        grown.with_context(|| format!("{name} of {deployment}: {last}"))?;
    }
    Ok(())
}
