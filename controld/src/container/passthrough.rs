//! Whether what a device plugin allocated to a container is what the pod's networks gave it, and whether its machine can
//! have that. Pure.
//!
//! Networks are made with the sandbox, and the container, which comes later, names the devices that kubelet allocated
//! (`PCIDEVICE_<resource>` of the SR-IOV network device plugin: addresses, joined by commas). They are the same devices,
//! or a guest would be given somebody else's: a difference is an error that names both.

use std::collections::BTreeSet;

use proto::tap::{PciAddress, PodNet};

use crate::model::ContainerConfig;
use crate::model::error::{Error, Kind, Result};
use crate::model::plan::Memory;

/// Variables that hold addresses. Those that end with [`INFO`] hold JSON about them.
const ALLOCATED: &str = "PCIDEVICE_";
const INFO: &str = "_INFO";

/// Checks a container against its pod's network.
///
/// # Errors
/// When devices differ, or the memory is to grow.
pub(super) fn check(net: Option<&PodNet>, config: &ContainerConfig, memory: Memory) -> Result<()> {
    let given: BTreeSet<PciAddress> = net.into_iter().flat_map(PodNet::vfio).map(|vfio| vfio.device).collect();
    for (name, value) in config.process.env.iter().filter_map(|variable| variable.split_once('=')) {
        if !name.starts_with(ALLOCATED) || name.ends_with(INFO) {
            continue;
        }
        for text in value.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let device: PciAddress = text.parse().map_err(|cause| {
                let what = format!("`{name}` names a device that is no PCI device, which a machine cannot have");
                Error::because(Kind::Invalid, what, cause)
            })?;
            if !given.contains(&device) {
                return Err(invalid(format!(
                    "kubelet allocated the device `{device}` (`{name}`), and the pod's networks gave it {}; have the \
                     network's `deviceID` come from this resource (Multus does that by the network's annotation \
                     `k8s.v1.cni.cncf.io/resourceName`). Other devices cannot be passed through yet",
                    listed(&given)
                )));
            }
        }
    }
    if config.vfio && given.is_empty() {
        return Err(invalid(
            "the container has device nodes of VFIO, and its pod no network with a virtual function; other devices \
             cannot be passed through yet"
                .to_owned(),
        ));
    }
    if memory.boot < memory.max && !given.is_empty() {
        return Err(invalid(format!(
            "the machine's memory is to grow (`virtlet.cloud/max-memory`), and all of it would be taken at once for the \
             virtual function {}; leave the annotation out",
            listed(&given)
        )));
    }
    Ok(())
}

fn listed(devices: &BTreeSet<PciAddress>) -> String {
    if devices.is_empty() {
        return "none".to_owned();
    }
    devices.iter().map(|device| format!("`{device}`")).collect::<Vec<_>>().join(", ")
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use proto::tap::{Dns, MacAddr, Nic, NicKind, Vfio};

    use super::*;
    use crate::model::ProcessConfig;

    const FIXED: Memory = Memory { boot: 1, max: 1 };

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

    fn container(env: &[&str]) -> ContainerConfig {
        let env = env.iter().map(|variable| (*variable).to_owned()).collect();
        ContainerConfig { process: ProcessConfig { env, ..ProcessConfig::default() }, ..ContainerConfig::default() }
    }

    #[test]
    fn what_was_allocated_is_what_the_networks_gave() {
        let two = net(&["0000:01:10.0", "0000:01:10.2"]);
        for env in [
            &[][..],
            &["PATH=/bin", "PCIDEVICE_INTEL_COM_VF=0000:01:10.0"],
            &["PCIDEVICE_A=0000:01:10.2, 0000:01:10.0", "PCIDEVICE_A_INFO={\"0000:09:00.0\":{}}"],
        ] {
            check(Some(&two), &container(env), FIXED).expect("the same devices");
        }
        for (env, said) in [
            (
                "PCIDEVICE_A=0000:01:10.4",
                "`0000:01:10.4` (`PCIDEVICE_A`), and the pod's networks gave it `0000:01:10.0`, `0000:01:10.2`",
            ),
            ("PCIDEVICE_A=mlx5_core.sf.4", "no PCI device"),
        ] {
            let error = check(Some(&two), &container(&[env]), FIXED).expect_err("differs").to_string();
            assert!(error.contains(said), "{error}");
        }
        let none = check(None, &container(&["PCIDEVICE_A=0000:01:10.4"]), FIXED).expect_err("none").to_string();
        assert!(none.contains("gave it none"), "{none}");
    }

    #[test]
    fn nodes_of_vfio_are_of_a_virtual_function() {
        let config = ContainerConfig { vfio: true, ..container(&[]) };
        check(Some(&net(&["0000:01:10.0"])), &config, FIXED).expect("its own");
        assert_eq!(check(Some(&net(&[])), &config, FIXED).expect_err("whose?").kind(), Kind::Invalid);
    }

    #[test]
    fn memory_that_is_pinned_does_not_grow() {
        let growing = Memory { boot: 1, max: 2 };
        check(Some(&net(&[])), &container(&[]), growing).expect("no device");
        let error = check(Some(&net(&["0000:01:10.0"])), &container(&[]), growing).expect_err("pinned");
        assert!(error.to_string().contains("virtlet.cloud/max-memory"), "{error}");
    }
}
