//! The pipes by which a QEMU gives virtlogd what its guest writes to ports that are files at our end: output and end of the command that a
//! machine is for.
//!
//! A virtlogd that was killed leaves pipes without a reader, and its successor does not know of them. QEMU then tries without end to write
//! what the guest has written to such a port, which takes a processor, and the guest's writers wait. A pipe that somebody holds can be opened in
//! `/proc`: whoever does reads on where virtlogd has ended.
//!
//! Which pipe is a port's, QEMU's arguments tell by their order. libvirt gives it each pipe by `-add-fd set=N,fd=M`, and names the set where
//! a port is described (`path=/dev/fdset/N`). QEMU keeps a copy of `M` under the least number that is free, one after the other.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};

use nix::fcntl::OFlag;
use procfs::ProcError;
use procfs::process::{FDPermissions, FDTarget, Process, Stat};
use proto::agent::{EXIT_PORT, LOG_PORT};
use serde_json::Value;

use super::{MAX_DESCRIPTORS, arguments_in};

/// The reading ends of the pipes of a machine that is for a command.
#[derive(Debug)]
pub struct Outlets {
    /// What the command prints.
    pub log: OwnedFd,
    /// How it has ended.
    pub end: OwnedFd,
}

/// Where the pipes of the two ports are among all that QEMU was given, and how many these are.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    log: usize,
    end: usize,
    all: usize,
}

/// A pipe that a process writes to.
#[derive(Debug, Clone, Copy)]
struct Pipe {
    fd: i32,
    inode: u64,
}

/// `None` of a QEMU that has no such ports.
///
/// # Errors
/// Also when it has not one pipe for each that it was given: then nothing tells whose is which.
pub(super) fn of(process: &Process, _stat: &Stat) -> Result<Option<Outlets>, ProcError> {
    let arguments = arguments_in(process.open_relative("cmdline")?)?;
    let arguments: Vec<_> = arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let Some(Places { log, end, all }) = places(&arguments) else { return Ok(None) };
    let pipes = pipes(process)?;
    let found = if pipes.len() == all { pipes.get(log).zip(pipes.get(end)) } else { None };
    let Some((log, end)) = found else {
        let what = format!("QEMU was given {all} pipes and has {}", pipes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
    };
    Ok(Some(Outlets { log: log.open(process.pid)?, end: end.open(process.pid)? }))
}

fn places(arguments: &[impl AsRef<str>]) -> Option<Places> {
    let said = |word: &str| {
        let pairs = arguments.iter().zip(arguments.iter().skip(1));
        let said = pairs.filter(|(is, _)| is.as_ref() == word).map(|(_, value)| value.as_ref());
        said.collect::<Vec<_>>()
    };
    let (sets, devices, sources) = (said("-add-fd"), said("-device"), said("-chardev"));
    let sets: Vec<_> = sets.iter().filter_map(|set| field(set, "set")).collect();
    let place = |port: &str| {
        let devices = devices.iter().filter_map(|device| serde_json::from_str::<Value>(device).ok());
        let device = devices.into_iter().find(|device| device["name"] == port)?;
        let source = device["chardev"].as_str()?;
        let source = sources.iter().find(|is| field(is, "id") == Some(source))?;
        let set = field(source, "path")?.strip_prefix("/dev/fdset/")?;
        sets.iter().position(|is| *is == set)
    };
    Some(Places { log: place(LOG_PORT)?, end: place(EXIT_PORT)?, all: sets.len() })
}

/// A field of QEMU's `a,b=c,d=e`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split(',').find_map(|part| part.split_once('=').filter(|(is, _)| *is == key)).map(|(_, value)| value)
}

/// Each once, by its least number; without that of its own words.
fn pipes(process: &Process) -> Result<Vec<Pipe>, ProcError> {
    let mut pipes = Vec::new();
    // One that is closed meanwhile leads nowhere.
    for descriptor in process.fd()?.take(MAX_DESCRIPTORS).filter_map(Result::ok) {
        if let FDTarget::Pipe(inode) = descriptor.target
            && descriptor.mode() & (FDPermissions::READ | FDPermissions::WRITE) == FDPermissions::WRITE
        {
            pipes.push(Pipe { fd: descriptor.fd, inode });
        }
    }
    pipes.sort_unstable_by_key(|pipe| pipe.fd);
    let words: HashSet<_> = pipes.iter().filter(|pipe| pipe.fd < 3).map(|pipe| pipe.inode).collect();
    let mut seen = words;
    pipes.retain(|pipe| seen.insert(pipe.inode));
    Ok(pipes)
}

