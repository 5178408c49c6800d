//! Files of the host: new ones are written beside those that they replace, and moved into place when all are whole.
//!
//! A file is replaced by a rename, so whoever opens it has the old or the new one. Between the first rename and the daemons' new start
//! `unfinished` says that there is something to finish. `installed-files` has the names of what is there, by which a later release
//! removes what it has no more, and `remove` removes all.
//!
//! In `/etc` a file is replaced only while nobody edited it: while it is as the example of the release that put it there.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::payload::{Entry, Payload, PayloadError, is_ours};

const LIST: &str = "usr/lib/virtlet/installed-files";
const UNFINISHED: &str = "usr/lib/virtlet/unfinished";
/// Where the image, and then the host, has what belongs in `/etc`.
const EXAMPLES: &str = "usr/share/doc/virtlet/examples/etc";
/// What only a host with AppArmor gets.
const APPARMOR: &str = "apparmor.d";
/// State, logs of pods that `virtletctl run` made, and configuration: a purge removes them.
const STATE: [&str; 4] = ["var/lib/virtlet", "run/virtlet", "var/log/virtlet", "etc/virtlet"];
/// Bytes that are compared or copied at a time.
const CHUNK: usize = 64 * 1024;

/// What `unfinished` holds while nothing of an earlier installation is there.
const FIRST: &str = "first";

/// Why files are not as they should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("failed to {what} `{}`", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`/{LIST}` names `{0}`, which is no path below `/usr`")]
    Listed(String),
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |cause| FileError::File { what, path: path.to_owned(), cause }
}

/// New files, whole, beside their places.
#[derive(Debug)]
pub(crate) struct Staged {
    moves: Vec<(PathBuf, PathBuf)>,
    kept: Vec<PathBuf>,
    root: PathBuf,
}

/// What an installation did.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Whether the daemons are to be started anew: something changed, now or in a run that did not come to its end.
    pub(crate) anew: bool,
    /// Whether no installation before this one came to its end: nobody has decided yet whether the units are enabled.
    pub(crate) is_first: bool,
    /// For the log.
    pub(crate) told: Vec<String>,
}

/// Writes what differs from what the host has.
pub(crate) fn stage(root: &Path, payload: &Payload) -> Result<Staged, FileError> {
    let mut staged = Staged { moves: Vec::new(), kept: Vec::new(), root: root.to_owned() };
    if let Err(error) = staged.fill(root, payload) {
        // A disk that is full is not to stay so; the error that matters is the first one.
        let _ = staged.give_up();
        return Err(error);
    }
    Ok(staged)
}

impl Staged {
    fn fill(&mut self, root: &Path, payload: &Payload) -> Result<(), FileError> {
        for (name, entry) in &payload.entries {
            // Before the example is another: a run that is killed between the two has to know again that nobody edited the file.
            if let Ok(of_etc) = name.strip_prefix(EXAMPLES) {
                let at = root.join("etc").join(of_etc);
                let wanted = !of_etc.starts_with(APPARMOR) || root.join("etc").join(APPARMOR).is_dir();
                if wanted && (!at.exists() || same_bytes(&at, &root.join(name))?) {
                    self.put(payload, name, entry, &at)?;
                } else if wanted && !same_bytes_as(&at, payload.read(name)?)? {
                    self.kept.push(at);
                }
            }
            self.put(payload, name, entry, &root.join(name))?;
        }
        Ok(())
    }

    fn put(&mut self, payload: &Payload, name: &Path, entry: &Entry, at: &Path) -> Result<(), FileError> {
        let beside = beside(at);
        // Of a run that was killed.
        remove_if_there(&beside)?;
        if is_as(at, payload, name, entry)? {
            return Ok(());
        }
        if let Some(dir) = at.parent() {
            fs::create_dir_all(dir).map_err(failed("make", dir))?;
        }
        match entry {
            Entry::Link { target } => symlink(target, &beside).map_err(failed("link", &beside))?,
            Entry::File { mode } => write(&beside, payload.read(name)?, *mode)?,
        }
        self.moves.push((beside, at.to_owned()));
        Ok(())
    }

