use std::fs;

use vmspec::ProcessConfig;
use vmspec::settings::{Given, MachineDefaults};

use super::vfio::tests::{CARD, SOUND, node};
use super::*;

const CDI_FILE: &str = r#"{
    "cdiVersion": "0.6.0", "kind": "example.com/any",
    "devices": [
        {"name": "disk", "containerEdits": {
            "env": ["DISK=/dev/of-cdi", "MODE=cdi"],
            "deviceNodes": [{"path": "/dev/of-cdi", "hostPath": "/dev/loop3", "permissions": "r"}],
            "mounts": [{"hostPath": "/opt/x", "containerPath": "/x", "options": ["ro"]}]
        }},
        {"name": "card", "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/1"}, {"path": "/dev/vfio/vfio"}]}},
        {"name": "hooked", "containerEdits": {
            "deviceNodes": [{"path": "/dev/loop4"}], "hooks": [{"hookName": "createContainer", "path": "/bin/hook"}]
        }}
    ]
}"#;

fn node_with_cdi() -> (tempfile::TempDir, Node) {
    let dir = node(&[(1, &[(CARD, "0x030000", "vfio-pci"), (SOUND, "0x040300", "vfio-pci")])]);
    fs::create_dir_all(dir.path().join("run/cdi")).expect("made");
    fs::write(dir.path().join("run/cdi/any.json"), CDI_FILE).expect("written");
    let node = Node::below(dir.path());
    (dir, node)
}

fn device(host_path: &str) -> Device {
    Device { host_path: host_path.into(), container_path: host_path.into(), read_only: false }
}

fn with(nodes: &[&str], cdi: &[&str]) -> ContainerConfig {
    ContainerConfig {
        devices: nodes.iter().map(|path| device(path)).collect(),
        cdi: cdi.iter().map(|name| format!("example.com/any={name}")).collect(),
        process: ProcessConfig { env: vec!["MODE=pod".into(), "A=1".into()], ..ProcessConfig::default() },
        ..ContainerConfig::default()
    }
}

fn handler(defaults: MachineDefaults) -> Handler {
    Handler { name: "lab".into(), defaults }
}

#[test]
fn nodes_become_devices_disks_or_nothing() {
    let (_dir, node) = node_with_cdi();
    let volume = "/var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~csi/v";
    let config = with(&["/dev/kvm", "/dev/vfio/1", "/dev/vfio/vfio", volume, "/dev/kvm", "/dev/vfio/1"], &[]);
    let found = node.find(&config, "u", &Handler::default()).expect("found");
    assert_eq!(found.tokens, ["/dev/kvm", "/dev/vfio/vfio"]);
    assert_eq!(found.config.devices, [device(volume)]);
    assert_eq!(found.held.len(), 1);
    let held = &found.held[0];
    let devices: Vec<_> = held.devices.iter().map(ToString::to_string).collect();
    assert_eq!(
        (held.node.as_str(), held.by_cdi, &devices[..]),
        ("/dev/vfio/1", false, &[CARD.into(), SOUND.into()][..])
    );
}

#[test]
fn what_cdi_says_is_as_if_kubelet_had_said_it() {
    let (_dir, node) = node_with_cdi();
    let found = node.find(&with(&[], &["disk", "card"]), "u", &Handler::default()).expect("found");
    assert_eq!(found.config.process.env, ["A=1", "DISK=/dev/of-cdi", "MODE=cdi"]);
    let read_only = Device { container_path: "/dev/of-cdi".into(), read_only: true, ..device("/dev/loop3") };
    assert_eq!(found.config.devices, [read_only]);
    assert_eq!((found.config.mounts[0].container_path.as_str(), found.config.mounts[0].readonly), ("/x", true));
    assert_eq!((found.held.len(), found.held[0].by_cdi, &*found.tokens), (1, true, &["/dev/vfio/vfio".to_owned()][..]));
}

#[test]
fn what_a_vm_cannot_have_is_refused_unless_the_handler_has_it_ignored() {
    let (_dir, node) = node_with_cdi();
    let refused = |config: &ContainerConfig| {
        let error = node.find(config, "u", &handler(MachineDefaults::default())).expect_err("refused");
        assert_eq!(error.kind(), Kind::State);
        common::Chain(&error).to_string()
    };
    let all = [refused(&with(&[], &["hooked"])), refused(&with(&["/dev/vfio/7"], &[]))];
    insta::assert_snapshot!(all.join("\n"), @r#"
    the CDI devices example.com/any=hooked ask for `hooks`, which a VM cannot have; `cdi_edits = "ignore"` of runtime handler `lab` would give it the devices without
    device `/dev/vfio/7` cannot be given to a VM: the kernel has no such file; the device plugin names one that is gone
    "#);
    let ignores = MachineDefaults { cdi_edits: Given::Value(CdiEdits::Ignore), ..MachineDefaults::default() };
    let found = node.find(&with(&[], &["hooked"]), "u", &handler(ignores)).expect("found");
    assert_eq!(found.config.devices, [device("/dev/loop4")]);
}

#[test]
fn a_handler_may_refuse_all_but_volumes_and_what_gives_nothing() {
    let (_dir, node) = node_with_cdi();
    let handler = handler(MachineDefaults { host_devices: Some(false), ..MachineDefaults::default() });
    let volume = "/var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~csi/v";
    node.find(&with(&[volume, "/dev/kvm"], &[]), "u", &handler).expect("no device of the node");
    for config in [with(&["/dev/loop3"], &[]), with(&[&volume.replace("/u/", "/w/")], &[]), with(&[], &["disk"])] {
        let error = node.find(&config, "u", &handler).expect_err("refused");
        assert_eq!(error.kind(), Kind::Denied, "{error}");
    }
}
