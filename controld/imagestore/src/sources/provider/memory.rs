//! Remembers the newest document of each kind that was seen, so that a server cannot go back to an older one unnoticed:
//! the old signature is as valid as ever, while the old images are not.
//!
//! It is kept in a file if one is configured, as a server may wait for a restart. A file that cannot be read is an
//! error: making us forget is what an attacker wants.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Largest file, which only we write.
const LIMIT: u64 = 1 << 20;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    file: Option<PathBuf>,
    /// Read when it is first needed.
    seen: Mutex<Option<BTreeMap<String, u64>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    newest: BTreeMap<String, u64>,
}

/// What became of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recalled {
    /// It is as new as any that was seen.
    New,
    /// One of this moment was seen.
    Older(u64),
}

impl Memory {
    /// A memory in `file`.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self { file, seen: Mutex::default() }
    }

    /// Notes a document of that moment, or counter.
    pub(crate) fn note(&self, document: &str, moment: u64) -> io::Result<Recalled> {
        let older = self.note_all(&[(document.to_owned(), moment)])?;
        Ok(older.map_or(Recalled::New, |(_, newest)| Recalled::Older(newest)))
    }

    /// Notes documents that came together. If one of them is older, gives its place, and notes none of them.
    pub(crate) fn note_all(&self, documents: &[(String, u64)]) -> io::Result<Option<(usize, u64)>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match &mut *seen {
            Some(known) => known,
            none => none.insert(self.file.as_deref().map_or_else(|| Ok(BTreeMap::new()), read)?),
        };
        for (at, (document, moment)) in documents.iter().enumerate() {
            if let Some(newest) = known.get(document).filter(|newest| *newest > moment) {
                return Ok(Some((at, *newest)));
            }
        }
        let news = documents.iter().filter(|(document, moment)| known.get(document) != Some(moment));
        let news: Vec<_> = news.cloned().collect();
        if news.is_empty() {
            return Ok(None);
        }
        known.extend(news);
        match &self.file {
            Some(file) => write(file, known).map(|()| None),
            None => Ok(None),
        }
    }

    /// Forgets all.
    pub(crate) fn forget(&self) -> io::Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(BTreeMap::new());
        match self.file.as_deref().map(std::fs::remove_file) {
            Some(Err(cause)) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
            _ => Ok(()),
        }
    }
}

fn read(file: &Path) -> io::Result<BTreeMap<String, u64>> {
    let open = match File::open(file) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    open.take(LIMIT).read_to_end(&mut bytes)?;
    let Kept { version, newest } = serde_json::from_slice(&bytes)?;
    if version == 1 { Ok(newest) } else { Err(io::Error::new(io::ErrorKind::InvalidData, "of an unknown version")) }
}

fn write(file: &Path, newest: &BTreeMap<String, u64>) -> io::Result<()> {
    let bytes = serde_json::to_vec(&Kept { version: 1, newest: newest.clone() })?;
    let part = file.with_extension("part");
    let mut open = File::create(&part)?;
    open.write_all(&bytes)?;
    open.sync_all()?;
    std::fs::rename(&part, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_is_told_even_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ubuntu.json");
        let memory = Memory::new(Some(file.clone()));
        assert_eq!(memory.note("index", 10).expect("noted"), Recalled::New);
        assert_eq!(memory.note("index", 10).expect("noted"), Recalled::New);
        assert_eq!(memory.note("other", 5).expect("noted"), Recalled::New);
        assert_eq!(memory.note("index", 9).expect("noted"), Recalled::Older(10));
        let memory = Memory::new(Some(file.clone()));
        assert_eq!(memory.note("index", 9).expect("noted"), Recalled::Older(10));
        assert_eq!(memory.note("index", 11).expect("noted"), Recalled::New);
        memory.forget().expect("forgotten");
        assert_eq!(memory.note("index", 1).expect("noted"), Recalled::New);
        assert_eq!(std::fs::read_to_string(&file).expect("read"), r#"{"version":1,"newest":{"index":1}}"#);
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        for junk in ["", "{}", r#"{"version":2,"newest":{}}"#] {
            let file = dir.path().join("junk.json");
            std::fs::write(&file, junk).expect("written");
            assert!(Memory::new(Some(file)).note("index", 1).is_err(), "{junk}");
        }
        assert_eq!(Memory::default().note("index", 1).expect("noted"), Recalled::New);
    }
}
