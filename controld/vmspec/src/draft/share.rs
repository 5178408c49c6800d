//! Which of a pod's volumes its guest sees, and where.
//!
//! A guest that is known to have our agent sees all of them, since the agent mounts them. One that is not sees none, unless runtime handler or
//! pod say so: then the guest has the device, and mounts it itself. What kubelet mounts into every container is left out: the guest has a
//! `/etc/hosts` of its own, and nobody in it writes a termination message. The service account's token, which nearly every pod
//! has, makes no share by itself.

use std::path::{Component, Path};

use proto::agent::SHARE_DIR;
use proto::share::MAX_MOUNTS;

use crate::annotations::PodAnnotations;
use crate::error::{Error, Kind, Result};
use crate::plan::{Share, SharedFs, SharedMount};
use crate::seed::{self, ConfigDelivery, TOKEN};
use crate::settings::MachineDefaults;
use crate::{ContainerConfig, Mount, SandboxConfig, host, pod_dir};

/// Memory that processes share, which those of a guest do by their own kernel.
pub(super) const SHM: &str = "/dev/shm";
/// Large pages of the node, to which nobody can write by virtiofs.
pub(super) const HUGE_PAGES: &str = "/dev/hugepages";
/// Where the guest's kernel and the share itself are.
pub(super) const NOT_BELOW: [&str; 4] = ["/proc", "/sys", "/dev", SHARE_DIR];
/// CRI's numbers of `MountPropagation`.
const HOST_TO_CONTAINER: i32 = 1;
pub(super) const BIDIRECTIONAL: i32 = 2;

/// The share of a container's machine, if it has one.
///
/// # Errors
/// When a volume cannot be where the pod wants it.
pub(super) fn of(
    sandbox: &SandboxConfig,
    container: &ContainerConfig,
    annotations: &PodAnnotations,
    defaults: &MachineDefaults,
    has_agent: bool,
) -> Result<Option<Share>> {
    let delivery = defaults.delivery(annotations);
    let is_shown = |mount: &Mount| is_of_pod(mount, container) && is_delivered(mount, delivery, &sandbox.uid);
    let wanted = annotations.shared_fs.or(defaults.shared_fs.get().copied());
    let is_shared = match wanted {
        Some(way) => way == SharedFs::Virtiofs,
        None => has_agent && container.mounts.iter().any(|mount| is_shown(mount) && !is_token(mount)),
    };
    if !is_shared {
        // Said by the pod itself, it is not to go unheard.
        let is_lost =
            |mount: &&Mount| is_shown(mount) && !is_token(mount) && seed::config_volume(mount, &sandbox.uid).is_some();
        return match container.mounts.iter().find(is_lost) {
            Some(mount) if annotations.config_delivery == Some(ConfigDelivery::Share) => Err(invalid(format!(
                "annotation virtlet.cloud/config-delivery: share: the guest does not see volumes, and so not that at `{}`; set \
                 `virtlet.cloud/shared-fs: virtiofs`",
                mount.container_path
            ))),
            _ => Ok(None),
        };
    }
    let mut mounts = Vec::new();
    for mount in container.mounts.iter().filter(|mount| is_shown(mount)) {
        check(mount, &mounts)?;
        host::check_host_path(mount, sandbox, defaults)?;
        mounts.push(SharedMount {
            source: mount.host_path.clone().into(),
            path: mount.container_path.clone(),
            read_only: mount.readonly,
            recursive: mount.recursive_read_only,
            follows: mount.propagation == HOST_TO_CONTAINER,
            filled: seed::config_volume(mount, &sandbox.uid).is_some(),
            options: mount.options,
        });
    }
    if mounts.len() > MAX_MOUNTS {
        return Err(invalid(format!(
            "the container has {} volume mounts, and a VM has at most {MAX_MOUNTS}",
            mounts.len()
        )));
    }
    Ok((!mounts.is_empty()).then_some(Share { mounts }))
}

fn is_of_pod(mount: &Mount, container: &ContainerConfig) -> bool {
    let path = &mount.container_path;
    !pod_dir::is_hosts_file(mount)
        && !seed::is_for_us(mount)
        && ![SHM, HUGE_PAGES, container.termination_path()].contains(&path.as_str())
}

/// Whether it comes by the share, if it comes at all. The token does where there are copies of others, since it lapses.
fn is_delivered(mount: &Mount, delivery: ConfigDelivery, uid: &str) -> bool {
    match delivery {
        ConfigDelivery::Share => true,
        ConfigDelivery::Seed => is_token(mount) || seed::config_volume(mount, uid).is_none(),
        ConfigDelivery::None => seed::config_volume(mount, uid).is_none(),
    }
}

fn is_token(mount: &Mount) -> bool {
    mount.container_path == TOKEN
}

