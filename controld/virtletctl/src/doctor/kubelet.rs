//! The kubelet of this node: does it speak to controld, and by which driver do both manage cgroups? If controld is in front of another
//! container runtime, kubelet goes by that one's driver.
//!
//! A kubelet that runs is asked by its command line, which may name a configuration; without one, kubeadm's file is read.

use std::path::PathBuf;

use serde::Deserialize;

use super::facts::{Facts, NO_SETTINGS, Settings};
use super::finding::Finding;
use super::host::{Host, HostError};
use crate::client::Runtime;

const ENDPOINT: &str = "kubelet.endpoint";
const DRIVER: &str = "kubelet.cgroup-driver";
/// Where kubeadm puts it.
const CONFIG: &str = "/var/lib/kubelet/config.yaml";
/// What a kubelet does by that is told nothing.
const DEFAULT_DRIVER: &str = "cgroupfs";

/// What it is told by a file.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    container_runtime_endpoint: Option<String>,
    cgroup_driver: Option<String>,
}

/// A kubelet, and what it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// Its runtime; its own default without one.
    pub(crate) endpoint: Option<String>,
    /// Whether that is an option of its command line, which counts more than the file.
    pub(crate) by_option: bool,
    cgroup_driver: Option<String>,
    /// Whether it runs.
    pub(crate) runs: bool,
    /// Its configuration.
    pub(crate) config: PathBuf,
}

#[cfg(test)]
impl Told {
    /// One that its file tells this.
    pub(crate) fn of(config: PathBuf, endpoint: Option<String>) -> Self {
        Self { endpoint, by_option: false, cgroup_driver: None, runs: true, config }
    }
}

/// What a check cannot be made without.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeletError {
    #[error("{0}")]
    Host(#[from] HostError),
    #[error("`{}` is not there, though kubelet was started with it", .0.display())]
    Absent(PathBuf),
    #[error("`{}` is not YAML of a KubeletConfiguration: {cause}", path.display())]
    Config { path: PathBuf, cause: String },
}

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    let none = |seen: &str| [ENDPOINT, DRIVER].map(|check| Finding::ok(check, seen)).into();
    match told(host) {
        Ok(None) => none("no kubelet runs here, and it has no configuration"),
        Ok(Some(told)) => match &facts.controld {
            Ok(settings) => {
                let driver = match &facts.runtime {
                    None => driver(&told, settings),
                    Some(Ok(runtime)) => driver_of_runtime(&told, settings, runtime),
                    Some(Err(_)) => Finding::unknown(DRIVER, "the container runtime, which tells it, does not answer"),
                };
                vec![endpoint(&told, settings), driver]
            }
            Err(_) => [ENDPOINT, DRIVER].map(|check| Finding::unknown(check, NO_SETTINGS)).into(),
        },
        Err(error) => [ENDPOINT, DRIVER].map(|check| Finding::unknown(check, &error)).into(),
    }
}

/// The node's kubelet; `None` if there is none.
pub(crate) fn told(host: &Host) -> Result<Option<Told>, KubeletError> {
    let running = command_line(host)?;
    let option = |name: &str| running.as_deref().and_then(|words| value_of(words, name));
    let named = option("--config");
    let path = PathBuf::from(named.as_deref().unwrap_or(CONFIG));
    let text = host.read(&path)?;
    let written = match &text {
        Some(text) => serde_saphyr::from_str(text)
            .map_err(|error| KubeletError::Config { path: path.clone(), cause: first_line(&error.to_string()) })?,
        None if named.is_some() => return Err(KubeletError::Absent(path)),
        None if running.is_none() => return Ok(None),
        None => Written::default(),
    };
    let endpoint = option("--container-runtime-endpoint");
    Ok(Some(Told {
        by_option: endpoint.is_some(),
        endpoint: endpoint.or(written.container_runtime_endpoint).filter(|endpoint| !endpoint.is_empty()),
        cgroup_driver: option("--cgroup-driver").or(written.cgroup_driver),
        runs: running.is_some(),
        config: path,
    }))
}

/// Whether two endpoints are one, as kubelet takes a path without a scheme.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let path = |text: &str| text.trim_start_matches("unix:").trim_start_matches('/').to_owned();
    path(one) == path(other)
}

