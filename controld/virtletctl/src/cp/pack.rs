//! An archive of files of ours, as it is sent into a guest.
//!
//! POSIX ustar with GNU's long names, which the tar of every guest reads. Files belong to whom tar in the guest runs as.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::super::error::CtlError;

const BLOCK: usize = 512;
/// Bytes of a name, or of a link's target, in a header.
const NAME: usize = 100;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Writes `from`, a file or a directory with all that is in it, as `name`. Returns what no archive carries.
pub(super) fn pack(from: &Path, name: &OsStr, mut to: impl Write) -> Result<Vec<PathBuf>, CtlError> {
    let mut skipped = Vec::new();
    // The one that the user names may be a link.
    let mut waiting = vec![(from.to_owned(), PathBuf::from(name), fs::metadata(from).map_err(failed("open", from))?)];
    while let Some((path, name, metadata)) = waiting.pop() {
        let kind = metadata.file_type();
        if kind.is_dir() {
            head(&mut to, &name, b'5', &metadata, 0, None)?;
            let mut inner: Vec<_> = fs::read_dir(&path)
                .and_then(Iterator::collect::<io::Result<Vec<_>>>)
                .map_err(failed("read directory", &path))?;
            inner.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
            for entry in inner {
                let metadata = entry.metadata().map_err(failed("look at", &entry.path()))?;
                waiting.push((entry.path(), name.join(entry.file_name()), metadata));
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(failed("read link", &path))?;
            head(&mut to, &name, b'2', &metadata, 0, Some(&target))?;
        } else if kind.is_file() {
            pack_file(&path, &name, &mut to)?;
        } else {
            skipped.push(path);
        }
    }
    // The end of an archive.
    to.write_all(&[0; 2 * BLOCK])?;
    to.flush()?;
    Ok(skipped)
}

fn pack_file(path: &Path, name: &Path, mut to: impl Write) -> Result<(), CtlError> {
    // What may have become a FIFO since must not be waited for.
    let opened = fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let mut file = opened.map_err(failed("open", path))?;
    let metadata = file.metadata().map_err(failed("look at", path))?;
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
