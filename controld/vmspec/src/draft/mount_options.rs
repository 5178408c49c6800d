//! Whether the options of a pod's mounts are held in its guest. Nobody but the guest's own kernel can hold them, so whoever mounts there has
//! to tell it: our agent, or cloud-init by what we write for it. What is not mounted by these, and what is not mounted at all, is refused.
//! A volume that its guest does not see needs nobody.

use super::Wishes;
use super::share::{HUGE_PAGES, SHM};
use super::volumes::Volumes;
use crate::MountOptions;
use crate::annotations::PodAnnotations;
use crate::error::Result;
use crate::plan::Disk;
use crate::seed::{ConfigDelivery, SeedKind, TOKEN, config_volume, is_for_us};
use crate::settings::MachineDefaults;

/// Whether they are for each volume of a pod that says nothing else than its runtime handler.
#[must_use]
pub fn are_held(defaults: &MachineDefaults) -> bool {
    let plain = PodAnnotations::default();
    !mounts_by_itself(defaults, &plain) && defaults.delivery(&plain) != ConfigDelivery::Seed
}

/// # Errors
/// When a mount has options that nobody holds.
pub(super) fn check(wishes: &Wishes<'_>, volumes: &Volumes, has_lasting_root: bool) -> Result<()> {
    let Wishes { sandbox, container, annotations, handler, .. } = wishes;
    let defaults = &handler.defaults;
    let is_copied = defaults.delivery(annotations) == ConfigDelivery::Seed;
    for mount in &container.mounts {
        let at = mount.container_path.as_str();
        if [SHM, HUGE_PAGES].contains(&at) {
            held(at, mount.options, Some("the guest's kernel has its own memory there; leave it out"))?;
        }
        if is_copied && at != TOKEN && !is_for_us(mount) && config_volume(mount, &sandbox.uid).is_some() {
            let why = "cloud-init writes a copy of the volume, and mounts nothing; leave it out, or set \
                       `virtlet.cloud/config-delivery: share`";
            held(at, mount.options, Some(why))?;
        }
    }
    let shared = volumes.share.iter().flat_map(|share| &share.mounts).map(|mount| (mount.path.as_str(), mount.options));
    let images = volumes.images.iter().map(|image| (image.path.as_str(), image.options));
    let (links, mounted): (Vec<&Disk>, Vec<&Disk>) =
        volumes.new_disks().partition(|disk| disk.file_system().is_empty());
    for Disk { path, options, .. } in links {
        held(path, *options, Some("the guest has a link to the disk there, and nothing is mounted; leave it out"))?;
    }
    let mounted = mounted.into_iter().map(|disk| (disk.path.as_str(), disk.options));
    let why = unheld(defaults, annotations, has_lasting_root);
    shared.chain(images).chain(mounted).try_for_each(|(at, options)| held(at, options, why))
}

fn held(at: &str, options: MountOptions, unheld: Option<&str>) -> Result<()> {
    match unheld {
        Some(why) if !options.is_empty() => Err(options.refused(at, why)),
        _ => Ok(()),
    }
}

/// Why options of what is mounted are not held, if they are not.
fn unheld(defaults: &MachineDefaults, annotations: &PodAnnotations, has_lasting_root: bool) -> Option<&'static str> {
    if mounts_by_itself(defaults, annotations) {
        return Some(
            "the guest mounts by itself, as its seed is not for cloud-init and `virtlet-agent` is not known to be there; leave it \
             out, or have the agent in the image and say so (`guest_agent` of the runtime handler)",
        );
    }
    (has_lasting_root && !defaults.has_agent(annotations)).then_some(
        "cloud-init mounts it by a table that it writes once for the root disk, which outlives its pods; leave it out, or have \
         `virtlet-agent` in the guest",
    )
}