fn check(Mount { container_path: at, propagation, .. }: &Mount, others: &[SharedMount]) -> Result<()> {
    let path = Path::new(at);
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !is_plain || path.parent().is_none() {
        return Err(invalid(format!("volume mount at `{at}`: not an absolute path below `/` without `..`")));
    }
    if Path::new(SHARE_DIR).starts_with(path) {
        return Err(invalid(format!(
            "volume mount at `{at}` would hide the guest's `{SHARE_DIR}`; choose another `mountPath`"
        )));
    }
    if let Some(dir) = NOT_BELOW.into_iter().find(|dir| path.starts_with(dir)) {
        return Err(invalid(format!("volume mount at `{at}`: `{dir}` is the guest's own; choose another `mountPath`")));
    }
    if others.iter().any(|other| Path::new(&other.path) == path) {
        return Err(invalid(format!("two volume mounts at `{at}`; unset one")));
    }
    if *propagation == BIDIRECTIONAL {
        let what = "what a guest mounts cannot reach the node";
        return Err(invalid(format!(
            "volume mount at `{at}` is `Bidirectional`: {what}; set `HostToContainer` or `None`"
        )));
    }
    Ok(())
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::HostPath;
    use crate::settings::Given;

    const HOSTS: &str = "/etc/hosts";

    fn mount(path: &str) -> Mount {
        let host_path = if path == HOSTS { "/var/lib/kubelet/pods/u/etc-hosts" } else { "/srv/x" };
        Mount { container_path: path.into(), host_path: host_path.into(), ..Mount::default() }
    }

    fn container(paths: &[&str]) -> ContainerConfig {
        ContainerConfig { mounts: paths.iter().map(|path| mount(path)).collect(), ..ContainerConfig::default() }
    }

    fn paths(share: Option<Share>) -> Vec<String> {
        share.into_iter().flat_map(|share| share.mounts).map(|mount| mount.path).collect()
    }

    fn of(
        container: &ContainerConfig,
        annotations: &PodAnnotations,
        defaults: &MachineDefaults,
        has_agent: bool,
    ) -> Result<Option<Share>> {
        let sandbox = SandboxConfig { uid: "u".into(), runtime_handler: "lab".into(), ..SandboxConfig::default() };
        super::of(&sandbox, container, annotations, defaults, has_agent)
    }

    #[test]
    fn a_handler_decides_what_is_seen_of_the_node() {
        let kubelets = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/x";
        let others = "/var/lib/kubelet/pods/w/volumes/kubernetes.io~empty-dir/x";
        let mut told = Vec::new();
        for (policy, allowed) in [
            (HostPath::Allow, [true, true, true, true]),
            (HostPath::Readonly, [true, true, false, false]),
            (HostPath::Deny, [true, false, false, false]),
        ] {
            let defaults = MachineDefaults { host_path: Given::Value(policy), ..MachineDefaults::default() };
            let mounts = [(kubelets, false), ("/srv/x", true), ("/srv/x", false), (others, false)];
            for ((path, readonly), allowed) in mounts.into_iter().zip(allowed) {
                let mount = Mount { host_path: path.into(), readonly, ..mount("/data") };
                let container = ContainerConfig { mounts: vec![mount], ..ContainerConfig::default() };
                let found = of(&container, &PodAnnotations::default(), &defaults, true);
                assert_eq!(found.is_ok(), allowed, "{policy} {path} {readonly}");
                told.extend(found.err().map(|error| (error.kind(), error.to_string())));
            }
        }
        told.dedup();
        assert!(told.iter().all(|(kind, _)| *kind == Kind::Denied));
        let told: Vec<_> = told.into_iter().map(|(_, text)| text).collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    fn with(way: SharedFs) -> PodAnnotations {
        PodAnnotations { shared_fs: Some(way), ..PodAnnotations::default() }
    }

    #[test]
    fn a_guest_with_our_agent_sees_what_the_pod_mounts() {
        let all = container(&[HOSTS, SHM, HUGE_PAGES, "/data", "/dev/termination-log", TOKEN]);
        let plain = PodAnnotations::default();
        let none = MachineDefaults::default();
        assert_eq!(paths(of(&all, &plain, &none, true).expect("shares")), ["/data", TOKEN]);
        assert_eq!(of(&all, &plain, &none, false).expect("nothing"), None);
        // A file of the pod's own at the same path is a volume.
        let mut hosts = container(&[HOSTS]);
        hosts.mounts[0].host_path = "/var/lib/kubelet/pods/u/volume-subpaths/v/vm/0".into();
        assert_eq!(paths(of(&hosts, &plain, &none, true).expect("shares")), [HOSTS]);
        assert_eq!(of(&container(&[HOSTS, TOKEN]), &plain, &none, true).expect("nothing"), None);
        assert_eq!(paths(of(&all, &with(SharedFs::Virtiofs), &none, false).expect("shares")).len(), 2);
        assert_eq!(of(&all, &with(SharedFs::None), &none, true).expect("nothing"), None);
        assert_eq!(of(&container(&[]), &with(SharedFs::Virtiofs), &none, true).expect("nothing"), None);
    }

    #[test]
    fn a_handler_decides_unless_the_pod_does() {
        let virtiofs = MachineDefaults {
            shared_fs: crate::settings::Given::Value(SharedFs::Virtiofs),
            ..MachineDefaults::default()
        };
        let plain = PodAnnotations::default();
        assert_eq!(paths(of(&container(&[TOKEN]), &plain, &virtiofs, false).expect("shares")), [TOKEN]);
        assert_eq!(of(&container(&[TOKEN]), &with(SharedFs::None), &virtiofs, true).expect("nothing"), None);
    }

    fn kubelets(kind: &str, name: &str, path: &str) -> Mount {
        let host_path = format!("/var/lib/kubelet/pods/u/volumes/kubernetes.io~{kind}/{name}");
        Mount { host_path, ..mount(path) }
    }

    #[test]
    fn configmaps_and_secrets_are_shared_unless_they_come_otherwise() {
        let mounts = vec![
            kubelets("configmap", "site", "/etc/site"),
            kubelets("secret", "keys", "/run/virtlet/seed/keys"),
            kubelets("empty-dir", "data", "/data"),
            kubelets("projected", "token", TOKEN),
        ];
        let all = ContainerConfig { mounts, ..ContainerConfig::default() };
        let none = MachineDefaults::default();
        let by = |way| PodAnnotations { config_delivery: Some(way), ..PodAnnotations::default() };
        let plain = PodAnnotations::default();
        let shared = of(&all, &plain, &none, true).expect("shares");
        let filled: Vec<bool> = shared.iter().flat_map(|share| &share.mounts).map(|mount| mount.filled).collect();
        assert_eq!(
            (paths(shared), filled),
            (vec!["/etc/site".into(), "/data".into(), TOKEN.into()], vec![true, false, true])
        );
        assert_eq!(paths(of(&all, &by(ConfigDelivery::Seed), &none, true).expect("shares")), ["/data", TOKEN]);
        assert_eq!(paths(of(&all, &by(ConfigDelivery::None), &none, true).expect("shares")), ["/data"]);
        let handler = MachineDefaults {
            config_delivery: crate::settings::Given::Value(ConfigDelivery::None),
            ..MachineDefaults::default()
        };
        assert_eq!(paths(of(&all, &plain, &handler, true).expect("shares")), ["/data"]);
        let share = by(ConfigDelivery::Share);
        assert_eq!(paths(of(&all, &share, &handler, true).expect("shares")), ["/etc/site", "/data", TOKEN]);
        let error = of(&all, &share, &none, false).expect_err("lost").to_string();
        assert!(error.contains("not that at `/etc/site`"), "{error}");
        // Nothing but what is for us, and the token, makes no share.
        let mounts = vec![kubelets("secret", "keys", "/run/virtlet/seed/keys"), kubelets("projected", "token", TOKEN)];
        let ours = ContainerConfig { mounts, ..ContainerConfig::default() };
        assert_eq!(of(&ours, &plain, &none, true).expect("nothing"), None);
        assert_eq!(of(&ours, &share, &none, false).expect("nothing"), None);
    }

    #[test]
    fn what_cannot_be_where_the_pod_wants_it_is_refused() {
        let refused = |config: &ContainerConfig| {
            let error = of(config, &with(SharedFs::Virtiofs), &MachineDefaults::default(), true).expect_err("refused");
            error.to_string()
        };
        for (path, why) in [
            ("/", "not an absolute path"),
            ("data", "not an absolute path"),
            ("/a/../etc", "not an absolute path"),
            ("/proc/sys", "`/proc` is the guest's own"),
            ("/dev/disk", "`/dev` is the guest's own"),
            ("/run/virtlet/share/7", "is the guest's own"),
            ("/run", "would hide the guest's `/run/virtlet/share`"),
        ] {
            assert!(refused(&container(&[path])).contains(why), "{path}: {}", refused(&container(&[path])));
        }
        assert!(refused(&container(&["/a", "/b", "/a/"])).contains("two volume mounts at `/a/`"));
        let mut both = container(&["/a"]);
        both.mounts[0].propagation = BIDIRECTIONAL;
        assert!(refused(&both).contains("`Bidirectional`"));
        let many: Vec<String> = (0..=MAX_MOUNTS).map(|n| format!("/d{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(refused(&container(&many)).contains("257 volume mounts"));
    }
}
