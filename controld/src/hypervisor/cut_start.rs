//! A start that the death of libvirtd has cut off.
//!
//! libvirtd writes a machine's status file before QEMU is a process, and writes it again, with its pid, before it lets the child execute
//! QEMU. If it dies between the two, the child ends, and the next libvirtd reads the file, takes the machine for one that is being
//! started, and waits for ever for that start to end: no call of its API can end it, since reconnecting passes over machines without a
//! pid (seen with libvirt 11.3, `qemuProcessReconnectHelper`).
//!
//! So such a machine is none: it has no QEMU, and never will. A note of which libvirtd waits is written beside its status file, by which we
//! know it as long as this one runs, after a restart of ours as well. What was started for it before QEMU is ended ([`helpers`]), and then
//! the status file goes: the next libvirtd knows the machine as off.

mod helpers;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use common::{Chain, bounded, small_file};
use procfs::process::Process;
use procfs::{Current as _, Uptime};
use quick_xml::Reader;
use quick_xml::events::Event;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::process::{found, pid_in, ticks};

/// The element in question is at the beginning.
const BEGINNING: u64 = 4096;
/// The kernel counts in hundredths of a second, and no libvirtd starts a machine as soon as this after its own beginning.
const COUNTED_WITHIN: Duration = Duration::from_millis(50);
/// Of a [`Note`].
const VERSION: u32 = 1;
/// Calls about one machine come at the same time, above all when libvirtd is back; one looks after the other.
static TURN: Mutex<()> = Mutex::new(());

/// Beside a status file, or in its place: which libvirtd waits.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    version: u32,
    pid: i32,
    /// In the kernel's ticks after the boot.
    started: u64,
}

/// Whether libvirt waits for the start of a machine that is cut off; what there is of that goes then. `name` and `id` are those of a machine
/// that is being started by libvirt's word.
///
/// # Errors
/// When a file cannot be read, or the note not written.
pub(super) fn is_cut(dir: &Path, name: &str, id: Uuid) -> io::Result<bool> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(daemon) = Daemon::running(dir)? else { return Ok(false) };
    let (status, note) = (dir.join(format!("{name}.xml")), note_of(dir, name));
    let is_noted = is_noted(&note, &daemon);
    let Some(file) = found(File::open(&status))? else { return Ok(is_noted) };
    let written = file.metadata()?.modified()?;
    let beginning = bounded::first(file, BEGINNING)?;
    let is_cut = has_no_process(&String::from_utf8_lossy(&beginning)) && (is_noted || daemon.began_after(written));
    if !is_cut {
        return Ok(false);
    }
    if !is_noted {
        small_file::write_unflushed(&note, &daemon.note).map_err(io::Error::other)?;
        tracing::warn!(
            machine = name,
            "libvirtd died while it started the machine, and the one that runs now waits for ever for that start; the machine is taken \
             for gone, and libvirt lists it until libvirtd is restarted"
        );
    }
    // As long as the file is there, the next look does this again.
    if let Err(error) = helpers::end(id).and_then(|()| found(fs::remove_file(&status))) {
        tracing::warn!(machine = name, %error, "what a start that was cut off has left not cleared away; trying again");
    }
    Ok(true)
}

/// Whether the note says that this libvirtd waits. One that cannot be read says nothing.
fn is_noted(note: &Path, daemon: &Daemon) -> bool {
    match small_file::read::<Note>(note, VERSION) {
        Ok(noted) => noted.is_some_and(|noted| noted == daemon.note),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "note of a start that was cut off not read");
            false
        }
    }
}

/// Whether a machine's start was cut off, by this libvirtd's death or an earlier one's.
pub(super) fn was_cut(dir: &Path, name: &str) -> bool {
    note_of(dir, name).exists()
}

/// Forgets that a machine's start was cut off, which libvirt does not know any more.
///
/// # Errors
/// When the file cannot be removed.
pub(super) fn forget(dir: &Path, name: &str) -> io::Result<()> {
    found(fs::remove_file(note_of(dir, name))).map(drop)
}

/// libvirt reads files that end in `.xml`.
fn note_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.cut-off"))
}

/// The libvirtd that runs.
///
/// Clocks are set, forwards and back, above all while a node boots. So when it began is told in two ways, one as of then and one as of now,
/// and what they do not agree on is not known.
#[derive(Debug)]
struct Daemon {
    note: Note,
    /// By the clock of then.
    noted: SystemTime,
    /// By the clock of now, from what the kernel has counted since.
    counted: SystemTime,
}

impl Daemon {
    /// `None` if none is known to run.
    fn running(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join("driver.pid");
        let Some(file) = found(fs::metadata(&path))? else { return Ok(None) };
        let pid = pid_in(&path)?;
        let Ok(stat) = Process::new(pid).and_then(|process| process.stat()) else { return Ok(None) };
        let uptime = Uptime::current().map_err(io::Error::other)?.uptime_duration();
        let runs_for = uptime.saturating_sub(ticks(stat.starttime));
        let counted = SystemTime::now().checked_sub(runs_for).unwrap_or(SystemTime::UNIX_EPOCH);
        let note = Note { version: VERSION, pid, started: stat.starttime };
        Ok(Some(Self { note, noted: file.modified()?, counted }))
    }

    fn began_after(&self, time: SystemTime) -> bool {
        time < self.noted && time < self.counted + COUNTED_WITHIN
    }
}

