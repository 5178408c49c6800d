//! A look at something that may come late, as disks do.

use std::time::Duration;

/// The kernel looks for disks while programs run already.
pub(super) const FOUND: Duration = Duration::from_secs(10);

/// What came of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The guest has it at its path.
    Seen,
    /// The kernel has not found it yet; what is told if it never does.
    NotYet(String),
}
