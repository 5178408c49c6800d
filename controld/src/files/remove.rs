//! Removal of what machines leave on the node; fine if it is not there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

/// Removes a file, or a directory with what is in it.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a log of virtlogd's, and what virtlogd has set aside of it as it grew: the same name with `.0`, `.1`, ...
pub(crate) fn remove_log(log: &Path) -> io::Result<()> {
    remove(log)?;
    let (Some(dir), Some(name)) = (log.parent(), log.file_name()) else { return Ok(()) };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if is_set_aside(&entry.file_name(), name) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn is_set_aside(found: &OsStr, log: &OsStr) -> bool {
    let number = found.as_encoded_bytes().strip_prefix(log.as_encoded_bytes()).and_then(|rest| rest.strip_prefix(b"."));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_goes_with_what_was_set_aside_of_it_and_with_nothing_else() {
        let dir = tempfile::tempdir().expect("dir");
        let others = ["web-1.log", "web.log.gz", "web.log.", "web.log.0.gz", "web.log1"];
        for name in ["web.log", "web.log.0", "web.log.12"].iter().chain(&others) {
            fs::write(dir.path().join(name), "").expect("written");
        }
        let log = dir.path().join("web.log");
        remove_log(&log).expect("removed");
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("entry").file_name()).collect();
        left.sort();
        let mut expected = others;
        expected.sort_unstable();
        assert_eq!(left, expected);
        remove_log(&log).expect("again is fine");
        remove_log(&dir.path().join("absent/web.log")).expect("so is a directory that is not there");
    }
}
