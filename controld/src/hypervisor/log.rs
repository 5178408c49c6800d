//! What libvirt logs of a machine: asked when a machine does not start and libvirt's error does not say why.
//!
//! Normally the error repeats what the failed process wrote. It does not if that process is not reaped yet when libvirt
//! looks: libvirt takes it for alive, and says only that its monitor did not answer. virtlogd copies the process's words to
//! the file in its own time, so they are waited for, but not for long.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use common::bounded;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::WrapperError;
use super::meaning;

/// How long the line may be on its way from a process that is dead already.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
/// How much of the end of the log is looked at. One start writes some kilobytes.
const TAIL: u64 = 64 << 10;

/// vmwrapper's line of the latest start in the log at `path`, once it is there. Blocks.
pub(super) fn wrapper_line(path: &Path) -> Option<WrapperError> {
    let deadline = Instant::now() + ON_ITS_WAY;
    // Watched before it is read, so that no line is missed in between.
    let changes = watch(path).ok()?;
    loop {
        if let Some(line) = tail(path).ok().and_then(|tail| meaning::wrapper_line_in_log(&tail)) {
            return Some(line);
        }
        let left = PollTimeout::try_from(deadline.checked_duration_since(Instant::now())?).ok()?;
        if poll(&mut [PollFd::new(changes.as_fd(), PollFlags::POLLIN)], left).ok()? == 0 {
            return None;
        }
        changes.read_events().ok()?;
    }
}

fn watch(path: &Path) -> io::Result<Inotify> {
    let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    changes.add_watch(path, AddWatchFlags::IN_MODIFY)?;
    Ok(changes)
}

fn tail(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bounded::last(path, TAIL)?).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    const HEAD: &str = "2026-01-01 00:00:00.000+0000: starting up libvirt version: 11.3.0, qemu version: 10.0.2\n";

    #[test]
    fn the_line_of_this_start_is_found_even_if_it_comes_late() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("vm.log");
        std::fs::write(&path, format!("{HEAD}vmwrapper[70]: an earlier start\n{HEAD}")).expect("write");
        let mut log = OpenOptions::new().append(true).open(&path).expect("open");
        let late = std::thread::spawn(move || wrapper_line(&path));
        writeln!(log, "char device redirected to /dev/pts/1").expect("write");
        writeln!(log, "vmwrapper[69]: no answer; is it up?").expect("write");
        let line = late.join().expect("joined").expect("found");
        assert_eq!((line.code, line.line.as_str()), (69, "vmwrapper[69]: no answer; is it up?"));
    }

    #[test]
    fn without_a_log_there_is_no_line() {
        assert!(wrapper_line(Path::new("/nowhere/vm.log")).is_none());
    }
}