fn mounts_by_itself(defaults: &MachineDefaults, annotations: &PodAnnotations) -> bool {
    let is_for_cloud_init = match defaults.seed_kind(annotations) {
        SeedKind::NoCloud | SeedKind::ConfigDrive => true,
        SeedKind::None | SeedKind::Ignition => false,
    };
    !is_for_cloud_init && !defaults.has_agent(annotations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::EmptyDirDisk;
    use crate::plan::{FileSystem, Hardware, SharedFs};
    use crate::settings::{Given, Handler, MachineConfig};
    use crate::{Accelerator, ContainerConfig, MachineId, Mount, SandboxConfig};

    const NOEXEC: MountOptions = MountOptions { noexec: true, nodev: false, nosuid: false };

    fn mount(kind: &str, name: &str, path: &str) -> Mount {
        let host_path = format!("/var/lib/kubelet/pods/u/volumes/kubernetes.io~{kind}/{name}");
        Mount { container_path: path.into(), host_path, options: NOEXEC, ..Mount::default() }
    }

    fn judged(
        mounts: &[Mount],
        annotations: &PodAnnotations,
        defaults: MachineDefaults,
        has_lasting_root: bool,
    ) -> Result<(), String> {
        let wishes = Wishes {
            id: MachineId::random(),
            sandbox: &SandboxConfig { uid: "u".into(), ..SandboxConfig::default() },
            container: &ContainerConfig { mounts: mounts.to_vec(), ..ContainerConfig::default() },
            annotations,
            flexvolumes: &[],
            handler: &Handler { name: "lab".into(), defaults },
            offer: None,
            accel: Accelerator::Kvm,
            node: &MachineConfig::default(),
        };
        let volumes = Volumes::of(&wishes, &Hardware::default()).expect("volumes");
        check(&wishes, &volumes, has_lasting_root).map_err(|error| error.to_string())
    }

    fn seeded(seed: SeedKind) -> MachineDefaults {
        let shared_fs = Given::Value(SharedFs::Virtiofs);
        MachineDefaults { seed: Given::Value(seed), shared_fs, ..MachineDefaults::default() }
    }

    fn scratch(file_system: Option<FileSystem>) -> PodAnnotations {
        let disk = EmptyDirDisk { volume: "scratch".into(), size: 1 << 30, file_system };
        PodAnnotations { emptydir_disks: vec![disk], ..PodAnnotations::default() }
    }

    #[test]
    fn options_are_held_by_whoever_mounts_what_the_guest_sees() {
        let all = [mount("empty-dir", "data", "/data"), mount("empty-dir", "scratch", "/scratch")];
        let disk = scratch(Some(FileSystem::Ext4));
        for seed in [SeedKind::NoCloud, SeedKind::ConfigDrive, SeedKind::None, SeedKind::Ignition] {
            let agent = MachineDefaults { guest_agent: true, ..seeded(seed) };
            assert_eq!(judged(&all, &disk, agent, true), Ok(()), "{seed} with the agent");
            let plain = PodAnnotations::default();
            let hidden = MachineDefaults { shared_fs: Given::Value(SharedFs::None), ..seeded(seed) };
            assert_eq!(judged(&all[..1], &plain, hidden, true), Ok(()), "{seed}, unseen");
            let is_for_cloud_init = matches!(seed, SeedKind::NoCloud | SeedKind::ConfigDrive);
            assert_eq!(judged(&all, &disk, seeded(seed), false).is_ok(), is_for_cloud_init, "{seed}");
            assert_eq!(judged(&all[1..], &disk, seeded(seed), false).is_ok(), is_for_cloud_init, "{seed}, a disk");
        }
    }

    #[test]
    fn options_that_nobody_holds_are_refused_by_name() {
        let data = [mount("empty-dir", "data", "/data")];
        let copied =
            MachineDefaults { config_delivery: Given::Value(ConfigDelivery::Seed), ..seeded(SeedKind::NoCloud) };
        let plain = PodAnnotations::default();
        let cloud_init = || seeded(SeedKind::NoCloud);
        let told = [
            judged(&data, &plain, seeded(SeedKind::Ignition), false),
            judged(&data, &plain, cloud_init(), true),
            judged(&[mount("configmap", "site", "/etc/site")], &plain, copied, false),
            judged(&[mount("empty-dir", "scratch", "/scratch")], &scratch(None), cloud_init(), false),
            judged(&[mount("empty-dir", "memory", SHM)], &plain, cloud_init(), false),
        ]
        .map(|judged| judged.expect_err("refused"));
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_handler_holds_them_unless_its_guests_mount_by_themselves_or_have_copies() {
        for (seed, guest_agent, config_delivery, held) in [
            (SeedKind::NoCloud, false, ConfigDelivery::Share, true),
            (SeedKind::ConfigDrive, false, ConfigDelivery::None, true),
            (SeedKind::NoCloud, true, ConfigDelivery::Seed, false),
            (SeedKind::None, true, ConfigDelivery::Share, true),
            (SeedKind::None, false, ConfigDelivery::Share, false),
            (SeedKind::Ignition, false, ConfigDelivery::None, false),
        ] {
            let config_delivery = Given::Value(config_delivery);
            let defaults = MachineDefaults { guest_agent, config_delivery, ..seeded(seed) };
            assert_eq!(are_held(&defaults), held, "{seed} {guest_agent}");
        }
        assert!(are_held(&MachineDefaults::default()));
    }
}