/// The words that a kubelet was started with.
fn command_line(host: &Host) -> Result<Option<Vec<String>>, HostError> {
    for name in host.names("/proc")? {
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // One that ended meanwhile is none.
        if host.word(format!("/proc/{name}/comm")).is_ok_and(|comm| comm == "kubelet")
            && let Ok(Some(line)) = host.read(format!("/proc/{name}/cmdline"))
        {
            return Ok(Some(line.split('\0').map(str::to_owned).collect()));
        }
    }
    Ok(None)
}

/// Of `--name=value` or `--name value`; the last one counts.
fn value_of(words: &[String], name: &str) -> Option<String> {
    let joined = |word: &String| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
    let apart = |pair: &[String]| (pair.first()? == name).then(|| pair.get(1).cloned()).flatten();
    words.iter().rev().find_map(joined).or_else(|| words.windows(2).rev().find_map(apart))
}

fn endpoint(told: &Told, settings: &Settings) -> Finding {
    let ours = settings.endpoint();
    let mut mend =
        format!("set `containerRuntimeEndpoint: {ours}` in kubelet's configuration, and systemctl restart kubelet");
    let behind = settings.runtime_endpoint.as_deref();
    let Some(found) = told.endpoint.as_deref() else {
        return Finding::warning(ENDPOINT, "kubelet speaks to its default: its pods are no machines", mend);
    };
    if is_same(found, &ours) {
        let seen = if told.runs { "kubelet speaks to" } else { "kubelet does not run; it would speak to" };
        let behind = behind.map(|behind| format!(", and its containers are of `{behind}`")).unwrap_or_default();
        return Finding::ok(ENDPOINT, format!("{seen} `{found}`{behind}"));
    }
    let mut seen = format!("kubelet speaks to {found}: its pods are no machines");
    match behind {
        Some(behind) if is_same(found, behind) => {
            seen = format!(
                "kubelet speaks to {found}, past controld: its pods are containers, and those of our runtime handlers are refused"
            );
        }
        Some(_) => {}
        None => mend.push_str("; if its containers are to stay, see `virtletctl proxy enable --check` first"),
    }
    Finding::warning(ENDPOINT, seen, mend)
}

/// kubelet asks controld for the driver, but not each release does.
fn driver(told: &Told, settings: &Settings) -> Finding {
    let ours = &settings.cgroup_driver;
    match told.cgroup_driver.as_deref() {
        Some(theirs) if theirs == ours => Finding::ok(DRIVER, format!("`{ours}`, as controld says")),
        None if ours == DEFAULT_DRIVER => Finding::ok(DRIVER, format!("`{ours}`, its default and as controld says")),
        theirs => Finding::warning(
            DRIVER,
            format!(
                "kubelet is told `{}`, controld tells it `{ours}`: a kubelet that does not ask goes by its own",
                theirs.unwrap_or(DEFAULT_DRIVER)
            ),
            format!("set `cgroupDriver: {ours}` in kubelet's configuration, or `cgroup_driver` in controld.toml"),
        ),
    }
}

