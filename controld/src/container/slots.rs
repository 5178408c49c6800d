//! Which slots of the root bus a pod's NICs and the devices that kubelet allocated are in, beside disks that are described to be there, and which
//! NICs begin without a carrier. Pure.

use std::collections::BTreeSet;

use proto::tap::PodNet;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Described, SLOTS};

use crate::model::domain::NicPlace;

/// A place for each NIC of the pod, in their order, and slots for so many devices; and by their places in that order, those that are down.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) nics: Vec<NicPlace>,
    pub(super) devices: Vec<usize>,
    pub(super) down: Vec<usize>,
}

impl Slots {
    /// # Errors
    /// When a NIC is described that there is not, or one without a carrier that is a device of the node, or there are too few slots.
    pub(super) fn of(net: &PodNet, devices: usize, described: &Described) -> Result<Self> {
        let links: Vec<_> = net.nics.iter().map(|nic| &nic.name).collect();
        if let Some(link) = described.nics.keys().find(|link| !links.contains(link)) {
            let what = format!("annotation virtlet.k8s/vm: nics: the pod has no link `{link}`");
            return Err(Error::new(Kind::Invalid, what));
        }
        let of_disks = described.disks.values().chain([&described.root]).filter_map(|disk| disk.slot);
        let said: BTreeSet<u8> = described.nics.values().filter_map(|nic| nic.slot).chain(of_disks).collect();
        let mut free = SLOTS.filter(|slot| !said.contains(slot));
        let mut next =
            || free.next().ok_or_else(|| Error::new(Kind::Invalid, "the VM has more NICs and devices than slots"));
        let (mut nics, mut down) = (Vec::new(), Vec::new());
        for (nth, of_pod) in net.nics.iter().enumerate() {
            let link = &of_pod.name;
            let nic = described.nics.get(link).copied().unwrap_or_default();
            if nic.is_down {
                if of_pod.vfio().is_some() {
                    let why = "is a device of the node, whose carrier is the card's; leave `state` out";
                    return Err(Error::new(Kind::Invalid, format!("annotation virtlet.k8s/vm: nics: `{link}` {why}")));
                }
                down.push(nth);
            }
            let slot = nic.slot.map_or_else(&mut next, Ok)?;
            nics.push(NicPlace { slot: slot.into(), boot_order: nic.boot_order, acpi_index: nic.acpi_index });
        }
        let devices = (0..devices).map(|_| next().map(usize::from)).collect::<Result<_>>()?;
        Ok(Self { nics, devices, down })
    }
}

#[cfg(test)]
mod tests {
    use proto::vm::VmDescription;

    use super::*;

    fn of(links: &[&str], devices: usize, nics: &str) -> Result<Slots, String> {
        let nic = |name: &&str| {
            format!(r#"{{"name":"{name}","mac":"02:00:00:00:00:01","mtu":1500,"queues":1,"addresses":[],"routes":[]}}"#)
        };
        let nics_of_pod = links.iter().map(nic).collect::<Vec<_>>().join(",");
        let net = format!(
            r#"{{"netns":"/run/netns/x","nics":[{nics_of_pod}],"dns":{{"servers":[],"searches":[],"options":[]}}}}"#
        );
        let net: PodNet = serde_json::from_str(&net).expect("a network");
        let described = VmDescription::parse(&format!(r#"{{"v":1,"nics":[{nics}]}}"#)).expect(nics);
        Slots::of(&net, devices, &Described::of(described).expect(nics)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_said_is_kept_free_and_the_rest_is_in_order() {
        let plain = of(&["eth0", "net1"], 2, "").expect("fit");
        assert_eq!(plain.nics.iter().map(|nic| nic.slot).collect::<Vec<_>>(), [0x10, 0x11]);
        assert_eq!(plain.devices, [0x12, 0x13]);
        let said = r#"{"name":"a","link":"net1","pciAddress":"0000:00:10.0","bootOrder":1,"state":"down"},{"name":"b","acpiIndex":7}"#;
        let said = of(&["eth0", "net1", "net2"], 1, said).expect("fit");
        let shown: Vec<_> = said.nics.iter().map(|nic| (nic.slot, nic.boot_order, nic.acpi_index)).collect();
        assert_eq!(shown, [(0x11, None, Some(7)), (0x10, Some(1), None), (0x12, None, None)]);
        assert_eq!(said.devices, [0x13]);
        assert_eq!((plain.down, said.down), (vec![], vec![1]));
    }

    #[test]
    fn what_is_not_there_or_has_no_slot_is_told() {
        let absent = of(&["eth0"], 0, r#"{"name":"a","link":"net1","acpiIndex":1}"#).expect_err("no such link");
        assert_eq!(absent, "annotation virtlet.k8s/vm: nics: the pod has no link `net1`");
        of(&["eth0"], 14, "").expect("fifteen slots");
        assert_eq!(of(&["eth0"], 15, "").expect_err("sixteen"), "the VM has more NICs and devices than slots");
    }
}
