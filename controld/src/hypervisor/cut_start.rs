//! A start that the death of libvirtd has cut off.
//!
//! libvirtd writes a machine's status file before QEMU is a process. If it dies at that moment, the next libvirtd reads the
//! file, takes the machine for one that is being started, and waits for ever for that start to end: no call of its API can
//! end it, since reconnecting passes over machines without a pid (seen with libvirt 11.3, `qemuProcessReconnectHelper`).
//! Without the file the libvirtd after that knows the machine as off. So the file goes, and somebody is told to restart
//! libvirtd.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use common::bounded;
use quick_xml::Reader;
use quick_xml::events::Event;

/// Where libvirt's QEMU driver keeps the status of running machines, `NAME.xml`, and the pid of its daemon.
pub const STATUS_DIR: &str = "/run/libvirt/qemu";
/// The element in question is at the beginning.
const BEGINNING: u64 = 4096;

/// Whether libvirt waits for the start of a machine that is cut off; such a machine's status file is removed. `name` is that
/// of a machine that is being started by libvirt's word.
///
/// # Errors
/// When the file cannot be read or removed.
pub(super) fn is_cut(dir: &Path, name: &str) -> io::Result<bool> {
    let Some(daemon) = found(fs::metadata(dir.join("driver.pid")))? else { return Ok(false) };
    let path = dir.join(format!("{name}.xml"));
    // A start that goes on has none only for an instant, and whoever ends it tries again.
    let Some(file) = found(File::open(&path))? else { return Ok(true) };
    let older = file.metadata()?.modified()? < daemon.modified()?;
    let beginning = bounded::first(file, BEGINNING)?;
    let cut = older && has_no_process(&String::from_utf8_lossy(&beginning));
    if cut {
        found(fs::remove_file(&path))?;
    }
    Ok(cut)
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

/// What is not there is nothing, and no failure.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    const CUT: &str = "<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE.\n-->\n\n\
        <domstatus state='paused' reason='starting up' pid='0'>\n  <taint flag='custom-argv'/>\n";

    fn dir(status: &str, written: Duration) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("tempdir");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        for (name, text, time) in [("driver.pid", "7", at), ("vm.xml", status, SystemTime::UNIX_EPOCH + written)] {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("write");
            File::options().write(true).open(path).and_then(|file| file.set_modified(time)).expect("time");
        }
        dir
    }

    #[test]
    fn a_start_of_the_libvirtd_before_that_has_no_process_is_cut_and_its_file_goes() {
        let dir = dir(CUT, Duration::from_secs(999));
        assert!(is_cut(dir.path(), "vm").expect("looked"));
        assert!(!dir.path().join("vm.xml").exists());
        assert!(is_cut(dir.path(), "vm").expect("looked"), "libvirtd waits on until it is restarted");
    }

    #[test]
    fn a_start_that_goes_on_or_has_a_process_keeps_its_file() {
        let with_process = CUT.replace("pid='0'", "pid='12'");
        let ended = CUT.replace("starting up", "user");
        for (status, written) in [(CUT, 1001), (&with_process, 999), (&ended, 999), ("", 999), ("<domstatus", 999)] {
            let dir = dir(status, Duration::from_secs(written));
            assert!(!is_cut(dir.path(), "vm").expect("looked"), "{status} at {written}");
            assert!(dir.path().join("vm.xml").exists());
        }
    }

    #[test]
    fn another_libvirt_than_that_of_the_system_is_left_alone() {
        let dir = dir(CUT, Duration::from_secs(999));
        fs::remove_file(dir.path().join("driver.pid")).expect("removed");
        assert!(!is_cut(dir.path(), "vm").expect("looked"));
    }
}
