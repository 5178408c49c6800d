//! `vmwrapper`: what libvirt starts as a domain's emulator.
//!
//! In a pod's domain (`VIRTLET_TOKEN` is set) it trades the token for the descriptors of the pod's NICs, appends them to
//! QEMU's arguments, takes its own variables out of the environment and becomes the real QEMU, in the same process.
//! Without a token libvirt is probing capabilities: the arguments go to the emulator of the node as they are.
//!
//! Invariants: one thread; every inherited descriptor is left alone (libvirt has closed the rest, and not all that QEMU
//! needs is named in its arguments); arguments are bytes and never looked at; nothing is written to stdout; a failure is
//! one line on stderr, `vmwrapper[CODE]: what: why; what to do`, for libvirt shows that line and no exit code.
//!
//! | code | sysexits name | when |
//! |---|---|---|
//! | 64 | `EX_USAGE` | no arguments: libvirt starts this program, not a person |
//! | 69 | `EX_UNAVAILABLE` | tapmanager is not there, silent or without room past the deadline, or refuses |
//! | 70 | `EX_SOFTWARE` | a bug of ours |
//! | 71 | `EX_OSERR` | the real emulator could not be executed |
//! | 76 | `EX_PROTOCOL` | tapmanager's answer is not of the protocol, or does not fit the domain: other NICs than it has slots for |
//! | 78 | `EX_CONFIG` | the environment or the emulator file is wrong |

mod argv;
mod emulator;
mod env;
mod failure;
mod handoff;

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, exit};

use self::emulator::Emulator;
use self::env::Mode;
use self::failure::Failure;

fn main() {
    failure::make_panics_one_line();
    let Err(failure) = run();
    failure.report();
    exit(failure.code().into());
}

/// Returns only if QEMU did not start.
fn run() -> Result<Infallible, Failure> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.is_empty() {
        return Err(Failure::Usage);
    }
    match env::parse(std::env::vars_os())? {
        Mode::Probe => Err(become_qemu(&emulator::configured()?, args, &[], &[])),
        Mode::Pod(pod) => {
            // Before the token is spent: a wrong emulator must not cost a start.
            let emulator = Emulator::new(pod.emulator)?;
            let nics = handoff::fetch(pod.handoff, pod.deadline, pod.token, &pod.places)?;
            let args = argv::extend(args, &nics, pod.bus);
            Err(become_qemu(&emulator, args, &pod.variables, &nics.descriptors()))
        }
    }
}

/// Replaces this process by the emulator, which gets `fds` and the environment less `hidden`.
fn become_qemu(emulator: &Emulator, args: Vec<OsString>, hidden: &[OsString], fds: &[OwnedFd]) -> Failure {
    let mut command = Command::new(emulator.path());
    command.args(args);
    for name in hidden {
        command.env_remove(name);
    }
    // Last of all, so that no way out in between leaves them inheritable.
    if let Err(cause) = handoff::make_inheritable(fds) {
        return Failure::Inherit(cause);
    }
    Failure::Exec { emulator: emulator.path().to_owned(), cause: command.exec() }
}
