//! The conditions of `Status`.

use std::path::PathBuf;

use common::Chain;
use proto::cri::RuntimeCondition;
use vmspec::ContainerId;
use vmspec::error::Error;

use super::Runtime;
use crate::tap::State;

/// Most checkpoints that a condition tells of.
const MAX_TOLD: usize = 5;

impl Runtime {
    pub(super) async fn conditions(&self) -> Vec<RuntimeCondition> {
        let condition = |kind: &str, failed: Option<(&str, String)>| RuntimeCondition {
            r#type: kind.to_owned(),
            status: failed.is_none(),
            reason: failed.as_ref().map(|(reason, _)| (*reason).to_owned()).unwrap_or_default(),
            message: failed.map(|(_, message)| message).unwrap_or_default(),
        };
        let no_libvirt = |error: Error| ("LibvirtNotReady", Chain(&error).to_string());
        let runtime = self.uses.hypervisor.serves().await.err().map(no_libvirt);
        let connected = self.uses.hypervisor.ready().err().map(no_libvirt);
        let tapmanager = self.uses.tap.state().await;
        let down = match &tapmanager {
            State::Up(_) => None,
            State::Down(error) => Some(("TapmanagerNotReady", Chain(error).to_string())),
            State::Unknown => Some(("TapmanagerNotReady", "tapmanager has not answered yet".into())),
        };
        let no_plugins = match tapmanager {
            State::Up(status) if !status.ready => Some(("NetworkNotReady", status.reason)),
            State::Up(_) => None,
            State::Down(_) | State::Unknown => Some(("Unknown", "tapmanager, which runs the plugins, is away".into())),
        };
        // The first that is not well is what the other comes from.
        let network = down.clone().or_else(|| no_plugins.clone());
        let emulator = self.uses.emulator.trouble().await.map(|trouble| ("EmulatorFails", trouble));
        let forbidden = self.uses.hypervisor.forbidden(&self.uses.config.vmwrapper).map(|what| ("PolicyForbids", what));
        // One of its own: kubelet leaves all pods alone while RuntimeReady is false, and what runs is to go on.
        let store = self.uses.store.trouble().map(|trouble| {
            let since = humantime::format_rfc3339_seconds(trouble.since);
            ("DatabaseNotWritable", format!("since {since}: {}", Chain(&trouble.cause)))
        });
        // Beside kubelet's two, for people. The first is kubelet's without its patience.
        let orphans = self.uses.orphans.trouble().map(|trouble| ("UnknownOwner", trouble));
        let emulated = self.uses.accel.trouble().map(|trouble| ("Emulated", trouble));
        let polled = self.uses.watcher.trouble().map(|trouble| ("NoInotify", trouble));
        vec![
            condition("RuntimeReady", runtime),
            condition("NetworkReady", network),
            condition("LibvirtConnected", connected),
            condition("EmulatorStarts", emulator),
            condition("PolicyAllows", forbidden),
            condition("TapmanagerReady", down),
            condition("CniReady", no_plugins),
            condition("StoreWritable", store),
            condition("OwnersKnown", orphans),
            condition("KvmUsable", emulated),
            condition("ConsoleLogsWatched", polled),
            condition("CheckpointsOver", left(&self.containers.checkpoints_left()).map(|what| ("FilesLeft", what))),
        ]
    }
}

/// What is left of checkpoints, if something is.
fn left(checkpoints: &[(ContainerId, PathBuf)]) -> Option<String> {
    let told = checkpoints.iter().take(MAX_TOLD).map(|(id, dir)| format!("container `{id}` in `{}`", dir.display()));
    let told: Vec<_> = told.collect();
    let more = match checkpoints.len() - told.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let told = told.join(", ");
    (!told.is_empty()).then(|| {
        format!("checkpoints that broke off are not removed yet, which is tried again: of {told}{more}; does the directory answer?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_what_is_left_is_told() {
        let of = |count: usize| left(&vec![(ContainerId::random(), PathBuf::from("/c")); count]);
        assert_eq!(of(0), None);
        assert!(of(1).is_some_and(|told| told.contains("in `/c`;")));
        assert!(of(7).is_some_and(|told| told.contains(", and 2 more;") && told.matches("`/c`").count() == 5));
    }
}
