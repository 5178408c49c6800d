//! What would become of a pod.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::Container;
use vmspec::annotations::PodAnnotations;
use vmspec::draft::guest::check_sysctls;
use vmspec::draft::{Wishes, promise};
use vmspec::error::Error;
use vmspec::explain::Setting;
use vmspec::manifest::{Manifest, PodToBe};
use vmspec::settings::Handler;
use vmspec::{Accelerator, MachineId, SandboxConfig, host};

use super::{flexvolume, kubelet};
use crate::api::cri::convert;
use crate::config::Config;
use crate::guest::seed::api;
use crate::sandbox;

/// Of a pod.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Why it would not become a machine, as the daemon would say it; empty if it would, by all that is known here.
    pub problems: Vec<String>,
    /// What would happen, and may not be what was meant.
    pub remarks: Vec<String>,
    /// What the machine would have; of the last container, if there are several.
    pub settings: Vec<Setting>,
}

/// Where machines would be.
#[derive(Clone, Copy)]
struct Node<'a> {
    config: &'a Config,
    accel: Accelerator,
}

/// What would become of a pod on a node with this configuration, whose machines run on `accel`.
#[must_use]
pub fn judge(config: &Config, accel: Accelerator, manifest: &Manifest, pod: &PodToBe) -> Verdict {
    let mut verdict = Verdict::default();
    let named = pod.spec.runtime_class_name.as_deref().unwrap_or_default();
    let class = manifest.classes.get(named);
    // Nearly always of the same name.
    let handler = class.map_or(named, |class| class.handler.as_str());
    if class.is_none() && !named.is_empty() {
        let remark = format!(
            "RuntimeClass `{named}` is not in the manifest: its handler is taken to be `{named}`, without overhead"
        );
        verdict.remarks.push(remark);
    }
    if named.is_empty() {
        let remark = "no runtimeClassName: it may be scheduled to a node that makes containers of pods";
        verdict.remarks.push(remark.into());
    }
    verdict.containers(pod);
    let sandbox = match convert::sandbox_config(kubelet::sandbox(pod, handler, class)) {
        Ok(sandbox) => sandbox,
        Err(error) => return verdict.with(&error),
    };
    if let Err(error) = sandbox::check(config, &sandbox) {
        verdict = verdict.with(&error);
    }
    let handler = config.handler(handler);
    if let Err(error) = handler.check_annotations(&pod.annotations) {
        verdict = verdict.with(&error);
    }
    match PodAnnotations::parse(&pod.annotations) {
        Ok(annotations) => {
            if let Err(error) = sandbox::check_fit(&annotations.networks) {
                verdict = verdict.with(&error);
            }
            verdict.machines(Node { config, accel }, pod, &sandbox, &handler, &annotations);
        }
        Err(problems) => {
            verdict.problems.extend(problems.each());
            // What else is wrong is told in the same round.
            if let Ok(others) = PodAnnotations::parse(&right_by_themselves(&pod.annotations)) {
                verdict.machines(Node { config, accel }, pod, &sandbox, &handler, &others);
                verdict.settings.clear();
            }
        }
    }
    verdict
}