impl Pipe {
    /// Opens its other end, though the number may lead elsewhere by now: what is no pipe is not opened.
    fn open(self, pid: i32) -> io::Result<OwnedFd> {
        let Self { fd, inode } = self;
        let there =
            OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(format!("/proc/{pid}/fd/{fd}"))?;
        let is = there.metadata()?;
        if !is.file_type().is_fifo() || is.ino() != inode {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "QEMU has closed a pipe of its guest"));
        }
        let again = format!("/proc/self/fd/{}", there.as_raw_fd());
        Ok(OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(again)?.into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use proto::tap::ProcessId;
    use uuid::Uuid;

    use super::*;
    use crate::hypervisor::process::Processes;

    pub(crate) const ID: Uuid = Uuid::from_u128(9);
    /// As libvirt 11 has them of a machine for a command, beside others.
    const ARGUMENTS: [&str; 22] = [
        "-uuid",
        "00000000-0000-0000-0000-000000000009",
        "-add-fd",
        "set=0,fd=33,opaque=serial0-log",
        "-chardev",
        "socket,id=charserial0,fd=31,server=on,wait=off,logfile=/dev/fdset/0,logappend=on",
        "-device",
        r#"{"driver":"isa-serial","chardev":"charserial0","id":"serial0","index":0}"#,
        "-chardev",
        "socket,id=charchannel1,fd=35,server=on,wait=off",
        "-device",
        r#"{"driver":"virtserialport","nr":2,"chardev":"charchannel1","id":"channel1","name":"org.virtlet.agent.0"}"#,
        "-add-fd",
        "set=1,fd=36,opaque=channel2-source",
        "-chardev",
        "file,id=charchannel2,path=/dev/fdset/1,append=on",
        "-device",
        r#"{"driver":"virtserialport","nr":3,"chardev":"charchannel2","id":"channel2","name":"org.virtlet.log.0"}"#,
        "-add-fd",
        "set=2,fd=37,opaque=channel3-source",
        "-chardev",
        "file,id=charchannel3,path=/dev/fdset/2,append=on",
    ];
    const END: [&str; 2] = [
        "-device",
        r#"{"driver":"virtserialport","nr":4,"chardev":"charchannel3","id":"channel3","name":"org.virtlet.exit.0"}"#,
    ];
    /// Has three pipes whose readers have ended, and writes to the last two what it reads: two lines for each. What else it was left is closed.
    /// A reader has the pipes before its own open too, so each is waited for.
    const SCRIPT: &str = "for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -lt 3 ] || eval \"exec $fd>&-\"; done
        exec 5> >(:); wait $!; exec 6> >(:); wait $!; exec 7> >(:); wait $!; echo ready
        while read -r log && read -r end; do echo $log >&6; echo $end >&7; done";

    /// A process with arguments and pipes as a QEMU has them whose virtlogd has ended.
    pub(crate) fn machine() -> (Child, Processes) {
        let mut child = Command::new("bash")
            .args(["-c", SCRIPT, "bash"])
            .args(ARGUMENTS)
            .args(END)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawned");
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("it says so");
        let pid = i32::try_from(child.id()).expect("a pid");
        let started = Process::new(pid).and_then(|process| process.stat()).expect("it runs").starttime;
        let processes = Processes::default();
        processes.tell(ID, ProcessId { pid, started });
        (child, processes)
    }

    #[test]
    fn a_ports_pipe_has_the_place_of_its_set() {
        let places = |arguments: &[&[&str]]| super::places(&arguments.concat());
        assert_eq!(places(&[&ARGUMENTS, &END]), Some(Places { log: 1, end: 2, all: 3 }));
        assert_eq!(places(&[&END, &ARGUMENTS]), Some(Places { log: 1, end: 2, all: 3 }));
        assert_eq!(places(&[&ARGUMENTS]), None, "of a machine without such a port");
    }

    #[test]
    fn what_nobody_reads_any_more_is_read_on() {
        let (mut child, processes) = machine();
        let outlets = processes.outlets(Path::new("/nowhere"), "vm", ID).expect("read").expect("it has them");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(b"oline\n5 why\n").expect("taken");
        drop(stdin);
        child.wait().expect("ended");
        let read = |pipe: OwnedFd| {
            let mut text = String::new();
            std::fs::File::from(pipe).read_to_string(&mut text).expect("read");
            text
        };
        assert_eq!((read(outlets.log), read(outlets.end)), ("oline\n".to_owned(), "5 why\n".to_owned()));
        assert!(processes.outlets(Path::new("/nowhere"), "vm", ID).expect("read").is_none(), "it has ended");
    }
}
