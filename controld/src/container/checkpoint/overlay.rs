//! The root disk's layer of a checkpoint, judged before QEMU reads it: as a stranger's image is, but for what it stands on, which is said by
//! us. QEMU is told each file of the chain and does not follow the name in it; whoever has nothing but the file does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use vmimage::inspect::{DiskFormat, Expected, Policy, Refusal, examine};
use vmspec::error::{Error, Kind, Result};

use super::failed;

/// Fields of the header, all big endian (QEMU's `docs/interop/qcow2.rst`).
const MAGIC: [u8; 4] = *b"QFI\xfb";
const NAME_AT: usize = 8;
const NAME_LEN: usize = 16;
const CLUSTER_BITS: usize = 20;
/// Bytes of the header that every version has.
const HEADER: usize = 72;
/// Longest name, by the format.
const MAX_NAME: usize = 1023;
/// Where the header ends at the latest, with its extensions and the name.
const SECTION: u64 = 64 << 10;

/// Why a layer is none.
#[derive(Debug, thiserror::Error)]
enum NoLayer {
    #[error("it has no header of qcow2")]
    Foreign,
    #[error("it stands on no image")]
    Alone,
    #[error("its header has no room for the name of the image below it")]
    Full,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("its disk has {0} bytes, and would have {1}")]
    Size(u64, u64),
}

/// Makes sure that a file, which is a copy of ours, is a layer of a disk with so many bytes, and has it name what it stands on here: the image of
/// this id, whose file has this path. Blocks.
///
/// # Errors
/// When it is none, or the file cannot be read or written.
pub(super) fn adopt(file: &File, image_id: &str, path: &str, size: u64) -> Result<()> {
    let io_error = |cause: io::Error| failed("the root disk's layer of the checkpoint not looked at", cause);
    let judged = || -> io::Result<Result<(), NoLayer>> {
        // An id is what our images may name; a path is judged as a stranger's. All that the path will take is cleared before, so that it is put
        // over nothing that was judged.
        if let Err(none) = name(file, image_id, path.len())? {
            return Ok(Err(none));
        }
        let policy = Policy { allow_raw: false, max_virtual_size: size };
        let expected = Expected { policy, declared: Some(DiskFormat::Qcow2), layered: true, written: true };
        let summary = match examine(file, file.metadata()?.len(), expected)? {
            Ok(summary) => summary,
            Err(refused) => return Ok(Err(refused.into())),
        };
        if summary.virtual_size != size {
            return Ok(Err(NoLayer::Size(summary.virtual_size, size)));
        }
        name(file, path, 0)
    };
    let refused = |cause| Error::because(Kind::DataLoss, "the root disk's layer of the checkpoint is not taken", cause);
    judged().map_err(io_error)?.map_err(refused)
}

/// Has a layer name what it stands on, where it has named that before, with zeros behind it up to so many bytes.
fn name(file: &File, name: &str, cleared: usize) -> io::Result<Result<(), NoLayer>> {
    let mut header = [0; HEADER];
    match file.read_exact_at(&mut header, 0) {
        Err(short) if short.kind() == io::ErrorKind::UnexpectedEof => return Ok(Err(NoLayer::Foreign)),
        read => read?,
    }
    let bytes = |at: usize| header.get(at..).unwrap_or_default();
    let u32_at = |at| bytes(at).first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
    let at = bytes(NAME_AT).first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
    let (had, bits) = (u64::from(u32_at(NAME_LEN)), u32_at(CLUSTER_BITS));
    if !header.starts_with(&MAGIC) || !(9..=21).contains(&bits) {
        return Ok(Err(NoLayer::Foreign));
    }
    if at == 0 || had == 0 {
        return Ok(Err(NoLayer::Alone));
    }
    let len = name.len().max(cleared).max(usize::try_from(had).unwrap_or(usize::MAX));
    let end = at.checked_add(len as u64);
    let has_room = at >= HEADER as u64 && len <= MAX_NAME && end.is_some_and(|end| end <= SECTION.min(1 << bits));
    if !has_room {
        return Ok(Err(NoLayer::Full));
    }
    let mut text = name.as_bytes().to_vec();
    text.resize(len, 0);
    file.write_all_at(&text, at)?;
    let len = u32::try_from(name.len()).unwrap_or_default();
    file.write_all_at(&len.to_be_bytes(), NAME_LEN as u64)?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use common::Chain;

    use super::*;

    const ID: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
    const SIZE: u64 = 16 << 20;

    /// As `volumes` makes one, on a file that is elsewhere.
    fn layer(dir: &Path, more: &[&str]) -> File {
        let path = dir.join("root.qcow2");
        let mut command = Command::new("qemu-img");
        command.args(["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/elsewhere/images/blobs/base"]);
        let made = command.args(more).arg(&path).arg(SIZE.to_string()).status().expect("qemu-img is installed");
        assert!(made.success());
        File::options().read(true).write(true).open(&path).expect("opened")
    }

    fn refused(file: &File, size: u64) -> String {
        Chain(&adopt(file, ID, "/here", size).expect_err("refused")).to_string()
    }

    #[test]
    fn a_layer_names_the_image_of_this_node() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = layer(dir.path(), &[]);
        let here = "/var/lib/virtlet/images/content/a-longer-name-than-there-was-before";
        for path in [here, "/short"] {
            adopt(&file, ID, path, SIZE).expect("a layer");
            let mut command = Command::new("qemu-img");
            let told = command.args(["info", "--output=json"]).arg(dir.path().join("root.qcow2")).output();
            let told: serde_json::Value = serde_json::from_slice(&told.expect("run").stdout).expect("JSON");
            assert_eq!(told["backing-filename"], path);
        }
    }

    #[test]
    fn a_longer_name_is_put_over_nothing_that_was_judged() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = layer(dir.path(), &[]);
        let mut at = [0; 8];
        file.read_exact_at(&mut at, NAME_AT as u64).expect("a header");
        let at = u64::from_be_bytes(at);
        let path = format!("/{}", "a".repeat(199));
        file.write_all_at(b"behind", at + 190).expect("written");
        name(&file, ID, path.len()).expect("written").expect("there is room");
        let mut there = [1; 200];
        file.read_exact_at(&mut there, at).expect("read");
        assert!(there.starts_with(ID.as_bytes()) && there[ID.len()..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_no_layer_is_refused() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = layer(dir.path(), &[]);
        assert!(refused(&file, SIZE * 2).contains("would have"), "another size");
        let alone = tempfile::tempdir().expect("tempdir");
        let path = alone.path().join("alone.qcow2");
        let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&path).arg("16M").status();
        assert!(made.expect("run").success());
        let open = |path: &Path| File::options().read(true).write(true).open(path).expect("opened");
        assert!(refused(&open(&path), SIZE).contains("stands on no image"));
        // A data file, which QEMU would open.
        file.write_all_at(&4_u64.to_be_bytes(), 72).expect("written");
        assert!(refused(&file, SIZE).contains("not taken"));
        file.write_all_at(b"raw!", 0).expect("written");
        assert!(refused(&file, SIZE).contains("no header"));
        file.set_len(10).expect("cut");
        assert!(refused(&file, SIZE).contains("no header"));
    }
}
