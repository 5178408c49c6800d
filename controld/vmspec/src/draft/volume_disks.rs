//! Which disks of a machine are files in volumes that kubelet mounts, or layers on volumes. Pure; what a volume has, the node sees.

use std::path::{Path, PathBuf};

use proto::vm::{DEVICE_DIR, VOLUME_DIR};

use super::disks::{self, TAKEN};
use super::share::BIDIRECTIONAL;
use crate::error::{Error, Kind, Result};
use crate::host::check_host_path;
use crate::plan::{DescribedDisk, DescribedSource, Hardware, Serial, SharedMount};
use crate::settings::MachineDefaults;
use crate::{ContainerConfig, Device, Mount, MountOptions, SandboxConfig, pod_dir};

/// Directory of kubelet's for emptyDirs, in a pod's.
const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// A disk of which nothing has been looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What the machine's description calls it, and the pod its volume.
    pub name: String,
    pub serial: Serial,
    /// Whether nobody writes to it.
    pub read_only: bool,
    pub of: Of,
}

/// What it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// The file in this directory of the node; a new one is smaller than the volume, of whose size in bytes this is said.
    File { dir: PathBuf, size: Option<u64> },
    /// A layer on a volume.
    Overlay(Lower),
}

/// A volume that nobody writes to, by its path on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lower {
    /// A block device.
    Device(PathBuf),
    /// A directory with the file.
    Dir(PathBuf),
}

impl Of {
    /// The directory of the node that the file is in.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::File { dir, .. } | Self::Overlay(Lower::Dir(dir)) => Some(dir),
            Self::Overlay(Lower::Device(_)) => None,
        }
    }
}

impl Wanted {
    /// Whether what the guest writes is there after the pod.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self.of {
            Of::File { .. } => true,
            Of::Overlay(_) => false,
        }
    }

    /// The directory of the node, unless it is of a block device.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.of.dir()
    }

    /// The mount that it is in place of, for who holds that to what the handler says of the node's paths. Nobody writes to what a layer is on.
    #[must_use]
    pub fn mount(&self) -> Option<SharedMount> {
        Some(SharedMount {
            source: self.dir()?.to_owned(),
            path: format!("{VOLUME_DIR}{}", self.name),
            read_only: self.read_only || matches!(self.of, Of::Overlay(_)),
            recursive: false,
            follows: false,
            filled: false,
            options: MountOptions::default(),
        })
    }
}

/// What is found in a container.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// The disk that the machine boots from, if it is one of these.
    pub(super) root: Option<Wanted>,
    pub(super) others: Vec<Wanted>,
    /// The container without what they are in place of.
    pub(super) rest: ContainerConfig,
}

/// The disks that are described so. Guests find them by their serials: none is told to its guest.
///
/// # Errors
/// When there is no such volume, or it cannot be a disk.
pub(super) fn of(
    sandbox: &SandboxConfig,
    container: &ContainerConfig,
    defaults: &MachineDefaults,
    hardware: &Hardware,
) -> Result<Found> {
    let described = &hardware.described;
    let mut found = Found { rest: container.clone(), ..Found::default() };
    let mut at = |name: &str, said: &DescribedDisk, is_root| {
        let Some(source) = &said.source else { return Ok(None) };
        let one = One { name, is_root, sandbox, defaults, hardware };
        one.wanted(source, &mut found.rest).map_err(|why| why.of(name))
    };
    let root = at(&described.root_volume, &described.root, true)?;
    let others = described.disks.iter().filter_map(|(name, said)| at(name, said, false).transpose());
    let others = others.collect::<Result<Vec<Wanted>>>()?;
    Ok(Found { root, others, ..found })
}

/// Whether a guest can tell these apart, and from disks with serials that are `taken`.
///
/// # Errors
/// When it cannot, or a machine has not so many.
pub(super) fn check(wanted: &[Wanted], taken: &[&Serial], hardware: &Hardware) -> Result<()> {
    for (nth, Wanted { name, serial, .. }) in wanted.iter().enumerate() {
        let before = wanted.iter().take(nth).map(|other| &other.serial);
        if TAKEN.contains(&serial.as_str()) || before.chain(taken.iter().copied()).any(|other| other == serial) {
            let why = format!("it would have the serial `{serial}` of another disk; say one");
            return Err(wrong(why).of(name));
        }
    }
    match wanted.last() {
        Some(last) => disks::check_count(taken.len() + wanted.len(), hardware).map_err(|why| wrong(why).of(&last.name)),
        None => Ok(()),
    }
}

/// Why there is no such disk.
enum Refused {
    /// What is wrong.
    Wrong(String),
    /// The node's owner does not let pods have it.
    Denied(Error),
}

