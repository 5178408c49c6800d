//! Layers of a pod on its volumes: `overlay-DISK.qcow2`, each made anew for each container. They go with the folder.

use std::path::PathBuf;

use common::off_reactor;
use proto::tap::QemuUser;

use super::files::remove_file;
use super::root::create;
use super::{Base, Folder, VolumeError, Volumes};

impl Volumes {
    /// Makes the layer of a disk with this name, which is a file name, on `base`. One of an earlier container goes.
    ///
    /// # Errors
    /// See [`VolumeError`]; then there is none, or half of one, which nobody uses.
    pub async fn make_overlay(
        &self,
        folder: &Folder,
        disk: &str,
        base: &Base,
        qemu: QemuUser,
    ) -> Result<PathBuf, VolumeError> {
        let path = folder.path.join(format!("overlay-{disk}.qcow2"));
        let old = path.clone();
        off_reactor(move || remove_file(&old)).await?;
        create(&path, base, base.virtual_size, qemu).await?;
        Ok(path)
    }
}
