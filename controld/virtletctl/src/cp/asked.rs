//! What a guest was asked for, and where that goes on this node: said by the user's words and by what is there before the guest has
//! sent a byte. What it sends then changes neither.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::super::error::CopyError;

/// Directories within each other; a path of Linux cannot have more (`PATH_MAX`).
const MAX_DEPTH: usize = 2048;
/// Bytes of a path of Linux (`PATH_MAX`).
const MAX_PATH: usize = 4096;
/// The name of what is in a directory, without the directory.
const CONTENT: &str = ".";

/// One name, and its place.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    name: &'a str,
    pub(super) to: &'a Path,
    /// Its name in `to`, if it goes into that.
    within: Option<OsString>,
}

impl<'a> Asked<'a> {
    /// `name` as `to`, or into it, if that is a directory.
    pub(super) fn new(name: &'a str, to: &'a Path) -> Self {
        // Also if it is to be a file: a guest that sends a directory would have what is in it spread over what is there.
        let within = (name != CONTENT && to.is_dir()).then(|| OsString::from(name));
        Self { name, to, within }
    }

    /// The names that lead from [`Self::to`] to where an entry goes; none if it goes to that very place.
    pub(super) fn below(&self, path: &[u8]) -> Result<Vec<OsString>, CopyError> {
        let stranger = || CopyError::Stranger(text(path));
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
        if path.len() > MAX_PATH
            || path.first() == Some(&b'/')
            || names.contains(&&b".."[..])
            || names.len() > MAX_DEPTH
        {
            return Err(stranger());
        }
        let names = match names.split_first() {
            _ if self.name == CONTENT => names.as_slice(),
            Some((first, rest)) if *first == self.name.as_bytes() => rest,
            _ => return Err(stranger()),
        };
        Ok(self.within.iter().cloned().chain(names.iter().map(|name| OsStr::from_bytes(name).to_owned())).collect())
    }
}

/// A path of an archive as it is told: no more of it than a path may have.
pub(super) fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path.get(..MAX_PATH).unwrap_or(path)).into_owned()
}