impl Refused {
    fn of(self, name: &str) -> Error {
        match self {
            Self::Wrong(why) => {
                Error::new(Kind::Invalid, format!("annotation virtlet.k8s/vm: disks[{name}].source: {why}"))
            }
            Self::Denied(error) => error,
        }
    }
}

/// A disk, and what decides over it.
struct One<'a> {
    name: &'a str,
    is_root: bool,
    sandbox: &'a SandboxConfig,
    defaults: &'a MachineDefaults,
    hardware: &'a Hardware,
}

impl One<'_> {
    /// The disk, if it is one of these; what it is in place of is taken out of `rest`.
    fn wanted(&self, source: &DescribedSource, rest: &mut ContainerConfig) -> Result<Option<Wanted>, Refused> {
        let (of, read_only) = match source {
            DescribedSource::Files { .. } => return Ok(None),
            DescribedSource::DiskImage { size } => {
                let mount = self.mount(rest)?;
                let read_only = mount.readonly || !self.is_root && self.hardware.is_read_only(self.name);
                (Of::File { dir: mount.host_path.into(), size: *size }, read_only)
            }
            DescribedSource::Overlay => {
                let lower = match self.device(rest) {
                    Some(device) => Lower::Device(device.host_path.into()),
                    None => Lower::Dir(self.mount(rest)?.host_path.into()),
                };
                (Of::Overlay(lower), !self.is_root && self.hardware.is_read_only(self.name))
            }
        };
        if read_only && self.is_root {
            return Err(wrong("the VM boots from it, and the volume is read-only; unset that".to_owned()));
        }
        if read_only && !self.hardware.may_be_read_only(self.name) {
            return Err(wrong("it is read-only, which no disk on the bus `sata` can be but a `cdrom`".to_owned()));
        }
        let serial = self.hardware.said_serial(self.name).filter(|_| !self.is_root);
        let serial = serial.unwrap_or_else(|| Serial::of_name(if self.is_root { "root" } else { self.name }));
        Ok(Some(Wanted { name: self.name.to_owned(), serial, read_only, of }))
    }

    /// The block volume, if it is one.
    fn device(&self, rest: &mut ContainerConfig) -> Option<Device> {
        let path = if self.is_root { "/".to_owned() } else { format!("{DEVICE_DIR}{}", self.name) };
        let at = rest.devices.iter().position(|device| device.container_path == path)?;
        Some(rest.devices.remove(at))
    }

    /// The volume's mount.
    fn mount(&self, rest: &mut ContainerConfig) -> Result<Mount, Refused> {
        let path = format!("{VOLUME_DIR}{}", self.name);
        let is_it = |mount: &Mount| mount.container_path == path && mount.image.is_none();
        let Some(at) = rest.mounts.iter().position(is_it) else {
            return Err(wrong(format!(
                "no volume is mounted at `{path}`, where only the node reads it; mount it there"
            )));
        };
        let mount = rest.mounts.remove(at);
        let volume = mount.host_path.rsplit_once('/').map_or("", |(_, name)| name);
        if pod_dir::is_volume(&mount.host_path, &self.sandbox.uid, EMPTY_DIR, volume) {
            return Err(Refused::Denied(of_empty_dir(self.name)));
        }
        if mount.propagation == BIDIRECTIONAL {
            return Err(wrong("its mount is `Bidirectional`, and a guest mounts nothing there; unset that".to_owned()));
        }
        check_host_path(&mount, self.sandbox, self.defaults).map_err(Refused::Denied)?;
        Ok(mount)
    }
}

/// That a disk is of an emptyDir.
#[must_use]
pub fn of_empty_dir(name: &str) -> Error {
    let why = "it is of an emptyDir, of which annotation virtlet.cloud/emptydir-disks makes disks";
    wrong(why.to_owned()).of(name)
}

const fn wrong(why: String) -> Refused {
    Refused::Wrong(why)
}

#[cfg(test)]
mod tests {
    use proto::vm::VmDescription;

    use super::*;
    use crate::plan::{Described, HostPath};
    use crate::settings::Given;

    fn mount(name: &str, host_path: &str) -> Mount {
        Mount { container_path: format!("/run/virtlet/seed/{name}"), host_path: host_path.into(), ..Mount::default() }
    }

    /// Claims by several plugins, one that is read-only, and what is no claim.
    fn container() -> ContainerConfig {
        let of_pod = |rest: &str| format!("/var/lib/kubelet/pods/u/volumes/{rest}");
        let mounts = vec![
            mount("data", &of_pod("kubernetes.io~csi/pvc-1/mount")),
            Mount { readonly: true, ..mount("golden", &of_pod("kubernetes.io~nfs/pvc-2")) },
            mount("scratch", &of_pod("kubernetes.io~empty-dir/scratch")),
            mount("node", "/srv/pv"),
            Mount { container_path: "/data".into(), host_path: "/srv/x".into(), ..Mount::default() },
        ];
        let device = |path: &str| Device { host_path: "/pods/x".into(), container_path: path.into(), read_only: true };
        let devices = vec![device("/"), device("/dev/virtlet/lun")];
        ContainerConfig { mounts, devices, ..ContainerConfig::default() }
    }

