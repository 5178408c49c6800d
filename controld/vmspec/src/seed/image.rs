//! Files to an ISO 9660 image as cloud-init looks for it.

use std::time::SystemTime;

use hadris_fs::{Content, DateTime, Node, Owner, PathError, Permissions, SetAttr, Tree};
use hadris_iso::{IsoId, IsoOptions};
use hadris_storage::{BlockSize, MemDevice};

/// The only sector size that the writer knows, and that of a CD.
const SECTOR: BlockSize = BlockSize::new(2048).expect("not zero");
/// busybox' `findfs` was seen not to find the label of an image of 57 KB, and to find that of one of 96 KB. This is the
/// size of the smallest image of xorriso.
const MIN_SIZE: u64 = 384 << 10;

/// The image with this label. Names are kept by Rock Ridge and, for guests that read nothing else, by Joliet; those with slashes are in
/// directories.
pub(super) fn iso(label: &str, files: &[(&str, &[u8])]) -> Result<Vec<u8>, PathError> {
    let mut tree = Tree::new();
    for (name, bytes) in files {
        for (slash, _) in name.match_indices('/') {
            let dir = &name[..slash];
            if tree.get(dir).is_none() {
                tree.insert(dir, only_roots(Node::dir(), 0o500))?;
            }
        }
        tree.insert(name, only_roots(Node::file(Content::bytes(*bytes)), 0o400))?;
    }
    let options = IsoOptions::new()
        .with_id(IsoId::Volume, label)
        .with_id(IsoId::Application, "")
        .with_joliet()
        .with_rock_ridge()
        .with_min_image_blocks(MIN_SIZE / u64::from(SECTOR.get()))
        .with_time(now());
    let size = hadris_iso::plan(&tree, &options)?.size();
    let mut image = MemDevice::new(vec![0; usize::try_from(size).unwrap_or(usize::MAX)], SECTOR);
    hadris_iso::sync::write(&mut image, &tree, &options)?;
    Ok(image.into_inner())
}

/// User-data may hold passwords.
fn only_roots(node: Node, mode: u32) -> Node {
    node.with_attrs(SetAttr::new().with_permissions(Permissions::new(mode)).with_owner(Owner::new(0, 0)))
}

fn now() -> DateTime {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    DateTime::from_unix_seconds(seconds.try_into().unwrap_or(0)).unwrap_or(DateTime::UNIX_EPOCH)
}
