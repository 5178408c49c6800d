//! Which PCI device a network is about, by everything that names one, and what is asked of it.
//!
//! Called after ADD, for our own networks and for Multus' delegates. A device is named by
//! - the result: `interfaces[].pciID` (CNI 1.1.0);
//! - whoever asked for the network: `deviceID` of a pod's annotation, or of the configuration that Multus gave to a delegate
//!   (`deviceID`, `pciBusID`, `runtimeConfig.deviceID`);
//! - the device-info file that Multus names to a delegate (Kubernetes Network Plumbing WG, device information
//!   specification 1.1.0: `pci.pci-address`).
//!
//! Devices are never told by their order, and two sources that disagree are an error that names both.

#[cfg(any(test, feature = "exercise"))]
mod exercise;

use std::collections::BTreeMap;
use std::path::Path;

use common::Reason;
use proto::tap::{IfName, MacAddr};
use serde::Deserialize;
use serde_json::{Map, Value};
use sriov::PciAddr;
use sriov::settings::VfSettings;
use sriov::settings::input::Input;

use super::conf::NetworkList;
use super::conf::dir::read_bounded;
use super::result::{Interface, ResultView};

#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;

/// Longest device-info file. One has some hundred bytes.
const MAX_INFO: u64 = 64 << 10;
/// Keys of a configuration that name the device, those of plugins and of libraries.
const KEYS: [&str; 2] = ["deviceID", "pciBusID"];
/// Where Multus names the device-info file, in the capability arguments of a delegate.
const INFO_FILE: &str = "CNIDeviceInfoFile";

/// A device that a network gave to the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// Where it is.
    pub(crate) addr: PciAddr,
    /// The address that its NIC is to have, if the result says one.
    pub(crate) mac: Option<MacAddr>,
    /// The MTU that the result says.
    pub(crate) mtu: Option<u32>,
    /// Who named it, for people.
    pub(crate) by: String,
}

/// What a network's configuration and whoever asked for it say of devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Each address with who says it.
    named: Vec<(String, String)>,
    /// Settings of the VF that are asked for by name.
    pub(crate) asked: VfSettings,
}

/// A device-info file, as far as it is about PCI devices.
#[derive(Debug, Deserialize)]
struct Info {
    #[serde(rename = "type")]
    kind: String,
    pci: Option<InfoPci>,
}

#[derive(Debug, Deserialize)]
struct InfoPci {
    #[serde(rename = "pci-address")]
    address: String,
}

// === impl Said ===

impl Said {
    /// What the configuration of a network says, and the annotation that asked for it.
    pub(crate) fn of(list: &NetworkList, asked: Option<&str>) -> Result<Self, Reason> {
        let mut said = Self::default();
        if let Some(asked) = asked {
            said.named.push(("the pod's annotation".to_owned(), asked.to_owned()));
        }
        for plugin in list.plugins() {
            said.add(&plugin.kind, &plugin.conf)?;
        }
        Ok(said)
    }

    /// What Multus' cache says of a delegate: its configuration, and the arguments of its capabilities.
    pub(super) fn of_delegate(conf: Option<&Value>, arguments: &Map<String, Value>) -> Result<Self, Reason> {
        let mut said = Self::default();
        let plugins = conf.and_then(|conf| conf.get("plugins")).and_then(Value::as_array);
        let single = conf.filter(|_| plugins.is_none());
        for conf in plugins.into_iter().flatten().chain(single).filter_map(Value::as_object) {
            let kind = conf.get("type").and_then(Value::as_str).unwrap_or("unknown");
            said.add(kind, conf)?;
        }
        said.name("Multus", arguments.get("deviceID"));
        if let Some(path) = arguments.get(INFO_FILE).and_then(Value::as_str).filter(|path| !path.is_empty())
            && let Some(address) = info_file(Path::new(path))?
        {
            said.named.push((format!("device-info file `{path}`"), address));
        }
        Ok(said)
    }

