//! What a machine may use of its node, and what it uses: its cgroup and processors, a change of them while it runs, and kubelet's figures.

pub(super) mod confinement;
mod processors;
pub(super) mod resize;
pub(super) mod usage;