    fn hardware(disks: &str) -> Hardware {
        let text = format!(r#"{{"v":1,"disks":[{disks}]}}"#);
        let described = Described::of(VmDescription::parse(&text).expect(disks)).expect(disks);
        Hardware { described, ..Hardware::default() }
    }

    fn found(disks: &str, defaults: &MachineDefaults) -> Result<Found, String> {
        let sandbox = SandboxConfig { uid: "u".into(), runtime_handler: "lab".into(), ..SandboxConfig::default() };
        let hardware = hardware(disks);
        let found = of(&sandbox, &container(), defaults, &hardware);
        let checked =
            found.and_then(|found| check(&found.others, &[&Serial::of_name("taken")], &hardware).map(|()| found));
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_of_a_volume_is_a_disk_in_place_of_the_mount() {
        let disks = r#"{"name":"data","root":true,"source":{"diskImage":{"size":1073741824}}},
                       {"name":"golden","serial":"G","source":{"diskImage":{}}},{"name":"node","source":{"diskImage":{}}}"#;
        let Found { root, others, rest } = found(disks, &MachineDefaults::default()).expect("found");
        let root = root.expect("boots from it");
        let of = Of::File {
            dir: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount".into(),
            size: Some(1 << 30),
        };
        assert_eq!((&*root.name, root.of, root.read_only), ("data", of, false));
        let shown: Vec<_> = others.iter().map(|disk| (&*disk.name, disk.serial.as_str(), disk.read_only)).collect();
        assert_eq!(shown, [("golden", "G", true), ("node", "node", false)]);
        // Where a `subPath` leads, the node sees.
        let mounts: Vec<_> = others.iter().filter_map(Wanted::mount).collect();
        let [golden, node] = &mounts[..] else { panic!("two directories: {mounts:?}") };
        assert_eq!((&*golden.path, golden.read_only), ("/run/virtlet/seed/golden", true));
        assert_eq!((node.source.as_path(), node.read_only), (Path::new("/srv/pv"), false));
        let left: Vec<_> = rest.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(left, ["/run/virtlet/seed/scratch", "/data"]);
    }

    #[test]
    fn a_layer_is_on_a_block_volume_or_on_a_file() {
        let disks = r#"{"name":"os","root":true,"source":{"overlay":{}}},{"name":"lun","kind":"cdrom","source":{"overlay":{}}},
                       {"name":"golden","source":{"overlay":{}}}"#;
        let Found { root, others, rest } = found(disks, &MachineDefaults::default()).expect("found");
        let root = root.expect("boots from it");
        assert_eq!((&root.of, root.is_lasting()), (&Of::Overlay(Lower::Device("/pods/x".into())), false));
        let shown: Vec<_> = others.into_iter().map(|disk| (disk.name, disk.of, disk.read_only)).collect();
        let dir = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~nfs/pvc-2".into();
        let of = [Of::Overlay(Lower::Dir(dir)), Of::Overlay(Lower::Device("/pods/x".into()))];
        let [file, device] = of;
        assert_eq!(shown, [("golden".to_owned(), file, false), ("lun".to_owned(), device, true)]);
        assert!(rest.devices.is_empty() && rest.mounts.len() == 4, "{rest:?}");
    }

    #[test]
    fn what_is_no_volume_or_cannot_be_a_disk_is_told() {
        let source = r#""source":{"diskImage":{}}"#;
        let told: Vec<String> = [
            format!(r#"{{"name":"absent",{source}}}"#),
            format!(r#"{{"name":"scratch",{source}}}"#),
            format!(r#"{{"name":"golden","root":true,{source}}}"#),
            format!(r#"{{"name":"golden","bus":"sata",{source}}}"#),
            format!(r#"{{"name":"data","serial":"root",{source}}}"#),
            format!(r#"{{"name":"data","serial":"taken",{source}}}"#),
            format!(r#"{{"name":"data","serial":"S",{source}}},{{"name":"node","serial":"S",{source}}}"#),
        ]
        .map(|disks| found(&disks, &MachineDefaults::default()).expect_err(&disks))
        .into();
        insta::assert_snapshot!(told.join("\n"));
        let node = format!(r#"{{"name":"node",{source}}}"#);
        let deny = MachineDefaults { host_path: Given::Value(HostPath::Deny), ..MachineDefaults::default() };
        let refused = found(&node, &deny).expect_err("the node's");
        assert!(refused.contains("`hostPath` is not allowed"), "{refused}");
        found(&format!(r#"{{"name":"data",{source}}}"#), &deny).expect("the pod's");
    }
}
