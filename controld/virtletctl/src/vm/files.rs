//! Manifests of a command line: files, directories of them, and the standard input.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use kubevirt::document::MAX_BYTES;
use kubevirt::{Document, read as objects};

use super::Manifests;
use crate::error::CtlError;
use crate::import::is_stdin;

/// How a directory's manifests end, as kubectl has it.
const ENDS: [&str; 3] = ["yaml", "yml", "json"];

/// A file's objects.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) file: PathBuf,
    pub(super) documents: Vec<Document>,
}

/// All that can be read; each that cannot is an error.
pub(super) fn read(wanted: &Manifests) -> Result<Vec<Manifest>, Vec<CtlError>> {
    let (mut manifests, mut errors) = (Vec::new(), Vec::new());
    for path in wanted.paths() {
        match files(path) {
            Ok(files) => {
                for file in files {
                    match manifest(&file) {
                        Ok(documents) => manifests.push(Manifest { file, documents }),
                        Err(error) => errors.push(error),
                    }
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(manifests) } else { Err(errors) }
}

/// A directory's files by their names; else what is named.
fn files(path: &Path) -> Result<Vec<PathBuf>, CtlError> {
    if is_stdin(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |cause| CtlError::File { action: "list", path: path.to_owned(), cause };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|end| ENDS.iter().any(|known| end == *known)) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() { Err(CtlError::NoManifests(path.to_owned())) } else { Ok(files) }
}

fn manifest(file: &Path) -> Result<Vec<Document>, CtlError> {
    let failed = |cause| CtlError::File { action: "read", path: file.to_owned(), cause };
    let mut bytes = Vec::new();
    let from: Box<dyn Read> =
        if is_stdin(file) { Box::new(io::stdin()) } else { Box::new(File::open(file).map_err(failed)?) };
    // One more than it may have, so that what is longer is told.
    from.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
    objects(&text).map_err(|cause| CtlError::NotManifest { path: file.to_owned(), cause: Box::new(cause) })
}
