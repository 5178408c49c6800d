//! What a containerd costs behind controld beside the same containerd alone, and what our own calls cost in front of one.
//!
//! Both are asked by the same client in turn. Processor time is that of both daemons together, so that what one of them does for the
//! other is not lost.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;

use anyhow::{Result, ensure};
use proto::cri::{
    ContainerConfig, ContainerMetadata, ContainerStatusRequest, ExecSyncRequest, ImageSpec, ListContainersRequest,
    ListPodSandboxRequest,
};
use proto::side::{OURS, SIDE};
use serde_json::json;
use tests::case::Bed;
use tests::cni::{self, Network};
use tests::command::sh;
use tests::containerd::{Containerd, Release, archive_of};
use tests::cri::Cri;
use tests::node::Node;
use tests::peers::registry::Registry;
use tests::pss::pss;
use tonic::Request;
use tonic::metadata::MetadataValue;

use super::attach::wide;
use super::calls::{at_once, typical};
use super::report::{Pair, Row};
use super::rivals::{account, busy};
use super::{baseline, timed};

const CONFIG: &str = "/etc/virtlet/controld.toml";
const BUSYBOX: &str = "/bin/busybox";
const IMAGE: &str = "docker.io/library/box:1";
const HANDLER: &str = "virtlet";
const PAIRS: usize = 9;
const CALLS: usize = 201;
const LISTS: usize = 41;
/// Of each side.
const SANDBOXES: u32 = 300;
/// Bytes that a command prints, as much as a client takes.
const PRINTED: usize = 8 << 20;
/// Of an image that is pulled, random.
const PULLED: u64 = 64 << 20;
const PULLED_NAME: &str = "registry.example/pulled:1";
/// What lists of both may take in controld, in KiB.
const CACHED: f64 = 4e6 / 1024.0;

/// A containerd and controld in front of it.
struct Both<'a> {
    node: &'a Node,
    containerd: &'a Containerd,
    /// Both daemons' processor time.
    account: PathBuf,
    container: String,
}

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let containerd = Containerd::start(bed, Release::Newest, &cni::debian_plugins(), &baseline(bed, "pause")?)?;
    let names = ["bin/busybox", "bin/sh", "bin/head", "bin/sleep"];
    containerd.import(&archive_of(&bed.dir, IMAGE, (BUSYBOX.as_ref(), &names), &[])?)?;
    let config = fs::read_to_string(CONFIG)?;
    let endpoint = containerd.socket().display();
    fs::write(CONFIG, format!("{config}\n[proxy]\nruntime_endpoint = 'unix://{endpoint}'\n"))?;
    restart(node)?;
    let registry = Registry::start(bed)?;
    let [dir, layer] = ["pulled", "pulled.tar"].map(|name| bed.dir.join(name));
    fs::create_dir(&dir)?;
    io::copy(&mut File::open("/dev/urandom")?.take(PULLED), &mut File::create(dir.join("data"))?)?;
    sh(&format!("tar -C {} -cf {} data", dir.display(), layer.display()))?;
    registry.push_container("pulled:1", &layer, &json!({}))?;
    containerd.pull_from(&registry.host)?;
    let measured = measured(node, &containerd);
    fs::write(CONFIG, config)?;
    restart(node)?;
    let rows = measured?;
    containerd.stop()?;
    Ok(rows)
}

fn restart(node: &mut Node) -> Result<()> {
    node.controld.terminate()?;
    node.controld.start_again()?;
    node.wait_ready()
}

fn measured(node: &Node, containerd: &Containerd) -> Result<Vec<Row>> {
    let sandbox = containerd.cri.run_sandbox(&node.pod("forwarded")?)?;
    let pod = node.pod("forwarded")?;
    let container = containerd.cri.create(&sandbox, &waiting(), &pod)?;
    containerd.cri.start(&container)?;
    let account = account("proxy", &[node.controld.pid()?, containerd.daemon.pid()?])?;
    let both = Both { node, containerd, account, container };
    let mut rows = both.calls()?;
    containerd.cri.remove_sandbox(&sandbox)?;
    cni::install(&wide()?)?;
    let crowd = both.crowd();
    cni::install(&Network::BRIDGE.conflist().to_string())?;
    rows.extend(crowd?);
    Ok(rows)
}

