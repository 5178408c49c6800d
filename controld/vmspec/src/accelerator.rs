//! What runs machines.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What runs a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The host's CPU.
    Kvm,
    /// QEMU's own (TCG).
    Qemu,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Qemu => "qemu",
        })
    }
}
