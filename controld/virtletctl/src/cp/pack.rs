//! An archive of files of ours, as it is sent into a guest.
//!
//! POSIX ustar with GNU's long names, which the tar of every guest reads. Files belong to whom tar in the guest runs as.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat};

use super::super::error::CtlError;

const BLOCK: usize = 512;
/// Bytes of a name, or of a link's target, in a header.
const NAME: usize = 100;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Writes `from`, a file or a directory with all that is in it, as `name`. Returns what no archive carries.
pub(super) fn pack(from: &Path, name: &OsStr, mut to: impl Write) -> Result<Vec<PathBuf>, CtlError> {
    let mut skipped = Vec::new();
    let tree = Tree::open(from).map_err(failed("open", from))?;
    // Where it is in the tree, its name in the archive, and what it was when its directory was read.
    let mut waiting = vec![(PathBuf::new(), PathBuf::from(name), tree.0.metadata().map_err(failed("look at", from))?)];
    while let Some((below, name, metadata)) = waiting.pop() {
        let path = if below.as_os_str().is_empty() { from.to_owned() } else { from.join(&below) };
        let kind = metadata.file_type();
        if kind.is_dir() {
            head(&mut to, &name, b'5', &metadata, 0, None)?;
            let mut inner = tree.entries(&below).map_err(failed("read directory", &path))?;
            inner.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
            for entry in inner {
                let metadata = entry.metadata().map_err(failed("look at", &path.join(entry.file_name())))?;
                waiting.push((below.join(entry.file_name()), name.join(entry.file_name()), metadata));
            }
        } else if kind.is_symlink() {
            let target = tree.link(&below).map_err(failed("read link", &path))?;
            head(&mut to, &name, b'2', &metadata, 0, Some(&target))?;
        } else if kind.is_file() {
            let file = tree.file(&below).map_err(failed("open", &path))?;
            pack_file(file, &path, &name, &mut to)?;
        } else {
            skipped.push(path);
        }
    }
    // The end of an archive.
    to.write_all(&[0; 2 * BLOCK])?;
    to.flush()?;
    Ok(skipped)
}

/// What the user has named, which may be a link. No link below it is followed: whoever may write there could have it lead to a
/// file that the guest is not to have, after its directory was read.
struct Tree(File);

impl Tree {
    fn open(from: &Path) -> io::Result<Self> {
        // Nobody waits for a FIFO.
        Ok(Self(fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(from)?))
    }

    fn file(&self, below: &Path) -> io::Result<File> {
        if below.as_os_str().is_empty() {
            return self.0.try_clone();
        }
        self.open_below(below, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
    }

    /// Where a link leads to.
    fn link(&self, below: &Path) -> io::Result<PathBuf> {
        let link = self.open_below(below, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
        Ok(readlinkat(&link, c"")?.into())
    }

    fn open_below(&self, below: &Path, flags: OFlag) -> io::Result<File> {
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
        let how = how.resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(File::from(openat2(&self.0, below, how)?))
    }

    fn entries(&self, below: &Path) -> io::Result<Vec<fs::DirEntry>> {
        let dir = self.file(below)?;
        fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))?.collect()
    }
}

fn pack_file(mut file: File, path: &Path, name: &Path, mut to: impl Write) -> Result<(), CtlError> {
    let metadata = file.metadata().map_err(failed("look at", path))?;
    if !metadata.is_file() {
        return Err(failed("read", path)(io::Error::other("it is no file any more")));
    }
    let size = metadata.len();
    head(&mut to, name, b'0', &metadata, size, None)?;
    let mut left = size;
    let mut buffer = vec![0; CHUNK];
    while left > 0 {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = read(&mut file, buffer.get_mut(..most).unwrap_or_default()).map_err(failed("read", path))?;
        if read == 0 {
            return Err(failed("read", path)(io::Error::other("it became shorter meanwhile")));
        }
        to.write_all(buffer.get(..read).unwrap_or_default())?;
        left -= read as u64;
    }
    let padding = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or_default();
    to.write_all(&vec![0; padding])?;
    Ok(())
}

fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Writes the header of an entry, and before it those of what has no room in it.
fn head(
    to: &mut impl Write,
    name: &Path,
    kind: u8,
    metadata: &fs::Metadata,
    size: u64,
    target: Option<&Path>,
) -> Result<(), CtlError> {
    let name = name.as_os_str().as_bytes();
    let target = target.map(|target| target.as_os_str().as_bytes()).unwrap_or_default();
    for (text, kind) in [(target, b'K'), (name, b'L')] {
        if text.len() > NAME {
            let text = [text, &[0]].concat();
            to.write_all(&header(b"././@LongLink", kind, 0, text.len() as u64, 0, b""))?;
            to.write_all(&text)?;
            to.write_all(&vec![0; text.len().next_multiple_of(BLOCK) - text.len()])?;
        }
    }
    let time = u64::try_from(metadata.mtime()).unwrap_or_default();
    Ok(to.write_all(&header(name, kind, metadata.mode() & 0o777, size, time, target))?)
}

fn header(name: &[u8], kind: u8, mode: u32, size: u64, time: u64, target: &[u8]) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in header.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    put(0, name.get(..NAME).unwrap_or(name));
    put(100, format!("{mode:07o}\0{:07o}\0{:07o}\0", 0, 0).as_bytes());
    if size < 1 << 33 {
        put(124, format!("{size:011o}\0").as_bytes());
    } else {
        // Binary, as GNU has it of what has no room in octal.
        put(124, &[0x80, 0, 0, 0]);
        put(128, &size.to_be_bytes());
    }
    put(136, format!("{:011o}\0", time.min((1 << 33) - 1)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target.get(..NAME).unwrap_or(target));
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    for (to, from) in header.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *to = from;
    }
    header
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CtlError {
    let path = path.to_owned();
    move |cause| CtlError::File { action, path, cause }
}
