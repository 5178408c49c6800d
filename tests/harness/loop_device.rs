//! Block devices of the machine, each on a file of the case.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::command::{command, run};

/// Most bytes of a file, which is sparse: all cases share the machine's disk.
const MOST: u64 = 5 << 30;

/// A loop device. It goes when nobody has it open any more, however that comes about.
#[derive(Debug)]
pub struct LoopDevice {
    node: PathBuf,
    file: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// A device of so many zeros, on a new file.
    ///
    /// # Errors
    /// When the machine has no loop devices.
    pub fn new(file: &Path, bytes: u64) -> Result<Self> {
        Self::with(file, bytes, 512)
    }

    /// The same with sectors of so many bytes.
    ///
    /// # Errors
    /// When the machine has no loop devices.
    pub fn with(file: &Path, bytes: u64, sector: u32) -> Result<Self> {
        set_len(file, bytes)?;
        Self::open(file, sector)
    }

    /// One on another.
    ///
    /// # Errors
    /// When the machine has no loop devices.
    pub fn on(other: &Self) -> Result<Self> {
        Self::open(&other.node, 512)
    }

    fn open(file: &Path, sector: u32) -> Result<Self> {
        let sector = sector.to_string();
        let words = ["--find", "--show", "--sector-size", &sector].map(str::to_owned);
        let words = words.into_iter().chain([file.display().to_string()]);
        let node = PathBuf::from(run(&mut command("losetup", words))?.trim());
        let open = File::open(&node).with_context(|| format!("no {}", node.display()))?;
        // It is open, so this is for when it is not any more.
        run(&mut command("losetup", ["--detach".as_ref(), node.as_os_str()]))?;
        Ok(Self { node, file: file.to_owned(), _open: open })
    }

    /// Its node in `/dev`.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Makes it longer.
    ///
    /// # Errors
    /// When the kernel does not.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        set_len(&self.file, bytes)?;
        run(&mut command("losetup", ["--set-capacity".as_ref(), self.node.as_os_str()])).map(drop)
    }

    /// Writes to it, as anybody on the machine might.
    ///
    /// # Errors
    /// When it is not all written.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let device = File::options().write(true).open(&self.node)?;
        device.write_all_at(bytes, offset)?;
        Ok(device.sync_all()?)
    }

    /// What is on it, from here on.
    ///
    /// # Errors
    /// When there is not so much.
    pub fn read(&self, length: usize, offset: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        File::open(&self.file)?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

fn set_len(file: &Path, bytes: u64) -> Result<()> {
    ensure!(bytes <= MOST, "{} would have {bytes} bytes", file.display());
    Ok(File::options().create(true).truncate(false).write(true).open(file)?.set_len(bytes)?)
}
