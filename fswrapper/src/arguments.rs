//! The arguments that libvirt gives its virtiofsd: `--fd=N -o source=DIR`, or `--fd=N --shared-dir DIR` since it is told that this one
//! takes options by names of their own.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::capabilities::OPTION;

/// What libvirt wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Capabilities,
    Share {
        /// Number of the descriptor on which QEMU is listened for.
        socket: u32,
        /// Where it is said what is to be shared.
        dir: PathBuf,
    },
}

/// Arguments that are not libvirt's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("no `{0}`; libvirt starts this program in the place of virtiofsd")]
    Missing(&'static str),
    #[error("`{}` is not known", .0.display())]
    Unknown(OsString),
    #[error("`{}` is no descriptor", .0.display())]
    Socket(OsString),
}

/// # Errors
/// When something is missing, or not known: an option that is dropped could be one that keeps a file from the guest.
pub(crate) fn parse(args: &[OsString]) -> Result<Asked, UsageError> {
    let (mut socket, mut dir) = (None, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let unknown = || UsageError::Unknown(arg.clone());
        let bytes = arg.as_bytes();
        if arg == OPTION {
            return Ok(Asked::Capabilities);
        }
        if let Some(number) = bytes.strip_prefix(b"--fd=") {
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            socket = Some(number.ok_or_else(|| UsageError::Socket(arg.clone()))?);
        } else if bytes == b"--shared-dir" {
            dir = Some(rest.next().ok_or(UsageError::Missing("--shared-dir DIR"))?.clone());
        } else if bytes == b"-o" {
            let option = rest.next().ok_or(UsageError::Missing("-o source=DIR"))?;
            let source = option.as_bytes().strip_prefix(b"source=").filter(|source| !source.contains(&b','));
            dir = Some(OsString::from_vec(source.ok_or_else(|| UsageError::Unknown(option.clone()))?.to_vec()));
        } else {
            return Err(unknown());
        }
    }
    Ok(Asked::Share {
        socket: socket.ok_or(UsageError::Missing("--fd=N"))?,
        dir: dir.ok_or(UsageError::Missing("--shared-dir DIR"))?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Asked, UsageError> {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn both_forms_of_libvirt_are_read() {
        let share = || Ok(Asked::Share { socket: 23, dir: "/run/x".into() });
        assert_eq!(parsed(&["--fd=23", "-o", "source=/run/x"]), share());
        assert_eq!(parsed(&["--fd=23", "--shared-dir", "/run/x"]), share());
        assert_eq!(parsed(&["--print-capabilities"]), Ok(Asked::Capabilities));
    }

    #[test]
    fn what_is_missing_or_unknown_is_refused() {
        assert_eq!(parsed(&[]), Err(UsageError::Missing("--fd=N")));
        assert_eq!(parsed(&["--fd=3"]), Err(UsageError::Missing("--shared-dir DIR")));
        assert_eq!(parsed(&["--fd=3", "--shared-dir"]), Err(UsageError::Missing("--shared-dir DIR")));
        assert_eq!(parsed(&["--fd=-1"]), Err(UsageError::Socket("--fd=-1".into())));
        for unknown in ["--readonly", "source=/x,xattr"] {
            let words = ["--fd=3", "-o", "source=/x,xattr", "--readonly"];
            let words = if unknown == "--readonly" { &words[3..] } else { &words[..3] };
            assert!(matches!(parsed(words), Err(UsageError::Unknown(_))), "{unknown}");
        }
    }
}
