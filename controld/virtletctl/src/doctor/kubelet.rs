//! The kubelet of this node: does it speak to controld, and by which driver do both manage cgroups?
//!
//! A kubelet that runs is asked by its command line, which may name a configuration; without one, kubeadm's file is read.

use std::path::PathBuf;

use serde::Deserialize;

use super::facts::{Facts, NO_SETTINGS, Settings};
use super::finding::Finding;
use super::host::{Host, HostError};

const ENDPOINT: &str = "kubelet.endpoint";
const DRIVER: &str = "kubelet.cgroup-driver";
/// Where kubeadm puts it.
const CONFIG: &str = "/var/lib/kubelet/config.yaml";
/// What a kubelet does by that is told nothing.
const DEFAULT_DRIVER: &str = "cgroupfs";

/// What it is told.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Told {
    container_runtime_endpoint: Option<String>,
    cgroup_driver: Option<String>,
}

/// What a check cannot be made without.
#[derive(Debug, thiserror::Error)]
enum KubeletError {
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
        Ok(Some((told, runs))) => match &facts.controld {
            Ok(settings) => vec![endpoint(&told, runs, settings), driver(&told, settings)],
            Err(_) => [ENDPOINT, DRIVER].map(|check| Finding::unknown(check, NO_SETTINGS)).into(),
        },
        Err(error) => [ENDPOINT, DRIVER].map(|check| Finding::unknown(check, &error)).into(),
    }
}

/// What kubelet is told, and whether it runs; `None` if there is none.
fn told(host: &Host) -> Result<Option<(Told, bool)>, KubeletError> {
    let running = command_line(host)?;
    let option = |name: &str| running.as_deref().and_then(|words| value_of(words, name));
    let named = option("--config");
    let path = PathBuf::from(named.as_deref().unwrap_or(CONFIG));
    let text = host.read(&path)?;
    let mut told = match &text {
        Some(text) => serde_saphyr::from_str(text)
            .map_err(|error| KubeletError::Config { path, cause: first_line(&error.to_string()) })?,
        None if named.is_some() => return Err(KubeletError::Absent(path)),
        None if running.is_none() => return Ok(None),
        None => Told::default(),
    };
    // Options count more than the file.
    told.container_runtime_endpoint = option("--container-runtime-endpoint").or(told.container_runtime_endpoint);
    told.cgroup_driver = option("--cgroup-driver").or(told.cgroup_driver);
    Ok(Some((told, running.is_some())))
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

fn endpoint(told: &Told, runs: bool, settings: &Settings) -> Finding {
    let ours = format!("unix://{}", settings.cri_socket.display());
    let mend =
        format!("set `containerRuntimeEndpoint: {ours}` in kubelet's configuration, and systemctl restart kubelet");
    let found = told.container_runtime_endpoint.as_deref().unwrap_or_default();
    // As kubelet takes a path without a scheme.
    let is_ours = found == ours || found.trim_start_matches("unix:") == settings.cri_socket.display().to_string();
    let found = if found.is_empty() { "its default" } else { found };
    match (is_ours, runs) {
        (true, true) => Finding::ok(ENDPOINT, format!("kubelet speaks to `{found}`")),
        (true, false) => Finding::ok(ENDPOINT, format!("kubelet does not run; it would speak to `{found}`")),
        (false, _) => Finding::warning(ENDPOINT, format!("kubelet speaks to {found}: its pods are no machines"), mend),
    }
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

    #[test]
    fn a_file_that_is_no_configuration_is_told() {
        for text in ["[", "- a\n", "cgroupDriver: [1]\n"] {
            let told = found(&[("var/lib/kubelet/config.yaml", text)]);
            assert!(told[0].0 == State::Warning && told[0].1.contains("is not YAML"), "{text}: {told:?}");
        }
    }
}
