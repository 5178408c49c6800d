//! The HTTP client against servers and proxies on loopback that do what they should not.

mod addresses;
mod answers;
mod asking;
mod proxies;
mod ranges;
mod redirects;
mod retries;
#[path = "../pull/rig.rs"]
#[allow(dead_code, reason = "the tests of pulls use the rest of it")]
mod rig;
mod tls;
