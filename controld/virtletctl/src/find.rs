//! Pods by what a user writes: a name, or the beginning of an id.

use std::collections::BTreeSet;

use proto::cri::{Container, ContainerState, PodSandbox, PodSandboxMetadata};

use super::cli::Within;
use super::client::Client;
use super::error::CtlError;
use super::kind;
use super::text::short;

/// The namespace of names without one, where kubectl's are meant.
const HOME: &str = "default";
/// Characters of the beginning of an id that nobody mistakes for a name: those of images have as many.
const MIN_ID: usize = 8;

/// A pod that was found.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) sandbox: PodSandbox,
    /// Newest first; if one was named by its id, that alone.
    pub(super) containers: Vec<Container>,
    /// Whether the id of a container was named: who removes that does not mean its pod.
    pub(super) by_container: bool,
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
    ///
    /// A word for another kind in front of names is refused, also if a pod is called so: that pod is named alone, or as `pod/svc`.
    pub(super) fn names(&self, words: Vec<String>) -> Result<Vec<String>, CtlError> {
        if let [first, behind @ ..] = words.as_slice()
            && (!behind.is_empty() || !self.has(first))
            && let Some(why) = kind::refusal(first)
        {
            let also = self.has(first).then(|| format!("; the pod of that name is `pod/{first}`"));
            return Err(CtlError::Usage(why + &also.unwrap_or_default()));
        }
        if let Some(why) = words.iter().find_map(|word| self.refusal(word)) {
            return Err(CtlError::Usage(why));
        }
        let is_kind = |word: &String| kind::is_kind(word) && !self.has(word);
        let skipped = usize::from(words.first().is_some_and(is_kind));
        Ok(words.into_iter().skip(skipped).collect())
    }

    /// The same, of a command that is for pods that are named.
    pub(super) fn some_names(&self, words: Vec<String>) -> Result<Vec<String>, CtlError> {
        let names = self.names(words)?;
        if names.is_empty() {
            return Err(CtlError::Usage("no pod is named; `virtletctl ps -a` lists all".into()));
        }
        Ok(names)
    }

    /// Whether a pod is called so.
    pub(super) fn has(&self, text: &str) -> bool {
        self.sandboxes.iter().any(|sandbox| is_named(sandbox, text))
    }

    /// Why KIND/NAME is refused that is of another kind, unless a namespace, or a pod with a container, is called like that.
    fn refusal(&self, text: &str) -> Option<String> {
        let is_namespace = |word: &str| {
            self.sandboxes.iter().any(|sandbox| sandbox.metadata.as_ref().is_some_and(|it| it.namespace == word))
        };
        let (word, _) = text.split_once('/').filter(|(word, _)| !self.has(word) && !is_namespace(word))?;
        kind::refusal(word)
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
                Ok(Pod { by_container: true, sandbox: sandbox.clone(), containers: vec![(*container).clone()] })
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

    /// The same as kubectl has it: a name without a namespace is that of a pod in `default`, and no other's.
    pub(super) fn find_at_home(&self, text: &str) -> Result<Pod, CtlError> {
        let name = self.meant(text);
        let named: Vec<&PodSandbox> = self.sandboxes.iter().filter(|sandbox| is_named(sandbox, name)).collect();
        if named.is_empty() {
            return match self.find_sure(text) {
                // Ids that begin so are no more meant if there are several.
                Err(CtlError::Ambiguous { .. }) if name.len() < MIN_ID => Err(self.none(name)),
                found => found,
            };
        }
        if self.namespace.is_some() || name.contains('/') {
            return self.find_sure(text);
        }
        let (home, elsewhere): (Vec<_>, Vec<_>) = named.into_iter().partition(|pod| namespace(pod) == HOME);
        match home.as_slice() {
            [] => {
                let namespaces: BTreeSet<&str> = elsewhere.into_iter().map(namespace).collect();
                let namespaces = namespaces.into_iter().map(str::to_owned).collect();
                Err(CtlError::Elsewhere { name: name.to_owned(), home: HOME, namespaces })
            }
            [pod] => Ok(self.whole(pod)),
            several => Err(ambiguous(name, several.iter().map(|pod| label(pod)))),
        }
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
        if let Some(why) = self.refusal(text) {
            return CtlError::Usage(why);
        }
        CtlError::NoPod { text: text.to_owned(), namespace: self.namespace.clone() }
    }

    fn whole(&self, sandbox: &PodSandbox) -> Pod {
        let containers = self.containers_of(sandbox).cloned().collect();
        Pod { sandbox: sandbox.clone(), containers, by_container: false }
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

    /// How any command is told of it: by its name, with the namespace if that is not the default one; or else by its id.
    pub(super) fn full_name(&self) -> String {
        match namespace(&self.sandbox) {
            "" | HOME => self.name(),
            namespace => format!("{namespace}/{}", self.name()),
        }
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

fn namespace(sandbox: &PodSandbox) -> &str {
    sandbox.metadata.as_ref().map(|metadata| metadata.namespace.as_str()).unwrap_or_default()
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
mod tests;
