//! Which devices a machine is given beside what its pod's networks gave it, and whether all who name devices agree. Pure.
//!
//! Networks are made with the sandbox, and the container, which comes later, names the devices that kubelet allocated: by nodes of VFIO, and by
//! variables (`PCIDEVICE_<resource>` of the SR-IOV network device plugin, `PCI_RESOURCE_<resource>` and `MDEV_PCI_RESOURCE_<resource>` as
//! KubeVirt's plugins have them: addresses or UUIDs, joined by commas). They are the same devices, or a guest would be given somebody
//! else's: a difference is an error that names both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use proto::tap::PodNet;
use vmspec::error::{Error, Kind, Result};
use vmspec::host::check_handler;
use vmspec::plan::{Memory, Passed, PassedDevice};
use vmspec::settings::Handler;

use super::{Found, Held};

/// Variables that hold addresses. Those that end with [`INFO`] hold JSON about them.
const ALLOCATED: [&str; 2] = ["PCIDEVICE_", "PCI_RESOURCE_"];
const INFO: &str = "_INFO";
/// Variables that hold UUIDs.
const PARTS: &str = "MDEV_PCI_RESOURCE_";
/// Slots for NICs and for devices that are passed through.
const SLOTS: usize = 15;

/// What the machine of a container is given, by what was found of its devices and what its pod's networks gave it.
///
/// # Errors
/// When devices differ, or the machine cannot have them.
pub(crate) fn agree(net: Option<&PodNet>, found: &Found, memory: Memory, handler: &Handler) -> Result<Passed> {
    let given: BTreeSet<_> =
        net.into_iter().flat_map(PodNet::vfio).map(|vfio| PassedDevice::Pci(vfio.device)).collect();
    let named = named(&found.config.process.env)?;
    let held: BTreeSet<_> = found.held.iter().flat_map(|held| &held.devices).collect();
    if let Some((device, name)) = named.iter().find(|(device, _)| !given.contains(device) && !held.contains(device)) {
        return Err(invalid(format!(
            "kubelet allocated the device `{device}` (`{name}`), and the pod's networks gave it {}, its device nodes {}; have a \
             network's `deviceID` come from this resource (Multus does that by the network's annotation \
             `k8s.v1.cni.cncf.io/resourceName`), or the device plugin give the nodes of VFIO",
            listed(&given),
            listed(&held)
        )));
    }
    let are_others_named = named.keys().any(|device| !given.contains(device));
    let mut devices = Vec::new();
    for Held { node, by_cdi, devices: all } in &found.held {
        // Of a group that has several, those are meant that are named; the others are held for them.
        let is_named = all.iter().any(|device| named.contains_key(device));
        let is_meant = |device: &PassedDevice| !is_named || named.contains_key(device);
        let of_node: Vec<_> = all.iter().filter(|device| is_meant(device) && !given.contains(device)).collect();
        if !is_named && !of_node.is_empty() && are_others_named && !by_cdi {
            let names: Vec<_> = named.values().map(|name| format!("`{name}`")).collect();
            return Err(invalid(format!(
                "kubelet gave the container `{node}`, which is {}, and its variables ({}) name {}; they have to be the same devices",
                listed(all),
                names.join(", "),
                listed(named.keys())
            )));
        }
        for device in of_node {
            check_handler(node, handler)?;
            if !devices.contains(device) {
                devices.push(*device);
            }
        }
    }
    if memory.boot < memory.max && !(given.is_empty() && devices.is_empty()) {
        return Err(invalid(format!(
            "the machine's memory is to grow (`virtlet.cloud/max-memory`), and all of it would be taken at once for {}, which is \
             passed through; leave the annotation out",
            listed(given.iter().chain(&devices))
        )));
    }
    let nics = net.map_or(0, |net| net.nics.len());
    if !devices.is_empty() && nics + devices.len() > SLOTS {
        let count = devices.len();
        return Err(invalid(format!(
            "the VM would have {nics} NICs and {count} devices of the node, and there are slots for {SLOTS} together"
        )));
    }
    Ok(Passed { devices, tokens: found.tokens.clone() })
}

/// The devices that variables name, each with the last of those that do.
fn named(env: &[String]) -> Result<BTreeMap<PassedDevice, &str>> {
    let mut named = BTreeMap::new();
    for (name, value) in env.iter().filter_map(|variable| variable.split_once('=')) {
        let is_part = name.starts_with(PARTS);
        if !is_part && !ALLOCATED.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with(INFO) {
            continue;
        }
        for text in value.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let device = if is_part {
                text.parse().map(PassedDevice::Mdev).map_err(|cause| no_device(name, "mediated", cause))
            } else {
                text.parse().map(PassedDevice::Pci).map_err(|cause| no_device(name, "PCI", cause))
            };
            named.insert(device?, name);
        }
    }
    Ok(named)
}

