//! What a kubelet would ask for a pod, as far as a runtime hears of it. Kubelet's own rules are in its
//! `pkg/kubelet/kuberuntime` and `kubelet_pods.go`.

use std::collections::BTreeMap;

use common::quantity;
use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proto::cri;
use vmspec::manifest::PodToBe;

/// The UID of a pod that there is not.
pub(super) const UID: &str = "00000000-0000-0000-0000-000000000000";
/// CFS period that kubelet sets, in microseconds.
const PERIOD: i64 = 100_000;

/// What makes the pod's sandbox.
pub(super) fn sandbox(pod: &PodToBe, handler: &str, class: Option<&RuntimeClass>) -> cri::RunPodSandboxRequest {
    let spec = &pod.spec;
    let network =
        if spec.host_network.unwrap_or_default() { cri::NamespaceMode::Node } else { cri::NamespaceMode::Pod };
    // Of a pod that says nothing kubelet says nothing.
    let users = spec.host_users.map(|of_node| cri::UserNamespace {
        mode: if of_node { cri::NamespaceMode::Node } else { cri::NamespaceMode::Pod }.into(),
        ..Default::default()
    });
    let security = spec.security_context.as_ref();
    let sysctls = security.and_then(|security| security.sysctls.as_ref());
    let overhead = class.and_then(|class| class.overhead.as_ref()?.pod_fixed.as_ref());
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    cri::RunPodSandboxRequest {
        runtime_handler: handler.to_owned(),
        config: Some(cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: pod.name.clone(),
                uid: UID.into(),
                namespace: pod.namespace.clone(),
                attempt: 0,
            }),
            hostname: spec.hostname.clone().unwrap_or_else(|| pod.name.clone()),
            labels: pod.labels.clone().into_iter().collect(),
            annotations: pod.annotations.clone().into_iter().collect(),
            port_mappings: ports
                .map(|port| cri::PortMapping {
                    protocol: match port.protocol.as_deref() {
                        Some("UDP") => cri::Protocol::Udp.into(),
                        Some("SCTP") => cri::Protocol::Sctp.into(),
                        _ => cri::Protocol::Tcp.into(),
                    },
                    container_port: port.container_port,
                    host_port: port.host_port.unwrap_or_default(),
                    host_ip: port.host_ip.clone().unwrap_or_default(),
                })
                .collect(),
            linux: Some(cri::LinuxPodSandboxConfig {
                security_context: Some(cri::LinuxSandboxSecurityContext {
                    namespace_options: Some(cri::NamespaceOption {
                        network: network.into(),
                        userns_options: users,
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                sysctls: sysctls.into_iter().flatten().map(|one| (one.name.clone(), one.value.clone())).collect(),
                overhead: overhead.map(resources),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

/// What makes one of its containers.
pub(super) fn container(pod: &PodToBe, container: &Container) -> cri::ContainerConfig {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let security = container.security_context.as_ref();
    let pods = pod.spec.security_context.as_ref();
    let user = security.and_then(|security| security.run_as_user).or(pods.and_then(|pods| pods.run_as_user));
    let mounts = container.volume_mounts.iter().flatten().map(|mount| self::mount(pod, container, mount));
    // kubelet refuses variables that it cannot resolve; all that matters here is how many there are.
    let envs = container.env.iter().flatten().map(|variable| cri::KeyValue {
        key: variable.name.clone(),
        value: variable.value.clone().unwrap_or_default().into_bytes(),
    });
    let devices = container.volume_devices.iter().flatten().map(|device| cri::Device {
        container_path: device.device_path.clone(),
        host_path: format!("/var/lib/kubelet/pods/{UID}/volumeDevices/kubernetes.io~csi/{}", device.name),
        permissions: if is_read_only(pod, &device.name) { "r" } else { "mrw" }.into(),
    });
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: container.name.clone(), attempt: 0 }),
        image: Some(cri::ImageSpec { image: container.image.clone().unwrap_or_default(), ..Default::default() }),
        command: container.command.clone().unwrap_or_default(),
        args: container.args.clone().unwrap_or_default(),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: envs.collect(),
        mounts: mounts.collect(),
        devices: devices.collect(),
        stdin: container.stdin.unwrap_or_default(),
        stdin_once: container.stdin_once.unwrap_or_default(),
        tty: container.tty.unwrap_or_default(),
        linux: Some(cri::LinuxContainerConfig {
            resources: limits.map(resources),
            security_context: Some(cri::LinuxContainerSecurityContext {
                run_as_user: user.map(|value| cri::Int64Value { value }),
                readonly_rootfs: security.and_then(|security| security.read_only_root_filesystem).unwrap_or_default(),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

pub(super) fn volume_of<'a>(pod: &'a PodToBe, name: &str) -> Option<&'a Volume> {
    pod.spec.volumes.iter().flatten().find(|volume| volume.name == name)
}

/// Whether what is mounted there is a block device of the node.
pub(super) fn is_block_device(pod: &PodToBe, container: &Container, at: &str) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    let volume = mounts.find(|mount| mount.mount_path == at).and_then(|mount| volume_of(pod, &mount.name));
    let node = volume.and_then(|volume| volume.host_path.as_ref());
    node.is_some_and(|node| node.type_.as_deref() == Some("BlockDevice"))
}

/// Whether a claim's volume is given to read only.
fn is_read_only(pod: &PodToBe, name: &str) -> bool {
    let claim = volume_of(pod, name).and_then(|volume| volume.persistent_volume_claim.as_ref());
    claim.and_then(|claim| claim.read_only).unwrap_or_default()
}

/// A mount, from where kubelet would have the volume.
fn mount(pod: &PodToBe, container: &Container, mount: &VolumeMount) -> cri::Mount {
    let volume = volume_of(pod, &mount.name);
    let image = volume.and_then(|volume| volume.image.as_ref());
    let sub_path = mount.sub_path_expr.as_ref().or(mount.sub_path.as_ref());
    cri::Mount {
        container_path: mount.mount_path.clone(),
        host_path: match volume {
            _ if image.is_some() => String::new(),
            Some(Volume { host_path: Some(node), .. }) => node.path.clone(),
            Some(volume) => {
                let of_pod = format!("/var/lib/kubelet/pods/{UID}/volumes");
                match &volume.flex_volume {
                    Some(flex) => format!("{of_pod}/{}/{}", flex.driver.replace('/', "~"), volume.name),
                    None => format!("{of_pod}/kubernetes.io~{}/{}", plugin(volume), volume.name),
                }
            }
            None => format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~unknown/{}", mount.name),
        },
        readonly: mount.read_only.unwrap_or_default() || image.is_some(),
        recursive_read_only: mount.recursive_read_only.as_deref() == Some("Enabled"),
        propagation: match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => cri::MountPropagation::PropagationHostToContainer.into(),
            Some("Bidirectional") => cri::MountPropagation::PropagationBidirectional.into(),
            _ => cri::MountPropagation::PropagationPrivate.into(),
        },
        mount_options: pod.mount_options(&container.name, &mount.mount_path).to_owned(),
        // What another volume has below such a path, kubelet finds itself.
        image_sub_path: sub_path.filter(|_| image.is_some()).cloned().unwrap_or_default(),
        image: image
            .map(|image| cri::ImageSpec { image: image.reference.clone().unwrap_or_default(), ..Default::default() }),
        ..Default::default()
    }
}

fn plugin(volume: &Volume) -> &'static str {
    match volume {
        Volume { config_map: Some(_), .. } => "configmap",
        Volume { secret: Some(_), .. } => "secret",
        Volume { projected: Some(_), .. } => "projected",
        Volume { downward_api: Some(_), .. } => "downward-api",
        Volume { empty_dir: Some(_), .. } => "empty-dir",
        _ => "csi",
    }
}

fn resources(limits: &BTreeMap<String, Quantity>) -> cri::LinuxContainerResources {
    let of = |name: &str| limits.get(name).map(|quantity| quantity.0.as_str());
    let bytes = |text: &str| quantity::bytes(text).ok();
    let huge_pages = limits.iter().filter_map(|(name, limit)| {
        let page_size = name.strip_prefix("hugepages-")?;
        Some(cri::HugepageLimit { page_size: page_size.replace('i', "B"), limit: bytes(&limit.0)? })
    });
    cri::LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: of("cpu").and_then(millis).map_or(0, |millis| millis.saturating_mul(PERIOD) / 1000),
        memory_limit_in_bytes: of("memory")
            .and_then(bytes)
            .and_then(|bytes| i64::try_from(bytes).ok())
            .unwrap_or_default(),
        hugepage_limits: huge_pages.collect(),
        ..Default::default()
    }
}

/// Thousandths of a processor, rounded up.
fn millis(text: &str) -> Option<i64> {
    if let Some(millis) = text.strip_suffix('m') {
        return millis.parse().ok();
    }
    // A quantity with a fraction: a thousand times it is one without.
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, expected) in [
            ("2", Some(2000)),
            ("500m", Some(500)),
            ("1.5", Some(1500)),
            (".25", Some(250)),
            ("x", None),
            ("1.x", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }
}
