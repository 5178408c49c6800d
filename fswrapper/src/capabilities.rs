//! What virtiofsd can, by its own words: libvirt asks `fswrapper` by `--print-capabilities`, and goes by the answer.
//!
//! Called by `main`. The answer is bounded, as is the time that it takes; and of the process nothing is left.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proto::share::{Share, check_capabilities};

/// How libvirt asks, and the real virtiofsd is asked.
pub(crate) const OPTION: &str = "--print-capabilities";
/// What this program can itself: to be given virtiofsd's options by names of their own.
const OWN: &[u8] = b"{\"type\": \"fs\", \"features\": [\"separate-options\"]}\n";
/// It takes milliseconds; libvirt's start of a VM waits meanwhile.
const DEADLINE: Duration = Duration::from_secs(10);
const MAX_SAID: usize = 64 << 10;

/// Why it is not known what virtiofsd can.
#[derive(Debug, thiserror::Error)]
#[error("`{} {OPTION}` did not say what virtiofsd can", virtiofsd.display())]
pub(crate) struct CapabilitiesError {
    virtiofsd: PathBuf,
    source: io::Error,
}

/// What libvirt is answered. `invoked` is how this program was called. If that is the link in a share's directory, which libvirt has from
/// the domain, the real virtiofsd is asked; else, as for a domain of an earlier release, this program answers for itself. So it does for a
/// virtiofsd that does not answer, which may still share; why it did not is a line on stderr.
pub(crate) fn answer(invoked: &OsStr) -> (Vec<u8>, Option<CapabilitiesError>) {
    // Found by `PATH` it has no directory: what describes a share in the current one is anybody's.
    let link = Some(Path::new(invoked)).filter(|invoked| invoked.is_absolute());
    let share = link.and_then(Path::parent).and_then(|dir| Share::read(dir).ok());
    match share.map(|Share { virtiofsd, .. }| ask(&virtiofsd, DEADLINE)) {
        Some(Ok(said)) => (said, None),
        Some(Err(error)) => (OWN.to_vec(), Some(error)),
        None => (OWN.to_vec(), None),
    }
}

fn ask(virtiofsd: &Path, deadline: Duration) -> Result<Vec<u8>, CapabilitiesError> {
    let asked = || {
        let mut command = Command::new(virtiofsd);
        command.arg(OPTION).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let said = child.stdout.take().map_or_else(|| Ok(Vec::new()), |stdout| read(stdout, Instant::now() + deadline));
        // It has said all that is wanted, or too much, or takes too long. One that has ended takes no signal.
        child.kill()?;
        child.wait()?;
        let said = said?;
        check_capabilities(&said)?;
        Ok(said)
    };
    asked().map_err(|source| CapabilitiesError { virtiofsd: virtiofsd.to_owned(), source })
}

/// All that comes, at most [`MAX_SAID`] bytes.
fn read(mut stdout: ChildStdout, end: Instant) -> io::Result<Vec<u8>> {
    let (mut said, mut block) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Rounded up, as it would not wait for less than a millisecond.
        let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)], left) {
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it has not ended its answer in time")),
            Ok(_) => {}
        }
        let count = stdout.read(&mut block)?;
        said.extend(block.iter().take(count));
        match count {
            0 => return Ok(said),
            _ if said.len() > MAX_SAID => {
                let what = format!("its answer is longer than {MAX_SAID} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn asked(script: &str, deadline: Duration) -> Result<String, String> {
        let dir = tempfile::tempdir().expect("dir");
        let program = dir.path().join("virtiofsd");
        File::create(&program).and_then(|mut file| file.write_all(script.as_bytes())).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
        let said = ask(&program, deadline).map_err(|error| error.source.to_string())?;
        Ok(String::from_utf8(said).expect("text"))
    }

    #[test]
    fn what_virtiofsd_says_is_passed_on_and_waited_for_so_long() {
        let long = Duration::from_secs(300);
        let says = r#"{"type": "fs", "features": ["new"]}"#;
        assert_eq!(asked(&format!("#!/bin/sh\necho '{says}'\n"), long), Ok(format!("{says}\n")));
        let open = format!("#!/bin/sh\necho '{says}'; exec >&-; exec sleep 600\n");
        assert_eq!(asked(&open, long), Ok(format!("{says}\n")), "what it does later is nobody's");
        let silent = asked("#!/bin/sh\nexec sleep 600\n", Duration::from_millis(50));
        assert_eq!(silent, Err("it has not ended its answer in time".to_owned()));
        let endless = asked("#!/bin/sh\nexec yes\n", long);
        assert_eq!(endless, Err("its answer is longer than 65536 bytes".to_owned()));
        asked("#!/bin/sh\nexit 1\n", long).expect_err("nothing said");
        asked("#!/nowhere\n", long).expect_err("no program");
    }

    #[test]
    fn without_a_description_it_answers_for_itself() {
        for invoked in ["fswrapper", "/", "", "/nowhere/fswrapper"] {
            let (said, trouble) = answer(OsStr::new(invoked));
            assert!(said == OWN && trouble.is_none(), "{invoked}");
        }
    }
}
