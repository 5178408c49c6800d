//! Settings of a node by which pods are judged: its machines, its runtime handlers, and which of its devices pods may name. They are tables of
//! controld's configuration, which reads and checks them together with all others.
//!
//! Every key, its default and its unit stand in `docs/configuration.md`. An unknown key is an error.

mod flexvolumes;
mod given;
mod handlers;
mod machine;
mod problems;
mod raw_devices;
pub mod units;

pub use self::flexvolumes::FlexvolumesConfig;
pub use self::given::Given;
pub use self::handlers::{Handler, MachineDefaults};
pub use self::machine::{Accel, MachineConfig};
pub use self::problems::Problems;
pub use self::raw_devices::RawDevices;