fn right_by_themselves(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_right = |(key, value): &(&String, &String)| {
        PodAnnotations::parse(&BTreeMap::from([((*key).clone(), (*value).clone())])).is_ok()
    };
    annotations.iter().filter(is_right).map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Verdict {
    fn with(mut self, error: &Error) -> Self {
        self.problems.push(common::Chain(error).to_string());
        self
    }

    fn containers(&mut self, pod: &PodToBe) {
        let sidecars = pod.spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
        let names: Vec<&str> = sidecars.map(|container| container.name.as_str()).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            self.problems.push(format!("sidecar {names}: a pod that is a machine has one container at a time"));
        }
        if let [_, more @ ..] = pod.spec.containers.as_slice()
            && !more.is_empty()
        {
            let names: Vec<&str> = more.iter().map(|container| container.name.as_str()).collect();
            let names = names.join(", ");
            self.problems.push(format!("container {names}: a pod that is a machine has one container at a time"));
        }
        if pod.spec.containers.is_empty() {
            self.problems.push("there is no container, and so no machine".into());
        }
        let init = pod.spec.init_containers.iter().flatten();
        for container in init.chain(&pod.spec.containers) {
            let security = container.security_context.as_ref();
            if security.and_then(|security| security.read_only_root_filesystem) == Some(true) {
                self.remarks.push(format!(
                    "container {}: `readOnlyRootFilesystem` holds for commands that are run in the guest alone: the guest writes to its disk",
                    container.name
                ));
            }
        }
        for name in flexvolume::unmounted(pod) {
            self.remarks
                .push(format!("volume {name}: no container mounts this flexvolume, so it is no disk of the VM"));
        }
    }

    fn machines(
        &mut self,
        Node { config, accel }: Node<'_>,
        pod: &PodToBe,
        sandbox: &SandboxConfig,
        handler: &Handler,
        annotations: &PodAnnotations,
    ) {
        if let Err(error) = check_sysctls(sandbox, annotations, &handler.defaults) {
            self.problems.push(error.to_string());
        }
        if let Err(error) = api::check(config.seed_kubeconfig.as_deref(), annotations) {
            self.problems.push(error.to_string());
        }
        let init = pod.spec.init_containers.iter().flatten().filter(|container| !is_sidecar(container));
        for container in init.chain(&pod.spec.containers) {
            let made = convert::container_config(kubelet::container(pod, container)).and_then(|asked| {
                let (id, node) = (MachineId::random(), &config.machine);
                let asked = host::as_devices(asked, sandbox, handler, |mount| {
                    let (at, node) = (&mount.container_path, Path::new(&mount.host_path));
                    let is_named = config.raw_devices.may_be(node);
                    let is_device = is_named || kubelet::is_block_device(pod, container, at);
                    // Where another path leads the node knows alone.
                    if is_device && !is_named && node.parent() == Some(Path::new("/dev")) {
                        return Err(host::unnamed(&host::mounted_at(at), node, node));
                    }
                    Ok(is_device.then(|| mount.host_path.clone()))
                })?;
                let flexvolumes = &flexvolume::wanted(&config.flexvolumes, pod, container)?;
                promise(Wishes {
                    id,
                    sandbox,
                    container: &asked,
                    annotations,
                    flexvolumes,
                    handler,
                    offer: None,
                    accel,
                    node,
                })
            });
            match made {
                Ok(settings) => self.settings = settings,
                Err(error) => self.problems.push(format!("container {}: {}", container.name, common::Chain(&error))),
            }
        }
    }
}

