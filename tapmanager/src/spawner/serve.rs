//! The end that starts plugins. It blocks, and has a thread for each plugin that runs.
//!
//! No wait here has a deadline of its own: the daemon's hanging up ends each, and the kernel hangs up for a dead daemon.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use proto::tap::{Packet, WireError, recv};

use super::allowed::{Allowed, Refusal};

/// Before a raw status of wait(2).
pub(super) const ENDED: u8 = b'E';
/// Before an error number.
pub(super) const NOT_STARTED: u8 = b'N';
/// Before the number of a [`super::Denied`].
pub(super) const DENIED: u8 = b'D';

/// What to start.
struct Order {
    program: OsString,
    env: Vec<(OsString, OsString)>,
}

/// Program and environment as one packet. None of them has a zero byte: the system calls could not take it.
pub(super) fn encode(program: &OsStr, env: &[(&str, &OsStr)]) -> Vec<u8> {
    let mut packet = program.as_bytes().to_vec();
    for (name, value) in env {
        packet.push(0);
        packet.extend(name.as_bytes());
        packet.push(b'=');
        packet.extend(value.as_bytes());
    }
    packet
}

fn decode(packet: &[u8]) -> Option<Order> {
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let mut parts = packet.split(|b| *b == 0);
    let program = owned(parts.next()?);
    let variable = |part: &[u8]| {
        let at = part.iter().position(|b| *b == b'=')?;
        let (name, value) = part.split_at(at);
        Some((owned(name), owned(value.get(1..)?)))
    };
    Some(Order { program, env: parts.map(variable).collect::<Option<_>>()? })
}

/// Starts what is asked for until the daemon hangs up, and all that was started has ended.
pub(super) fn serve(socket: OwnedFd, allowed: &Allowed) {
    thread::scope(|plugins| {
        loop {
            // Without a thread, or without descriptors, the call's socket closes, which the daemon takes for the failure
            // that it is.
            match recv(socket.as_fd()) {
                Ok(packet) => drop(thread::Builder::new().spawn_scoped(plugins, move || answer(packet, allowed))),
                Err(WireError::Truncated) => {}
                Err(_) => break,
            }
        }
    });
}

fn answer(packet: Packet, allowed: &Allowed) {
    let Packet { bytes, fds } = packet;
    let (Some(order), Ok([stdin, stdout, stderr, call])) = (decode(&bytes), <[OwnedFd; 4]>::try_from(fds)) else {
        return;
    };
    let mut call = UnixStream::from(call);
    match allowed.check(&order.program, &order.env) {
        Ok(()) => {}
        Err(Refusal::Denied(denied)) => return drop(say(&mut call, DENIED, denied.number())),
        Err(Refusal::Os(error)) => {
            return drop(say(&mut call, NOT_STARTED, error.raw_os_error().unwrap_or_default()));
        }
    }
    let started = Command::new(order.program)
        .env_clear()
        .envs(order.env)
        .current_dir("/")
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .spawn();
    match started {
        Ok(child) => attend(child, &mut call),
        Err(error) => drop(say(&mut call, NOT_STARTED, error.raw_os_error().unwrap_or_default())),
    }
}

/// Tells the end of the plugin, kills its group unless the daemon says that the run is over, and reaps it.
fn attend(mut child: Child, call: &mut UnixStream) {
    let leader = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
    thread::scope(|scope| {
        let watch = call.try_clone().map(|mut call| {
            scope.spawn(move || {
                if let Some(status) = status_of(leader) {
                    let _ = say(&mut call, ENDED, status);
                }
            })
        });
        let over = watch.is_ok() && matches!(call.read(&mut [0]), Ok(1));
        if !over {
            // Fails only if all of them are gone, which is what is wanted.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    });
    let _ = child.wait();
}

/// Waits for the end of a process without reaping it.
fn status_of(leader: Pid) -> Option<i32> {
    loop {
        match waitid(Id::Pid(leader), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, code)) => return Some(code << 8),
            Ok(WaitStatus::Signaled(_, signal, core)) => return Some(signal as i32 | if core { 0x80 } else { 0 }),
            Err(nix::errno::Errno::EINTR) | Ok(_) => {}
            Err(_) => return None,
        }
    }
}

fn say(call: &mut UnixStream, kind: u8, number: i32) -> io::Result<()> {
    let [a, b, c, d] = number.to_ne_bytes();
    call.write_all(&[kind, a, b, c, d])
}
