//! Pods by what a user writes: a name, or the beginning of an id.

use proto::cri::{Container, PodSandbox, PodSandboxMetadata};

use super::client::Client;
use super::error::CtlError;
use super::text::short;

/// A pod that was found.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) sandbox: PodSandbox,
    /// Newest first; if one was named by its id, that alone.
    pub(super) containers: Vec<Container>,
}

/// All pods and containers of this node.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) sandboxes: Vec<PodSandbox>,
    /// Newest first.
    pub(super) containers: Vec<Container>,
}

impl Node {
    /// Asks what there is.
    pub(super) async fn read(client: &Client) -> Result<Self, CtlError> {
        // Pods before containers: one that is made in between is not seen as a container without a pod.
        let sandboxes = client.sandboxes().await?;
        let mut containers = client.containers().await?;
        containers.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        Ok(Self { sandboxes, containers })
    }

    /// The containers of a pod, newest first.
    pub(super) fn containers_of<'a>(&'a self, sandbox: &'a PodSandbox) -> impl Iterator<Item = &'a Container> {
        self.containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id)
    }

    /// The pod of a name, or the beginning of its or its container's id. Names come before ids.
    pub(super) fn find(&self, text: &str) -> Result<Pod, CtlError> {
        let named: Vec<&PodSandbox> = self.sandboxes.iter().filter(|sandbox| is_named(sandbox, text)).collect();
        match named.as_slice() {
            [] => {}
            [sandbox] => return Ok(self.whole(sandbox)),
            several => return Err(ambiguous(text, several.iter().map(|sandbox| label(sandbox)))),
        }
        let starts = |id: &String| !text.is_empty() && id.starts_with(text);
        let sandboxes: Vec<&PodSandbox> = self.sandboxes.iter().filter(|sandbox| starts(&sandbox.id)).collect();
        let containers: Vec<&Container> = self.containers.iter().filter(|container| starts(&container.id)).collect();
        match (sandboxes.as_slice(), containers.as_slice()) {
            ([], []) => Err(CtlError::NoPod(text.to_owned())),
            ([sandbox], []) => Ok(self.whole(sandbox)),
            ([], [container]) => {
                let sandbox = self.sandboxes.iter().find(|sandbox| sandbox.id == container.pod_sandbox_id);
                let sandbox = sandbox.ok_or_else(|| CtlError::NoPod(text.to_owned()))?;
                Ok(Pod { sandbox: sandbox.clone(), containers: vec![(*container).clone()] })
            }
            (sandboxes, containers) => {
                let containers = containers.iter().map(|container| format!("container {}", short(&container.id)));
                Err(ambiguous(text, sandboxes.iter().map(|sandbox| label(sandbox)).chain(containers)))
            }
        }
    }

    fn whole(&self, sandbox: &PodSandbox) -> Pod {
        Pod { sandbox: sandbox.clone(), containers: self.containers_of(sandbox).cloned().collect() }
    }
}

impl Pod {
    /// The container that was named, or the newest.
    pub(super) fn container(&self) -> Result<&Container, CtlError> {
        self.containers.first().ok_or_else(|| CtlError::NoContainer(self.name()))
    }

    /// The container before it.
    pub(super) fn previous(&self) -> Result<&Container, CtlError> {
        self.containers.get(1).ok_or_else(|| CtlError::NoPrevious(self.name()))
    }

    /// The pod's name, or else its id.
    pub(super) fn name(&self) -> String {
        let metadata = self.sandbox.metadata.as_ref();
        metadata.map_or_else(|| short(&self.sandbox.id), |metadata| metadata.name.clone())
    }
}

fn is_named(sandbox: &PodSandbox, text: &str) -> bool {
    let Some(PodSandboxMetadata { name, namespace, .. }) = &sandbox.metadata else { return false };
    // Neither has a slash.
    match text.split_once('/') {
        Some((wanted_namespace, wanted)) => name == wanted && namespace == wanted_namespace,
        None => name == text,
    }
}

fn label(sandbox: &PodSandbox) -> String {
    let metadata = sandbox.metadata.clone().unwrap_or_default();
    format!("pod {} ({}/{})", short(&sandbox.id), metadata.namespace, metadata.name)
}

fn ambiguous(text: &str, found: impl Iterator<Item = String>) -> CtlError {
    CtlError::Ambiguous { text: text.to_owned(), found: found.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        let sandbox = |id: &str, namespace: &str, name: &str| PodSandbox {
            id: id.into(),
            metadata: Some(PodSandboxMetadata { name: name.into(), namespace: namespace.into(), ..Default::default() }),
            ..Default::default()
        };
        let container =
            |id: &str, sandbox: &str| Container { id: id.into(), pod_sandbox_id: sandbox.into(), ..Default::default() };
        Node {
            sandboxes: vec![
                sandbox("aa11", "default", "web"),
                sandbox("aa22", "prod", "db"),
                sandbox("bb33", "test", "db"),
                sandbox("cc44", "default", "aa"),
                PodSandbox { id: "dd55".into(), ..Default::default() },
            ],
            containers: vec![
                container("ee2", "aa11"),
                container("ee1", "aa11"),
                container("cc9", "bb33"),
                container("ff", "gone"),
            ],
        }
    }

    #[test]
    fn names_and_unique_beginnings_of_ids_are_found() {
        for (text, id, containers) in [
            ("web", "aa11", vec!["ee2", "ee1"]),
            ("default/web", "aa11", vec!["ee2", "ee1"]),
            ("test/db", "bb33", vec!["cc9"]),
            ("aa1", "aa11", vec!["ee2", "ee1"]),
            ("ee1", "aa11", vec!["ee1"]),
            ("cc9", "bb33", vec!["cc9"]),
            ("aa", "cc44", vec![]),
            ("d", "dd55", vec![]),
        ] {
            let pod = node().find(text).expect(text);
            assert_eq!(pod.sandbox.id, id, "{text}");
            assert_eq!(pod.containers.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), containers, "{text}");
        }
    }

    #[test]
    fn what_is_absent_or_ambiguous_is_said_so() {
        let errors: Vec<String> = ["", "q", "default/db", "/", "db", "a", "cc", "ee", "ff"]
            .iter()
            .map(|text| node().find(text).expect_err(text).to_string())
            .collect();
        insta::assert_snapshot!(errors.join("\n"), @"
        no pod or container ``
        no pod or container `q`
        no pod or container `default/db`
        no pod or container `/`
        `db` is more than one: pod aa22 (prod/db), pod bb33 (test/db)
        `a` is more than one: pod aa11 (default/web), pod aa22 (prod/db)
        `cc` is more than one: pod cc44 (default/aa), container cc9
        `ee` is more than one: container ee2, container ee1
        no pod or container `ff`
        ");
    }
}
