//! `checkpoint`: a machine that runs, written to a directory of this node.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::text::shown;
use super::wait;

/// Writes it, and prints where.
pub(super) async fn run(
    client: &Client,
    wanted: &cli::Checkpoint,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let pod = Node::read(client).await?.within(&wanted.within).find_sure(&wanted.pod)?;
    let failed = |action| move |cause| CtlError::File { action, path: wanted.dir.clone(), cause };
    let dir = std::path::absolute(&wanted.dir).map_err(failed("find"))?;
    let path = dir.to_str().ok_or_else(|| CtlError::NotUtf8(dir.clone()))?;
    let is_new = make(&dir).map_err(failed("make"))?;
    let written = wait::told("waiting for controld", client.checkpoint(&pod.sandbox.id, path)).await;
    if written.is_err() && is_new {
        // controld has emptied it, or will: then it stays.
        let _ = fs::remove_dir(&dir);
    }
    written?;
    writeln!(out, "{}", shown(path))?;
    Ok(())
}

/// Makes a directory, for its owner alone; whether it was not there.
fn make(dir: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(true),
        Err(there) if there.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(cause),
    }
}
