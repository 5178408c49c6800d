//! `virtlet-agent`: runs in a guest and starts processes for `controld` there (`kubectl exec`, exec probes).
//!
//! It speaks [`proto::agent`] over the virtio-serial port that each VM of virtlet has. One thread; everything that it waits for
//! is in one `poll`. It holds no more than the credit of its sessions, and an outbox that is not filled further while `controld` does
//! not read.
//!
//! Who is at the other end of the port is the node, which owns the guest's memory and disk anyway: the agent runs as root and
//! trusts it. It listens nowhere else.

mod account;
mod outbox;
mod port;
mod process;
mod serve;
mod session;
mod tree;

use std::fs::File;
use std::io::{self, Write as _, stderr};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use self::port::Port;

const USAGE: &str = "usage: virtlet-agent [-]   (with `-`, standard input is the port)";

fn main() -> ExitCode {
    // Before the port is opened, which may send one at once.
    let signals = match serve::signals() {
        Ok(signals) => signals,
        Err(error) => return failed(&error),
    };
    let mut args = std::env::args_os().skip(1);
    let port = match (args.next(), args.next()) {
        (None, _) => Port::find(),
        (Some(one), None) if one == "-" => io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(Port::of),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, USAGE)),
    };
    match port.and_then(|port| serve::serve(port, &signals)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    // There is nobody to tell that this failed.
    let _ = writeln!(stderr(), "virtlet-agent: {error}");
    ExitCode::FAILURE
}
