//! The operator with 10,000 instances beside a bare reflector of the same list: a typed client that keeps them all, and does nothing.
//!
//! All of them have ended, so that there is nothing to do for any of them: what is measured is what it takes to know them. Before, in the
//! same cluster, the rows of `subresources`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::cluster::Cluster;
use tests::command::command;
use tests::node::Node;
use tests::wait::wait_for;
use tonic::codegen::http::Request;

use super::report::{Pair, Row};
use super::{rss, subresources};

const OBJECTS: usize = 10_000;
const AT_A_TIME: usize = 16;
const ROUNDS: usize = 3;
const GROUP: &str = "kubevirt.io";
const PATH: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const METRICS: &str = "127.0.0.1:18090";
/// Until all statuses are written, by two processors.
const SETTLE_DEADLINE: Duration = Duration::from_secs(600);
/// Until all is known.
const SYNC_DEADLINE: Duration = Duration::from_secs(120);
const END_DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of user-data, so that an object has some 2.4 KB as those of people have.
const USER_DATA: usize = 1500;

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let cluster = Cluster::start(bed)?;
    // First, as it leaves nothing in the cluster.
    let mut rows = subresources::rows(bed, node, &cluster)?;
    let printed = command(bed.program("virtlet-operator"), ["crds"]).output()?;
    let crds = serde_saphyr::from_multiple::<Value>(&String::from_utf8(printed.stdout)?).context("no definitions")?;
    ensure!(!crds.is_empty(), "no definitions: {}", String::from_utf8_lossy(&printed.stderr));
    crds.iter().try_for_each(|crd| cluster.apply(CRDS, crd).map(drop))?;
    wait_for("API of instances", SYNC_DEADLINE, || Ok(cluster.get(PATH).ok()))?;
    tokio::runtime::Runtime::new()?.block_on(fill(&cluster))?;
    settle(bed, &cluster)?;
    let before = cluster.writes(GROUP)?;
    let (mut memory, mut times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let [ours, bare] = [operator(bed, &cluster)?, bare(bed, &cluster)?];
        memory.push(Pair { ours: ours.0, baseline: bare.0 });
        times.push(Pair { ours: ours.1, baseline: bare.1 });
    }
    let after = cluster.writes(GROUP)?;
    ensure!(before == after, "the operator wrote {} times with nothing to do", after - before);
    let row = |name, unit, target, pairs| Row { name, unit, target: Some(target), pairs };
    rows.extend([
        row("operator with 10,000 instances, RSS / a bare reflector", "KiB", 1.6, memory),
        row("first instance looked at of 10,000 / all known to a bare reflector", "us", 2.0, times),
    ]);
    Ok(rows)
}

/// What `bed bench reflector KUBECONFIG` does: says `ready` once all are known, and stays.
pub(super) fn reflect(kubeconfig: &Path) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
        let api: Api<Instance> = Api::all(Client::try_from(config)?);
        let (store, writer) = reflector::store();
        let config = watcher::Config::default().streaming_lists();
        let events = watcher(api, config)
            .default_backoff()
            .map_ok(|event| event.modify(|one| one.metadata.managed_fields = None));
        let work = events.reflect(writer).touched_objects().for_each(async |_| {});
        let told = async {
            store.wait_until_ready().await?;
            let mut out = std::io::stdout();
            writeln!(out, "ready")?;
            out.flush()?;
            anyhow::Ok(())
        };
        let (told, ()) = futures_util::future::join(told, work).await;
        told
    })
}

/// An instance, typed as the operator's rules have it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Instance {
    metadata: ObjectMeta,
    #[serde(skip_serializing)]
    #[allow(dead_code, reason = "is kept, as whoever works with it keeps it")]
    spec: kubevirt::types::Spec,
}

