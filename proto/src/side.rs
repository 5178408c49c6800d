//! On a node with another container runtime, `controld` answers for both. A caller who means its virtual machines alone says so with each call.

/// The header.
pub const SIDE: &str = "virtlet-side";
/// Its value. There is no other; a `controld` that is in front of nobody passes over it.
pub const OURS: &str = "ours";

/// How ids of ours begin, of pods and of containers. Other runtimes' are hex digits.
pub const OUR_IDS: &str = "vm";