/// A container that waits.
fn waiting() -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "c".into(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.into(), ..ImageSpec::default() }),
        command: ["/bin/sleep", "1000000"].map(String::from).into(),
        ..ContainerConfig::default()
    }
}

impl Both<'_> {
    fn sides(&self) -> [&Cri; 2] {
        [&self.node.cri, &self.containerd.cri]
    }

    /// What is passed on, and a sandbox of ours.
    fn calls(&self) -> Result<Vec<Row>> {
        let [mut statuses, mut processors, mut outputs, mut sandboxes, mut pulls] = [const { Vec::new() }; 5];
        for pair in 0..PAIRS {
            let [ours, direct] = self.sides().map(|cri| self.cost(|| self.status(cri)));
            let (ours, direct) = (ours?, direct?);
            statuses.push(Pair { ours: ours.0, baseline: direct.0 });
            processors.push(Pair { ours: ours.1, baseline: direct.1 });
            let [ours, direct] = self.sides().map(|cri| timed(|| self.printed(cri)));
            outputs.push(Pair { ours: ours?.0, baseline: direct?.0 });
            let [ours, direct] = self.sides().map(|cri| self.pulled(cri));
            pulls.push(Pair { ours: ours?, baseline: direct? });
            sandboxes.push(Pair { ours: self.sandbox(pair, false)?, baseline: self.sandbox(pair, true)? });
        }
        let row = |name, target, pairs| Row { name, unit: "us", target: Some(target), pairs };
        Ok(vec![
            row("ContainerStatus of containerd's / asked itself", 1.3, statuses),
            row("processor time of it / asked itself", 1.5, processors),
            row("ExecSync of 8 MiB of containerd's / asked itself", 1.02, outputs),
            row("PullImage of 64 MiB of containerd's / asked itself", 1.02, pulls),
            row("RunPodSandbox of a VM, by its key / said to be ours", 1.1, sandboxes),
        ])
    }

    /// Microseconds of the call in the middle, and of processors for each.
    fn cost<T>(&self, call: impl Fn() -> Result<T>) -> Result<(f64, f64)> {
        let before = busy(&self.account)?;
        let middle = typical(CALLS, call)?;
        #[expect(clippy::cast_precision_loss, reason = "a count of a bench")]
        let each = (busy(&self.account)? - before) / CALLS as f64;
        Ok((middle, each))
    }

    fn status(&self, cri: &Cri) -> Result<()> {
        let request = ContainerStatusRequest { container_id: self.container.clone(), verbose: false };
        cri.call(|mut client| async move { client.container_status(request).await })?;
        Ok(())
    }

    fn printed(&self, cri: &Cri) -> Result<()> {
        let cmd = ["/bin/head", "-c", &PRINTED.to_string(), "/dev/zero"].map(String::from).into();
        let request = ExecSyncRequest { container_id: self.container.clone(), cmd, timeout: 60 };
        let said =
            cri.call(|client| async move { client.max_decoding_message_size(2 * PRINTED).exec_sync(request).await })?;
        ensure!(said.stdout.len() == PRINTED, "{} bytes: {:?}", said.stdout.len(), said.stderr);
        Ok(())
    }

    /// Microseconds of a pull, of which nothing is left.
    fn pulled(&self, cri: &Cri) -> Result<f64> {
        let (took, _id) = timed(|| cri.pull(PULLED_NAME))?;
        self.containerd.cri.remove_image(PULLED_NAME)?;
        Ok(took)
    }

    /// Microseconds of a sandbox of ours, which its handler tells or the call says.
    fn sandbox(&self, number: usize, said: bool) -> Result<f64> {
        let pod = self.node.pod(&format!("{}-{number}", if said { "said" } else { "keyed" }))?;
        let request = proto::cri::RunPodSandboxRequest { config: Some(pod), runtime_handler: HANDLER.into() };
        let (took, id) = timed(|| {
            let request = if said { of_ours(request.clone()) } else { Request::new(request.clone()) };
            let made = self.node.cri.call(|mut client| async move { client.run_pod_sandbox(request).await })?;
            anyhow::Ok(made.pod_sandbox_id)
        })?;
        self.node.cri.remove_sandbox(&id)?;
        Ok(took)
    }

    /// Lists of many of both, beside those of each alone.
    fn crowd(&self) -> Result<Vec<Row>> {
        let before = pss(&["controld"])?;
        let numbers: Vec<u32> = (0..SANDBOXES).collect();
        let ours = at_once(&numbers, |n| {
            Ok(self.node.cri.run_sandbox_for(&self.node.pod(&format!("ours-{n}"))?, HANDLER)?)
        })?;
        let theirs = at_once(&numbers, |n| {
            let pod = self.node.pod(&format!("theirs-{n}"))?;
            let sandbox = self.containerd.cri.run_sandbox_for(&pod, "")?;
            // Created alone: what a list says of it is the same.
            self.containerd.cri.create(&sandbox, &waiting(), &pod)?;
            Ok(sandbox)
        })?;
        let alone = self.grown(before)?;
        let [mut sandboxes, mut containers] = [const { Vec::new() }; 2];
        for _pair in 0..PAIRS {
            let merged = typical(LISTS, || self.listed(&self.node.cri, false))?;
            let apart = typical(LISTS, || self.listed(&self.node.cri, true))?
                + typical(LISTS, || self.listed(&self.containerd.cri, false))?;
            sandboxes.push(Pair { ours: merged, baseline: apart });
            let merged = typical(LISTS, || self.containers(&self.node.cri, false))?;
            let apart = typical(LISTS, || self.containers(&self.node.cri, true))?
                + typical(LISTS, || self.containers(&self.containerd.cri, false))?;
            containers.push(Pair { ours: merged, baseline: apart });
        }
        let cached = Pair { ours: (self.grown(before)? - alone).max(1.0), baseline: CACHED };
        at_once(&ours, |id| Ok(self.node.cri.remove_sandbox(id)?))?;
        at_once(&theirs, |id| Ok(self.containerd.cri.remove_sandbox(id)?))?;
        Ok(vec![
            Row { name: "ListPodSandbox of 300 + 300 / both alone", unit: "us", target: Some(1.1), pairs: sandboxes },
            Row {
                name: "ListContainers of 300 of containerd's / both alone",
                unit: "us",
                target: Some(1.1),
                pairs: containers,
            },
            Row { name: "PSS of their last good lists / 4 MB", unit: "KiB", target: Some(1.0), pairs: vec![cached] },
        ])
    }

    /// KiB that controld has more than `before`.
    fn grown(&self, before: f64) -> Result<f64> {
        Ok(pss(&["controld"])? - before)
    }

    fn listed(&self, cri: &Cri, ours: bool) -> Result<()> {
        let request = ListPodSandboxRequest::default();
        let request = if ours { of_ours(request) } else { Request::new(request) };
        cri.call(|mut client| async move { client.list_pod_sandbox(request).await })?;
        Ok(())
    }

    fn containers(&self, cri: &Cri, ours: bool) -> Result<()> {
        let request = ListContainersRequest::default();
        let request = if ours { of_ours(request) } else { Request::new(request) };
        cri.call(|mut client| async move { client.list_containers(request).await })?;
        Ok(())
    }
}

/// A call that is said to be about machines alone.
fn of_ours<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(SIDE, MetadataValue::from_static(OURS));
    request
}
