//! A namespace with VMs is deleted while there is no operator: it waits for one, and goes with it. No VM is made meanwhile, and any may be
//! deleted; neither that nor the end of the namespace needs the webhook.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::pace;
use tests::wait::wait_for;

use super::{SETTLE_DEADLINE, Served, WEB, named, preset, set, sized, vm};

const GOING: &str = "going";
const VMS: usize = 8;
const OF_SET: usize = 12;
/// The API server waits five seconds for an answer; kubectl takes its time, too.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);
const ALL: &str = "pods,secrets,vm,vmi,vmirs,vmipreset";

pub(super) fn goes(served: &mut Served<'_>) -> Result<()> {
    let vms = (0..VMS).map(|nth| vm(GOING, &format!("vm{nth}")));
    let small = preset(GOING, "small", &json!({"size": "small"}), &json!({"memory": {"guest": "64Mi"}}));
    let first = [named("v1", "Namespace", GOING), small, set(GOING, "workers", OF_SET)];
    served.apply(&first.into_iter().chain(vms).collect::<Vec<_>>())?;
    served.settles("VMs of a namespace", |world| {
        let phases = world.kubectl(&["get", "vmi", "-n", GOING, "-o", "jsonpath={.items[*].status.phase}"])?;
        Ok(phases.matches("Running").count() == VMS + OF_SET)
    })?;
    let secrets = served.world.kubectl(&["get", "secrets", "-n", GOING, "-o", "name"])?;
    ensure!(secrets.lines().count() == VMS + OF_SET, "not a Secret for each: {secrets}");

    served.operator.kill9()?;
    // Whoever takes connections and says nothing takes the longest that there is.
    let silent = TcpListener::bind(served.webhook)?;
    served.world.kubectl(&["delete", "namespace", GOING, "--wait=false"])?;
    served.world.kubectl(&["delete", "vmi", "old", "-n", WEB, "--wait=false"])?;
    let asked = pace::now();
    let told = served.create(&sized("refused"))?;
    let took = asked.elapsed();
    let wanted = "failed calling webhook \"presets.virtlet.k8s\"";
    ensure!(told.code != Some(0) && told.stderr.contains(wanted), "{}{}", told.stdout, told.stderr);
    ensure!(took < REFUSED_WITHIN, "refused after {took:?}");
    waits(served)?;
    let old =
        served.world.kubectl(&["get", "vmi", "old", "-n", WEB, "-o", "jsonpath={.metadata.deletionTimestamp}"])?;
    ensure!(!old.is_empty(), "the instance was not deleted");

    // As when kubelet has its container start again. Of presets it is still not asked.
    served.serve("second", None)?;
    served.settles("end of the deleted instance", |world| {
        Ok(world.kubectl(&["get", "vmi", "old", "-n", WEB, "--ignore-not-found", "-o", "name"])?.is_empty())
    })?;
    served.settles("end of the namespace", |world| {
        Ok(world.kubectl(&["get", "namespace", GOING, "--ignore-not-found", "-o", "name"])?.is_empty())
    })?;
    drop(silent);
    let here = format!("--field-selector=metadata.namespace={GOING}");
    let left = served.world.kubectl(&["get", ALL, "--all-namespaces", &here, "-o", "name"])?;
    ensure!(left.is_empty(), "left of a namespace that is gone: {left}");
    Ok(())
}

/// Waits until the namespace says that instances are what it waits for.
fn waits(served: &Served<'_>) -> Result<()> {
    let mut last = Value::Null;
    let told = wait_for("namespace that says what it waits for", SETTLE_DEADLINE, || {
        served.kubelet.check()?;
        last = served.world.cluster.get(&format!("/api/v1/namespaces/{GOING}"))?["status"].clone();
        let conditions = last["conditions"].as_array();
        let wanted = format!("virtlet.k8s/pod in {} resource instances", VMS + OF_SET);
        let waits = conditions.into_iter().flatten().any(|one| {
            one["type"] == "NamespaceFinalizersRemaining"
                && one["status"] == "True"
                && one["message"].as_str().is_some_and(|text| text.contains(&wanted))
        });
        Ok(waits.then_some(()))
    });
    told.with_context(|| format!("the namespace says {last}"))
}
