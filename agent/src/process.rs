//! The start of a process, with pipes or a terminal of its own.
#![expect(unsafe_code, reason = "what is done between fork and exec, and ioctls of terminals")]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::pty::openpty;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::unistd::{Gid, Uid, chdir, geteuid, setgid, setgroups, setsid, setuid};
use proto::agent::{Size, Start};

use crate::account::Account;

/// No source, type or options of a mount.
const NOTHING: Option<&str> = None;
/// Where programs are looked for.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A process, and our ends of its streams.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) stdin: Option<File>,
    pub(crate) stdout: Option<File>,
    pub(crate) stderr: Option<File>,
    /// Its streams are one terminal.
    pub(crate) terminal: bool,
}

/// What is said of a process beside the command itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct How {
    /// The root file system is read-only to it.
    pub(crate) read_only_root: bool,
    /// It is killed if the agent is.
    pub(crate) ends_with_us: bool,
    /// The process whose file systems it sees.
    pub(crate) joins: Option<u32>,
}

/// Our ends of the streams.
type Ours = (Option<File>, Option<File>, Option<File>);

/// Starts a process in a session and a group of its own.
pub(crate) fn start(start: &Start, how: How) -> Result<Process, String> {
    let (program, args) = start.argv.split_first().ok_or("the command is empty")?;
    let account = Account::find(Path::new("/etc"), &start.user)?;
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", PATH).env("HOME", &account.home);
    if start.tty.is_some() {
        command.env("TERM", "xterm");
    }
    command.envs(start.env.iter().filter_map(|variable| variable.split_once('=')));
    let home = if Path::new(&account.home).is_dir() { &account.home } else { "/" };
    let cwd = if start.cwd.is_empty() { home } else { &start.cwd };
    if !Path::new(cwd).is_dir() {
        return Err(format!("the guest has no directory `{cwd}`"));
    }
    command.current_dir(cwd);
    // Its file systems, and the directory there.
    let joined = match how.joins {
        Some(pid) => {
            let namespace = File::open(format!("/proc/{pid}/ns/mnt")).map_err(|error| {
                format!("the file systems of the machine's command not found: {error}; it may have ended")
            })?;
            let cwd =
                CString::new(cwd).map_err(|_zero| format!("directory `{}` has a zero byte", cwd.escape_debug()))?;
            Some((namespace, cwd))
        }
        None => None,
    };

    let (stdin, stdout, stderr) = streams(&mut command, start).map_err(|error| format!("no streams: {error}"))?;
    let terminal = start.tty.is_some();
    let Account { uid, gid, groups, .. } = account;
    let groups: Vec<Gid> = groups.into_iter().chain(start.groups.iter().copied()).map(Gid::from_raw).collect();
    // An agent that does not run as root starts processes as itself alone.
    let switches = geteuid().is_root() || !start.user.is_empty() || !start.groups.is_empty();
    let owns_stdin = terminal || start.stdin;
    let become_it = move || {
        // The agent reads its signals from a descriptor, so it has them blocked. An init that started it in the background of a script
        // has it ignore those of keys, and a shell cannot take up again what it was begun with.
        SigSet::empty().thread_set_mask()?;
        for ignored in Signal::iterator().filter(|one| !matches!(one, Signal::SIGKILL | Signal::SIGSTOP)) {
            // SAFETY: no handler is set, so none can be one that does not belong to a signal.
            unsafe { signal(ignored, SigHandler::SigDfl)? };
        }
        setsid()?;
        if terminal {
            // SAFETY: descriptor 0 is the terminal, and the session has none yet.
            if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if switches {
            // So that it may open `/dev/stderr`. Not `/dev/null`, which is everybody's.
            for fd in i32::from(!owns_stdin)..=2 {
                // SAFETY: a system call. What the kernel refuses, the process can do without.
                unsafe { libc::fchown(fd, uid, libc::gid_t::MAX) };
            }
        }
        if let Some((namespace, cwd)) = &joined {
            #[expect(clippy::disallowed_methods, reason = "in a child that becomes another program next")]
            setns(namespace, CloneFlags::CLONE_NEWNS)?;
            chdir(cwd.as_c_str())?;
        }
        if how.read_only_root {
            // In a view of its own, that the guest's others do not share.
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
            let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
            mount(NOTHING, "/", NOTHING, read_only, NOTHING)?;
        }
        if switches {
            setgroups(&groups)?;
            setgid(Gid::from_raw(gid))?;
            setuid(Uid::from_raw(uid))?;
        }
        if how.ends_with_us {
            // Another user's process has lost it.
            set_pdeathsig(Signal::SIGKILL)?;
        }
        Ok(())
    };
    // SAFETY: only system calls; the groups were allocated before.
    unsafe { command.pre_exec(become_it) };
    let child = command.spawn().map_err(|error| format!("failed to start `{program}`: {error}"))?;
    Ok(Process { child, stdin, stdout, stderr, terminal })
}

fn streams(command: &mut Command, start: &Start) -> io::Result<Ours> {
    if let Some(size) = start.tty {
        let pty = openpty(&window(size), None)?;
        for end in [&pty.master, &pty.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        command.stdin(pty.slave.try_clone()?).stdout(pty.slave.try_clone()?).stderr(pty.slave);
        let master = ours(pty.master)?;
        return Ok((Some(master.try_clone()?), Some(master), None));
    }
    let stdin = if start.stdin {
        let (theirs, writer) = io::pipe()?;
        command.stdin(theirs);
        Some(ours(writer.into())?)
    } else {
        command.stdin(Stdio::null());
        None
    };
    let (stdout, theirs) = io::pipe()?;
    command.stdout(theirs);
    let (stderr, theirs) = io::pipe()?;
    command.stderr(theirs);
    Ok((stdin, Some(ours(stdout.into())?), Some(ours(stderr.into())?)))
}

/// An end that we wait for in `poll` alone.
fn ours(end: OwnedFd) -> io::Result<File> {
    fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(File::from(end))
}

/// Gives a terminal another size; its foreground group gets `SIGWINCH`.
pub(crate) fn resize(terminal: &File, size: Size) -> io::Result<()> {
    let window = window(size);
    // SAFETY: the kernel reads one `winsize`, which is alive.
    let set = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const window) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn window(size: Size) -> nix::pty::Winsize {
    nix::pty::Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 }
}
