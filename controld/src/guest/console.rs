//! The serial console of a machine: to the pod's log, and to attached clients.
//!
//! QEMU's serial port is a unix socket with an append log beside it, `console/<container>/serial.log`, that libvirt's
//! virtlogd writes from power-on. So nothing is lost while controld is down, or while nobody is attached:
//!
//! - [`follow`] reads the append log from a stored offset and writes the pod's log in CRI form ([`crilog`]), each
//!   line once even if controld is killed in between ([`position`]). [`watch`] tells it that there is more.
//! - [`end`] reads what the agent in the guest has said of the end of the machine's command, where the machine is for one; the
//!   command's output is followed then, in place of the console.
//! - [`scribe`] writes the append log, or what a command says, where virtlogd does so no more.
//! - [`tail`] reads what the guest has printed last, where its kernel has panicked.
//! - [`hub`] connects to the socket while clients are attached, or a scribe writes, and only then.
//!
//! virtlogd keeps `serial.log` and three predecessors of 2 MiB each (its defaults). What a guest prints beyond that while
//! controld is down is lost, and so is what it prints between the end of virtlogd and the scribe's first look. What a machine's command
//! prints meanwhile waits in QEMU. The machine itself runs on.

pub mod crilog;
pub mod end;
pub mod follow;
pub mod hub;
pub mod position;
pub mod scribe;
pub mod tail;
mod writers;

/// Append log of a machine's serial port.
pub const SERIAL_LOG: &str = "serial.log";
/// That of its command's output, if the machine is for a command.
pub const COMMAND_LOG: &str = "command.log";
/// How the command has ended: see [`end`].
pub const COMMAND_END: &str = "end";
