//! What the agent in a machine's guest is told at each boot.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a guest is to be, where its image alone does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Whether our agent is known to be in it, or to be installed while it boots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_agent: bool,
    /// Settings of its kernel: those of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Options of its resolver, which DHCP has no words for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolver: Vec<String>,
    /// The container's own command, if the machine is for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<GuestCommand>,
}

/// The container's own command. Its output is the container's log, and its end the container's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Whether the guest's root file system is read-only to it.
    pub read_only_root: bool,
}

impl Guest {
    /// Whether there is nothing of it to write down.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the agent need not be told anything of it.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        let Self { has_agent: _, sysctls, resolver, command } = self;
        sysctls.is_empty() && resolver.is_empty() && command.is_none()
    }
}