/// One that stays beside the others.
fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use vmspec::manifest::read;

    use super::*;

    fn verdict(config: &str, text: &str) -> Verdict {
        let config = Config::parse(config).expect("parses").checked().expect("valid");
        let manifest = read(text).expect("a manifest");
        judge(&config, Accelerator::Kvm, &manifest, &manifest.pods[0])
    }

    fn setting<'a>(verdict: &'a Verdict, name: &str) -> &'a Setting {
        verdict.settings.iter().find(|setting| setting.name == name).expect(name)
    }

    #[test]
    fn a_pod_has_what_it_its_class_and_its_handler_say() {
        let config = "[handlers.lab]\ncpu_model = 'Westmere'\ndisk_bus = 'scsi'\nguest_agent = true\nmax_vcpus = 4";
        let text = "\
kind: RuntimeClass
metadata: {name: vms}
handler: lab
overhead: {podFixed: {memory: 1Gi}}
---
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata: {annotations: {VirtletDiskDriver: sata, VirtletRootVolumeSize: 10Gi}}
    spec:
      runtimeClassName: vms
      volumes: [{name: c, configMap: {name: c}}, {name: h, hostPath: {path: /srv}}]
      initContainers: [{name: first, image: x}]
      containers:
      - name: vm
        image: x
        volumeMounts: [{name: c, mountPath: /c, readOnly: true}, {name: h, mountPath: /h}]
        resources: {limits: {cpu: 1500m, memory: 1Gi}}
";
        let verdict = verdict(config, text);
        let told: Vec<String> =
            verdict.settings.iter().map(|it| format!("{}: {} ({})", it.name, it.value, it.from)).collect();
        assert!(verdict.problems.is_empty() && verdict.remarks.is_empty(), "{verdict:?}");
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_volume_at_the_root_is_said_and_judged() {
        let pod = |annotations: &str, volume: &str| {
            format!(
                "kind: Pod\nmetadata: {{name: web, annotations: {{{annotations}}}}}\nspec:\n  runtimeClassName: pets\n  volumes:\n  \
                 - {{name: r, persistentVolumeClaim: {{claimName: r{volume}}}}}\n  containers:\n  \
                 - {{name: vm, image: x, volumeDevices: [{{name: r, devicePath: /}}]}}\n"
            )
        };
        let config = "[handlers.pets]\nroot_on_image_change = 'keep'";
        let told = |text: &str| {
            let verdict = verdict(config, text);
            let of_root = verdict
                .settings
                .iter()
                .filter(|it| ["root disk", "at another image", "system UUID"].contains(&it.name));
            let lines = of_root.map(|it| format!("{}: {} ({})", it.name, it.value, it.from));
            lines.chain(verdict.problems).collect::<Vec<_>>().join("\n")
        };
        let shown = [
            told(&pod("", "")),
            told(&pod("virtlet.cloud/root-device: as-is", "")),
            told(&pod("VirtletRootVolumeSize: 10Gi", "")),
            told(&pod("", ", readOnly: true")),
        ];
        insta::assert_snapshot!(shown.join("\n\n"));
    }

    #[test]
    fn options_of_mounts_are_said_and_judged() {
        let pod = |options: &str| {
            format!(
                "kind: Pod\nmetadata: {{name: web}}\nspec:\n  runtimeClassName: lab\n  volumes: [{{name: d, emptyDir: {{}}}}]\n  \
                 containers:\n  - name: vm\n    image: x\n    \
                 volumeMounts: [{{name: d, mountPath: /d, bindMountOptions: [{options}]}}]\n"
            )
        };
        let told = verdict("handlers.lab.shared_fs = 'virtiofs'", &pod("nodev, noexec"));
        assert_eq!(setting(&told, "options of mounts").value, "noexec,nodev at /d");
        for (config, options, why) in [
            ("handlers.lab.shared_fs = 'virtiofs'", "sync", "mount at `/d` has the option `sync`"),
            (
                "[handlers.lab]\nshared_fs = 'virtiofs'\nseed = 'none'\nconfig_delivery = 'none'",
                "noexec, nosuid",
                "volume mount at `/d` has the options `noexec,nosuid`: the guest mounts by itself",
            ),
        ] {
            let told = verdict(config, &pod(options)).problems;
            assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
        }
    }

    #[test]
    fn an_image_volume_is_said_and_judged() {
        let pod = |mount: &str| {
            format!(
                "kind: Pod\nspec:\n  volumes: [{{name: m, image: {{reference: images.example.com/models, pullPolicy: Always}}}}]\n  \
                 containers:\n  - {{name: vm, image: x, volumeMounts: [{{name: m, mountPath: /models{mount}}}]}}\n"
            )
        };
        let fine = verdict("", &pod(""));
        assert_eq!(setting(&fine, "images as disks").value, "images.example.com/models at /models");
        assert!(fine.problems.is_empty(), "{fine:?}");
        for (mount, why) in [
            (", subPath: a", "container vm: ImageVolumeMountFailed: image volume at `/models`: `subPath` `a` of it"),
            (", subPathExpr: $(A)", "`subPath` `$(A)` of it cannot be given to a VM"),
        ] {
            let told = verdict("", &pod(mount)).problems;
            assert!(matches!(&told[..], [one] if one.contains(why)), "{told:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let text = "\
kind: Pod
metadata: {name: web, annotations: {VirtletVCPUcount: '2', VirtletDiskDriver: ide}}
spec:
  hostNetwork: true
  runtimeClassName: other
  initContainers: [{name: side, image: x, restartPolicy: Always}]
  containers: [{name: a, image: x}, {name: b, image: y}]
";
        let verdict = verdict("", text);
        insta::assert_snapshot!(verdict.problems.join("\n"));
        let text = "\
kind: Pod
spec:
  securityContext: {sysctls: [{name: vm.swappiness, value: '1'}]}
  volumes: [{name: h, hostPath: {path: /srv}}]
  containers:
  - {name: a, image: x, resources: {limits: {memory: 40Mi}}}
";
        insta::assert_snapshot!(self::verdict("", text).problems.join("\n"));
    }

    #[test]
    fn what_is_wrong_beside_a_wrong_annotation_is_told_in_the_same_round() {
        let text = "\
kind: Pod
metadata: {annotations: {VirtletVCPUcount: '2', VirtletVCPUCount: '3'}}
spec: {containers: [{name: a, image: x, resources: {limits: {memory: 40Mi}}}]}
";
        let told = verdict("", text);
        let [annotation, memory] = &told.problems[..] else { panic!("{told:?}") };
        assert!(annotation.contains("VirtletVCPUcount: unknown"), "{annotation}");
        assert!(memory.contains("after 74 MiB for QEMU"), "by the annotation that is right: {memory}");
        assert!(told.settings.is_empty(), "{told:?}");
    }

    #[test]
    fn what_means_something_else_for_a_vm_is_remarked() {
        let text = "\
kind: Pod
spec:
  runtimeClassName: virtlet
  volumes: [{name: f, flexVolume: {driver: virtlet/flexvolume_driver}}]
  containers: [{name: a, image: x, securityContext: {readOnlyRootFilesystem: true}}]
";
        let remarks = verdict("", text).remarks.join("\n");
        assert!(remarks.contains("container a: `readOnlyRootFilesystem` holds for commands"), "{remarks}");
        assert!(remarks.contains("volume f: no container mounts this flexvolume"), "{remarks}");
    }

    #[test]
    fn a_pod_has_no_users_of_its_own_on_the_node() {
        let told = |users: &str| {
            let pod = format!("kind: Pod\nspec: {{{users}containers: [{{name: vm, image: x}}]}}\n");
            verdict("", &pod).problems.join("; ")
        };
        assert!(told("hostUsers: false, ").contains("unset hostUsers"));
        assert_eq!(["", "hostUsers: true, "].map(told), ["", ""]);
    }

    #[test]
    fn a_seed_that_the_daemon_would_refuse_by_the_manifest_alone_is_told() {
        let pod = |annotations: &serde_json::Value, volumes: &str| {
            let volumes: serde_json::Value = serde_json::from_str(volumes).expect("JSON");
            let container = serde_json::json!({
                "name": "vm", "image": "x", "volumeMounts": volumes,
                "volumeDevices": [{ "name": "d", "devicePath": "/dev/data" }],
            });
            let all = serde_json::json!([
                { "name": "c", "configMap": { "name": "c" } },
                { "name": "d", "persistentVolumeClaim": { "claimName": "d" } },
            ]);
            let pod = serde_json::json!({
                "kind": "Pod", "metadata": { "name": "p", "annotations": annotations },
                "spec": { "containers": [container], "volumes": all },
            });
            verdict("", &pod.to_string()).problems.join("; ")
        };
        let (none, mounted) = ("[]", r#"[{ "name": "c", "mountPath": "/run/virtlet/seed/c" }]"#);
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUm me";
        let uuid = "53008994-44c0-4017-ad44-9c49758083da";
        let long = format!("#!/bin/sh\n{}", "x".repeat(2 << 20));
        let source = "VirtletCloudInitUserDataSource";
        for (annotations, volumes, why) in [
            (serde_json::json!({ source: "volume/c" }), none, "no volume \"c\" is mounted in this container"),
            (serde_json::json!({ source: "volume/c" }), mounted, ""),
            (
                serde_json::json!({ source: "volume/c", "VirtletCloudInitUserDataScript": "#!/bin/sh" }),
                mounted,
                "user-data is no cloud-config, so it cannot be merged",
            ),
            (
                serde_json::json!({
                    source: "volume/c", "VirtletCloudInitUserDataScript": "#!/bin/sh", "VirtletCloudInitUserDataOverwrite": "true",
                }),
                mounted,
                "",
            ),
            (
                serde_json::json!({ "VirtletCloudInitImageType": "none", "VirtletSSHKeys": key }),
                none,
                "needs cloud-init: SSH keys",
            ),
            (
                serde_json::json!({ "VirtletCloudInitImageType": "none", "VirtletSSHKeySource": "volume/c" }),
                mounted,
                "needs cloud-init: SSH keys",
            ),
            (
                serde_json::json!({ "VirtletCloudInitImageType": "ignition", "virtlet.cloud/network-config": "static" }),
                none,
                "needs cloud-init: virtlet.cloud/network-config: static",
            ),
            (serde_json::json!({ "VirtletCloudInitUserDataScript": long }), none, "user-data is 2.1 MiB, limit 2 MiB"),
            (
                serde_json::json!({ "VirtletCloudInitUserData": "bootcmd: no list" }),
                none,
                "user-data has `bootcmd`, and cannot be merged",
            ),
            // The source may turn vendor-data off.
            (serde_json::json!({ source: "volume/c", "VirtletCloudInitUserData": "bootcmd: no list" }), mounted, ""),
            (
                serde_json::json!({
                    "VirtletCloudInitImageType": "configdrive", "VirtletSystemUUID": uuid,
                    "VirtletCloudInitMetaData": format!("uuid: {uuid}"),
                }),
                none,
                "`uuid` is the machine's own",
            ),
        ] {
            let told = pod(&annotations, volumes);
            assert!(if why.is_empty() { told.is_empty() } else { told.contains(why) }, "{why}: {told}");
        }
    }

    proptest! {
        #[test]
        fn a_pod_has_exactly_what_it_says_or_every_reason_is_told(
            vcpus in select(vec![None, Some("1"), Some("16"), Some("0"), Some("x"), Some("256")]),
            bus in select(vec![None, Some("virtio"), Some("sata"), Some("ide")]),
            size in select(vec![None, Some("3Gi"), Some("much")]),
            memory in select(vec![None, Some("512Mi")]),
            script in select(vec![None, Some("#!/bin/sh"), Some("\0")]),
        ) {
            let given = [
                ("VirtletVCPUCount", vcpus, vcpus.is_none_or(|it| ["1", "16"].contains(&it))),
                ("VirtletDiskDriver", bus, bus != Some("ide")),
                ("VirtletRootVolumeSize", size, size != Some("much")),
                ("VirtletCloudInitUserDataScript", script, script != Some("\0")),
            ];
            let annotations: BTreeMap<String, String> = (given.iter())
                .filter_map(|(key, value, _)| Some(((*key).to_owned(), (*value)?.to_owned())))
                .collect();
            let limits = memory.map(|memory| serde_json::json!({ "limits": { "memory": memory } }));
            let pod = serde_json::json!({
                "kind": "Pod", "metadata": { "name": "p", "annotations": annotations },
                "spec": { "containers": [{ "name": "vm", "image": "x", "resources": limits }] },
            });
            let verdict = verdict("", &pod.to_string());
            let wrong: Vec<_> = given.iter().filter(|(.., fine)| !fine).map(|(key, ..)| *key).collect();
            prop_assert_eq!(verdict.problems.len(), wrong.len(), "{:?}", verdict);
            for key in &wrong {
                prop_assert!(verdict.problems.iter().any(|problem| problem.contains(key)), "{key}: {:?}", verdict);
            }
            if wrong.is_empty() {
                prop_assert_eq!(&*setting(&verdict, "vCPUs").value, vcpus.unwrap_or("1"));
                prop_assert_eq!(&*setting(&verdict, "disk bus").value, bus.unwrap_or("virtio"));
                let disk = size.map_or("as large as the image says", |_| "3072 MiB, or what the image or the disk had if that is more");
                prop_assert_eq!(&*setting(&verdict, "root disk").value, disk);
                let limited = setting(&verdict, "guest memory").from.contains("resources.limits.memory");
                prop_assert_eq!(limited, memory.is_some());
                prop_assert_eq!(verdict.settings.iter().any(|it| it.name == "user-data"), script.is_some());
            }
        }
    }
}
