//! Presets: what they add and what wins, two that differ, who is left alone.

use anyhow::{Context as _, Result, ensure};
use kubevirt::preset::EXCLUDES;
use serde_json::{Value, json};
use tests::wait::wait_for;

use super::{Served, WEB, preset, sized};
use crate::objects::NEWS_DEADLINE;

const RECORD: &str = "virtlet.k8s/presets";

pub(super) fn merged(served: &mut Served<'_>) -> Result<()> {
    // The operator answers, and there is no preset yet.
    wait_for("API server that the operator answers", NEWS_DEADLINE, || {
        served.operator.still_runs()?;
        Ok((served.create(&sized("old"))?.code == Some(0)).then_some(()))
    })?;
    served.apply(&[
        preset(
            WEB,
            "small",
            &json!({"size": "small"}),
            &json!({"cpu": {"cores": 2, "model": "Westmere"}, "memory": {"guest": "512Mi"}}),
        ),
        preset(WEB, "linux", &json!({"os": "debian"}), &json!({"cpu": {"cores": 2}, "machine": {"type": "q35"}})),
        preset(WEB, "large", &json!({"also": "large"}), &json!({"memory": {"guest": "8Gi"}})),
    ])?;
    differ(served)?;

    let mut merged = sized("merged");
    merged["metadata"]["labels"]["os"] = "debian".into();
    merged["spec"]["domain"] = json!({"cpu": {"model": "Haswell"}, "devices": {}});
    let told = served.create(&merged)?;
    let wins = "spec.domain.cpu.model: \"Haswell\" here wins over \"Westmere\" of preset `small`";
    ensure!(told.code == Some(0) && told.stderr.contains(wins), "{}", told.stderr);
    let record = added(served)?;
    served.settles("pod of the instance that presets were merged into", |world| {
        let pods = world.kubectl(&["get", "pods", "-n", WEB, "-l", "vm.kubevirt.io/name=merged", "-o", "json"])?;
        let pods: Value = serde_json::from_str(&pods)?;
        Ok(pods["items"][0]["metadata"]["annotations"][RECORD] == record.as_str())
    })?;
    served.settles("event of what the instance says otherwise", |world| {
        let path = "jsonpath={.items[*].message}";
        let told =
            world.kubectl(&["get", "events", "-n", WEB, "--field-selector=reason=PresetOverridden", "-o", path])?;
        Ok(told.contains("preset small has other values than its own of: cpu.model"))
    })?;
    left_alone(served)
}

/// Two presets that differ refuse what both are for; all that were made before are known then.
fn differ(served: &Served<'_>) -> Result<()> {
    let mut torn = torn("torn");
    torn["spec"]["domain"] = json!({"devices": {}});
    let mut last = String::new();
    let refused = wait_for("presets that the operator knows", NEWS_DEADLINE, || {
        let told = served.world.try_create(&torn)?;
        last = told.stderr;
        let differ = "spec.domain.memory.guest: presets `large` and `small` differ: \"8Gi\" and \"512Mi\"";
        Ok((told.code != Some(0) && last.contains(differ)).then_some(()))
    });
    refused.with_context(|| format!("the last answer: {last}"))
}

/// What the instance has got, as it stands; the record of it.
fn added(served: &Served<'_>) -> Result<String> {
    let path = format!("/apis/kubevirt.io/v1/namespaces/{WEB}");
    let stored = served.world.cluster.get(&format!("{path}/virtualmachineinstances/merged"))?;
    let domain = &stored["spec"]["domain"];
    let [cpu, memory, machine] = ["cpu", "memory", "machine"].map(|part| &domain[part]);
    ensure!(
        *cpu == json!({"cores": 2, "model": "Haswell"}) && memory["guest"] == "512Mi" && machine["type"] == "q35",
        "{domain}"
    );
    let text = stored["metadata"]["annotations"][RECORD].as_str().context("no record")?;
    let record: Value = serde_json::from_str(text)?;
    let mut wanted = json!({
        "linux": {"paths": ["cpu.cores", "machine.type"]},
        "small": {"overridden": ["cpu.model"], "paths": ["cpu.cores", "memory.guest"]},
    });
    for name in ["linux", "small"] {
        let preset = served.world.cluster.get(&format!("{path}/virtualmachineinstancepresets/{name}"))?;
        wanted[name]["resourceVersion"] = preset["metadata"]["resourceVersion"].clone();
    }
    ensure!(record == wanted, "{record}");
    Ok(text.to_owned())
}

/// Who asks for that, by whichever annotation, and who was there before.
fn left_alone(served: &Served<'_>) -> Result<()> {
    let excluded: Vec<Value> = EXCLUDES
        .iter()
        .enumerate()
        .map(|(nth, annotation)| {
            let mut excluded = torn(&format!("excluded-{nth}"));
            excluded["metadata"]["annotations"] = json!({*annotation: "true"});
            excluded
        })
        .collect();
    let told = served.world.try_create(&json!({"apiVersion": "v1", "kind": "List", "items": excluded}))?;
    let made = told.stdout.matches("created").count();
    ensure!(told.code == Some(0) && made == EXCLUDES.len() && told.stderr.is_empty(), "{}{}", told.stdout, told.stderr);

    let other = r#"{"spec":{"domain":{"memory":{"guest":"256Mi"}}}}"#;
    served.world.kubectl(&["patch", "vmipreset", "small", "-n", WEB, "--type=merge", "-p", other])?;
    served.world.kubectl(&["label", "vmi", "old", "merged", "-n", WEB, "seen=yes"])?;
    let all = served.world.kubectl(&["get", "vmi", "old", "merged", "-n", WEB, "-o", "json"])?;
    let all: Value = serde_json::from_str(&all)?;
    let generations: Vec<&Value> = (0..2).map(|nth| &all["items"][nth]["metadata"]["generation"]).collect();
    ensure!(generations == [1, 1], "specs were changed: {generations:?}");
    let old = &all["items"][0];
    ensure!(old["metadata"]["annotations"][RECORD].is_null(), "a preset in what was there before: {old}");
    Ok(())
}

/// One that two presets are for which differ.
fn torn(name: &str) -> Value {
    let mut torn = sized(name);
    torn["metadata"]["labels"]["also"] = "large".into();
    torn
}
