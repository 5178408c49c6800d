//! The real QEMU: where it is, and that it is not this program.
//!
//! A pod's domain names it. libvirt's probes have no environment of ours, so for them a one-line file names it, else the
//! build does. Both places are fixed at build time: whoever could move them at run time could run any program as QEMU's
//! user under libvirt's name.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Names the emulator of the node. Set `VMWRAPPER_EMULATOR_FILE` at build time for another place.
const FILE: &str = match option_env!("VMWRAPPER_EMULATOR_FILE") {
    Some(path) => path,
    None => "/etc/virtlet/emulator",
};
/// The emulator of a node without that file. Set `VMWRAPPER_DEFAULT_EMULATOR` at build time for another.
const DEFAULT: &str = match option_env!("VMWRAPPER_DEFAULT_EMULATOR") {
    Some(path) => path,
    None => "/usr/bin/qemu-system-x86_64",
};
/// `PATH_MAX` (linux/limits.h).
const MAX_PATH: usize = 4096;

/// Path of a program that is there and is not this one.
#[derive(Debug)]
pub(crate) struct Emulator(PathBuf);

/// Why no emulator can be named.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmulatorError {
    #[error("failed to read `{FILE}`, which names the emulator")]
    Read(#[source] io::Error),
    #[error("`{FILE}` {0}")]
    Content(&'static str),
    #[error("`{}` is vmwrapper itself", .0.display())]
    Itself(PathBuf),
    #[error("`{}` is not there", path.display())]
    Absent {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

impl EmulatorError {
    /// What a person does about it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::Read(_) => "let all read it, or remove it",
            Self::Content(_) => "write one line into it, the absolute path of the real QEMU",
            Self::Itself(_) => "name the real QEMU",
            Self::Absent { .. } => "is QEMU installed?",
        }
    }
}

// === impl Emulator ===

impl Emulator {
    /// # Errors
    /// When there is no such file, or it is the file that this process runs.
    pub(crate) fn new(path: PathBuf) -> Result<Self, EmulatorError> {
        let there = match std::fs::metadata(&path) {
            Ok(there) => there,
            Err(cause) => return Err(EmulatorError::Absent { path, cause }),
        };
        // Without /proc nothing can be compared, and nothing but the guard is lost.
        if let Ok(here) = std::fs::metadata("/proc/self/exe")
            && (here.dev(), here.ino()) == (there.dev(), there.ino())
        {
            return Err(EmulatorError::Itself(path));
        }
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// The emulator that libvirt's probes are for.
///
/// # Errors
/// When the file that names it cannot be read or is malformed, and those of [`Emulator::new`].
pub(crate) fn configured() -> Result<Emulator, EmulatorError> {
    // A FIFO would hold the open up without O_NONBLOCK, and libvirt with it.
    let path = match OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(FILE) {
        Ok(file) => path_in(&content(file)?).map_err(EmulatorError::Content)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => DEFAULT.into(),
        Err(error) => return Err(EmulatorError::Read(error)),
    };
    Emulator::new(path)
}

fn content(file: File) -> Result<Vec<u8>, EmulatorError> {
    if !file.metadata().map_err(EmulatorError::Read)?.is_file() {
        return Err(EmulatorError::Content("is not a regular file"));
    }
    let mut bytes = Vec::new();
    // Room for the newline, and one byte more to tell a file that goes on.
    file.take(MAX_PATH as u64 + 2).read_to_end(&mut bytes).map_err(EmulatorError::Read)?;
    Ok(bytes)
}

/// The path in a file's content, with or without a newline at its end.
fn path_in(content: &[u8]) -> Result<PathBuf, &'static str> {
    let line = content.strip_suffix(b"\n").unwrap_or(content);
    if line.is_empty() {
        return Err("is empty");
    }
    if line.contains(&b'\n') {
        return Err("has more than one line");
    }
    if line.contains(&0) {
        return Err("has a NUL byte");
    }
    // The kernel counts the NUL at the end of a path.
    if line.len() >= MAX_PATH {
        return Err("is longer than a path may be");
    }
    let path = PathBuf::from(OsString::from_vec(line.to_owned()));
    if path.is_absolute() { Ok(path) } else { Err("does not name an absolute path") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_absolute_line_is_a_path() {
        let long = format!("/{}", "a".repeat(4094));
        for content in ["/usr/bin/qemu", "/usr/bin/qemu\n", "/opt/a b/q\n", &long] {
            assert_eq!(path_in(content.as_bytes()), Ok(content.trim_end().into()));
        }
        assert_eq!(path_in(b"/opt/\xff\n"), Ok(OsString::from_vec(b"/opt/\xff".into()).into()));
    }

    #[test]
    fn anything_else_is_refused() {
        let long = format!("/{}", "a".repeat(4095));
        for (content, problem) in [
            ("", "is empty"),
            ("\n", "is empty"),
            ("/a\n/b", "has more than one line"),
            ("/a\n\n", "has more than one line"),
            ("\n/a\n", "has more than one line"),
            ("/a\0b\n", "has a NUL byte"),
            (&long, "is longer than a path may be"),
            ("qemu\n", "does not name an absolute path"),
            (" /qemu\n", "does not name an absolute path"),
            ("../qemu\n", "does not name an absolute path"),
        ] {
            assert_eq!(path_in(content.as_bytes()), Err(problem), "{content:?}");
        }
    }

    #[test]
    fn this_program_is_no_emulator() {
        let own = std::env::current_exe().expect("exe");
        assert!(matches!(Emulator::new(own.clone()), Err(EmulatorError::Itself(path)) if path == own));
        assert!(matches!(Emulator::new("/proc/self/exe".into()), Err(EmulatorError::Itself(_))));
        assert!(matches!(Emulator::new("/nowhere/qemu".into()), Err(EmulatorError::Absent { .. })));
        assert!(Emulator::new("/bin/sh".into()).is_ok());
    }
}
