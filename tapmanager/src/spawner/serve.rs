//! The server that starts plugins. It blocks, and has a thread for each plugin that runs.
//!
//! While the daemon lives, the daemon watches the deadlines, and the server waits until the daemon answers or hangs up.
//! After that a plugin has what is left of its time, which the order says.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use proto::tap::{Packet, WireError, recv};

use super::allowed::{Allowed, Refusal};
use super::pod_locks::PodLocks;

/// Before a raw status of wait(2).
pub(super) const ENDED: u8 = b'E';
/// Before an error number.
pub(super) const NOT_STARTED: u8 = b'N';
/// Before the number of a [`super::Denied`].
pub(super) const DENIED: u8 = b'D';
/// The daemon's word that it has all of the output.
pub(super) const OVER: u8 = b'.';
/// The daemon's word that the plugin is to be killed.
pub(super) const KILL: u8 = b'!';

/// The variable that says which pod a command is for. STATUS, GC and VERSION are for none.
const POD: &str = "CNI_CONTAINERID";

/// What to start.
struct Order {
    /// How long it may run.
    limit: Duration,
    program: OsString,
    env: Vec<(OsString, OsString)>,
}

impl Order {
    /// The pod that the command is for.
    fn pod(&self) -> Option<&OsStr> {
        self.env.iter().find(|(name, _)| name == POD).map(|(_, id)| id.as_os_str())
    }
}

/// Limit in milliseconds, program and environment as one packet. None of them has a zero byte: the system calls could not
/// take it.
pub(super) fn encode(limit: Duration, program: &OsStr, env: &[(&str, &OsStr)]) -> Vec<u8> {
    let mut packet = limit.as_millis().to_string().into_bytes();
    packet.push(0);
    packet.extend(program.as_bytes());
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
    let limit = Duration::from_millis(str::from_utf8(parts.next()?).ok()?.parse().ok()?);
    let program = owned(parts.next()?);
    let variable = |part: &[u8]| {
        let at = part.iter().position(|b| *b == b'=')?;
        let (name, value) = part.split_at(at);
        Some((owned(name), owned(value.get(1..)?)))
    };
    Some(Order { limit, program, env: parts.map(variable).collect::<Option<_>>()? })
}

/// Starts what is asked for until the daemon hangs up, and all that was started has ended.
pub(super) fn serve(socket: OwnedFd, allowed: &Allowed, locks: &PodLocks) {
    thread::scope(|plugins| {
        loop {
            // Without a thread, or without descriptors, the call's socket closes, which the daemon takes for the failure
            // that it is.
            match recv(socket.as_fd()) {
                Ok(packet) => {
                    drop(thread::Builder::new().spawn_scoped(plugins, move || answer(packet, allowed, locks)))
                }
                Err(WireError::Truncated) => {}
                Err(_) => break,
            }
        }
    });
}

fn answer(packet: Packet, allowed: &Allowed, locks: &PodLocks) {
    let Packet { bytes, fds } = packet;
    let (Some(order), Ok([stdin, stdout, stderr, out, err, call])) = (decode(&bytes), <[OwnedFd; 6]>::try_from(fds))
    else {
        return;
    };
    let mut call = UnixStream::from(call);
    let refused = |mut call, error: io::Error| {
        drop(say(&mut call, NOT_STARTED, error.raw_os_error().unwrap_or_default()));
    };
    let file = match allowed.check(&order.program, &order.env) {
        Ok(file) => file,
        Err(Refusal::Denied(denied)) => return drop(say(&mut call, DENIED, denied.number())),
        Err(Refusal::Os(error)) => return refused(call, error),
    };
    let _lock = match order.pod().map(|pod| locks.wait(pod)).transpose() {
        Ok(lock) => lock,
        Err(error) => return refused(call, error),
    };
    if is_given_up(&call) {
        return;
    }
    let deadline = order.pod().and_then(|_| Instant::now().checked_add(order.limit));
    let started = Command::new(file)
        // One file that is many plugins goes by the name that it is called by.
        .arg0(order.program)
        .env_clear()
        .envs(order.env)
        .current_dir("/")
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .spawn();
    match started {
        Ok(child) => attend(child, &mut call, [out.into(), err.into()], deadline),
        Err(error) => refused(call, error),
    }
}

/// Whether the daemon has hung up, or wants the plugin killed, before it runs.
fn is_given_up(call: &UnixStream) -> bool {
    let mut fds = [PollFd::new(call.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO) != Ok(0)
}

/// Tells the end of the plugin, and reaps it. Its group is killed if the daemon says so, if its time is up after the daemon hung up,
/// and if it then had no time: without `deadline`.
fn attend(mut child: Child, call: &mut UnixStream, outputs: [File; 2], deadline: Option<Instant>) {
    let leader = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
    thread::scope(|scope| {
        let watch = call.try_clone().and_then(|mut call| {
            let (ended, end) = io::pipe()?;
            thread::Builder::new().spawn_scoped(scope, move || {
                let _end = end; // which closes here
                if let Some(status) = status_of(leader) {
                    let _ = say(&mut call, ENDED, status);
                }
            })?;
            Ok(ended)
        });
        let mut word = [0];
        // Without a thread nobody would hear of its end.
        let has_ended = watch.is_ok_and(|ended| match (call.read(&mut word), deadline) {
            (Ok(1), _) => word == [OVER],
            (_, Some(deadline)) => let_end(&ended, outputs, deadline),
            _ => false,
        });
        if !has_ended {
            // Fails only if all of them are gone, which is what is wanted.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    });
    let _ = child.wait();
}

/// Waits until `ended` hangs up; false at the deadline. What the plugin says meanwhile is read, as nobody else does:
/// SIGPIPE would kill it halfway.
fn let_end(ended: &PipeReader, outputs: [File; 2], deadline: Instant) -> bool {
    let mut open = Vec::from(outputs);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        fds.extend(open.iter().map(|output| PollFd::new(output.as_fd(), PollFlags::POLLIN)));
        let polled = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        let mut ready = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect::<Vec<_>>().into_iter();
        match polled {
            Ok(0) if left.is_zero() => return false,
            Ok(_) if ready.next() == Some(true) => return true,
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => open.retain_mut(|output| ready.next() != Some(true) || has_more(output)),
            Err(_) => return false,
        }
    }
}

/// Reads some. The descriptors are the daemon's too, which made them non-blocking.
fn has_more(output: &mut File) -> bool {
    match output.read(&mut [0; 4096]) {
        Ok(read) => read > 0,
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
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