    /// Where a program is, before it is in its place.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let at = self.root.join(name);
        self.moves.iter().find(|(_, to)| *to == at).map_or(at.clone(), |(from, _)| from.clone())
    }

    /// Takes all back.
    pub(crate) fn give_up(self) -> Result<(), FileError> {
        self.moves.iter().try_for_each(|(beside, _)| remove_if_there(beside))
    }

    /// Moves all into place, and removes what an earlier release had and the image has not.
    pub(crate) fn commit(self, root: &Path, payload: &Payload) -> Result<Changed, FileError> {
        let before = listed(root)?;
        let gone: Vec<_> = before.iter().filter(|name| !payload.entries.contains_key(*name)).collect();
        let marker = root.join(UNFINISHED);
        let unfinished = fs::read_to_string(&marker).ok();
        let is_first = before.is_empty() || unfinished.as_deref() == Some(FIRST);
        let mut told: Vec<_> =
            self.kept.iter().map(|at| format!("kept, since it was edited: {}", at.display())).collect();
        if self.moves.is_empty() && gone.is_empty() {
            return Ok(Changed { anew: unfinished.is_some(), is_first, told });
        }
        write(&marker, if is_first { FIRST.as_bytes() } else { &[] }, 0o644)?;
        // Names of both releases, until this one is whole.
        write_list(root, before.iter().chain(payload.entries.keys()))?;
        for (beside, at) in &self.moves {
            fs::rename(beside, at).map_err(failed("replace", at))?;
            told.push(format!("new: {}", at.display()));
        }
        for name in gone {
            remove_if_there(&root.join(name))?;
            told.push(format!("removed: /{}", name.display()));
        }
        write_list(root, payload.entries.keys())?;
        let dirs: BTreeSet<_> = self.moves.iter().filter_map(|(_, at)| at.parent()).collect();
        for dir in dirs {
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("write", dir))?;
        }
        Ok(Changed { anew: true, is_first, told })
    }
}

/// The daemons run what is in place.
pub(crate) fn finished(root: &Path) -> Result<(), FileError> {
    remove_if_there(&root.join(UNFINISHED))
}

/// Names of what was installed.
pub(crate) fn listed(root: &Path) -> Result<BTreeSet<PathBuf>, FileError> {
    let file = root.join(LIST);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(cause) => return Err(failed("read", &file)(cause)),
    };
    let name = |line: &str| {
        let name = PathBuf::from(line);
        if is_ours(&name) { Ok(name) } else { Err(FileError::Listed(line.to_owned())) }
    };
    text.lines().map(name).collect()
}

/// Removes what is listed, and of `/etc` what nobody edited; says what it left.
pub(crate) fn remove(root: &Path, list: &BTreeSet<PathBuf>) -> Result<Vec<String>, FileError> {
    let mut told = Vec::new();
    let examples = list.iter().filter_map(|name| Some((name, name.strip_prefix(EXAMPLES).ok()?)));
    for (name, of_etc) in examples {
        let at = root.join("etc").join(of_etc);
        if same_bytes(&at, &root.join(name))? {
            remove_with_dirs(root, &at)?;
        } else if at.exists() {
            told.push(format!("left, since it was edited: {}", at.display()));
        }
    }
    // Units last, by which a run that is begun again knows what to stop.
    let is_unit = |name: &&PathBuf| name.extension().is_some_and(|end| end == "service");
    for name in list.iter().filter(|name| !is_unit(name)).chain(list.iter().filter(is_unit)) {
        remove_with_dirs(root, &root.join(name))?;
    }
    for name in [UNFINISHED, LIST] {
        remove_with_dirs(root, &root.join(name))?;
    }
    Ok(told)
}

/// Removes state and configuration. A directory that is a mount point or a link stays, without what was in it: both are of whoever
/// made the host.
pub(crate) fn purge(root: &Path) -> Result<(), FileError> {
    STATE.iter().try_for_each(|name| empty(&root.join(name)))
}

