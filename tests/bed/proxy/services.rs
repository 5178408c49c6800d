//! A Service in front of a machine and a container: its address, which kube-proxy makes, answers to whoever asks for both kinds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use tests::controllers::Controllers;
use tests::http;
use tests::wait::wait_for;

use crate::kubelet::whole::STEP_DEADLINE;

/// Where either answers, and what the machine and the container do.
pub(super) const PATH: &str = "/index.html";
pub(super) const ANSWERS: [&str; 2] = ["tiny guest", "a container"];
/// kube-proxy draws one of both for each connection: so many of them miss one once in two thousand million times.
const CALLS: u32 = 32;

/// Asks from these pods, and from the node.
pub(super) fn answers(plane: &mut Controllers, name: &str, pods: [&str; 2]) -> Result<()> {
    let ip = plane.kubectl(&["get", "service", name, "-o", "jsonpath={.spec.clusterIP}"])?;
    let address: IpAddr = ip.parse()?;
    let mut heard = BTreeSet::new();
    let asked = wait_for("the Service's answers on the node", STEP_DEADLINE, || {
        if let Ok(answer) = http::get(address, PATH) {
            heard.extend(kind_of(&answer));
        }
        Ok((heard.len() == ANSWERS.len()).then_some(()))
    });
    asked.with_context(|| format!("{heard:?}"))?;
    // Bounded by kubectl's deadline: busybox of Debian 12 crashes when it is given one.
    let script = format!(
        "i=0; while [ $i -lt {CALLS} ]; do wget -q -O - http://{ip}{PATH} 2>&1 || echo failed; i=$((i+1)); done"
    );
    for pod in pods {
        let said = plane.kubectl(&["exec", pod, "--", "sh", "-c", &script])?;
        let heard: BTreeSet<_> = said.lines().filter_map(kind_of).collect();
        ensure!(heard.len() == ANSWERS.len() && !said.contains("failed"), "the Service's answers in {pod}: {said}");
    }
    Ok(())
}

fn kind_of(answer: &str) -> Option<&'static str> {
    ANSWERS.into_iter().find(|kind| answer.contains(kind))
}
