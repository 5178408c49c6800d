//! Which block volume a machine boots from, if it is one. Pure.

use std::path::Path;

use crate::annotations::PodAnnotations;
use crate::error::{Error, Kind, Result};
use crate::plan::{DescribedSource, OnImageChange, RootDevice, RootLifetime};
use crate::settings::Handler;
use crate::{ContainerConfig, Device};

/// What the guest knows as the place of its root disk, and no other.
const ROOT: &str = "/";

/// A root disk whose device has not been looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// On the node.
    pub host_path: String,
    pub on_image_change: OnImageChange,
    pub as_is: bool,
}

/// Whether a device is the root disk.
pub(super) fn is_root(device: &Device) -> bool {
    Path::new(&device.container_path) == Path::new(ROOT)
}

/// The volume that a container's machine boots from, if it has one at `/`.
///
/// # Errors
/// When there are two, it cannot be written to, or the pod wants of it what only a disk of the pod's own can be.
pub(super) fn of(
    container: &ContainerConfig,
    annotations: &PodAnnotations,
    handler: &Handler,
) -> Result<Option<Wanted>> {
    let as_is = annotations.root_device == RootDevice::AsIs;
    if container.mounts.iter().any(|mount| Path::new(&mount.container_path) == Path::new(ROOT)) {
        return Err(invalid(
            "a volume mount at `/` cannot be the root disk; use a block volume (`volumeMode: Block`, `volumeDevices`)",
        ));
    }
    if let Some(source) = &annotations.described.root.source {
        return of_description(source, container, annotations).map(|()| None);
    }
    let mut roots = container.devices.iter().filter(|device| is_root(device));
    let Some(Device { host_path, read_only, .. }) = roots.next() else {
        return match as_is {
            true => Err(invalid(
                "annotation virtlet.cloud/root-device: as-is: no block volume is at `devicePath: /` in this container",
            )),
            false => Ok(None),
        };
    };
    if roots.next().is_some() {
        return Err(invalid("two devices at `/`, and a VM has one root disk; unset one"));
    }
    if *read_only {
        return Err(invalid("device at `/` is read-only, which no root disk can be; unset `readOnly` of the claim"));
    }
    check(annotations)?;
    let on_image_change = handler.defaults.root_on_image_change.get().copied().unwrap_or_default();
    Ok(Some(Wanted { host_path: host_path.clone(), on_image_change, as_is }))
}

/// What the pod may want of a root disk that is a volume.
fn check(annotations: &PodAnnotations) -> Result<()> {
    if annotations.root_volume_size.is_some() {
        return Err(invalid(
            "annotation VirtletRootVolumeSize: the root disk is a persistent volume, which has its own size; unset it",
        ));
    }
    if annotations.root_lifetime == Some(RootLifetime::Container) {
        return Err(invalid(
            "annotation virtlet.cloud/root-lifetime: the root disk is a persistent volume, which outlives containers; unset it",
        ));
    }
    Ok(())
}

/// Whether a root disk that is described to be of a volume ([`volume_disks`](super::volume_disks)) is said so alone.
fn of_description(source: &DescribedSource, container: &ContainerConfig, annotations: &PodAnnotations) -> Result<()> {
    let devices = container.devices.iter().filter(|device| is_root(device)).count();
    let most = usize::from(*source == DescribedSource::Overlay);
    if devices > most || annotations.root_device == RootDevice::AsIs {
        return Err(invalid(
            "annotation virtlet.k8s/vm says what the root disk is of; unset the device at `/` and annotation virtlet.cloud/root-device",
        ));
    }
    // A layer lasts no longer than its container.
    let other = PodAnnotations { root_lifetime: None, ..annotations.clone() };
    check(if most == 0 { annotations } else { &other })
}

fn invalid(what: &str) -> Error {
    Error::new(Kind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use proto::vm::VmDescription;

    use super::*;
    use crate::Mount;
    use crate::plan::Described;

    fn device(path: &str, read_only: bool) -> Device {
        Device { host_path: "/var/lib/kubelet/x/pvc-1".into(), container_path: path.into(), read_only }
    }

    fn with(devices: Vec<Device>) -> ContainerConfig {
        ContainerConfig { devices, ..ContainerConfig::default() }
    }

    #[test]
    fn a_device_at_the_root_is_the_root_disk_and_no_other_is() {
        let annotations = PodAnnotations::default();
        let of = |devices| of(&with(devices), &annotations, &Handler::default()).expect("plans");
        assert_eq!(of(vec![device("/dev/a", true)]), None);
        for path in ["/", "//"] {
            let root = of(vec![device("/dev/a", true), device(path, false)]).expect("a root disk");
            assert_eq!(root.host_path, "/var/lib/kubelet/x/pvc-1");
            assert!(!root.as_is && root.on_image_change == OnImageChange::Reimage);
        }
    }

    #[test]
    fn what_no_root_disk_can_be_is_refused() {
        let plain = PodAnnotations::default();
        let sized = PodAnnotations { root_volume_size: Some(1 << 30), ..PodAnnotations::default() };
        let short = PodAnnotations { root_lifetime: Some(RootLifetime::Container), ..PodAnnotations::default() };
        let as_is = PodAnnotations { root_device: RootDevice::AsIs, ..PodAnnotations::default() };
        let mounted = ContainerConfig {
            mounts: vec![Mount { container_path: "/".into(), ..Mount::default() }],
            ..with(vec![device("/", false)])
        };
        let refused = |container: &ContainerConfig, annotations: &PodAnnotations| {
            of(container, annotations, &Handler::default()).expect_err("refused").to_string()
        };
        let shown = [
            refused(&with(vec![device("/", true)]), &plain),
            refused(&with(vec![device("/", false), device("/", false)]), &plain),
            refused(&with(vec![device("/", false)]), &sized),
            refused(&with(vec![device("/", false)]), &short),
            refused(&with(vec![device("/dev/a", false)]), &as_is),
            refused(&mounted, &plain),
        ];
        insta::assert_snapshot!(shown.join("\n"));
        assert!(of(&with(vec![device("/", false)]), &as_is, &Handler::default()).expect("plans").expect("one").as_is);
        assert_eq!(of(&with(Vec::new()), &sized, &Handler::default()).expect("plans"), None);
    }

    #[test]
    fn what_the_description_says_of_the_root_disk_is_said_once() {
        let with_source = |source: &str| {
            let text = format!(r#"{{"v":1,"disks":[{{"name":"os","root":true,"source":{{{source}}}}}]}}"#);
            let described = Described::of(VmDescription::parse(&text).expect("valid")).expect("a machine");
            PodAnnotations { described, ..PodAnnotations::default() }
        };
        let of = |devices, annotations: &PodAnnotations| of(&with(devices), annotations, &Handler::default());
        let (file, layer) = (with_source(r#""diskImage":{}"#), with_source(r#""overlay":{}"#));
        assert_eq!(of(Vec::new(), &file).expect("plans"), None);
        // The block volume that the layer is on.
        assert_eq!(of(vec![device("/", true)], &layer).expect("plans"), None);
        of(vec![device("/", false)], &file).expect_err("two root disks");
        let short = |root: PodAnnotations| PodAnnotations { root_lifetime: Some(RootLifetime::Container), ..root };
        assert_eq!(of(Vec::new(), &short(layer)).expect("plans"), None);
        of(Vec::new(), &short(file.clone())).expect_err("a volume outlives containers");
        of(Vec::new(), &PodAnnotations { root_volume_size: Some(1 << 30), ..file }).expect_err("it has its size");
    }
}