/// Behind controld it is the container runtime that kubelet asks.
fn driver_of_runtime(told: &Told, settings: &Settings, runtime: &Runtime) -> Finding {
    if let Some((ours, theirs)) = settings.drivers_apart(runtime) {
        let seen =
            format!("`{theirs}` for the container runtime, `{ours}` by controld's `cgroup_driver`: VMs are refused");
        return Finding::failure(
            DRIVER,
            seen,
            "leave `cgroup_driver` out of controld.toml, and systemctl restart controld",
        );
    }
    let kubelets = told.cgroup_driver.as_deref();
    match (runtime.cgroup_driver, kubelets) {
        (Some(theirs), Some(kubelets)) if kubelets != theirs => Finding::warning(
            DRIVER,
            format!(
                "kubelet is told `{kubelets}`, the container runtime tells it `{theirs}`: a kubelet that does not ask goes by its own"
            ),
            format!("set `cgroupDriver: {theirs}` in kubelet's configuration"),
        ),
        (Some(theirs), _) => Finding::ok(DRIVER, format!("`{theirs}`, as the container runtime says")),
        (None, _) => {
            let kubelets = kubelets.unwrap_or(DEFAULT_DRIVER);
            Finding::ok(DRIVER, format!("`{kubelets}`, as kubelet is told; the container runtime does not say"))
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::tests::{facts, tree};
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(State, String)> {
        let (_dir, host) = tree(files);
        look(&host, &facts()).into_iter().map(|finding| (finding.state, finding.seen)).collect()
    }

    const OURS: &str = "containerRuntimeEndpoint: unix:///run/virtlet/cri.sock\ncgroupDriver: systemd\n";

    #[test]
    fn a_node_without_kubelet_is_well() {
        assert!(found(&[]).iter().all(|(state, _)| *state == State::Ok));
    }

    #[test]
    fn a_configuration_is_compared_with_ours() {
        let well = found(&[("var/lib/kubelet/config.yaml", OURS)]);
        assert_eq!(
            well[0],
            (State::Ok, "kubelet does not run; it would speak to `unix:///run/virtlet/cri.sock`".into())
        );
        assert_eq!(well[1], (State::Ok, "`systemd`, as controld says".into()));
        let other = found(&[("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")]);
        assert!(other.iter().all(|(state, _)| *state == State::Warning), "{other:?}");
    }

    #[test]
    fn options_of_one_that_runs_count_more() {
        let command = "/usr/bin/kubelet\0--config=/etc/kubelet.yaml\0--cgroup-driver\0systemd\0";
        let files = [
            ("proc/self/comm", "virtletctl\n"),
            ("proc/77/comm", "kubelet\n"),
            ("proc/77/cmdline", command),
            ("etc/kubelet.yaml", "containerRuntimeEndpoint: /run/virtlet/cri.sock\ncgroupDriver: cgroupfs\n"),
        ];
        let told = found(&files);
        assert_eq!(told[0], (State::Ok, "kubelet speaks to `/run/virtlet/cri.sock`".into()));
        assert_eq!(told[1].0, State::Ok);
        let gone = found(&files[..3]);
        assert!(gone[0].0 == State::Warning && gone[0].1.contains("`/etc/kubelet.yaml` is not there"), "{gone:?}");
    }

    /// What is found where controld is in front of such a runtime.
    fn behind(files: &[(&str, &str)], runtime: Result<Runtime, String>, set: bool) -> Vec<(State, String)> {
        let (_dir, host) = tree(files);
        let mut facts = facts();
        if let Ok(settings) = &mut facts.controld {
            settings.runtime_endpoint = Some("unix:///run/containerd/containerd.sock".into());
            settings.cgroup_driver_set = set;
        }
        facts.runtime = Some(runtime);
        look(&host, &facts).into_iter().map(|finding| (finding.state, finding.seen)).collect()
    }

    #[test]
    fn a_node_with_containers_too_is_judged_by_their_runtime() {
        let config = |text| [("var/lib/kubelet/config.yaml", text)];
        let runtime = |driver| Ok(Runtime { cgroup_driver: Some(driver), ..Runtime::default() });
        let well = behind(&config(OURS), runtime("systemd"), true);
        assert!(well.iter().all(|(state, _)| *state == State::Ok), "{well:?}");
        assert!(well[0].1.ends_with("and its containers are of `unix:///run/containerd/containerd.sock`"), "{well:?}");
        let past = behind(
            &config("containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"),
            runtime("cgroupfs"),
            false,
        );
        assert!(past[0].0 == State::Warning && past[0].1.contains("past controld"), "{past:?}");
        assert_eq!(past[1], (State::Ok, "`cgroupfs`, as the container runtime says".into()));
        let apart = behind(&config(OURS), runtime("cgroupfs"), true);
        assert!(apart[1].0 == State::Failure && apart[1].1.contains("VMs are refused"), "{apart:?}");
        let told = behind(&config(OURS), runtime("cgroupfs"), false);
        assert!(told[1].0 == State::Warning && told[1].1.contains("is told `systemd`"), "{told:?}");
        let silent = behind(&config(OURS), Ok(Runtime::default()), true);
        assert_eq!(silent[1].0, State::Ok);
        let away = behind(&config(OURS), Err("away".into()), false);
        assert!(away[1].1.starts_with("not known"), "{away:?}");
    }

    #[test]
    fn a_file_that_is_no_configuration_is_told() {
        for text in ["[", "- a\n", "cgroupDriver: [1]\n"] {
            let told = found(&[("var/lib/kubelet/config.yaml", text)]);
            assert!(told[0].0 == State::Warning && told[0].1.contains("is not YAML"), "{text}: {told:?}");
        }
    }
}
