//! What a decoder that was taken over may still do.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::TcpStream;
use std::process::{Command, ExitCode, Stdio};

use nix::sys::signal::kill;
use nix::unistd::getppid;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("whatever_it_tries_is_refused", whatever_it_tries_is_refused),
    ("threads_and_memory_are_there", threads_and_memory_are_there),
];

/// Confined as a decoder is, tries one thing. 0 if it worked, 77 if it was refused.
pub(crate) fn attempt(way: &str) -> ExitCode {
    // Neither may be asked for later.
    let parent = getppid();
    vmimage::decode::confine().expect("confined");
    let tried: io::Result<()> = match way {
        "read a file" => File::open("/etc/passwd").map(drop),
        "make a file" => File::create("/tmp/of-a-decoder").map(drop),
        "list processes" => std::fs::read_dir("/proc").map(drop),
        "connect" => TcpStream::connect("127.0.0.1:9").map(drop),
        "start a program" => Command::new("/bin/true").status().map(drop),
        "kill the daemon" => kill(parent, None).map_err(Into::into),
        "become root of a namespace" => nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).map_err(Into::into),
        "take memory without end" => {
            let refused = Vec::<u8>::new().try_reserve_exact(1 << 30).is_err();
            if refused { Err(io::Error::from_raw_os_error(libc::EPERM)) } else { Ok(()) }
        }
        "thread" => std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().expect("joined")),
        "memory" => {
            let mut piece = vec![1_u8; 200 << 20];
            piece.fill(2);
            io::Read::read(&mut &piece[..], &mut [0]).map(drop)
        }
        other => Err(io::Error::other(format!("no way `{other}`"))),
    };
    match tried {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => ExitCode::from(77),
        Err(error) => {
            eprintln!("{way}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn code(way: &str) -> Option<i32> {
    let me = std::env::current_exe().expect("a path");
    let mut child = Command::new(me).args(["escape", way]).stderr(Stdio::piped()).spawn().expect("started");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    print!("{said}");
    child.wait().expect("waited for").code()
}

fn whatever_it_tries_is_refused() {
    let ways = [
        "read a file",
        "make a file",
        "list processes",
        "connect",
        "start a program",
        "kill the daemon",
        "become root of a namespace",
        "take memory without end",
    ];
    for way in ways {
        assert_eq!(code(way), Some(77), "{way}");
    }
}

fn threads_and_memory_are_there() {
    for way in ["thread", "memory"] {
        assert_eq!(code(way), Some(0), "{way}");
    }
}
