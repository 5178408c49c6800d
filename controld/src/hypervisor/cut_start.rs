//! A start that the death of libvirtd has cut off.
//!
//! libvirtd writes a machine's status file before QEMU is a process, and writes it again, with its pid, before it lets the child execute
//! QEMU. If it dies between the two, the child ends, and the next libvirtd reads the file, takes the machine for one that is being
//! started, and waits for ever for that start to end: no call of its API can end it, since reconnecting passes over machines without a
//! pid (seen with libvirt 11.3, `qemuProcessReconnectHelper`).
//!
//! So such a machine is none: nothing of it runs, and nothing ever will. Its file moves aside, by which the libvirtd after this one knows
//! it as off; and as long as this one runs, the file aside is how we know it, after a restart of ours as well.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::bounded;
use procfs::process::Process;
use procfs::{Current as _, Uptime};
use quick_xml::Reader;
use quick_xml::events::Event;

use super::process::{found, pid_in};

/// The element in question is at the beginning.
const BEGINNING: u64 = 4096;
/// The kernel counts in hundredths of a second, and no libvirtd starts a machine as soon as this after its own beginning.
const COUNTED_WITHIN: Duration = Duration::from_millis(50);

/// Whether libvirt waits for the start of a machine that is cut off; its status file is moved aside then. `name` is that of a machine
/// that is being started by libvirt's word.
///
/// # Errors
/// When a file cannot be read or moved.
pub(super) fn is_cut(dir: &Path, name: &str) -> io::Result<bool> {
    let Some(daemon) = Daemon::running(dir)? else { return Ok(false) };
    let (status, aside) = (dir.join(format!("{name}.xml")), aside(dir, name));
    if let Some(file) = found(fs::metadata(&aside))?
        && daemon.began_before(moved(&file))
    {
        // libvirtd may have written of it again.
        found(fs::remove_file(&status))?;
        return Ok(true);
    }
    let Some(file) = found(File::open(&status))? else { return Ok(false) };
    let written = file.metadata()?.modified()?;
    let beginning = bounded::first(file, BEGINNING)?;
    let cut = daemon.began_after(written) && has_no_process(&String::from_utf8_lossy(&beginning));
    if cut && found(fs::rename(&status, &aside))?.is_some() {
        tracing::warn!(
            machine = name,
            "libvirtd died while it started the machine, and the one that runs now waits for ever for that start; the machine is taken \
             for gone, and libvirt lists it until libvirtd is restarted"
        );
    }
    Ok(cut)
}

/// Whether a machine's start was cut off, by this libvirtd's death or an earlier one's.
pub(super) fn was_cut(dir: &Path, name: &str) -> bool {
    aside(dir, name).exists()
}

/// Forgets that a machine's start was cut off, which libvirt does not know any more.
///
/// # Errors
/// When the file cannot be removed.
pub(super) fn forget(dir: &Path, name: &str) -> io::Result<()> {
    found(fs::remove_file(aside(dir, name))).map(drop)
}

/// The status file that has moved aside. libvirt reads those that end in `.xml`.
fn aside(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.cut-off"))
}

/// When a file was moved, as far as nothing was done to it since.
fn moved(file: &Metadata) -> SystemTime {
    let (seconds, nanos) = (u64::try_from(file.ctime()).unwrap_or(0), u32::try_from(file.ctime_nsec()).unwrap_or(0));
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}

/// When the libvirtd began that runs.
///
/// Clocks are set, forwards and back, above all while a node boots. So it is told in two ways, one as of then and one as of now, and what
/// they do not agree on is not known.
#[derive(Debug)]
struct Daemon {
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
        #[expect(clippy::cast_precision_loss, reason = "ticks since the boot")]
        let started = Duration::from_secs_f64(stat.starttime as f64 / procfs::ticks_per_second() as f64);
        let runs_for = uptime.saturating_sub(started);
        let counted = SystemTime::now().checked_sub(runs_for).unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Some(Self { noted: file.modified()?, counted }))
    }

    fn began_after(&self, time: SystemTime) -> bool {
        time < self.noted && time < self.counted + COUNTED_WITHIN
    }

    fn began_before(&self, time: SystemTime) -> bool {
        self.noted <= time && self.counted <= time + COUNTED_WITHIN
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
        let [status, aside] = ["vm.xml", "vm.cut-off"].map(|name| dir.path().join(name));
        assert!(is_cut(dir.path(), "vm").expect("looked"));
        assert!(!status.exists() && aside.exists());
        assert!(is_cut(dir.path(), "vm").expect("looked"), "libvirtd waits on");
        fs::write(&status, CUT).expect("write");
        assert!(is_cut(dir.path(), "vm").expect("looked"), "whatever it writes");
        assert!(!status.exists());

        // The next libvirtd: what is aside was moved before it began.
        at(now + HOUR, &dir.path().join("driver.pid"));
        assert!(!is_cut(dir.path(), "vm").expect("looked"), "a new start");
        assert!(was_cut(dir.path(), "vm"));
        forget(dir.path(), "vm").expect("forgotten");
        forget(dir.path(), "vm").expect("again");
        assert!(!was_cut(dir.path(), "vm"));
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
            assert!(!is_cut(dir.path(), "vm").expect("looked"), "{status}");
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
            assert!(!is_cut(dir.path(), "vm").expect("looked"), "{how}");
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
        assert!(!is_cut(dir.path(), "vm").expect("looked"));
        fs::remove_file(pid).expect("removed");
        assert!(!is_cut(dir.path(), "vm").expect("looked"));
        assert!(dir.path().join("vm.xml").exists());
    }
}
