//! The directory of translation files, read again when it changed.
//!
//! Symbolic links are followed, as a mounted ConfigMap consists of them. Files ending in `.yaml`, `.yml` and `.json`
//! count, unless their names begin with a dot.
//!
//! The catalogue is such a directory too, of the software's vendor. As with the units of systemd, a file of the
//! administrator's directory takes the place of the catalogue's of the same name, whatever is in it: also a link to
//! `/dev/null`.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::OFlag;

use super::file;
use super::problem::{DirError, Origin, OriginKind, Problem, report};
use super::source::{RuleSet, RuleSource};

/// Largest file that is read.
const MAX_FILE: u64 = 1 << 20;
/// What changed less than this ago may change again without showing it.
const CLOCK_STEP: Duration = Duration::from_millis(100);

/// The directory, and the rules as they were last read.
pub(crate) struct RuleDir {
    path: PathBuf,
    kind: OriginKind,
    /// The directory whose files take the place of those of the same name here.
    over: Option<PathBuf>,
    read: Mutex<LastRead>,
}

#[derive(Default)]
struct LastRead {
    /// What was looked at. None if it must be read again.
    seen: Option<Vec<Seen>>,
    set: Arc<RuleSet>,
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
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, kind: OriginKind::File, over: None, read: Mutex::default() }
    }

    /// The catalogue at `path`, of which files in `over` take the place.
    pub(crate) fn catalogue(path: PathBuf, over: Option<PathBuf>) -> Self {
        Self { kind: OriginKind::Catalogue, over, ..Self::new(path) }
    }

    fn load(&self, seen: &[Seen]) -> RuleSet {
        let mut set = RuleSet::default();
        for Seen { name, .. } in seen.iter().filter(|seen| seen.regular) {
            let origin = Origin { kind: self.kind, name: name.clone() };
            let text = match read_text(&self.path.join(name)) {
                Ok(text) => text,
                Err(cause) => {
                    set.problems.push(Problem::Unreadable { origin, cause: Arc::new(cause) });
                    continue;
                }
            };
            match file::parse(origin.clone(), &text) {
                Ok((config, problems)) => {
                    set.configs.push(Arc::new(config));
                    set.problems.extend(problems);
                }
                Err(cause) => set.problems.push(Problem::File { origin, cause }),
            }
        }
        set
    }
}

impl RuleSource for RuleDir {
    fn current(&self) -> Result<Arc<RuleSet>, DirError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        let mut seen = look(&self.path).map_err(|cause| DirError { path: self.path.clone(), cause })?;
        // What cannot be looked at is not there to replace anything.
        let is_replaced =
            |name: &str| self.over.as_ref().is_some_and(|over| over.join(name).symlink_metadata().is_ok());
        seen.retain(|seen| !is_replaced(&seen.name));
        if read.seen.as_ref() != Some(&seen) {
            let set = self.load(&seen);
            report(&read.set.problems, &set.problems);
            let settled = seen.iter().all(|seen| seen.is_older_than(now));
            *read = LastRead { seen: settled.then_some(seen), set: Arc::new(set) };
        }
        Ok(read.set.clone())
    }
}

impl Seen {
    /// Whether a further change would show: the clock of file systems stands still for some milliseconds.
    fn is_older_than(&self, now: SystemTime) -> bool {
        let (seconds, nanos) = (self.changed.2, self.changed.3);
        let at = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok());
        let changed = at.map(|(seconds, nanos)| UNIX_EPOCH + Duration::new(seconds, nanos));
        changed.is_some_and(|changed| now.duration_since(changed).is_ok_and(|age| age > CLOCK_STEP))
    }
}

impl fmt::Debug for RuleDir {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RuleDir").field("path", &self.path).finish_non_exhaustive()
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
