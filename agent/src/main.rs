//! `virtlet-agent`: runs in a guest and starts processes for `controld` there (`kubectl exec`, exec probes), and the command that
//! the machine is for, if its pod wants one. As `virtlet-agent gate` it holds up the guest's boot, if the node wants that ([`gate`]).
//!
//! It speaks [`proto::agent`] over the virtio-serial port that each VM of virtlet has. One thread; everything that it waits for
//! is in one `poll`. It holds no more than the credit of its sessions, and an outbox that is not filled further while `controld` does
//! not read.
//!
//! Who is at the other end of the port is the node, which owns the guest's memory and disk anyway: the agent runs as root and
//! trusts it. It listens nowhere else.

mod account;
mod arrivals;
mod command;
mod entropy;
mod gate;
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
use self::gate::Gate;
use self::port::Port;
use self::power::Power;

const USAGE: &str = "usage: virtlet-agent [gate] [- [LOG EXIT]] | reseed   (`gate`, early in a boot, has the agent run in the background, \
                     and ends when the boot may go on: at once, unless a node waits for the guest there; with `-`, standard input is the \
                     port, files stand for the others, the agent ends where the guest would power off, and a `gate` waits for its node \
                     in any case; `reseed` has the kernel's random numbers begin anew)";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn run() -> io::Result<()> {
    // Before the port is opened, which may send one at once.
    let signals = serve::signals()?;
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let (is_gate, args) = match args.as_slice() {
        [one] if one == "reseed" => return entropy::reseed(),
        [one, rest @ ..] if one == "gate" => (true, rest),
        all => (false, all),
    };
    let (port, outlets, power) = match args {
        [] => (None, Outlets::Ports, Power::On),
        [one, files @ ..] if one == "-" && matches!(files.len(), 0 | 2) => {
            let file = |at: usize| files.get(at).map_or_else(|| PathBuf::from("/dev/null"), PathBuf::from);
            let (outlets, power) = (Outlets::Files { log: file(0), exit: file(1) }, Power::Agent { is_off: false });
            (Some(File::from(io::stdin().as_fd().try_clone_to_owned()?)), outlets, power)
        }
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, USAGE)),
    };
    let gate = if is_gate {
        let is_closed = port.is_some() || gate::is_wanted()?;
        match gate::fork(is_closed)? {
            Some(gate) => gate,
            None => return Ok(()),
        }
    } else {
        Gate::default()
    };
    // After the fork: the kernel sends the signals of a port to the process that has asked for them.
    let port = match port {
        Some(file) => Port::of(file),
        None if is_gate => Port::wait(),
        None => Port::find(),
    };
    serve::serve(port?, outlets, power, gate, &signals)
}

fn failed(error: &io::Error) -> ExitCode {
    // There is nobody to tell that this failed.
    let _ = writeln!(stderr(), "virtlet-agent: {error}");
    ExitCode::FAILURE
}
