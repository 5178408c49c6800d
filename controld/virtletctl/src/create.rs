//! `run`: an image to a running pod. A step that fails undoes those before it.

use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use proto::cri::*;
use uuid::Uuid;

use super::client::{Client, spec};
use super::error::CtlError;
use super::find::Node;
use super::interrupt::Interrupt;
use super::logdir::{self, LogDir};
use super::source::Source;
use super::text::shown;
use super::{cli, name, wait};

/// CFS period, in microseconds (kernel, `Documentation/scheduler/sched-bwc.rst`).
const CPU_PERIOD: i64 = 100_000;
/// Longest file that becomes an annotation; Kubernetes allows less for all of them.
const MAX_FILE: u64 = 1 << 20;
const SSH_KEYS: &str = "VirtletSSHKeys";
const USER_DATA: &str = "VirtletCloudInitUserData";

/// What is to be made.
#[derive(Debug)]
struct Plan {
    image: Source,
    pod: PodSandboxConfig,
    container: ContainerConfig,
    logs: LogDir,
}

/// What was made so far.
#[derive(Debug, Default)]
struct Made {
    /// Of the pod that controld was asked for, which it may finish although nobody hears of it.
    uid: Option<String>,
    sandbox: Option<String>,
    logs: Option<LogDir>,
}

/// Makes a pod of an image and prints its name and IP.
pub(super) async fn run(
    client: &Client,
    wanted: cli::Run,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    let plan = plan(wanted, Uuid::new_v4())?;
    let PodSandboxMetadata { name, namespace, .. } = plan.pod.metadata.clone().unwrap_or_default();
    let node = Node::read(client).await?;
    let is_same = |pod: &PodSandboxMetadata| pod.name == name && pod.namespace == namespace;
    if node.sandboxes.iter().filter_map(|sandbox| sandbox.metadata.as_ref()).any(is_same) {
        return Err(CtlError::PodExists { name, namespace });
    }
    let mut made = Made::default();
    match make(client, plan, &mut made, interrupt).await {
        Ok(ip) => writeln!(out, "{name} {}", if ip.is_empty() { "-".into() } else { shown(&ip) })?,
        Err(first) => match wait::told("undoing what was begun", made.undo(client)).await {
            Ok(()) => return Err(first),
            Err(undo) => {
                return Err(CtlError::LeftBehind { pod: name, first: Box::new(first), undo: Box::new(undo) });
            }
        },
    }
    Ok(())
}

async fn make(client: &Client, plan: Plan, made: &mut Made, interrupt: &Interrupt) -> Result<String, CtlError> {
    let Plan { image, pod, container, logs } = plan;
    image.bring(client, interrupt).await.map_err(CtlError::of_images)?;
    let name = container.metadata.clone().unwrap_or_default().name;
    made.logs = Some(logs.clone());
    logs.create(&name)?;
    // controld ends what it has begun, so we hear it out before we undo it.
    interrupt.check()?;
    made.uid = pod.metadata.as_ref().map(|metadata| metadata.uid.clone());
    let networked = client.run_sandbox(pod.clone());
    let sandbox = wait::told("waiting for the pod's network: the CNI plugins are at work", networked).await?;
    made.sandbox = Some(sandbox.clone());
    interrupt.check()?;
    let id = client.create_container(&sandbox, container, Some(pod)).await?;
    interrupt.check()?;
    wait::told("waiting for the machine to start", client.start_container(&id)).await?;
    interrupt.check()?;
    client.pod_ip(&sandbox).await
}

fn plan(wanted: cli::Run, uid: Uuid) -> Result<Plan, CtlError> {
    let image = Source::of(&wanted.image)?;
    let name = wanted.name.unwrap_or_else(|| name::of_image(image.name(), &uid.simple().to_string()));
    let metadata =
        PodSandboxMetadata { name: name.clone(), uid: uid.to_string(), namespace: wanted.namespace, attempt: 0 };
    let logs = LogDir::plan(&wanted.log_dir, &metadata)?;
    let mut annotations = std::collections::HashMap::new();
    let mut given: Vec<(String, String, &'static str)> =
        wanted.annotations.into_iter().map(|(key, value)| (key, value, "--annotation")).collect();
    if !wanted.ssh_keys.is_empty() {
        let keys: Vec<String> = wanted.ssh_keys.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        given.push((SSH_KEYS.into(), keys.join("\n"), "--ssh-key"));
    }
    if let Some(path) = &wanted.user_data {
        given.push((USER_DATA.into(), read(path)?, "--user-data"));
    }
    for (key, value, option) in given {
        if annotations.insert(key.clone(), value).is_some() {
            return Err(CtlError::Twice { key, option });
        }
    }
    let pod = PodSandboxConfig {
        metadata: Some(metadata),
        hostname: name.clone(),
        log_directory: logs.path(),
        labels: [(logdir::LABEL.to_owned(), logs.root().to_owned())].into(),
        annotations,
        linux: Some(LinuxPodSandboxConfig::default()),
        ..Default::default()
    };
    let resources = LinuxContainerResources {
        cpu_period: wanted.cpus.map(|_| CPU_PERIOD).unwrap_or_default(),
        cpu_quota: wanted.cpus.map(|milli| milli * CPU_PERIOD / 1000).unwrap_or_default(),
        memory_limit_in_bytes: wanted.memory.unwrap_or_default(),
        ..Default::default()
    };
    let container = ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.clone(), attempt: 0 }),
        image: Some(spec(image.name())),
        log_path: format!("{name}/0.log"),
        stdin: true,
        tty: true,
        linux: Some(LinuxContainerConfig { resources: Some(resources), ..Default::default() }),
        ..Default::default()
    };
    Ok(Plan { image, pod, container, logs })
}

/// A file that becomes an annotation.
fn read(path: &Path) -> Result<String, CtlError> {
    let failed = |cause| CtlError::File { action: "read", path: PathBuf::from(path), cause };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(CtlError::TooLong { path: path.to_owned(), limit: MAX_FILE });
    }
    Ok(text)
}

// === impl Made ===

impl Made {
    async fn undo(self, client: &Client) -> Result<(), CtlError> {
        let sandbox = match (self.sandbox, self.uid) {
            (None, Some(uid)) => {
                let is_it = |sandbox: &PodSandbox| sandbox.metadata.as_ref().is_some_and(|pod| pod.uid == uid);
                client.sandboxes().await?.into_iter().find(is_it).map(|sandbox| sandbox.id)
            }
            (sandbox, _) => sandbox,
        };
        if let Some(sandbox) = &sandbox {
            client.remove_sandbox(sandbox).await?;
        }
        self.logs.map_or(Ok(()), |logs| logs.remove())
    }
}
