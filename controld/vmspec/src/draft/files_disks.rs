//! Which of a pod's volumes are disks with their files on them. Pure; the files are read, and the disks made, at each start.

use super::disks::{self, TAKEN};
use crate::error::{Error, Kind, Result};
use crate::plan::{DescribedSource, Disk, DiskSource, FilesDisk, Hardware, Serial};
use crate::seed::{FOR_US, config_volume};
use crate::{ContainerConfig, MountOptions, SandboxConfig};

/// Most such disks of a machine. All of them together are no larger than a seed.
pub const MAX_FILES_DISKS: usize = 8;

/// The disks that are described to be made of files. Guests find them by their labels: none is told to its guest.
///
/// # Errors
/// When there is no such volume, or a guest could not tell two disks apart.
pub(super) fn of(
    sandbox: &SandboxConfig,
    container: &ContainerConfig,
    others: &[&Serial],
    hardware: &Hardware,
) -> Result<Vec<Disk>> {
    let mut made: Vec<Disk> = Vec::new();
    for (name, said) in &hardware.described.disks {
        let Some(DescribedSource::Files { label }) = &said.source else { continue };
        let is_it = |mount: &&crate::Mount| config_volume(mount, &sandbox.uid) == Some(name);
        let Some(mount) = container.mounts.iter().find(is_it) else {
            return Err(refused(
                name,
                &format!(
                    "no volume of this name is mounted that is a ConfigMap, a Secret, a projected volume or the downward API; mount \
                     it whole, at {FOR_US}/{name} if the guest is not to see it otherwise"
                ),
            ));
        };
        if !hardware.may_be_read_only(name) {
            return Err(refused(name, "nobody writes to it, and no disk on sata is so; make it a `cdrom`"));
        }
        let serial = hardware.said_serial(name).unwrap_or_else(|| Serial::of_name(name));
        let is_taken = |other: &Serial| *other == serial;
        if TAKEN.contains(&serial.as_str())
            || others.iter().any(|other| is_taken(other))
            || made.iter().any(|other| is_taken(&other.serial))
        {
            return Err(refused(name, &format!("it would have the serial `{serial}` of another disk; say one")));
        }
        made.push(Disk {
            name: name.clone(),
            serial,
            source: DiskSource::Files(FilesDisk { volume: mount.host_path.clone().into(), label: label.clone() }),
            path: String::new(),
            read_only: true,
            options: MountOptions::default(),
        });
    }
    if made.len() > MAX_FILES_DISKS {
        let what = format!("{} disks are made of files, and a VM has at most {MAX_FILES_DISKS}", made.len());
        return Err(Error::new(Kind::Invalid, format!("annotation virtlet.k8s/vm: {what}")));
    }
    if let Some(last) = made.last() {
        disks::check_count(others.len() + made.len(), hardware).map_err(|why| refused(&last.name, &why))?;
    }
    Ok(made)
}

fn refused(name: &str, why: &str) -> Error {
    Error::new(Kind::Invalid, format!("annotation virtlet.k8s/vm: disks[{name}].source.files: {why}"))
}

#[cfg(test)]
mod tests {
    use proto::vm::VmDescription;

    use super::*;
    use crate::Mount;
    use crate::plan::Described;
    use crate::seed::guest_disks;

    fn of(disks: &str) -> Result<Vec<Disk>, String> {
        let text = format!(r#"{{"v":1,"disks":[{disks}]}}"#);
        let described = Described::of(VmDescription::parse(&text).expect(disks)).expect(disks);
        let hardware = Hardware { described, ..Hardware::default() };
        let mount = |(kind, name): (&str, &str)| Mount {
            container_path: format!("/run/virtlet/seed/{name}"),
            host_path: format!("/var/lib/kubelet/pods/u/volumes/kubernetes.io~{kind}/{name}"),
            ..Mount::default()
        };
        let mounts = [("configmap", "app"), ("secret", "keys"), ("empty-dir", "scratch"), ("secret", "root")];
        let container = ContainerConfig { mounts: mounts.map(mount).into(), ..ContainerConfig::default() };
        let sandbox = SandboxConfig { uid: "u".into(), ..SandboxConfig::default() };
        super::of(&sandbox, &container, &[&Serial::of_name("taken")], &hardware).map_err(|error| error.to_string())
    }

    #[test]
    fn a_volume_with_files_is_a_disk_of_which_the_guest_is_told_nothing() {
        let made = of(
            r#"{"name":"app","source":{"files":{"label":"app"}}},{"name":"keys","kind":"cdrom","serial":"K","source":{"files":{"label":"K2"}}}"#,
        );
        let made = made.expect("planned");
        let text = serde_json::to_string(&made).expect("written");
        insta::assert_snapshot!(text, @r#"[{"name":"app","serial":"app","source":{"files":{"volume":"/var/lib/kubelet/pods/u/volumes/kubernetes.io~configmap/app","label":"app"}},"path":"","read_only":true},{"name":"keys","serial":"K","source":{"files":{"volume":"/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/keys","label":"K2"}},"path":"","read_only":true}]"#);
        assert_eq!(serde_json::from_str::<Vec<Disk>>(&text).expect("read"), made);
        assert!(guest_disks(&made, &Hardware::default()).is_empty() && made.iter().all(|disk| disk.read_only));
    }

    #[test]
    fn what_cannot_be_made_is_told() {
        let told: Vec<String> = [
            r#"{"name":"scratch","source":{"files":{"label":"a"}}}"#,
            r#"{"name":"none","source":{"files":{"label":"a"}}}"#,
            r#"{"name":"root","source":{"files":{"label":"a"}}}"#,
            r#"{"name":"app","serial":"taken","source":{"files":{"label":"a"}}}"#,
            r#"{"name":"app","bus":"sata","source":{"files":{"label":"a"}}}"#,
        ]
        .map(|disks| of(disks).expect_err(disks))
        .into();
        insta::assert_snapshot!(told.join("\n"));
    }
}
