//! What a container's task decides by. Pure: no libvirt, no database, and the time is the caller's.
//!
//! - [`life`]: the states of a container, and what moves it: start, stop, superseding, ends.
//! - [`stopping`]: a stop under way, from the power button to giving up.
//! - [`pause`]: when a machine that found its disk's file system full may go on.
//! - [`again`]: when what could not be done is tried again.

mod again;
mod life;
mod pause;
mod stopping;

pub(super) use self::again::Again;
pub(super) use self::life::{Act, Circumstances, End, Event, Life};
pub(super) use self::pause::{Lookout, Room};
pub(super) use self::stopping::{Due, Stopping};
