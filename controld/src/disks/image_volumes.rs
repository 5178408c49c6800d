//! Images of the store that are volumes: disks as they are, which nobody writes to. A pod keeps them as it keeps the image of its root disk, until
//! its disks go.

use imagestore::Image;
use vmspec::draft::image_volumes::Wanted;
use vmspec::error::{Error, Result, image_volume};
use vmspec::plan::{Disk, DiskImage, Layer};

use crate::images::Images;

/// The images that a container of this runtime handler wants as volumes.
///
/// # Errors
/// When one is not here, here for other handlers only, or incomplete.
pub(crate) fn find(images: &Images, wanted: &[Wanted], handler: &str) -> Result<Vec<Image>> {
    let find = |wanted: &Wanted| images.find(&wanted.image, handler).map_err(|cause| refused(&wanted.path, cause));
    wanted.iter().map(find).collect()
}

/// The disks that these images are, which stay as long as the pod's disks do.
///
/// # Errors
/// When one has gone since it was found, or the disk fails.
pub(crate) async fn keep(images: &Images, wanted: &[Wanted], found: &[Image], pod: &str) -> Result<Vec<Disk>> {
    let mut disks = Vec::new();
    for (wanted, image) in wanted.iter().zip(found) {
        let failed = |cause| refused(&wanted.path, cause);
        images.lease(&image.id, pod).await.map_err(failed)?;
        let file = Layer { path: image.path.clone(), format: image.format.to_string() };
        let below = images.below(&image.id).map_err(failed)?;
        disks.push(wanted.disk(DiskImage { id: image.id.to_string(), file, below }));
    }
    Ok(disks)
}

fn refused(path: &str, cause: Error) -> Error {
    Error::because(cause.kind(), image_volume(path), cause)
}
