//! VFs that go to guests and come back: what the claims of [`sriov`] need of this node.
//!
//! Called by [`crate::pod`]. [`host`] knows netdevs and PFs by netlink, [`notes`] keeps claims on disk.

mod host;
mod notes;

#[expect(unused_imports, reason = "the claims of VFs, which use it, come next")]
pub(crate) use host::HostNet;
#[expect(unused_imports, reason = "the claims of VFs, which use it, come next")]
pub(crate) use notes::{ClaimNotes, UnreadableNote};
