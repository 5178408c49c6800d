//! What Status says beside the node's conditions: the handlers and what they can do, and facts for people (`crictl info`).

use std::collections::{BTreeMap, HashMap};

use proto::cri::{RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures};
use vmspec::draft::mount_options::are_held;

use super::Runtime;
use crate::orphans::Orphan;

impl Runtime {
    pub(super) fn handlers(&self) -> (Vec<RuntimeHandler>, RuntimeFeatures) {
        let handlers: Vec<_> = std::iter::once(String::new()).chain(self.uses.config.handler_names()).collect();
        // Of those that hold none, a container with options is refused, and the options named.
        let mount_options = handlers.iter().any(|name| are_held(&self.uses.config.handler(name).defaults));
        let features = RuntimeHandlerFeatures { recursive_read_only_mounts: true, ..Default::default() };
        let handlers = handlers.into_iter().map(|name| RuntimeHandler { name, features: Some(features) }).collect();
        (handlers, RuntimeFeatures { mount_options, ..Default::default() })
    }

    pub(super) async fn facts(&self) -> HashMap<String, String> {
        let handlers = self.uses.config.handlers.iter().map(|(name, handler)| (name, handler.shown()));
        let handlers: BTreeMap<_, _> = handlers.collect();
        let facts = serde_json::json!({
            "accelerator": self.uses.accel.shown(),
            "emulator": self.uses.config.emulator,
            "vmwrapper": self.uses.config.vmwrapper,
            "instance": self.uses.instance.id(),
            "recordsInDoubt": self.uses.instance.doubt(),
            "orphans": self.uses.orphans.last_seen().iter().map(orphan).collect::<Vec<_>>(),
            "libvirt": self.uses.hypervisor.version().map(|version| version.to_string()),
            "handlers": handlers,
            "imagesPerHandler": self.uses.images.per_other_handler(),
            "imageRuleProblems": self.uses.images.rule_problems().await,
        });
        HashMap::from([("virtlet".to_owned(), facts.to_string())])
    }
}

/// A thing of unknown owner, for people.
fn orphan(orphan: &Orphan) -> serde_json::Value {
    let Orphan { kind, id, pod, why, .. } = orphan;
    serde_json::json!({ "kind": kind.as_str(), "id": id, "namespace": pod.namespace, "name": pod.name, "why": why })
}
