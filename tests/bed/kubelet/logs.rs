//! kubelet rotates a machine's console: no line is lost or doubled, whichever daemon is killed meanwhile.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::{command, run};
use tests::counting::{SCRIPT, complete};
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest};
use tests::node::Node;
use tests::wait::wait_for;

use super::{DEADLINE, POD_DEADLINE, is_running};

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::rotation_loses_no_line_of_a_console", deadline: DEADLINE, run: rotated }];

fn rotated(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let rotation = json!({
        "containerLogMaxSize": "20Ki", "containerLogMaxFiles": 1000, "containerLogMonitorInterval": "3s",
    });
    let mut kubelet = Kubelet::configured(bed, &rotation)?;
    kubelet.apply("vm", &manifest("vm", &image, &json!({"VirtletCloudInitUserDataScript": SCRIPT})))?;
    kubelet.wait_pod("running pod", POD_DEADLINE, is_running)?;

    wait_files(2)?;
    node.restart_controld()?;
    wait_files(files()?.len() + 2)?;
    kubelet.again()?;
    wait_files(files()?.len() + 2)?;
    // Nobody rotates what is read now. As kubectl logs does not: also those that kubelet has packed.
    kubelet.daemon.kill9()?;
    let mut log = String::new();
    for file in files()? {
        log += &run(command("zcat", ["--force"]).arg(&file)).with_context(|| file.display().to_string())?;
    }
    let lines = complete(&log)?;
    ensure!(lines > 1000, "only {lines} lines");
    Ok(())
}

fn wait_files(least: usize) -> Result<()> {
    wait_for(&format!("{least} files of one console"), Duration::from_secs(60), || {
        Ok((files()?.len() >= least).then_some(()))
    })
}

/// The log's files, the oldest first: `0.log.DATE`, packed or not, then `0.log`.
pub(super) fn files() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for pod in fs::read_dir("/var/log/pods")? {
        for file in fs::read_dir(pod?.path().join("vm")).into_iter().flatten() {
            found.push(file?.path());
        }
    }
    // kubelet packs aside, and removes the plain one last.
    found.retain(|file| file.extension().is_none_or(|extension| extension != "tmp"));
    let packed: Vec<PathBuf> = found.iter().map(|file| file.with_extension("")).collect();
    found.retain(|file| !packed.contains(file) || file.ends_with("0.log"));
    found.sort_by_key(|file| (file.ends_with("0.log"), file.clone()));
    Ok(found)
}
