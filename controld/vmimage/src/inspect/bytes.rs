//! Where an inspection reads bytes from: a file, or a slice in tests and fuzzing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at any place.
pub trait Bytes {
    /// Fills `room` from `at` on; what lies behind the end is zeros. Returns how much was there.
    ///
    /// # Errors
    /// As reading from the file has them.
    fn read(&self, at: u64, room: &mut [u8]) -> io::Result<usize>;
}

/// `N` bytes at `at`, zeros behind the end.
pub(crate) fn array<const N: usize>(bytes: &dyn Bytes, at: u64) -> io::Result<[u8; N]> {
    let mut room = [0; N];
    bytes.read(at, &mut room)?;
    Ok(room)
}

impl Bytes for File {
    fn read(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < room.len() {
            match self.read_at(&mut room[done..], at + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        room[done..].fill(0);
        Ok(done)
    }
}

impl Bytes for &[u8] {
    fn read(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let there = rest.len().min(room.len());
        let (filled, empty) = room.split_at_mut(there);
        filled.copy_from_slice(&rest[..there]);
        empty.fill(0);
        Ok(there)
    }
}