fn empty(dir: &Path) -> Result<(), FileError> {
    let entries = match fs::read_dir(dir) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("read", dir))?,
    };
    for entry in entries {
        let path = entry.map_err(failed("read", dir))?.path();
        let is_dir = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(failed("remove", &path)(cause)),
            _ => {}
        }
    }
    match fs::remove_dir(dir) {
        Err(cause)
            if !matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::ResourceBusy) =>
        {
            Err(failed("remove", dir)(cause))
        }
        _ => Ok(()),
    }
}

fn beside(at: &Path) -> PathBuf {
    // Nobody reads it meanwhile: systemd and AppArmor pass over such names.
    at.with_file_name(format!(".{}.virtlet-new", at.file_name().unwrap_or_default().to_string_lossy()))
}

fn write(at: &Path, mut from: impl Read, mode: u32) -> Result<(), FileError> {
    let mut write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(at)?;
        io::copy(&mut from, &mut file)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(at);
    }
    written.map_err(failed("write", at))
}

/// Puts a file in the place of another one, or of none.
pub(crate) fn replace(at: &Path, from: impl Read, mode: u32) -> Result<(), FileError> {
    let beside = beside(at);
    write(&beside, from, mode)?;
    fs::rename(&beside, at).map_err(failed("replace", at))
}

fn write_list<'a>(root: &Path, names: impl Iterator<Item = &'a PathBuf>) -> Result<(), FileError> {
    let names: BTreeSet<_> = names.collect();
    let at = root.join(LIST);
    let mut text = Vec::new();
    for name in names {
        // A vector takes all.
        let _infallible = writeln!(text, "{}", name.display());
    }
    replace(&at, &*text, 0o644)
}

fn remove_if_there(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(failed("remove", path)(cause)),
        _ => Ok(()),
    }
}

/// And those directories that are ours by their names, once they are empty.
fn remove_with_dirs(root: &Path, path: &Path) -> Result<(), FileError> {
    remove_if_there(path)?;
    let named = |dir: &Path| dir.strip_prefix(root).is_ok_and(|name| name.to_string_lossy().contains("virtlet"));
    for dir in path.ancestors().skip(1).take_while(|dir| named(dir)) {
        match fs::remove_dir(dir) {
            Err(cause) if cause.kind() == ErrorKind::DirectoryNotEmpty => break,
            Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(failed("remove", dir)(cause)),
            _ => {}
        }
    }
    Ok(())
}

fn is_as(at: &Path, payload: &Payload, name: &Path, entry: &Entry) -> Result<bool, FileError> {
    let about = match fs::symlink_metadata(at) {
        Ok(about) => about,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(failed("read", at)(cause)),
    };
    match entry {
        Entry::Link { target } => Ok(about.is_symlink() && fs::read_link(at).map_err(failed("read", at))? == *target),
        Entry::File { mode } => Ok(about.is_file()
            && about.permissions().mode() & 0o777 == *mode
            && same_bytes_as(at, payload.read(name)?)?),
    }
}

fn same_bytes(one: &Path, other: &Path) -> Result<bool, FileError> {
    match File::open(other) {
        Ok(other) => same_bytes_as(one, other),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(failed("read", other)(cause)),
    }
}

fn same_bytes_as(one: &Path, mut other: File) -> Result<bool, FileError> {
    let mut file = match File::open(one) {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(failed("read", one)(cause)),
    };
    let mut compare = || {
        let (mut left, mut right) = (Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK));
        loop {
            left.clear();
            right.clear();
            (&mut file).take(CHUNK as u64).read_to_end(&mut left)?;
            (&mut other).take(CHUNK as u64).read_to_end(&mut right)?;
            if left != right || left.is_empty() {
                return Ok(left == right);
            }
        }
    };
    compare().map_err(failed("read", one))
}

#[cfg(test)]
mod tests;
