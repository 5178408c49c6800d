//! The data path `ebpf` of earlier releases (ADR 21). No pod is joined by it any more. One that is on record stays as it
//! is until it is detached: its programs are in the kernel, and nothing here could compare them or make them again.

use super::{Join, Path};
use crate::net::step::Step;
use crate::sys::link::Link;

pub(super) struct Removed;

impl Path for Removed {
    fn refusal(&self, _link: &Link) -> Option<&'static str> {
        Some("it is no longer supported")
    }

    fn steps(&self, _join: &Join<'_>) -> Vec<Step> {
        vec![]
    }

    fn explanation(&self) -> &'static str {
        "eBPF on link and tap, by an earlier release: it is neither checked nor repaired; its next pod is given `tc`"
    }
}
