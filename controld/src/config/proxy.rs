//! The other container runtime of the node, if controld stands in front of one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use vmspec::settings::{Problems, units};

/// `[proxy]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// The other runtime, which has all pods that are no machines; without it this node has machines alone.
    pub runtime_endpoint: Option<Endpoint>,
    /// Values of the annotation `kubernetes.io/target-runtime` that mean us.
    pub target_runtimes: Vec<String>,
    /// Beginnings of images' names that mean us.
    pub image_prefixes: Vec<String>,
    /// How long a list or a status of the other runtime is waited for before its last good one is the answer.
    #[serde(rename = "list_deadline_s", deserialize_with = "units::seconds")]
    pub list_deadline: Duration,
}

/// A CRI socket of this node, written `unix:///PATH` as kubelet has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Endpoint(PathBuf);

/// A text that is none.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is no socket of this node; write unix:// and an absolute path, as `unix:///run/containerd/containerd.sock`"
)]
pub struct EndpointError(String);

impl Endpoint {
    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        match text.strip_prefix("unix://") {
            Some(path) if Path::new(path).is_absolute() => Ok(Self(path.into())),
            _ => Err(EndpointError(text)),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            runtime_endpoint: None,
            target_runtimes: vec!["virtlet.cloud".into()],
            image_prefixes: vec!["virtlet.cloud/".into()],
            list_deadline: Duration::from_secs(2),
        }
    }
}

/// Where a socket is. It need not be there yet; one without a directory is where its name says.
fn found(socket: &Path) -> PathBuf {
    let in_dir = || Some(socket.parent()?.canonicalize().ok()?.join(socket.file_name()?));
    socket.canonicalize().ok().or_else(in_dir).unwrap_or_else(|| socket.to_owned())
}

impl ProxyConfig {
    /// `ours` is the socket for kubelet.
    pub(super) fn check(&self, ours: &Path, problems: &mut Problems) {
        let endpoint = self.runtime_endpoint.as_ref();
        problems.unless(
            endpoint.is_none_or(|endpoint| found(endpoint.path()) != found(ours)),
            "proxy.runtime_endpoint",
            "is controld's own socket; name that of the other runtime",
        );
        let named = |values: &[String]| values.iter().all(|value| !value.is_empty());
        problems.unless(named(&self.target_runtimes), "proxy.target_runtimes", "has an empty value");
        let ends = self.image_prefixes.iter().all(|prefix| prefix.len() > 1 && prefix.ends_with('/'));
        problems.unless(
            ends,
            "proxy.image_prefixes",
            "has a prefix that does not end with a slash, or is nothing else",
        );
        // kubelet's own patience with a list is two minutes.
        let waits = (Duration::from_secs(1)..=Duration::from_secs(60)).contains(&self.list_deadline);
        problems.unless(waits, "proxy.list_deadline_s", "is not within 1 to 60 seconds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `/var/run` is `/run`, before our first start and after it.
    #[test]
    fn our_own_socket_is_refused_by_any_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let (run, link) = (dir.path().join("run"), dir.path().join("var-run"));
        std::fs::create_dir(&run).expect("made");
        std::os::unix::fs::symlink(&run, &link).expect("made");
        let problems = |path: PathBuf| {
            let config = ProxyConfig { runtime_endpoint: Some(Endpoint(path)), ..ProxyConfig::default() };
            let mut problems = Problems::default();
            config.check(&run.join("cri.sock"), &mut problems);
            problems.is_empty()
        };
        for is_there in [false, true] {
            if is_there {
                std::fs::write(run.join("cri.sock"), "").expect("made");
            }
            assert!(!problems(link.join("cri.sock")) && !problems(run.join("../run/cri.sock")), "{is_there}");
            assert!(problems(link.join("containerd.sock")) && problems("/no/such/cri.sock".into()));
        }
    }
}
