//! Content of a file, copied without its holes, and its digest. Both end early if they are not wanted any more.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, ioctl_ficlone, seek};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use vmimage::digest::hex;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// A piece of a file.
enum Piece<'a> {
    /// Bytes, and where they are.
    Data(&'a [u8], u64),
    /// So many zeros that the file has no blocks for.
    Hole(u64),
}

/// Copies a file to an empty one, which shares its blocks where the file system can. The source's position moves.
pub(super) fn content(from: &File, to: &File, unwanted: &CancellationToken) -> io::Result<()> {
    // Of another file system, or one that shares nothing.
    if ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let len = from.metadata()?.len();
    to.set_len(len)?;
    pieces(from, len, unwanted, |piece| write(to, &piece))
}

/// The same; length, and SHA-256 in lower case, of what was copied.
pub(super) fn content_and_digest(from: &File, to: &File, unwanted: &CancellationToken) -> io::Result<(u64, String)> {
    if ioctl_ficlone(to, from).is_ok() {
        return digest(to, unwanted);
    }
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut sum = Sha256::new();
    pieces(from, len, unwanted, |piece| {
        write(to, &piece)?;
        update(&mut sum, &piece, unwanted)
    })?;
    Ok((len, hex(&sum.finalize())))
}

/// Length, and SHA-256 in lower case, of all of a file, holes too. Its position moves.
pub(super) fn digest(file: &File, unwanted: &CancellationToken) -> io::Result<(u64, String)> {
    let (mut sum, len) = (Sha256::new(), file.metadata()?.len());
    pieces(file, len, unwanted, |piece| update(&mut sum, &piece, unwanted))?;
    Ok((len, hex(&sum.finalize())))
}

fn write(to: &File, piece: &Piece<'_>) -> io::Result<()> {
    match piece {
        Piece::Data(bytes, at) => to.write_all_at(bytes, *at),
        Piece::Hole(_) => Ok(()),
    }
}

fn update(sum: &mut Sha256, piece: &Piece<'_>, unwanted: &CancellationToken) -> io::Result<()> {
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    match piece {
        Piece::Data(bytes, _) => sum.update(bytes),
        Piece::Hole(len) => {
            let mut left = *len;
            while left > 0 {
                wanted_still(unwanted)?;
                let zeros = ZEROS.get(..usize::try_from(left).unwrap_or(CHUNK)).unwrap_or(&ZEROS);
                sum.update(zeros);
                left -= zeros.len() as u64;
            }
        }
    }
    Ok(())
}

/// Goes through the first `len` bytes of a file, without reading its holes.
fn pieces(
    file: &File,
    len: u64,
    unwanted: &CancellationToken,
    mut each: impl FnMut(Piece<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while let Some((begin, end)) = data(file, at, len)? {
        if begin > at {
            each(Piece::Hole(begin - at))?;
        }
        at = begin;
        while at < end {
            wanted_still(unwanted)?;
            let most = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let read = file.read_at(buffer.get_mut(..most).unwrap_or_default(), at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            each(Piece::Data(buffer.get(..read).unwrap_or_default(), at))?;
            at += read as u64;
        }
    }
    if at < len { each(Piece::Hole(len - at)) } else { Ok(()) }
}

/// The next bytes from `at` on that are no hole: first and last, `None` if there are none.
fn data(file: &File, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= len {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(at)) {
        Ok(begin) if begin < len => Ok(Some((begin, seek(file, SeekFrom::Hole(begin))?.min(len)))),
        // It has grown, which it is not to.
        Ok(_) | Err(Errno::NXIO) => Ok(None),
        // A file system that knows no holes.
        Err(Errno::INVAL) => Ok(Some((at, len))),
        Err(cause) => Err(cause.into()),
    }
}

fn wanted_still(unwanted: &CancellationToken) -> io::Result<()> {
    if unwanted.is_cancelled() { Err(io::Error::other("the checkpoint was given up")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn file() -> File {
        tempfile::tempfile().expect("a file")
    }

    #[test]
    fn a_copy_is_the_same_and_has_the_holes() {
        let (from, to, wanted) = (file(), file(), CancellationToken::new());
        from.set_len(64 << 20).expect("grown");
        from.write_all_at(b"begin", 3).expect("written");
        from.write_all_at(&[7; 3 * CHUNK / 2], 32 << 20).expect("written");
        content(&from, &to, &wanted).expect("copied");
        let of = |file: &File| digest(file, &wanted).expect("read");
        assert_eq!(of(&from), of(&to));
        assert_eq!(of(&to).0, 64 << 20);
        let again = file();
        assert_eq!(content_and_digest(&from, &again, &wanted).expect("copied"), of(&from));
        assert_eq!(of(&again), of(&from));
        for copy in [to, again] {
            assert!(copy.metadata().expect("there").blocks() * 512 < 16 << 20, "it has no holes");
        }
    }

    #[test]
    fn a_digest_is_that_of_other_tools() {
        let file = file();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(&file, &CancellationToken::new()).expect("read"), (0, empty.to_owned()));
        // `head -c 3M /dev/zero | sha256sum`, of a file that is nothing but a hole.
        file.set_len(3 << 20).expect("grown");
        let zeros = "bbd05cf6097ac9b1f89ea29d2542c1b7b67ee46848393895f5a9e43fa1f621e5";
        assert_eq!(digest(&file, &CancellationToken::new()).expect("read"), (3 << 20, zeros.to_owned()));
        file.set_len(0).expect("emptied");
        file.write_all_at(b"abc", 0).expect("written");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&file, &CancellationToken::new()).expect("read"), (3, abc.to_owned()));
    }

    #[test]
    fn what_is_not_wanted_ends() {
        let (from, unwanted) = (file(), CancellationToken::new());
        from.write_all_at(b"abc", 0).expect("written");
        unwanted.cancel();
        digest(&from, &unwanted).expect_err("given up");
    }
}
