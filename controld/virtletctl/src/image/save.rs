//! `image save`: a disk of the store as a file.
//!
//! The file is read where controld has it, which only root may. It is copied with its holes, and whatever is half written is
//! removed again.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Read, Seek as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use proto::images::InspectResponse;
use tokio::task::yield_now;
use uuid::Uuid;

use super::optional;
use crate::cli;
use crate::client::Client;
use crate::error::{CtlError, ImageError};
use crate::import::is_stdin;
use crate::interrupt::Interrupt;

/// Bytes that are copied at a time; those of nothing but zeros become holes.
const BLOCK: usize = 1 << 20;
/// A disk may hold secrets.
const MODE: u32 = 0o600;

pub(super) async fn run(
    client: &Client,
    wanted: &cli::Save,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    let details = client.inspect_image(&wanted.name, optional(&wanted.handler)).await?;
    let from = open(&wanted.name, &details)?;
    // As for the standard input: what is read from and what is written to are told apart by the command.
    if is_stdin(&wanted.file) {
        return match io::stdout().is_terminal() {
            true => Err(ImageError::ToTerminal.into()),
            false => copy_out(from, out, interrupt).await,
        };
    }
    let path = &wanted.file;
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AlreadyExists => ImageError::Exists(path.clone()).into(),
        _ => CtlError::File { action: "make", path: path.clone(), cause },
    };
    // Of a device the holes would stay what they are, and nobody may remove it.
    if std::fs::metadata(path).is_ok_and(|facts| !facts.is_file()) {
        return Err(ImageError::NotRegular(path.clone()).into());
    }
    // What is written over is there until the new one is whole.
    let at = if wanted.force { beside(path) } else { path.clone() };
    let to = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&at).map_err(failed)?;
    let mut saved = save(from, to, path, interrupt).await;
    if saved.is_ok() && wanted.force {
        saved = std::fs::rename(&at, path).map_err(failed);
    }
    if saved.is_err() {
        // It is of no use, and why it is none is what matters.
        let _ = std::fs::remove_file(&at);
    }
    saved
}

/// A hidden name in the same directory, which nobody has.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", Uuid::new_v4().simple()))
}

/// The file of an image that is a disk by itself.
fn open(name: &str, details: &InspectResponse) -> Result<File, CtlError> {
    if let Some(below) = details.chain.get(1) {
        return Err(ImageError::NotWhole { name: name.to_owned(), below: below.clone() }.into());
    }
    let path = PathBuf::from(&details.path);
    File::open(&path).map_err(|cause| CtlError::File { action: "open", path, cause })
}

/// Copies to a file, with holes where there is nothing.
async fn save(mut from: File, mut to: File, path: &Path, interrupt: &Interrupt) -> Result<(), CtlError> {
    let mut write = |block: &[u8]| match is_zero(block) {
        true => to.seek_relative(i64::try_from(block.len()).unwrap_or(i64::MAX)),
        false => to.write_all(block),
    };
    let length = each_block(&mut from, interrupt, &mut |block| {
        write(block).map_err(|cause| CtlError::File { action: "write", path: path.to_owned(), cause })
    })
    .await?;
    // The last block may be a hole.
    let whole = to.set_len(length).and_then(|()| to.sync_all());
    whole.map_err(|cause| CtlError::File { action: "write", path: path.to_owned(), cause })
}

async fn copy_out(mut from: File, out: &mut (dyn Write + Send), interrupt: &Interrupt) -> Result<(), CtlError> {
    each_block(&mut from, interrupt, &mut |block| Ok(out.write_all(block)?)).await?;
    Ok(out.flush()?)
}

/// Hands on what is read, and says how much that was. Between two blocks others have their turn: who listens to signals, too.
async fn each_block(
    from: &mut File,
    interrupt: &Interrupt,
    take: &mut (dyn FnMut(&[u8]) -> Result<(), CtlError> + Send),
) -> Result<u64, CtlError> {
    let unread = |cause| CtlError::File { action: "read", path: "the image".into(), cause };
    let (mut block, mut length) = (Vec::with_capacity(BLOCK), 0);
    loop {
        interrupt.check()?;
        block.clear();
        let count = Read::by_ref(from).take(BLOCK as u64).read_to_end(&mut block).map_err(unread)?;
        if count == 0 {
            return Ok(length);
        }
        take(&block)?;
        length += count as u64;
        yield_now().await;
    }
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[tokio::test]
    async fn a_copy_has_the_same_bytes_and_holes() {
        let dir = tempfile::tempdir().expect("a directory");
        let (source, target) = (dir.path().join("a"), dir.path().join("b"));
        let mut bytes = vec![0; 5 * BLOCK + 7];
        bytes[2 * BLOCK + 3] = 1;
        std::fs::write(&source, &bytes).expect("written");
        let open = |path: &Path| File::open(path).expect("open");
        let to = || OpenOptions::new().write(true).create(true).truncate(true).open(&target).expect("made");
        save(open(&source), to(), &target, &Interrupt::default()).await.expect("saved");
        assert_eq!(std::fs::read(&target).expect("read"), bytes);
        let blocks = std::fs::metadata(&target).expect("facts").blocks() * 512;
        assert!(blocks <= 2 * BLOCK as u64, "{blocks} bytes are on the disk");
        let mut out = Vec::new();
        copy_out(open(&source), &mut out, &Interrupt::default()).await.expect("copied");
        assert_eq!(out, bytes);
        let interrupt = Interrupt::default();
        interrupt.fire(2);
        let error = save(open(&source), to(), &target, &interrupt).await.expect_err("stopped");
        assert!(matches!(error, CtlError::Interrupted(2)), "{error}");
    }

    #[test]
    fn a_layer_is_no_disk() {
        let details = InspectResponse { chain: vec!["sha256:a".into(), "sha256:b".into()], ..Default::default() };
        let error = super::open("x/y", &details).expect_err("refused").to_string();
        assert_eq!(
            error,
            "image `x/y` is a layer: its file holds only what differs from sha256:b, and is no disk by itself"
        );
    }
}
