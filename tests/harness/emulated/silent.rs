//! What a node is at that does not answer: its console, and where its processors are, three times. For whoever looks for the
//! reason; the first lines of a failure are too few for it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::machine::{complaints, console, monitor};

/// Of QEMU's monitor, which is silent once it has said all. Long enough for a processor that is not stuck to be elsewhere then.
const ANSWER: Duration = Duration::from_secs(2);
const LOOKS: usize = 3;
const QUESTION: &[u8] = b"info registers -a\n";

/// Writes it to a file that stays, beside those of other nodes.
pub(super) fn keep(dir: &Path, tier: &str) -> Result<PathBuf> {
    let kept =
        std::env::temp_dir().join(format!("virtlet-silent-{}-{}", tier.trim_end_matches(':'), std::process::id()));
    let mut text = [complaints(dir), console(dir)].map(|path| fs::read(path).unwrap_or_default()).concat();
    for _ in 0..LOOKS {
        match registers(&monitor(dir)) {
            Ok(registers) => text.extend(registers),
            Err(error) => text.extend(format!("QEMU's monitor: {error}\n").into_bytes()),
        }
    }
    fs::write(&kept, text)?;
    Ok(kept)
}

fn registers(monitor: &Path) -> io::Result<Vec<u8>> {
    let mut monitor = UnixStream::connect(monitor)?;
    monitor.set_read_timeout(Some(ANSWER))?;
    monitor.write_all(QUESTION)?;
    let mut said = Vec::new();
    match monitor.read_to_end(&mut said) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(said),
    }
}
