//! Pods by what a user writes: a name, or the beginning of an id.

use proto::cri::{Container, ContainerState, PodSandbox, PodSandboxMetadata};

use super::cli::Within;
use super::client::Client;
use super::error::CtlError;
use super::kind;
use super::text::short;

/// Characters of the beginning of an id that nobody mistakes for a name: those of images have as many.
const MIN_ID: usize = 8;

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
    /// The namespace that these are of, if only one is meant.
    namespace: Option<String>,
}

impl Node {
    /// Asks what there is.
    pub(super) async fn read(client: &Client) -> Result<Self, CtlError> {
        // Pods before containers: one that is made in between is not seen as a container without a pod.
        let sandboxes = client.sandboxes().await?;
        let mut containers = client.containers().await?;
        containers.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        Ok(Self { sandboxes, containers, namespace: None })
    }

    /// What of it is in a namespace, if one is given.
    pub(super) fn within(mut self, wanted: &Within) -> Self {
        let Some(namespace) = &wanted.namespace else { return self };
        let is_in = |sandbox: &PodSandbox| sandbox.metadata.as_ref().is_some_and(|pod| pod.namespace == *namespace);
        self.sandboxes.retain(is_in);
        let Self { sandboxes, containers, .. } = &mut self;
        containers.retain(|container| sandboxes.iter().any(|sandbox| sandbox.id == container.pod_sandbox_id));
        self.namespace = Some(namespace.clone());
        self
    }

