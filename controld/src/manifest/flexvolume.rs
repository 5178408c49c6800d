//! Flexvolumes of a pod, from its manifest: by the options that their driver would be handed.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Container, FlexVolumeSource};
use vmspec::draft::flexvolume::Wanted;
use vmspec::error::{Error, Kind, Result};
use vmspec::flexvolume::{DRIVER, FS_TYPE, FlexVolume, SECRET_OF_POD, check_enabled};
use vmspec::manifest::PodToBe;
use vmspec::plan::{BlockDevice, DeviceNumber};
use vmspec::settings::FlexvolumesConfig;

use super::kubelet::volume_of;

/// Those that a container mounts.
///
/// # Errors
/// When the node has none, or one does not say a disk.
pub(super) fn wanted(config: &FlexvolumesConfig, pod: &PodToBe, container: &Container) -> Result<Vec<Wanted>> {
    let mut names: Vec<_> = container.volume_mounts.iter().flatten().map(|mount| mount.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let ours = names.into_iter().filter_map(|name| {
        let flex = volume_of(pod, name)?.flex_volume.as_ref()?;
        (flex.driver == DRIVER).then_some((name, flex))
    });
    let want = |(name, flex): (&str, &FlexVolumeSource)| {
        check_enabled(config, name)?;
        let volume = FlexVolume::of(&options(flex)).map_err(|cause| {
            Error::because(Kind::Invalid, format!("flexvolume: volume \"{name}\" cannot be a disk of the VM"), cause)
        })?;
        Wanted::of(name, Path::new("/"), volume, |path| Ok(unseen(path)))
    };
    ours.map(want).collect()
}

/// Those of ours that no container mounts.
pub(super) fn unmounted(pod: &PodToBe) -> Vec<&str> {
    let containers = || pod.spec.init_containers.iter().flatten().chain(&pod.spec.containers);
    let is_mounted = |name: &str| {
        containers().any(|container| container.volume_mounts.iter().flatten().any(|mount| mount.name == name))
    };
    let volumes = pod.spec.volumes.iter().flatten();
    let ours = volumes.filter(|volume| volume.flex_volume.as_ref().is_some_and(|flex| flex.driver == DRIVER));
    ours.map(|volume| volume.name.as_str()).filter(|name| !is_mounted(name)).collect()
}

/// As kubelet has them. What is in a Secret, only the cluster knows.
fn options(flex: &FlexVolumeSource) -> std::collections::BTreeMap<String, String> {
    let mut options = flex.options.clone().unwrap_or_default();
    options.extend(flex.fs_type.clone().map(|fs_type| (FS_TYPE.to_owned(), fs_type)));
    if flex.secret_ref.is_some() {
        options.insert(SECRET_OF_POD.into(), STANDARD.encode(STANDARD.encode("unseen")));
    }
    options
}

/// Which device it is, only the node knows.
fn unseen(path: &Path) -> BlockDevice {
    BlockDevice { node: path.to_owned(), number: DeviceNumber { major: 0, minor: 0 } }
}
