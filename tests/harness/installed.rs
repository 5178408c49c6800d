//! The machines of the tier `installed`: a Debian 12 and a Debian 13 with systemd, AppArmor and libvirt, each in an emulator, on
//! which the packages are installed as an administrator does it.
//!
//! Unlike in the emulated nodes ([`crate::emulated`]) no case runs in there. A case runs outside and has the machine do one
//! script after the other, by the hand of `bed installed-agent`, which is started at each boot when the bed says so. The machine has
//! this machine's files at `/host`, read-only, and no network but its own. It writes to an overlay that ends with the case.

mod agent;
mod frame;
mod image;
mod machine;
mod packages;
mod saved;
mod wire;

pub use agent::serve;
pub use frame::HOST;
pub use image::Image;
pub use machine::{Debian, Machine};
pub use packages::Packages;

/// How the names of its cases begin. Their machines take whole processors, as the nodes with cards do.
pub const TIER: &str = "installed::";
