//! Options of the guest's resolver: one line of `/etc/resolv.conf`, put back whenever another program has written the file.
//!
//! DHCP clients write the file anew at each lease, so its directory is watched. One that is a link is another program's, and left
//! alone. Two programs that undo each other's work are a loop, so ours is done so many times in a while and no more.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Write as _, stderr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

const NAME: &str = "resolv.conf";
/// Written beside it, and then renamed to it.
const NEW: &str = ".resolv.conf.virtlet";
/// Most times that the line is put back in a [`WHILE`].
const MAX_REWRITES: usize = 10;
const WHILE: Duration = Duration::from_secs(60);

/// Sees to the line.
#[derive(Debug)]
pub(crate) struct Resolver {
    etc: PathBuf,
    /// With no line end.
    line: String,
    events: Inotify,
    /// When the line was put back, of the last [`WHILE`].
    rewrites: VecDeque<Instant>,
    /// Somebody was told of a loop.
    has_told: bool,
}

/// What a look at the file found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The line is there, or there is no file yet.
    Fine,
    Rewritten,
    /// It is somebody else's; why.
    LeftAlone(String),
}

impl Resolver {
    /// Adds the line, and watches from now on; why the file was left alone, if so.
    ///
    /// # Errors
    /// When an option cannot be one, or the directory is not watched: what and why.
    pub(super) fn of(etc: &Path, options: &[String]) -> Result<(Self, Option<String>), String> {
        let not_set = |why: String| {
            format!("options `{}` of the resolver were not set in the guest: {why}", options.join(" ").escape_debug())
        };
        // One more word of the file is one more setting.
        if options.iter().any(|one| one.is_empty() || one.contains(|c: char| c.is_whitespace() || c.is_control())) {
            return Err(not_set("one of them is empty or has white space in it".into()));
        }
        let watched = || {
            let events = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            // Not what was only created: whoever did that has yet to write it.
            events.add_watch(etc, AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO)?;
            Ok(events)
        };
        let watched = watched().map_err(|errno: Errno| io::Error::from(errno));
        let events = watched.map_err(|error| not_set(format!("`{}` not watched: {error}", etc.display())))?;
        let line = format!("options {}", options.join(" "));
        let mut resolver = Self { etc: etc.to_owned(), line, events, rewrites: VecDeque::new(), has_told: false };
        let left_alone = match resolver.look(Instant::now()) {
            Ok(Found::Fine | Found::Rewritten) => None,
            Ok(Found::LeftAlone(why)) => Some(not_set(why)),
            Err(error) => Some(not_set(error.to_string())),
        };
        Ok((resolver, left_alone))
    }

    /// Hears what has been written, and puts the line back if it is gone. Whom that fails for is not asking any more.
    pub(crate) fn pump(&mut self) {
        let mut is_written = false;
        while let Ok(events) = self.events.read_events() {
            let lost = |mask: AddWatchFlags| mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
            is_written |= events.iter().any(|one| lost(one.mask) || one.name.as_ref().is_some_and(|name| name == NAME));
        }
        if is_written && let Err(error) = self.look(Instant::now()) {
            let _ = writeln!(stderr(), "virtlet-agent: options of the resolver were not set: {error}");
        }
    }

    fn look(&mut self, now: Instant) -> io::Result<Found> {
        let path = self.etc.join(NAME);
        let found = match path.symlink_metadata() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Fine),
            Err(error) => return Err(named(&path, "looked at", &error)),
        };
        if !found.is_file() {
            return Ok(Found::LeftAlone(match fs::read_link(&path) {
                Ok(to) => format!(
                    "`{}` is a symlink to `{}`, so another program keeps it; set them there",
                    path.display(),
                    to.display()
                ),
                Err(_no_link) => format!("`{}` is no regular file", path.display()),
            }));
        }
        let text = fs::read(&path).map_err(|error| named(&path, "read", &error))?;
        if has(&text, &self.line) || self.is_loop(now) {
            return Ok(Found::Fine);
        }
        self.rewrite(&path, &found, text)?;
        self.rewrites.push_back(now);
        Ok(Found::Rewritten)
    }

    fn is_loop(&mut self, now: Instant) -> bool {
        while self.rewrites.front().is_some_and(|then| now.saturating_duration_since(*then) >= WHILE) {
            self.rewrites.pop_front();
        }
        let is_loop = self.rewrites.len() >= MAX_REWRITES;
        if is_loop && !std::mem::replace(&mut self.has_told, true) {
            let _ = writeln!(
                stderr(),
                "virtlet-agent: another program takes `{}` out of `{}` again and again; it has its way for a while",
                self.line,
                self.etc.join(NAME).display()
            );
        }
        is_loop
    }

    fn rewrite(&self, path: &Path, found: &Metadata, mut text: Vec<u8>) -> io::Result<()> {
        let new = self.etc.join(NEW);
        let failed = |error: &io::Error| named(&new, "written", error);
        // Of a program that has put a line of its own behind ours.
        text = text
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.trim_ascii() != self.line.as_bytes())
            .flatten()
            .copied()
            .collect();
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend(self.line.as_bytes());
        text.push(b'\n');
        // Of an agent that was killed.
        let _ = fs::remove_file(&new);
        let write = || {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            fchown(&file, Some(found.uid()), Some(found.gid()))?;
            file.set_permissions(found.permissions())
        };
        let done = write().map_err(|error| failed(&error)).and_then(|()| {
            // Somebody has begun to write it meanwhile: that ends with an event, too.
            if path.symlink_metadata().is_ok_and(|now| written(&now) == written(found)) {
                return fs::rename(&new, path).map_err(|error| named(path, "replaced", &error));
            }
            fs::remove_file(&new)
        });
        if done.is_err() {
            let _ = fs::remove_file(&new);
        }
        done
    }
}

impl AsFd for Resolver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// The last line of options counts.
fn has(text: &[u8], line: &str) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.rfind(|one| one.starts_with(b"options")) == Some(line.as_bytes())
}

/// Which file it is, and as whom wrote it last left it.
fn written(file: &Metadata) -> (u64, u64, u64, i64, i64) {
    (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec())
}

fn named(path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}` not {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
