//! The directory of translation files, read again when it changed.
//!
//! Symbolic links are followed (a mounted ConfigMap is made of them), names that begin with a dot are not files of
//! ours, and of the rest `.yaml`, `.yml` and `.json` count.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::OFlag;

use super::{FileError, Protocol, RuleError, RuleTable, file};

/// Largest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// The directory cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read directory `{}`", path.display())]
pub struct DirError {
    /// The directory.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub cause: io::Error,
}

/// What is wrong with one file or one rule of it. The rest is in use.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Problem {
    /// The file is left out.
    #[error("translation file `{file}` is not used")]
    File {
        /// Its name.
        file: String,
        /// Why.
        #[source]
        cause: Arc<FileError>,
    },
    /// The file cannot be read.
    #[error("translation file `{file}` is not readable")]
    Unreadable {
        /// Its name.
        file: String,
        /// Why.
        #[source]
        cause: Arc<io::Error>,
    },
    /// One rule is left out.
    #[error("rule {place} of translation file `{file}` is not used")]
    Rule {
        /// The file's name.
        file: String,
        /// Place in it, from 1.
        place: usize,
        /// Why.
        #[source]
        cause: Arc<RuleError>,
    },
}

/// The directory, and the rules as they were last read.
pub(crate) struct RuleDir {
    path: PathBuf,
    protocol: Protocol,
    read: Mutex<LastRead>,
}

#[derive(Default)]
struct LastRead {
    seen: Option<Vec<Seen>>,
    table: Arc<RuleTable>,
    problems: Vec<Problem>,
}

/// What tells that a file changed, without reading it.
#[derive(PartialEq, Eq)]
struct Seen {
    name: String,
    identity: (u64, u64, u64),
    changed: (i64, i64, i64, i64),
    regular: bool,
}

impl RuleDir {
    pub(crate) fn new(path: PathBuf, protocol: Protocol) -> Self {
        Self { path, protocol, read: Mutex::default() }
    }

    /// The rules as the files are now.
    pub(crate) fn current(&self) -> Result<Arc<RuleTable>, DirError> {
        let seen = look(&self.path).map_err(|cause| DirError { path: self.path.clone(), cause })?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.seen.as_ref() != Some(&seen) {
            let (table, problems) = self.load(&seen);
            for problem in &problems {
                tracing::warn!(problem = %OneLine(problem), "translation rules left out");
            }
            *read = LastRead { seen: Some(seen), table: Arc::new(table), problems };
        }
        Ok(read.table.clone())
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).problems.clone()
    }

    fn load(&self, seen: &[Seen]) -> (RuleTable, Vec<Problem>) {
        let mut files = Vec::new();
        let mut problems = Vec::new();
        for Seen { name, .. } in seen.iter().filter(|seen| seen.regular) {
            let text = match read_text(&self.path.join(name)) {
                Ok(text) => text,
                Err(cause) => {
                    problems.push(Problem::Unreadable { file: name.clone(), cause: Arc::new(cause) });
                    continue;
                }
            };
            match file::parse(name, &text, self.protocol) {
                Ok((rules, bad)) => {
                    files.push(rules);
                    problems.extend(bad.into_iter().map(|(place, cause)| Problem::Rule {
                        file: name.clone(),
                        place,
                        cause: Arc::new(cause),
                    }));
                }
                Err(cause) => problems.push(Problem::File { file: name.clone(), cause: Arc::new(cause) }),
            }
        }
        (RuleTable::new(files), problems)
    }
}

impl fmt::Debug for RuleDir {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RuleDir").field("path", &self.path).finish_non_exhaustive()
    }
}

/// An error and its causes on one line.
pub(crate) struct OneLine<'a>(pub(crate) &'a dyn std::error::Error);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(out, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// The files that count, by name. A directory that is not there has none.
fn look(dir: &Path) -> io::Result<Vec<Seen>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut seen = Vec::new();
    for entry in entries {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let counts = [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end));
        if name.starts_with('.') || !counts {
            continue;
        }
        let facts = match std::fs::metadata(dir.join(&name)) {
            Ok(facts) => facts,
            // Gone since it was listed, or a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        seen.push(Seen {
            name,
            identity: (facts.dev(), facts.ino(), facts.len()),
            changed: (facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec()),
            regular: facts.is_file(),
        });
    }
    seen.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(seen)
}

fn read_text(path: &Path) -> io::Result<String> {
    // Not to hang on a FIFO that took the file's place meanwhile.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 1 MiB"));
    }
    Ok(text)
}
