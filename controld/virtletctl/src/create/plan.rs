//! What `run` is to make, of what the command line says. Asks nobody.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use proto::cri::*;
use uuid::Uuid;

use super::super::client::spec;
use super::super::error::CtlError;
use super::super::logdir::{self, LogDir};
use super::super::source::Source;
use super::super::{cli, login, made, name, variable};

/// CFS period, in microseconds (kernel, `Documentation/scheduler/sched-bwc.rst`).
const CPU_PERIOD: i64 = 100_000;
/// Longest file that becomes an annotation; Kubernetes allows less for all of them.
const MAX_FILE: u64 = 1 << 20;
const SSH_KEYS: &str = "VirtletSSHKeys";
const USER_DATA: &str = "VirtletCloudInitUserData";
const NETWORKS: &str = "virtlet.cloud/networks";
/// Guests that are not known to have our agent see no volumes without it.
const SHARED_FS: &str = "virtlet.cloud/shared-fs";
const RUN_COMMAND: &str = "virtlet.cloud/run-command";
/// How a private key begins (RFC 7468, 2), which no guest is to have.
const PRIVATE: &str = "-----BEGIN";

/// What is to be made.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) image: Source,
    pub(super) pod: PodSandboxConfig,
    pub(super) container: ContainerConfig,
    pub(super) logs: LogDir,
    /// Empty for the daemon's own.
    pub(super) handler: String,
}

pub(super) fn plan(wanted: cli::Run, uid: Uuid) -> Result<Plan, CtlError> {
    if wanted.image.ends_with(".json") {
        let what = format!(
            "`{}` is no image: configurations of crictl's are not taken; `virtletctl run IMAGE --name NAME` makes a pod",
            wanted.image
        );
        return Err(CtlError::Usage(what));
    }
    let image = Source::of(&wanted.image)?;
    let name = wanted.name.clone().unwrap_or_else(|| name::of_image(image.name(), &uid.simple().to_string()));
    let namespace = wanted.namespace.clone();
    let metadata = PodSandboxMetadata { name: name.clone(), uid: uid.to_string(), namespace, attempt: 0 };
    let logs = LogDir::plan(&wanted.log_dir, &metadata)?;
    let annotations = annotations(&wanted)?;
    let mut labels: HashMap<String, String> = wanted.labels.iter().cloned().collect();
    labels.insert(logdir::LABEL.to_owned(), logs.root().to_owned());
    labels.extend(wanted.ssh_keys.first().and_then(|key| login::label(key)));
    let pod = PodSandboxConfig {
        metadata: Some(metadata),
        hostname: name.clone(),
        log_directory: logs.path(),
        port_mappings: wanted.publish.iter().map(|publish| publish.mapping()).collect(),
        labels,
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
    let env = wanted.env.iter().filter_map(|text| variable::valued(text));
    let env = env.map(|(key, value)| KeyValue { key, value: value.into_bytes() });
    let mut container = ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.clone(), attempt: 0 }),
        image: Some(spec(image.name())),
        command: wanted.command,
        envs: env.collect(),
        mounts: wanted.volumes.iter().map(|share| share.mount()).collect::<Result<_, _>>()?,
        log_path: format!("{name}/0.log"),
        stdin: true,
        tty: true,
        linux: Some(LinuxContainerConfig { resources: Some(resources), ..Default::default() }),
        ..Default::default()
    };
    made::keep(&mut container);
    Ok(Plan { image, pod, container, logs, handler: wanted.handler.unwrap_or_default() })
}

fn annotations(wanted: &cli::Run) -> Result<HashMap<String, String>, CtlError> {
    let mut given: Vec<(String, String, &'static str)> =
        wanted.annotations.iter().map(|(key, value)| (key.clone(), value.clone(), "--annotation")).collect();
    let is_given = |key: &str| wanted.annotations.iter().any(|(given, _)| given == key);
    if !wanted.command.is_empty() && !is_given(RUN_COMMAND) {
        let what = "a machine runs what its image holds; run the command by `virtletctl exec` once it is up, or set \
                    --annotation virtlet.cloud/run-command=true if its image has `virtlet-agent`";
        return Err(CtlError::Usage(what.into()));
    }
    if !wanted.ssh_keys.is_empty() {
        let keys: Vec<String> = wanted.ssh_keys.iter().map(|path| public_key(path)).collect::<Result<_, _>>()?;
        given.push((SSH_KEYS.into(), keys.join("\n"), "--ssh-key"));
    }
    if let Some(path) = &wanted.user_data {
        given.push((USER_DATA.into(), read(path)?, "--user-data"));
    }
    if !wanted.networks.is_empty() {
        given.push((NETWORKS.into(), wanted.networks.join(", "), "--network"));
    }
    if !wanted.volumes.is_empty() && !is_given(SHARED_FS) {
        given.push((SHARED_FS.into(), "virtiofs".into(), "--volume"));
    }
    let mut annotations = HashMap::new();
    for (key, value, option) in given {
        if annotations.insert(key.clone(), value).is_some() {
            return Err(CtlError::Twice { key, option });
        }
    }
    Ok(annotations)
}

fn public_key(path: &Path) -> Result<String, CtlError> {
    let text = read(path)?;
    if text.trim_start().starts_with(PRIVATE) {
        let what =
            format!("`{0}` is a private key, which is not for guests; name the public one, `{0}.pub`", path.display());
        return Err(CtlError::Usage(what));
    }
    Ok(text)
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
