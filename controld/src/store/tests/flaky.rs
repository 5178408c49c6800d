//! A disk in memory that can be full, and then has room again.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redb::{Database, StorageBackend};

use super::super::database::Medium;

/// Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Flaky {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Nothing can be written.
    pub(super) full: Arc<AtomicBool>,
    /// The next flush fails, after all of it was written.
    pub(super) flush_fails: Arc<AtomicBool>,
    /// From then on the disk is full.
    pub(super) full_after_flush_failed: Arc<AtomicBool>,
    pub(super) opened: Arc<AtomicUsize>,
}

impl Flaky {
    fn room(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
    }
}

impl Medium for Flaky {
    fn path(&self) -> &Path {
        Path::new("flaky")
    }

    fn open(&self) -> Result<Database, redb::Error> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Database::builder().create_with_backend(self.clone())?)
    }
}

impl StorageBackend for Flaky {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().expect("lock").len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).expect("small");
        out.copy_from_slice(&self.bytes.lock().expect("lock")[offset..offset + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.bytes.lock().expect("lock").resize(usize::try_from(len).expect("small"), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.flush_fails.swap(false, Ordering::SeqCst) {
            let full = self.full_after_flush_failed.load(Ordering::SeqCst);
            self.full.fetch_or(full, Ordering::SeqCst);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.room()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        let offset = usize::try_from(offset).expect("small");
        self.bytes.lock().expect("lock")[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }
}
