//! Files that another process fills as it likes: no more of one is read than its reader has use for, whatever size it has or takes on meanwhile.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The first bytes of an open file; `most` of them if it has more.
///
/// # Errors
/// The kernel's.
pub fn first(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last bytes of the file at `path`; `most` of them if it has more.
///
/// # Errors
/// The kernel's.
pub fn last(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let begin = file.metadata()?.len().saturating_sub(most);
    file.seek(SeekFrom::Start(begin))?;
    first(file, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_is_asked_for() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("file");
        std::fs::write(&path, "0123456789").expect("written");
        for (most, begin, end) in [(0, "", ""), (3, "012", "789"), (10, "0123456789", "0123456789")] {
            let file = File::open(&path).expect("opens");
            assert_eq!(first(file, most).expect("reads"), begin.as_bytes());
            assert_eq!(last(&path, most).expect("reads"), end.as_bytes());
        }
        // As long as nobody could read it.
        File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 40)).expect("extended");
        assert_eq!(first(File::open(&path).expect("opens"), 3).expect("reads"), b"012");
        assert_eq!(last(&path, 3).expect("reads"), [0; 3]);
        assert!(last(&dir.path().join("none"), 3).is_err());
    }
}
