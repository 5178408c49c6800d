//! Servers that somebody else wrote, and what they serve: real peers of the image store, on an address of the cell.
//!
//! They are started as a person would start them, wait until they answer, and end with the cell. The ports are fixed:
//! a cell has its own.

pub mod busybox;
pub mod disk;
pub mod gpg;
pub mod lago;
pub mod nginx;
pub mod openstack;
pub mod proxy;
pub mod registry;
pub mod simplestreams;
pub mod tls;
pub mod tokens;
pub mod virt_builder;

use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;

use crate::command::sh;
use crate::daemon::Daemon;
use crate::wait::wait_for;

/// Where peers listen: private, and not loopback, which the store refuses unless told otherwise.
pub const ADDRESS: &str = "192.168.78.1";
/// OpenStack's take seconds to import themselves; two cells share the machine.
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// Gives the cell [`ADDRESS`], if it has not got it.
///
/// # Errors
/// When the kernel refuses.
pub fn furnish() -> Result<()> {
    sh(&format!("ip addr replace {ADDRESS}/32 dev lo")).map(drop)
}

/// Waits until `daemon` takes connections at a port of [`ADDRESS`].
fn listening(daemon: &mut Daemon, port: u16) -> Result<()> {
    wait_for(&format!("listener at port {port}"), READY_DEADLINE, || {
        daemon.still_runs()?;
        Ok(TcpStream::connect((ADDRESS, port)).ok())
    })
    .map(drop)
}