/// Whether a status file's `<domstatus state='paused' reason='starting up' pid='0'>` has no process.
fn has_no_process(status: &str) -> bool {
    let mut reader = Reader::from_str(status);
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                let value = |name: &str| start.try_get_attribute(name).ok().flatten().map(|attribute| attribute.value);
                return start.name().as_ref() == "domstatus"
                    && value("reason").is_some_and(|reason| reason == "starting up")
                    && value("pid").is_some_and(|pid| pid == "0");
            }
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: &str = "<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE.\n-->\n\n\
        <domstatus state='paused' reason='starting up' pid='0'>\n  <taint flag='custom-argv'/>\n";
    const HOUR: Duration = Duration::from_secs(3600);
    const ID: Uuid = Uuid::from_u128(7);

    fn at(time: SystemTime, path: &Path) {
        File::options().write(true).open(path).and_then(|file| file.set_modified(time)).expect("time");
    }

    /// A folder in which this process is libvirtd, and has noted itself at `noted`; the status was written at `written`.
    fn dir(status: &str, noted: SystemTime, written: SystemTime) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("tempdir");
        let us = std::process::id().to_string();
        for (name, text, time) in [("driver.pid", &*us, noted), ("vm.xml", status, written)] {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("write");
            at(time, &path);
        }
        dir
    }

    /// Before this process began, and since it did.
    fn times() -> [SystemTime; 2] {
        let now = SystemTime::now();
        [now - HOUR * 24 * 365, now]
    }

    #[test]
    fn a_start_of_the_libvirtd_before_that_has_no_process_is_cut_until_libvirtd_is_restarted() {
        let [before, now] = times();
        let dir = dir(CUT, now, before);
        let [status, note] = ["vm.xml", "vm.cut-off"].map(|name| dir.path().join(name));
        let is_cut = || is_cut(dir.path(), "vm", ID).expect("looked");
        assert!(is_cut());
        assert!(!status.exists() && note.exists());
        assert!(is_cut(), "libvirtd waits on");
        fs::write(&status, CUT).expect("write");
        assert!(is_cut(), "it has written of it again");
        assert!(!status.exists());
        // A clock that is set changes nothing of what was noted.
        for time in [before - HOUR, now + HOUR] {
            at(time, &dir.path().join("driver.pid"));
            at(time, &note);
            assert!(is_cut(), "libvirtd waits on");
        }
        fs::write(&status, CUT.replace("pid='0'", "pid='12'")).expect("write");
        assert!(!is_cut(), "it has a process after all");
        assert!(status.exists());
        fs::remove_file(&status).expect("removed");

        // Another libvirtd, whose number may be that of the one before.
        let of = |pid, started| {
            small_file::write_unflushed(&note, &Note { version: VERSION, pid, started }).expect("written");
        };
        let Note { pid, started, .. } = Daemon::running(dir.path()).expect("looked").expect("it runs").note;
        for (pid, started) in [(pid, started - 1), (pid + 1, started)] {
            of(pid, started);
            assert!(!is_cut(), "nothing is known of a start");
        }
        assert!(was_cut(dir.path(), "vm"));
        forget(dir.path(), "vm").expect("forgotten");
        forget(dir.path(), "vm").expect("again");
        assert!(!was_cut(dir.path(), "vm"));
    }

    #[test]
    fn a_note_that_cannot_be_read_says_nothing() {
        let [before, now] = times();
        let dir = dir(CUT, now, before);
        let note = dir.path().join("vm.cut-off");
        fs::write(&note, "<domstatus").expect("write");
        assert!(is_cut(dir.path(), "vm", ID).expect("looked"), "the status file says it");
        assert!(is_cut(dir.path(), "vm", ID).expect("looked"), "the note was written anew");
        fs::write(&note, "<domstatus").expect("write");
        assert!(!is_cut(dir.path(), "vm", ID).expect("looked"), "nothing says it");
    }

    #[test]
    fn a_start_that_goes_on_or_has_a_process_keeps_its_file() {
        let [before, now] = times();
        let with_process = CUT.replace("pid='0'", "pid='12'");
        let ended = CUT.replace("starting up", "user");
        for (status, written) in
            [(CUT, now + HOUR), (&with_process, before), (&ended, before), ("", before), ("<domstatus", before)]
        {
            let dir = dir(status, now, written);
            assert!(!is_cut(dir.path(), "vm", ID).expect("looked"), "{status}");
            assert!(dir.path().join("vm.xml").exists());
        }
    }

    #[test]
    fn a_clock_that_was_set_makes_no_start_one_that_is_cut() {
        let [before, now] = times();
        for (noted, written, how) in
            [(now + HOUR, now + HOUR / 2, "back, after it began"), (before - HOUR, before, "forward, after the start")]
        {
            let dir = dir(CUT, noted, written);
            assert!(!is_cut(dir.path(), "vm", ID).expect("looked"), "{how}");
            assert!(dir.path().join("vm.xml").exists());
        }
    }

    #[test]
    fn another_libvirt_than_that_of_the_system_or_one_that_is_gone_is_left_alone() {
        let [before, now] = times();
        let dir = dir(CUT, now, before);
        let pid = dir.path().join("driver.pid");
        // More than a pid can be.
        fs::write(&pid, i32::MAX.to_string()).expect("write");
        assert!(!is_cut(dir.path(), "vm", ID).expect("looked"));
        fs::remove_file(pid).expect("removed");
        assert!(!is_cut(dir.path(), "vm", ID).expect("looked"));
        assert!(dir.path().join("vm.xml").exists());
    }
}