    fn add(&mut self, kind: &str, conf: &Map<String, Value>) -> Result<(), Reason> {
        let runtime = conf.get("runtimeConfig").and_then(|runtime| runtime.get("deviceID"));
        for named in KEYS.iter().map(|key| conf.get(*key)).chain([runtime]) {
            self.name(&format!("the configuration of plugin `{kind}`"), named);
        }
        let word = |key| conf.get(key).and_then(Value::as_str).filter(|word| !word.is_empty());
        let input = Input { spoofchk: word("spoofchk"), trust: word("trust"), ..Input::default() };
        let unusable = || Reason::new(format!("the configuration of plugin `{kind}` asks for what no VF can have"));
        let asked = input.settings().map_err(|cause| unusable().with(cause))?;
        asked.attributes().for_each(|attribute| self.asked.set(attribute));
        Ok(())
    }

    fn name(&mut self, by: &str, address: Option<&Value>) {
        if let Some(address) = address.and_then(Value::as_str).filter(|address| !address.is_empty()) {
            self.named.push((by.to_owned(), address.to_owned()));
        }
    }

    /// The devices of the pod's links, by the links' names.
    pub(crate) fn devices(&self, network: &str, view: &ResultView) -> Result<BTreeMap<IfName, Device>, Reason> {
        let of_network = |problem: String| Reason::new(format!("network `{network}`: {problem}"));
        let parse = |by: &str, text: &str| -> Result<PciAddr, Reason> {
            text.parse().map_err(|cause| of_network(format!("{by} names a device")).with(cause))
        };
        let mut named: Option<(String, PciAddr)> = None;
        for (by, text) in &self.named {
            // Auxiliary devices and such have names of another form; those of PCI have a colon.
            if !text.contains(':') {
                continue;
            }
            let addr = parse(by, text)?;
            match &named {
                Some((other, known)) if *known != addr => return Err(of_network(disagree(other, *known, by, addr))),
                Some(_) => {}
                None => named = Some((by.clone(), addr)),
            }
        }
        let inside: Vec<&Interface> = view.interfaces.iter().filter(|interface| interface.sandbox.is_some()).collect();
        let mut devices = BTreeMap::new();
        for interface in &inside {
            let by_result = match &interface.pci {
                Some(text) => Some(("the result".to_owned(), parse("the result", text)?)),
                None => None,
            };
            // A name for the whole network is of its one link.
            let by_name = named.as_ref().filter(|_| inside.len() == 1);
            let (by, addr) = match (by_result, by_name) {
                (Some((by, addr)), Some((other, known))) if *known != addr => {
                    return Err(of_network(disagree(other, *known, &by, addr)));
                }
                (Some((by, addr)), _) => (by, addr),
                (None, Some((by, addr))) => (by.clone(), *addr),
                (None, None) => continue,
            };
            let device = Device { addr, mac: interface.mac, mtu: interface.mtu, by };
            devices.insert(interface.name.clone(), device);
        }
        Ok(devices)
    }
}

fn disagree(one: &str, known: PciAddr, other: &str, addr: PciAddr) -> String {
    format!("{one} names the device `{known}` and {other} `{addr}`; have the device plugin and the network agree")
}

/// The address in a device-info file; `None` if it is about another kind of device, or not there.
fn info_file(path: &Path) -> Result<Option<String>, Reason> {
    let unusable = || Reason::new(format!("device-info file `{}` cannot be used", path.display()));
    let bytes = match read_bounded(path, MAX_INFO) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(unusable().with(Reason::new("it is no file of at most 64 KiB"))),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(unusable().with(cause)),
    };
    device_info(&bytes).map_err(|cause| unusable().with(cause))
}

/// The PCI address that a device-info file holds; `None` if it is about another kind of device.
pub(super) fn device_info(bytes: &[u8]) -> Result<Option<String>, serde_json::Error> {
    let info: Info = serde_json::from_slice(bytes)?;
    Ok(info.pci.filter(|_| info.kind == "pci").map(|pci| pci.address))
}

#[cfg(test)]
mod tests;
