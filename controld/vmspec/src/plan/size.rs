//! CPUs and memory.

use serde::{Deserialize, Serialize};

/// Virtual CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// That the guest boots with.
    pub boot: u16,
    /// That it can be given while it runs.
    pub max: u16,
}

/// Guest memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// That the guest boots with.
    pub boot: u64,
    /// That it can be given while it runs.
    pub max: u64,
}

/// What a machine has of what it can be given while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Virtual CPUs.
    pub vcpus: u16,
    /// Guest memory in bytes.
    pub memory: u64,
}

impl Cpus {
    /// As many for its whole life.
    #[must_use]
    pub fn fixed(count: u16) -> Self {
        Self { boot: count, max: count }
    }
}

impl Memory {
    /// As much for its whole life.
    #[must_use]
    pub fn fixed(bytes: u64) -> Self {
        Self { boot: bytes, max: bytes }
    }
}