impl kube::Resource for Instance {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "VirtualMachineInstance".into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "kubevirt.io".into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "virtualmachineinstances".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Makes all of them, ended.
async fn fill(cluster: &Cluster) -> Result<()> {
    let client = cluster.client().await?;
    let one = async |nth: usize| {
        let object = instance(nth).to_string().into_bytes();
        let made = Request::post(PATH).header("content-type", "application/json").body(object)?;
        client.request::<Value>(made).await?;
        let status = json!({"status": {"phase": "Succeeded"}}).to_string().into_bytes();
        let ended =
            Request::patch(format!("{PATH}/vm-{nth}/status")).header("content-type", "application/merge-patch+json");
        client.request::<Value>(ended.body(status)?).await?;
        anyhow::Ok(())
    };
    stream::iter(0..OBJECTS).map(one).buffer_unordered(AT_A_TIME).try_collect::<()>().await
}

fn instance(nth: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": format!("vm-{nth}"), "labels": {"app": format!("app-{}", nth % 100)}},
        "spec": {
            "domain": {
                "cpu": {"cores": 2}, "memory": {"guest": "1Gi"},
                "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "init", "disk": {"bus": "virtio"}}]},
            },
            "volumes": [
                {"name": "root", "containerDisk": {"image": "quay.io/containerdisks/debian:13"}},
                {"name": "init", "cloudInitNoCloud": {"userData": format!("#cloud-config\n# {}\n", "x".repeat(USER_DATA))}},
            ],
        },
    })
}

/// Lets an operator write all statuses for the first time.
fn settle(bed: &Bed, cluster: &Cluster) -> Result<()> {
    let mut child = start(bed, cluster)?;
    let mut last = (0, Instant::now());
    let settled = wait_for("statuses of all", SETTLE_DEADLINE, || {
        let now = looked_at().unwrap_or_default();
        if now != last.0 {
            last = (now, Instant::now());
        }
        Ok((now >= OBJECTS && last.1.elapsed() > Duration::from_secs(5)).then_some(()))
    });
    end(&mut child)?;
    settled
}

/// KiB that an operator takes which knows all of them, and how long its first look took, in microseconds.
fn operator(bed: &Bed, cluster: &Cluster) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let mut child = start(bed, cluster)?;
    let measured = (|| {
        while looked_at().unwrap_or_default() == 0 {
            ensure!(begun.elapsed() < SYNC_DEADLINE, "nothing was looked at within {} s", SYNC_DEADLINE.as_secs());
            std::thread::park_timeout(Duration::from_millis(2));
        }
        let first = begun.elapsed();
        wait_for("a look at all", SYNC_DEADLINE, || Ok((looked_at().unwrap_or_default() >= OBJECTS).then_some(())))?;
        Ok((rss(child.id())?, first.as_secs_f64() * 1e6))
    })();
    end(&mut child)?;
    measured
}

fn bare(bed: &Bed, cluster: &Cluster) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let words = ["bench".as_ref(), "reflector".as_ref(), cluster.admin.as_os_str()];
    let mut child = command(bed.itself(), words).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
    let known = begun.elapsed();
    let memory = rss(child.id());
    end(&mut child)?;
    ensure!(line == "ready\n", "the bare reflector said {line:?}");
    Ok((memory?, known.as_secs_f64() * 1e6))
}

fn start(bed: &Bed, cluster: &Cluster) -> Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(bed.logs().join("operator.log"))?;
    let words = ["run", "--namespace", "default", "--listen", METRICS, "--kubeconfig"];
    let mut operator: Command = command(bed.program("virtlet-operator"), words);
    Ok(operator.arg(&cluster.admin).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
}

/// Ends it in order: an operator gives its Lease back, or the next one would wait for the end of its term.
fn end(child: &mut Child) -> Result<()> {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    wait_for("end of the process", END_DEADLINE, || Ok(child.try_wait()?)).map(drop)
}

/// How often the operator has looked at an object.
fn looked_at() -> Result<usize> {
    let mut stream = TcpStream::connect(METRICS)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let counts = text.lines().filter(|line| line.starts_with("virtlet_operator_reconciles_total{"));
    Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum())
}
