//! What a guest finds in its machine beside what the manifest has a field for: what its runtime handler and its pod's description add. Pure.
//!
//! QEMU tells of a device that is not there only amid reading a memory, and of a CPU that has lost features never.

use std::collections::{BTreeMap, BTreeSet};

use proto::tap::IfName;
use proto::vm::Features;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vmspec::plan::{
    CpuFeature, Described, DescribedDevices, DescribedDisk, DescribedNic, DiskCache, Extras, Hardware, MachinePlan,
    Timer, Topology,
};

/// All of it. What is not there is as every machine has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Devices {
    #[serde(flatten)]
    extras: Extras,
    #[serde(skip_serializing_if = "Option::is_none")]
    topology: Option<Topology>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cpu_features: Vec<CpuFeature>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timers: Vec<Timer>,
    #[serde(skip_serializing_if = "is_default")]
    features: Features,
    #[serde(skip_serializing_if = "is_default")]
    use_serial: bool,
    #[serde(skip_serializing_if = "is_default")]
    devices: DescribedDevices,
    /// Without them its balloon tells of pages that are free.
    #[serde(skip_serializing_if = "is_default")]
    huge_pages: bool,
    /// Two ports of its agent's.
    #[serde(skip_serializing_if = "is_default")]
    command: bool,
    #[serde(skip_serializing_if = "is_default")]
    root: DescribedDisk,
    /// By their serials.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    disks: BTreeMap<String, DescribedDisk>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    nics: BTreeMap<IfName, DescribedNic>,
}

/// A thing that two machines do not have alike.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Differs {
    /// As the manifest names it.
    pub(super) name: String,
    pub(super) made: String,
    pub(super) now: String,
}

impl Devices {
    /// Of a plan.
    pub(super) fn of(plan: &MachinePlan) -> Self {
        let Hardware { described, extras, .. } = &plan.hardware;
        let Described { topology, cpu_features, clock, features, use_serial, root, disks, nics, devices, .. } =
            described.clone();
        let of_volume = |name: &str| disks.get(name).map(seen).unwrap_or_default();
        let disks = plan.disks.iter().map(|disk| (disk.serial.to_string(), of_volume(&disk.name)));
        let disks = disks.filter(|(_, disk)| !is_default(disk)).collect();
        let nics = nics.into_iter().map(|(link, DescribedNic { slot, acpi_index, .. })| {
            (link, DescribedNic { slot, acpi_index, ..DescribedNic::default() })
        });
        Self {
            extras: extras.clone(),
            topology,
            cpu_features,
            timers: clock.map(|clock| clock.timers).unwrap_or_default(),
            features,
            use_serial,
            // Threads are QEMU's own.
            devices: DescribedDevices { io_threads: None, ..devices },
            huge_pages: plan.huge_page.is_some(),
            command: plan.guest.command.is_some(),
            root: seen(&root),
            disks,
            nics: nics.filter(|(_, nic)| !is_default(nic)).collect(),
        }
    }

    /// Whether it is as every machine.
    pub(super) fn is_default(&self) -> bool {
        is_default(self)
    }

    /// What another machine has not alike.
    pub(super) fn differing(&self, now: &Self) -> Vec<Differs> {
        let (made, now) = (self.named(), now.named());
        let names: BTreeSet<_> = made.keys().chain(now.keys()).collect();
        let differing = names.into_iter().filter(|name| made.get(*name) != now.get(*name));
        let differs =
            |name: &String| Differs { name: name.clone(), made: text(made.get(name)), now: text(now.get(name)) };
        differing.map(differs).collect()
    }

    fn named(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(named)) => named,
            // Its keys are texts.
            _ => Map::new(),
        }
    }
}

/// What of a disk its guest sees, but for its serial and whether it may write to it.
fn seen(disk: &DescribedDisk) -> DescribedDisk {
    let DescribedDisk { is_cd, bus, cache, block_size, slot, .. } = disk;
    // Of the node's cache the guest sees whether it has to flush it.
    let cache = cache.filter(|cache| *cache == DiskCache::Writethrough);
    DescribedDisk { is_cd: *is_cd, bus: *bus, cache, block_size: *block_size, slot: *slot, ..DescribedDisk::default() }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => "the usual".to_owned(),
        Some(Value::String(word)) => word.clone(),
        Some(value) => value.to_string().replace('"', ""),
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use vmspec::plan::{DiskBus, Graphics, Watchdog};

    use super::*;
    use crate::container::tests::container;

    /// Of a machine that was changed so.
    fn changed(change: impl FnOnce(&mut MachinePlan)) -> Devices {
        let mut plan = container("vm", 0).machine;
        change(&mut plan);
        Devices::of(&plan)
    }

    #[test]
    fn all_that_the_guest_finds_is_compared_by_name() {
        type Change = fn(&mut MachinePlan);
        let usual = changed(|_| ());
        assert!(usual.is_default() && usual.differing(&usual).is_empty());
        let cases: &[(Change, &str, &str)] = &[
            (|plan| plan.hardware.extras.graphics = Some(Graphics::Vnc), "graphics", "vnc"),
            (|plan| plan.hardware.extras.watchdog = Some(Watchdog::Itco), "watchdog", "itco"),
            (|plan| plan.hardware.extras.hyperv = true, "hyperv", "true"),
            (|plan| plan.hardware.described.devices.no_balloon = true, "devices", "{no_balloon:true}"),
            (|plan| plan.hardware.described.root.bus = Some(DiskBus::Sata), "root", "{bus:sata}"),
            (|plan| plan.huge_page = Some(2 << 20), "huge_pages", "true"),
        ];
        for (change, name, now) in cases {
            let differs = Differs { name: (*name).into(), made: "the usual".into(), now: (*now).into() };
            assert_eq!(usual.differing(&changed(change)), [differs]);
        }
    }

    #[test]
    fn what_only_the_node_sees_is_not_compared() {
        let same = changed(|plan| {
            let described = &mut plan.hardware.described;
            described.root.boot_order = Some(1);
            described.root.cache = Some(DiskCache::None);
            described.start_paused = true;
            described.serial = "S-1".into();
        });
        assert!(same.is_default(), "{same:?}");
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let made = changed(|plan| {
            plan.hardware.extras.graphics = Some(Graphics::Vnc);
            plan.hardware.described.devices.no_serial = true;
            plan.hardware.described.topology = Some(Topology { sockets: 1, dies: 1, cores: 2, threads: 1 });
        });
        let text = serde_json::to_string(&made).expect("JSON");
        assert_eq!(serde_json::from_str::<Devices>(&text).expect("read"), made);
    }
}
