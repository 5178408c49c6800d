//! `deploy/admission-policy.yaml`: who gets the annotation by which a pod's image is pulled for a machine.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::controllers::Controllers;
use tests::wait::wait_for;

use super::TARGET;
use crate::kubelet::whole::{self, STEP_DEADLINE};

const OURS: &str = "virtlet.cloud";

/// Applies the policy, and waits until the API server goes by it: it says so of no policy, so a pod is made and not kept.
pub(super) fn apply(bed: &Bed, plane: &mut Controllers) -> Result<()> {
    let policy = bed.config.source("deploy/admission-policy.yaml")?;
    plane.apply(&[whole::runtime_class()])?;
    plane.kubectl(&["apply", "-f", &policy.display().to_string()])?;
    let machine = whole::pod("never", "example.test/none");
    wait_for("the policy's annotation", STEP_DEADLINE, || {
        Ok((annotation(&plane.tried(&machine)?) == Some(OURS)).then_some(()))
    })?;
    let mut other = machine.clone();
    other["metadata"]["annotations"] = json!({TARGET: "other"});
    let mut container = machine;
    container["spec"].as_object_mut().map(|spec| spec.remove("runtimeClassName"));
    for (pod, expected) in [(other, Some("other")), (container, None)] {
        let made = plane.tried(&pod)?;
        ensure!(annotation(&made) == expected, "not {expected:?}: {}", made["metadata"]);
    }
    Ok(())
}

/// Fails unless this pod is a machine's by the policy, or is none.
pub(super) fn follows(pod: &Value, is_machine: bool) -> Result<()> {
    ensure!(annotation(pod) == is_machine.then_some(OURS), "{}", pod["metadata"]);
    Ok(())
}

fn annotation(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"].get(TARGET)?.as_str()
}
