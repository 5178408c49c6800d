//! What controld and a guest have to do with each other, and what a start makes on the node for that. Each part knows where its files of a
//! machine are, makes them for a start, and does not know the other parts.
//!
//! A container's service and its life call this, and so do clients' sessions: they run commands by [`agents`] and read and write the
//! [`console`]. Whatever comes from a guest may be hostile: it is bounded in size, and each wait for it has a deadline.

pub mod agents;
pub mod console;
pub(crate) mod screen;
pub(crate) mod seed;
pub mod share;
