//! Another operator takes over, as after an upgrade: no VM notices, and nothing of any object is written.
//!
//! There is no release before this one. Both operators are of one program, with names of their own; the installation has another image.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::wait::wait_for;

use super::{NAMESPACE, OPERATOR, SETTLE_DEADLINE, Served, WEB, set, vm};
use crate::objects::World;

const IMAGE: &str = "virtlet-operator:next";
const GROUP: &str = "kubevirt.io";
/// What the operator writes, or has others write.
const ALL: &str = "vm,vmi,vmirs,pods,secrets";
/// What there is: `old`, `merged` and that of `db`; and of the set.
const ALONE: u32 = 3;
const OF_SET: u32 = 2;

pub(super) fn unnoticed(served: &mut Served<'_>) -> Result<()> {
    served.apply(&[vm(WEB, "db"), set(WEB, "workers", OF_SET as usize)])?;
    served.settles("VMs before the upgrade", |world| all_run(world, OF_SET))?;
    let mut before = BTreeMap::new();
    // A status follows the one that it is made of.
    served.settles("objects that nobody writes any more", |world| {
        let last = std::mem::replace(&mut before, seen(world)?);
        Ok(last == before)
    })?;
    let writes = served.world.cluster.writes(GROUP)?;

    served.world.apply(&["--image", IMAGE, "--without", "subresources"])?;
    served.world.kubectl(&["rollout", "status", &format!("deployment/{OPERATOR}"), "-n", NAMESPACE])?;
    let image = "jsonpath={.items[*].spec.containers[0].image}";
    let images = served.world.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", image])?;
    ensure!(images.contains(IMAGE), "no pod has the new image: {images}");
    ensure!(served.operator.terminate()? == Some(0), "the operator did not end in order");
    served.serve("second", Some(served.webhook))?;
    looked_at_all(served)?;

    let now = served.world.cluster.writes(GROUP)?;
    ensure!(now == writes, "{} writes to objects of the group by an operator that has nothing to do", now - writes);
    let after = seen(&served.world)?;
    ensure!(after == before, "not as before: {before:?}; {after:?}");

    // It is the one that writes now, and that the API server asks.
    served.world.kubectl(&["scale", "vmirs/workers", "-n", WEB, &format!("--replicas={}", OF_SET + 1)])?;
    served.settles("another VM after the upgrade", |world| all_run(world, OF_SET + 1))
}

/// Waits until the operator has looked at each object, and so done what it would do.
fn looked_at_all(served: &mut Served<'_>) -> Result<()> {
    let all = [("virtualmachine", 1), ("virtualmachineinstance", ALONE + OF_SET), ("replicaset", 1)];
    let figures = |served: &Served<'_>| {
        let looks = |kind: &str| served.figure(&format!("virtlet_operator_reconciles_total{{kind=\"{kind}\""));
        all.map(|(kind, there)| (looks(kind), f64::from(there)))
    };
    let mut last = Vec::new();
    let looked = wait_for("look at all objects", SETTLE_DEADLINE, || {
        served.operator.still_runs()?;
        last = figures(served).to_vec();
        Ok(last.iter().all(|(looks, there)| looks >= there).then_some(()))
    });
    looked.with_context(|| format!("looks, of how many, at VMs, instances and sets: {last:?}"))
}

/// Whether all that is there says that it runs.
fn all_run(world: &World<'_>, of_set: u32) -> Result<bool> {
    let path = |object: &str, path: &str| {
        let output = format!("jsonpath={{{path}}}");
        world.kubectl(&["get", object, "-n", WEB, "--ignore-not-found", "-o", &output])
    };
    let running = path("vmi", ".items[*].status.phase")?.matches("Running").count();
    Ok(running == (ALONE + of_set) as usize
        && path("vm/db", ".status.ready")? == "true"
        && path("vmirs/workers", ".status.readyReplicas")? == of_set.to_string())
}

/// What tells whether somebody wrote an object: its uid, its version, its generation.
fn seen(world: &World<'_>) -> Result<BTreeMap<String, [Value; 3]>> {
    let all: Value = serde_json::from_str(&world.kubectl(&["get", ALL, "-n", WEB, "-o", "json"])?)?;
    let all = all["items"].as_array().context("no list")?;
    let one = |object: &Value| {
        let metadata = &object["metadata"];
        let name = format!("{}/{}", object["kind"], metadata["name"]);
        (name, ["uid", "resourceVersion", "generation"].map(|key| metadata[key].clone()))
    };
    Ok(all.iter().map(one).collect())
}
