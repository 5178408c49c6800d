//! Volumes that are images.

use proto::cri;
use vmspec::error::{Error, Kind, Result, image_volume};
use vmspec::plan::MachinePlan;
use vmspec::{Mount, MountImage};

/// The image of a mount.
///
/// # Errors
/// When it names none, or has what no disk can have.
pub(super) fn of(mount: &cri::Mount, image: &cri::ImageSpec) -> Result<MountImage> {
    let refused = |why: &str| Err(Error::new(Kind::Invalid, format!("{}: {why}", image_volume(&mount.container_path))));
    if image.image.is_empty() {
        return refused("it names no image");
    }
    if !mount.host_path.is_empty() {
        return refused("it has a host path besides, and is one of both");
    }
    if !mount.image_sub_path.is_empty() {
        let sub_path = &mount.image_sub_path;
        return refused(&format!(
            "`subPath` `{sub_path}` of it cannot be given to a VM, as the image is a disk; mount it whole"
        ));
    }
    Ok(MountImage { image: image.image.clone(), user_image: image.user_specified_image.clone() })
}

/// The image as a status shows it. kubelet finds an image in use by its id, which the plan has; since 1.37 a client may also look
/// for what its pull was answered with, which is the id, too.
pub(super) fn shown(mount: &Mount, image: &MountImage, plan: &MachinePlan) -> cri::ImageSpec {
    let disk = plan.disks.iter().find(|disk| disk.path == mount.container_path);
    let id = disk.and_then(|disk| disk.source.image()).map(|image| image.id.clone());
    cri::ImageSpec {
        image: id.clone().unwrap_or_else(|| image.image.clone()),
        user_specified_image: image.user_image.clone(),
        image_ref: id.unwrap_or_default(),
        ..Default::default()
    }
}
