//! Features of a described machine's platform.

use serde::{Deserialize, Serialize};

/// Features. One that is not there is as the node has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "named as libvirt names them")]
pub struct Features {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apic: Option<Apic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smm: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvspinlock: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<Kvm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<HyperV>,
}

/// Whether a feature is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// It is on if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// The interrupt controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Apic {
    /// It is on if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether the end of an interrupt is told by memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_of_interrupt: bool,
}

/// What KVM shows of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kvm {
    /// Whether the guest finds no KVM.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// What makes Windows take KVM for its own hypervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "named as libvirt names them")]
pub struct HyperV {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relaxed: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vapic: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spinlocks: Option<Spinlocks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpindex: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synic: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synictimer: Option<Direct>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendorid: Option<VendorId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequencies: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reenlightenment: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlbflush: Option<TlbFlush>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipi: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evmcs: Option<State>,
}

/// How often a lock is tried before the hypervisor is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spinlocks {
    /// It is on if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spinlocks: Option<u32>,
}

/// A feature with a direct form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direct {
    /// It is on if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its direct form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<State>,
}

/// Flushes of translations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbFlush {
    /// It is on if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Their direct form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<State>,
    /// Their extended form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended: Option<State>,
}

/// What the hypervisor calls itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VendorId {
    /// It is on if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// At most 12 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendorid: Option<String>,
}
