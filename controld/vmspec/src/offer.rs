//! What a node has for machines.

use std::collections::{BTreeMap, BTreeSet};

/// What a machine of one type can be made with, from libvirt's domain capabilities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// The machine type with its version.
    pub machine: String,
    /// Modes of CPUs, as libvirt calls them: `host-passthrough`, `maximum`.
    pub cpu_modes: BTreeSet<String>,
    /// Named CPU models, and whether the accelerator has all that they are.
    pub cpu_models: BTreeMap<String, bool>,
    /// Buses of disks.
    pub disk_buses: BTreeSet<String>,
    /// Firmwares that libvirt finds by itself: `efi`.
    pub firmwares: BTreeSet<String>,
    /// Their files, among which libvirt chooses.
    pub loaders: BTreeSet<String>,
    /// Whether one of them can boot securely.
    pub secure_boot: bool,
    /// Whether a TPM can be emulated.
    pub tpm: bool,
}