fn no_device(name: &str, kind: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    let what = format!("`{name}` names a device that is no {kind} device, which a machine cannot have");
    Error::because(Kind::Invalid, what, cause)
}

fn listed<T: Display>(devices: impl IntoIterator<Item = T>) -> String {
    let all: Vec<_> = devices.into_iter().map(|device| format!("`{device}`")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use proto::tap::{Dns, MacAddr, Nic, NicKind, Vfio};
    use vmspec::settings::MachineDefaults;
    use vmspec::{ContainerConfig, ProcessConfig};

    use super::*;

    const FIXED: Memory = Memory { boot: 1, max: 1 };
    const ONE: &str = "0000:01:10.0";
    const TWO: &str = "0000:01:10.2";
    const OTHER: &str = "0000:01:10.4";
    const PART: &str = "b1a8b1a8-0000-4000-8000-000000000001";

    fn net(devices: &[&str]) -> PodNet {
        let nic = |device: &&str| Nic {
            name: "net1".parse().expect("name"),
            network: "fast".into(),
            mac: MacAddr::new([2, 0, 0, 0, 0, 1]).expect("mac"),
            mtu: 1500,
            kind: NicKind::Vfio(Vfio { device: device.parse().expect("address") }),
            addresses: Vec::new(),
            routes: Vec::new(),
        };
        PodNet { netns: "/run/netns/x".into(), nics: devices.iter().map(nic).collect(), dns: Dns::default() }
    }

    fn device(text: &str) -> PassedDevice {
        text.parse().map_or_else(|_| PassedDevice::Mdev(text.parse().expect("a UUID")), PassedDevice::Pci)
    }

    /// A container with these variables and nodes. Nodes of CDI have names that begin with `cdi`.
    fn found(env: &[&str], nodes: &[(&str, &[&str])]) -> Found {
        let env = env.iter().map(|variable| (*variable).to_owned()).collect();
        let held = |(node, devices): &(&str, &[&str])| Held {
            node: (*node).to_owned(),
            by_cdi: node.starts_with("cdi"),
            devices: devices.iter().map(|text| device(text)).collect(),
        };
        Found {
            config: ContainerConfig {
                process: ProcessConfig { env, ..ProcessConfig::default() },
                ..ContainerConfig::default()
            },
            held: nodes.iter().map(held).collect(),
            tokens: Vec::new(),
        }
    }

    fn passed(net: &PodNet, found: &Found) -> Result<Vec<String>> {
        let passed = agree(Some(net), found, FIXED, &Handler::default())?;
        Ok(passed.devices.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_was_allocated_is_what_the_networks_gave() {
        let two = net(&[ONE, TWO]);
        for env in [
            &[][..],
            &["PATH=/bin", "PCIDEVICE_INTEL_COM_VF=0000:01:10.0"],
            &["PCIDEVICE_A=0000:01:10.2, 0000:01:10.0", "PCIDEVICE_A_INFO={\"0000:09:00.0\":{}}"],
        ] {
            assert!(passed(&two, &found(env, &[])).expect("the same devices").is_empty());
        }
        let refused = |net: &PodNet, env: &str| passed(net, &found(&[env], &[])).expect_err("differs").to_string();
        let all = [
            refused(&two, "PCIDEVICE_A=0000:01:10.4"),
            refused(&net(&[]), "PCIDEVICE_A=0000:01:10.4"),
            refused(&two, "PCIDEVICE_A=mlx5_core.sf.4"),
            refused(&two, "MDEV_PCI_RESOURCE_A=0000:01:10.0"),
        ];
        insta::assert_snapshot!(all.join("\n"), @"
        kubelet allocated the device `0000:01:10.4` (`PCIDEVICE_A`), and the pod's networks gave it `0000:01:10.0`, `0000:01:10.2`, its device nodes none; have a network's `deviceID` come from this resource (Multus does that by the network's annotation `k8s.v1.cni.cncf.io/resourceName`), or the device plugin give the nodes of VFIO
        kubelet allocated the device `0000:01:10.4` (`PCIDEVICE_A`), and the pod's networks gave it none, its device nodes none; have a network's `deviceID` come from this resource (Multus does that by the network's annotation `k8s.v1.cni.cncf.io/resourceName`), or the device plugin give the nodes of VFIO
        `PCIDEVICE_A` names a device that is no PCI device, which a machine cannot have
        `MDEV_PCI_RESOURCE_A` names a device that is no mediated device, which a machine cannot have
        ");
    }

    #[test]
    fn nodes_are_devices_of_the_guest_but_those_of_its_networks() {
        let one = net(&[ONE]);
        for (env, nodes, given) in [
            (&[][..], &[("/dev/vfio/1", &[ONE][..])][..], &[][..]),
            (&[], &[("/dev/vfio/1", &[ONE]), ("/dev/vfio/2", &[TWO])], &[TWO]),
            (&["PCIDEVICE_A=0000:01:10.0"], &[("/dev/vfio/1", &[ONE, TWO])], &[]),
            (&["PCIDEVICE_A=0000:01:10.2"], &[("/dev/vfio/2", &[TWO])], &[TWO]),
            (&["PCI_RESOURCE_A=0000:01:10.2"], &[("/dev/vfio/2", &[TWO, OTHER])], &[TWO]),
            (&["MDEV_PCI_RESOURCE_A=b1a8b1a8-0000-4000-8000-000000000001"], &[("/dev/vfio/3", &[PART])], &[PART]),
            (&["PCIDEVICE_A=0000:01:10.0"], &[("/dev/vfio/2", &[TWO])], &[TWO]),
            (
                &["PCI_RESOURCE_A=0000:01:10.2"],
                &[("/dev/vfio/2", &[TWO]), ("cdi", &[OTHER]), ("cdi-again", &[OTHER])],
                &[TWO, OTHER],
            ),
        ] {
            assert_eq!(passed(&one, &found(env, nodes)).expect("agree"), given, "{env:?} {nodes:?}");
        }
    }

    #[test]
    fn nodes_and_variables_that_differ_are_refused_with_both() {
        let refused = |env: &str, nodes: &[(&str, &[&str])]| {
            passed(&net(&[ONE]), &found(&[env], nodes)).expect_err("differs").to_string()
        };
        let all = [
            refused("PCI_RESOURCE_A=0000:01:10.4", &[("/dev/vfio/2", &[TWO])]),
            refused("PCI_RESOURCE_A=0000:01:10.4", &[("/dev/vfio/2", &[TWO]), ("/dev/vfio/4", &[OTHER])]),
            refused("MDEV_PCI_RESOURCE_A=b1a8b1a8-0000-4000-8000-000000000002", &[("/dev/vfio/3", &[PART])]),
        ];
        insta::assert_snapshot!(all.join("\n"), @"
        kubelet allocated the device `0000:01:10.4` (`PCI_RESOURCE_A`), and the pod's networks gave it `0000:01:10.0`, its device nodes `0000:01:10.2`; have a network's `deviceID` come from this resource (Multus does that by the network's annotation `k8s.v1.cni.cncf.io/resourceName`), or the device plugin give the nodes of VFIO
        kubelet gave the container `/dev/vfio/2`, which is `0000:01:10.2`, and its variables (`PCI_RESOURCE_A`) name `0000:01:10.4`; they have to be the same devices
        kubelet allocated the device `b1a8b1a8-0000-4000-8000-000000000002` (`MDEV_PCI_RESOURCE_A`), and the pod's networks gave it `0000:01:10.0`, its device nodes `b1a8b1a8-0000-4000-8000-000000000001`; have a network's `deviceID` come from this resource (Multus does that by the network's annotation `k8s.v1.cni.cncf.io/resourceName`), or the device plugin give the nodes of VFIO
        ");
    }

    #[test]
    fn a_handler_without_devices_of_the_node_has_those_of_networks_alone() {
        let defaults = MachineDefaults { host_devices: Some(false), ..MachineDefaults::default() };
        let handler = Handler { name: "tenant".into(), defaults };
        let nodes = found(&[], &[("/dev/vfio/1", &[ONE])]);
        assert!(agree(Some(&net(&[ONE])), &nodes, FIXED, &handler).expect("the network's").is_empty());
        let error = agree(Some(&net(&[])), &nodes, FIXED, &handler).expect_err("the node's");
        assert_eq!(error.kind(), Kind::Denied);
        assert!(error.to_string().contains("`/dev/vfio/1`: VMs of runtime handler `tenant`"), "{error}");
    }

    #[test]
    fn memory_that_is_pinned_does_not_grow() {
        let growing = Memory { boot: 1, max: 2 };
        let check = |net: &PodNet, nodes: &[(&str, &[&str])]| {
            agree(Some(net), &found(&[], nodes), growing, &Handler::default())
        };
        check(&net(&[]), &[]).expect("no device");
        for error in [check(&net(&[ONE]), &[]), check(&net(&[]), &[("/dev/vfio/1", &[ONE])])] {
            let error = error.expect_err("pinned").to_string();
            assert!(error.contains("virtlet.cloud/max-memory") && error.contains(ONE), "{error}");
        }
    }

    #[test]
    fn there_are_as_many_as_there_are_slots() {
        let many: Vec<String> = (0..15).map(|n| format!("0000:02:{n:02x}.0")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(passed(&net(&[]), &found(&[], &[("/dev/vfio/1", &many)])).expect("fit").len(), 15);
        let error = passed(&net(&[ONE]), &found(&[], &[("/dev/vfio/1", &many)])).expect_err("no slot").to_string();
        assert!(error.contains("1 NICs and 15 devices"), "{error}");
    }
}