    /// The containers of a pod, newest first.
    pub(super) fn containers_of<'a>(&'a self, sandbox: &'a PodSandbox) -> impl Iterator<Item = &'a Container> {
        self.containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id)
    }

    /// The names of a command line without the kind that may stand in front of them, as in `delete pod web`.
    pub(super) fn names(&self, words: Vec<String>) -> Vec<String> {
        let is_kind = |word: &String| kind::is_kind(word) && !self.has(word);
        let skipped = usize::from(words.first().is_some_and(is_kind));
        words.into_iter().skip(skipped).collect()
    }

    fn has(&self, text: &str) -> bool {
        self.sandboxes.iter().any(|sandbox| is_named(sandbox, text))
    }

    /// A name or id without its kind, unless a namespace is called like that kind.
    fn meant<'a>(&self, text: &'a str) -> &'a str {
        if self.has(text) { text } else { kind::without(text) }
    }

    /// The pod of a name, or the beginning of its or its container's id. Names come before ids.
    pub(super) fn find(&self, text: &str) -> Result<Pod, CtlError> {
        let text = self.meant(text);
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
            ([], []) => Err(self.none(text)),
            ([sandbox], []) => Ok(self.whole(sandbox)),
            ([], [container]) => {
                let sandbox = self.sandboxes.iter().find(|sandbox| sandbox.id == container.pod_sandbox_id);
                let sandbox = sandbox.ok_or_else(|| self.none(text))?;
                Ok(Pod { sandbox: sandbox.clone(), containers: vec![(*container).clone()] })
            }
            (sandboxes, containers) => {
                let containers = containers.iter().map(|container| format!("container {}", short(&container.id)));
                Err(ambiguous(text, sandboxes.iter().map(|sandbox| label(sandbox)).chain(containers)))
            }
        }
    }

    /// The same for what is done to a pod and cannot be undone: a name that is gone must not be taken for the first characters of a
    /// stranger's id.
    pub(super) fn find_sure(&self, text: &str) -> Result<Pod, CtlError> {
        let pod = self.find(text)?;
        let meant = self.meant(text);
        if is_named(&pod.sandbox, meant) || meant.len() >= MIN_ID {
            return Ok(pod);
        }
        Err(CtlError::ShortBeginning { text: text.to_owned(), pod: pod.name() })
    }

    /// The same with the containers of one name alone, newest first, if one is given, also as POD/CONTAINER.
    pub(super) fn find_with(&self, text: &str, container: Option<&str>) -> Result<Pod, CtlError> {
        let text = self.meant(text);
        let (pod, container) = match (self.find(text), text.rsplit_once('/'), container) {
            // Not NAMESPACE/NAME.
            (Err(CtlError::NoPod { .. }), Some((pod, of_path)), None) => (self.find(pod)?, Some(of_path)),
            (found, _, container) => (found?, container),
        };
        let Some(wanted) = container else { return Ok(pod) };
        let is_meant = |container: &&Container| {
            named(container) == wanted || (!wanted.is_empty() && container.id.starts_with(wanted))
        };
        let containers: Vec<Container> = pod.containers.iter().filter(is_meant).cloned().collect();
        if containers.is_empty() {
            return Err(CtlError::NoSuchContainer {
                pod: pod.name(),
                wanted: wanted.to_owned(),
                found: pod.containers.iter().map(|container| named(container).to_owned()).collect(),
            });
        }
        Ok(Pod { containers, ..pod })
    }

    /// The same, and the newest of its containers.
    pub(super) fn find_container(&self, text: &str, container: Option<&str>) -> Result<(Pod, Container), CtlError> {
        let pod = self.find_with(text, container)?;
        let chosen = pod.container()?.clone();
        Ok((pod, chosen))
    }

    fn none(&self, text: &str) -> CtlError {
        CtlError::NoPod { text: text.to_owned(), namespace: self.namespace.clone() }
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

    /// The same, of a machine that is on: what is off is told at once, and not by a wait for its network.
    pub(super) fn running(&self) -> Result<&Container, CtlError> {
        let container = self.container()?;
        match container.state() {
            ContainerState::ContainerCreated | ContainerState::ContainerExited => {
                Err(CtlError::NotRunning(self.name()))
            }
            ContainerState::ContainerRunning | ContainerState::ContainerUnknown => Ok(container),
        }
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

fn named(container: &Container) -> &str {
    container.metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default()
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
    use proto::cri::ContainerMetadata;

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
            namespace: None,
        }
    }

    #[test]
    fn names_and_unique_beginnings_of_ids_are_found() {
        for (text, id, containers) in [
            ("web", "aa11", vec!["ee2", "ee1"]),
            ("default/web", "aa11", vec!["ee2", "ee1"]),
            ("test/db", "bb33", vec!["cc9"]),
            ("pod/web", "aa11", vec!["ee2", "ee1"]),
            ("vmi/test/db", "bb33", vec!["cc9"]),
            ("po/aa1", "aa11", vec!["ee2", "ee1"]),
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
    fn a_container_is_named_beside_its_pod_or_behind_it() {
        let mut node = node();
        node.containers[0].metadata = Some(ContainerMetadata { name: "vm".into(), attempt: 1 });
        node.containers[1].metadata = Some(ContainerMetadata { name: "old".into(), attempt: 0 });
        for (text, container, wanted) in [
            ("web", None, "ee2"),
            ("default/web", None, "ee2"),
            ("web/old", None, "ee1"),
            ("pod/web", None, "ee2"),
            ("pod/web/old", None, "ee1"),
            ("default/web/vm", None, "ee2"),
            ("web", Some("old"), "ee1"),
            ("aa1", Some("ee1"), "ee1"),
            ("default/web", Some("vm"), "ee2"),
            ("test/db", None, "cc9"),
        ] {
            assert_eq!(node.find_container(text, container).expect(text).1.id, wanted, "{text} {container:?}");
        }
        let errors =
            [("web/", None), ("web", Some("q")), ("q/vm", None), ("pod/q", None), ("web/vm", Some("vm")), ("aa", None)]
                .map(|(text, container)| node.find_container(text, container).expect_err(text).to_string());
        insta::assert_snapshot!(errors.join("\n"), @"
        pod `web` has no container ``; it has vm, old
        pod `web` has no container `q`; it has vm, old
        no pod or container `q`
        no pod or container `q`
        no pod or container `web/vm`
        pod `aa` has no container
        ");
    }

    #[test]
    fn a_namespace_narrows_what_a_name_may_mean() {
        let within = |namespace: &str| node().within(&Within { namespace: Some(namespace.into()) });
        for (namespace, text, id) in
            [("prod", "db", "aa22"), ("test", "db", "bb33"), ("test", "test/db", "bb33"), ("default", "aa1", "aa11")]
        {
            assert_eq!(within(namespace).find(text).expect(text).sandbox.id, id, "{namespace} {text}");
        }
        assert_eq!(within("test").find("cc").expect("one container").sandbox.id, "bb33", "of two things, one is in it");
        let errors = [("prod", "web"), ("prod", "test/db"), ("prod", "aa1"), ("test", "dd")]
            .map(|(namespace, text)| within(namespace).find(text).expect_err(text).to_string());
        insta::assert_snapshot!(errors.join("\n"), @"
        no pod or container `web` in namespace `prod`
        no pod or container `test/db` in namespace `prod`
        no pod or container `aa1` in namespace `prod`
        no pod or container `dd` in namespace `test`
        ");
        assert_eq!(node().within(&Within::default()).find("web").expect("any").sandbox.id, "aa11");
    }

    #[test]
    fn a_kind_in_front_of_names_is_no_name_unless_a_pod_is_called_so() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        for (said, wanted) in
            [(&["pod", "web"][..], &["web"][..]), (&["web", "pod"], &["web", "pod"]), (&["pods"], &[])]
        {
            assert_eq!(node().names(words(said)), words(wanted), "{said:?}");
        }
        let mut node = node();
        node.sandboxes[0].metadata = Some(PodSandboxMetadata { name: "pod".into(), ..Default::default() });
        assert_eq!(node.names(words(&["pod", "db"])), words(&["pod", "db"]));
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
