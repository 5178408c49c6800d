//! What a VirtualMachine's spec says of its runs.

use serde_json::{Value, json};

use crate::objects::{Json, Vm};

/// When a VM runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// As long as it is not told otherwise.
    Always,
    /// Until it powers itself off.
    RerunOnFailure,
    /// When somebody asks for it.
    Manual,
    /// One time.
    Once,
    /// Never.
    Halted,
}

impl Strategy {
    const ALL: [Self; 5] = [Self::Always, Self::RerunOnFailure, Self::Manual, Self::Once, Self::Halted];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Manual => "Manual",
            Self::Once => "Once",
            Self::Halted => "Halted",
        }
    }
}

/// A VM's strategy. One that says none, which no policy lets through, does not run.
pub(super) fn strategy(spec: &Value) -> Strategy {
    let word = spec["runStrategy"].as_str();
    let named = word.and_then(|word| Strategy::ALL.into_iter().find(|strategy| strategy.word() == word));
    let by_running = if spec["running"] == json!(true) { Strategy::Always } else { Strategy::Halted };
    named.unwrap_or(by_running)
}

/// A text that is another one when runs would be other ones.
pub(super) fn template(vm: &Vm) -> Json {
    Json::of(&vm.spec.value()["template"])
}
