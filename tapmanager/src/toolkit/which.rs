//! Which pod somebody means who says its name, or how its id begins.

use std::str::FromStr;

use proto::tap::{ErrorCode, PodId, PodSummary};

use super::error::ToolError;
use super::node::Node;

/// A pod as people call it: its id, how that begins, its name, or `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Which(String);

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            [pod] | [_, pod] if !pod.is_empty() => Ok(Self(text.to_owned())),
            _ => Err("neither an id, nor a name, nor NAMESPACE/NAME".to_owned()),
        }
    }
}

impl Which {
    /// Has `ask` ask about the pod. The daemon is asked for all pods only if none has this for its id.
    pub(super) fn ask<T>(
        &self,
        node: &Node,
        ask: impl Fn(&Node, &PodId) -> Result<T, ToolError>,
    ) -> Result<(PodId, T), ToolError> {
        let unknown = match self.0.parse::<PodId>() {
            Err(_) => None,
            Ok(pod) => match ask(node, &pod) {
                Err(ToolError::Refused(body)) if body.code == ErrorCode::NotFound => Some(ToolError::Refused(body)),
                answer => return answer.map(|answer| (pod, answer)),
            },
        };
        let pods = node.pods()?;
        let mut meant = pods.iter().filter(|pod| self.means(pod)).map(|pod| &pod.pod);
        match (meant.next(), meant.next()) {
            (Some(pod), None) => ask(node, pod).map(|answer| (pod.clone(), answer)),
            (Some(first), Some(second)) => {
                let ids = [first, second].into_iter().chain(meant).map(|pod| pod.as_str().to_owned());
                Err(ToolError::Ambiguous { said: self.0.clone(), ids: ids.collect() })
            }
            (None, _) => Err(unknown.unwrap_or_else(|| ToolError::NoPod(self.0.clone()))),
        }
    }

    fn means(&self, pod: &PodSummary) -> bool {
        match self.0.split_once('/') {
            Some((namespace, name)) => pod.namespace == namespace && pod.name == name,
            None => pod.name == self.0 || pod.pod.as_str().starts_with(&self.0),
        }
    }
}
