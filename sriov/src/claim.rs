//! The life of a VF that a guest gets: taken, bound to vfio-pci, used, and given back as it was.
//!
//! Called by `tapmanager`. The caller brings a [`World`], of which [`Node`] has the half that sysfs shows, and [`Notes`]
//! that outlive a power failure.
//!
//! ```text
//! begin -> Observed -> Saved -> Taken -> Bound -> InUse        advance, one step at a time
//!              |         |        |        |        |
//!              |         +--------+--------+--------+-> Rebinding -+      release, from any step
//!              +---------------------------------------------------+-> Restored
//! ```
//!
//! | step | the world may differ from before in |
//! |---|---|
//! | `Observed` | nothing; it is not noted, but was by earlier releases |
//! | `Saved` | settings of the PF |
//! | `Taken` | driver and netdev as well |
//! | `Bound`, `InUse` | the same, and vfio-pci has the VF |
//! | `Rebinding` | anything of these, while it is put back |
//! | `Restored` | nothing |
//!
//! A step is noted, and the note flushed, before the world may be changed as far as it says. Each step looks at the world
//! again and changes what is not yet so: after a crash or an error, [`advance`] or [`release`] may be called again with
//! the note alone. [`repair`] says which.
//!
//! Two ways of a VF ([`Arrival`](crate::policy::Arrival)): with a netdev in a pod's namespace, where it gets back under
//! its name with its address and MTU; or on vfio-pci, where it stays, and no netdev is touched.
//!
//! The caller does one thing with a VF at a time, and one with a PF whose settings it writes.

mod give;
mod node;
mod note;
mod problem;
mod repair;
mod take;
mod world;

pub use give::{Ending, Guest, release};
pub use node::Node;
pub use note::{Claim, End, FORMAT, Notes, Outcome, Saved, Step};
pub use problem::ClaimError;
pub use repair::{Now, Repair, Why, repair};
pub use take::{Request, advance, begin, expect_bound, hand_out, take};
pub use world::{Cause, Devices, Links, Netdev, Place, World};

#[cfg(test)]
mod tests;
