//! How far a console log has been copied to a pod's log: 40 bytes beside the console log, overwritten in place after
//! each batch of lines.
//!
//! The batch is written first. So after a kill in between the pod's log is longer than the position says, and what
//! it is longer by tells how much more input it holds. Written without fsync: it has to survive us, not the node,
//! and after a node's crash there is no machine to follow.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// "VtCp", then the version.
const MAGIC: [u8; 8] = *b"VtCp\0\0\0\x01";

/// Where the copying stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// Identity of the console log that is being read: its inode number and time of birth.
    pub console_id: u64,
    /// Bytes of it that are in the pod's log.
    pub console_offset: u64,
    /// Identity of the pod's log.
    pub log_id: u64,
    /// Its length after the last batch.
    pub log_len: u64,
}

impl Position {
    /// Reads a position; an empty or foreign file is the start.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(file: &File) -> io::Result<Self> {
        let mut bytes = [0; 40];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(Self::decode(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes it, in one call to the system.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.encode(), 0)
    }

    fn encode(self) -> [u8; 40] {
        let mut bytes = [0; 40];
        let numbers = [self.console_id, self.console_offset, self.log_id, self.log_len];
        let parts = std::iter::once(MAGIC).chain(numbers.map(u64::to_le_bytes));
        for (slot, part) in bytes.chunks_exact_mut(8).zip(parts) {
            slot.copy_from_slice(&part);
        }
        bytes
    }

    fn decode(bytes: &[u8; 40]) -> Option<Self> {
        let mut parts = bytes.chunks_exact(8).filter_map(|part| <[u8; 8]>::try_from(part).ok());
        if parts.next()? != MAGIC {
            return None;
        }
        let mut number = || parts.next().map(u64::from_le_bytes);
        Some(Self { console_id: number()?, console_offset: number()?, log_id: number()?, log_len: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_and_a_foreign_file_is_the_start() {
        let file = tempfile::tempfile().expect("tempfile");
        assert_eq!(Position::read(&file).expect("reads"), Position::default());
        let position = Position { console_id: 1, console_offset: u64::MAX, log_id: 3, log_len: 4 };
        position.write(&file).expect("writes");
        assert_eq!(Position::read(&file).expect("reads"), position);
        file.write_all_at(b"something else", 0).expect("writes");
        assert_eq!(Position::read(&file).expect("reads"), Position::default());
    }
}
