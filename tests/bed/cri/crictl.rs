//! What crictl can ask of a runtime beside a pod's life: filters, forms of output, logs, figures, events and shortcuts, one line each.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ListMetricDescriptorsRequest, ListPodSandboxMetricsRequest};
use serde_json::Value;
use tests::case::Bed;
use tests::command::command;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node};
use tests::wait::{wait_for, wait_until};

const SOON: Duration = Duration::from_secs(10);

/// What there is, as crictl's user sees it.
pub(super) struct Seen<'a> {
    pub(super) node: &'a Node,
    /// Name, without its tag.
    pub(super) image: &'a str,
    pub(super) sandbox: &'a str,
    pub(super) container: &'a str,
}

impl Seen<'_> {
    /// A text with what there is for `@id`, `@pod` and `@image`, and its 13 characters that crictl shows for `@id13` and `@pod13`.
    fn of(&self, text: &str) -> String {
        let short = |id: &str| id.get(..13).unwrap_or(id).to_owned();
        let text = text.replace("@id13", &short(self.container)).replace("@pod13", &short(self.sandbox));
        text.replace("@id", self.container).replace("@pod", self.sandbox).replace("@image", self.image)
    }

    /// Exit code of a line of words, and all that it prints.
    fn says(&self, line: &str) -> Result<(Option<i32>, String)> {
        let line = self.of(line);
        let ended = self.node.crictl(&line.split(' ').collect::<Vec<_>>())?;
        Ok((ended.code, format!("{}\n{}", ended.stdout.trim(), ended.stderr.trim()).trim().to_owned()))
    }

    fn expect(&self, line: &str, said: &str) -> Result<()> {
        let (said, (code, all)) = (self.of(said), self.says(line)?);
        ensure!(code == Some(0) && all.contains(&said), "crictl {line}: {code:?}: no `{said}` in: {all}");
        Ok(())
    }

    /// Of a machine that runs and has said `tiny: ready`.
    pub(super) fn looks(&self) -> Result<()> {
        for filter in
            ["--id @id13", "--pod @pod13", "--image @image", "--last 1", "--latest", "--name ^vm$", "--state running"]
        {
            self.expect(&format!("ps --quiet {filter}"), self.container)?;
        }
        for filter in
            ["--id @pod13", "--latest", "--last 1", "--name ^crictl$", "--namespace ^default$", "--state ready"]
        {
            self.expect(&format!("pods --quiet {filter}"), self.sandbox)?;
        }
        for none in ["ps -q --name ^no", "ps -q --state exited", "ps -q --label a=b", "pods -q --state notready"] {
            let ended = self.node.crictl(&none.split(' ').collect::<Vec<_>>())?;
            ensure!(ended.code == Some(0) && ended.stdout.is_empty(), "crictl {none}: {ended:?}");
        }
        for (line, said) in [
            ("ps -v", "PodID: "),
            ("ps -r --no-trunc", "tiny.qcow2:latest"),
            ("ps -o yaml", "state: CONTAINER_RUNNING"),
            ("pods -v", "UID: crictl-uid-1"),
            ("pods --no-trunc -o yaml", "state: SANDBOX_READY"),
            ("inspect --latest -o table", "State: CONTAINER_RUNNING"),
            ("inspect --pod @pod --name vm -o yaml", "applied:"),
            ("inspect -o go-template --template {{.status.state}} @id13", "CONTAINER_RUNNING"),
            ("inspectp --name crictl -o table", "UID: crictl-uid-1"),
            ("inspectp -o go-template --template {{.status.state}} @pod13", "SANDBOX_READY"),
            ("images --digests --pinned --no-trunc", "sha256:"),
            ("images -v @image:latest", "RepoDigests: "),
            ("inspecti -o table @image", "Digest: "),
            ("imagefsinfo -o yaml", "usedBytes"),
            ("info -o yaml", "LibvirtConnected"),
            ("runtime-config", "cgroup driver"),
            ("update-runtime-config --pod-cidr 10.9.0.0/16", "success"),
            ("logs --tail 1 --timestamps @id", "T"),
            ("logs --since 1h @id13", "tiny: ready"),
            ("logs --reopen @id", "reopened"),
            ("stats -a --seconds 0 --pod @pod", "@id13"),
            ("statsp --seconds 0 --id @pod13", "@pod13"),
            ("metricdescs", "container_cpu_usage_seconds_total"),
            ("metricsp -o yaml", "containerId: @id"),
            ("update --cpu-quota 50000 --cpu-period 100000 --cpu-share 512 @id", "@id"),
        ] {
            self.expect(line, said)?;
        }
        for (line, said) in [
            ("logs --previous @id", "previous terminated container"),
            ("checkpoint --export /tmp/none.tar @id", "Unimplemented"),
            ("rm @id", "is running"),
            ("runp --runtime no-such no-such.json", "no-such"),
        ] {
            let (code, all) = self.says(line)?;
            ensure!(code == Some(1) && all.contains(said), "crictl {line}: {code:?}: {all}");
        }
        self.has_each_metric()
    }

    /// What critest looks for in a container with too little memory for a machine: each metric that is described has a value, with as
    /// many labels as it says.
    fn has_each_metric(&self) -> Result<()> {
        let cri = &self.node.cri;
        let request = ListMetricDescriptorsRequest {};
        let described = cri.call(|mut client| async move { client.list_metric_descriptors(request).await })?;
        let described: BTreeMap<_, _> =
            described.descriptors.iter().map(|metric| (&*metric.name, metric.label_keys.len())).collect();
        let request = ListPodSandboxMetricsRequest {};
        let pods = cri.call(|mut client| async move { client.list_pod_sandbox_metrics(request).await })?.pod_metrics;
        let pod = pods.iter().find(|pod| pod.pod_sandbox_id == self.sandbox).context("no metrics of the pod")?;
        let of_machines = pod.container_metrics.iter().flat_map(|machine| &machine.metrics);
        let found: BTreeMap<_, _> =
            pod.metrics.iter().chain(of_machines).map(|metric| (&*metric.name, metric.label_values.len())).collect();
        ensure!(found == described, "described: {described:?}, found: {found:?}");
        Ok(())
    }

    /// A second machine in one command, whose events are heard, and all gone in another one.
    pub(super) fn shortcuts(&self, bed: &Bed, container: &str, pod: &str) -> Result<()> {
        let heard = bed.dir.join("events");
        let endpoint = format!("unix://{CRI_SOCKET}");
        let mut events = command(bed.config.peer("crictl")?, ["--runtime-endpoint", &endpoint, "events"]);
        let mut events = events.stdin(Stdio::null()).stdout(fs::File::create(&heard)?).stderr(Stdio::null()).spawn()?;
        let made = (|| {
            let all = || fs::read_to_string(&heard).unwrap_or_default();
            // Of what was before it listened it hears nothing.
            let other = self.node.pod("heard")?;
            wait_for("crictl that hears of pods", BOOT_DEADLINE, || {
                self.node.cri.remove_sandbox(&self.node.cri.run_sandbox(&other)?)?;
                Ok((!all().is_empty()).then_some(()))
            })?;
            self.expect(&format!("run --no-pull {container} {pod}"), "")?;
            let second = self.node.crictl(&["pods", "--quiet", "--name", "^second$"])?.stdout;
            let second = second.trim();
            self.expect(&format!("ps --quiet --pod {second}"), "vm")?;
            self.expect(&format!("rmp --force {second}"), "Removed sandbox")?;
            let of_second = |kind: &str| {
                let (all, kind) = (all(), format!("\"{kind}\""));
                let events = serde_json::Deserializer::from_str(&all).into_iter::<Value>().map_while(Result::ok);
                events.map(|event| event.to_string()).any(|event| event.contains(second) && event.contains(&kind))
            };
            let kinds = ["CONTAINER_CREATED_EVENT", "CONTAINER_STARTED_EVENT", "CONTAINER_DELETED_EVENT"];
            wait_until("the second machine's events", SOON, || kinds.iter().all(|kind| of_second(kind)))
                .with_context(all)
        })();
        events.kill()?;
        events.wait()?;
        made
    }
}
