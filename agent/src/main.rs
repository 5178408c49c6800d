//! `virtlet-agent`: runs in a guest and starts processes for `controld` there (`kubectl exec`, exec probes), and the command that
//! the machine is for, if its pod wants one.
//!
//! It speaks [`proto::agent`] over the virtio-serial port that each VM of virtlet has. One thread; everything that it waits for
//! is in one `poll`. It holds no more than the credit of its sessions, and an outbox that is not filled further while `controld` does
//! not read.
//!
//! Who is at the other end of the port is the node, which owns the guest's memory and disk anyway: the agent runs as root and
//! trusts it. It listens nowhere else.

mod account;
mod command;
mod entropy;
mod outbox;
mod port;
mod power;
mod process;
mod serve;
mod session;
mod setup;
mod tree;

use std::fs::File;
use std::io::{self, Write as _, stderr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use self::command::Outlets;
use self::port::Port;
use self::power::Power;

const USAGE: &str = "usage: virtlet-agent [- [LOG EXIT] | reseed]   (with `-`, standard input is the port, files stand for the others, \
                     and the agent ends where the guest would power off; `reseed` has the kernel's random numbers begin anew)";

fn main() -> ExitCode {
    // Before the port is opened, which may send one at once.
    let signals = match serve::signals() {
        Ok(signals) => signals,
        Err(error) => return failed(&error),
    };
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let served = match args.as_slice() {
        [one] if one == "reseed" => entropy::reseed(),
        [] => Port::find().and_then(|port| serve::serve(port, Outlets::Ports, Power::On, &signals)),
        [one, files @ ..] if one == "-" && matches!(files.len(), 0 | 2) => {
            let file = |at: usize| files.get(at).map_or_else(|| PathBuf::from("/dev/null"), PathBuf::from);
            let (outlets, power) = (Outlets::Files { log: file(0), exit: file(1) }, Power::Agent { is_off: false });
            let port = io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(Port::of);
            port.and_then(|port| serve::serve(port, outlets, power, &signals))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, USAGE)),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    // There is nobody to tell that this failed.
    let _ = writeln!(stderr(), "virtlet-agent: {error}");
    ExitCode::FAILURE
}
