//! A node for tests: a sysfs of files, and a kernel that plays netdevs, namespaces and PFs, and can fail or die at any
//! call.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rscni_plugin::test_util::ArgsBuilder;
use rscni_plugin::types::Args;
use serde_json::{Value, json};
use sriov::claim::{Cause, Links, Netdev, Place};
use sriov::settings::{Attribute, ControlError, Kind, LinkState, PfControl, Rate, VfSettings, Vlan};
use sriov::{Mac, PciAddr, Sysfs};
use tempfile::TempDir;

use crate::plugin::failure::Failure;
use crate::plugin::wiring::{Addressing, Wiring};
use crate::plugin::{Places, Sriov};

pub(super) const PF: &str = "0000:3b:00.0";

/// Files and kernel.
pub(super) struct TestNode {
    dir: TempDir,
    pub(super) kernel: Model,
}

/// The kernel. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Model(Arc<Mutex<World>>);

#[derive(Default)]
pub(super) struct World {
    pub(super) netns: BTreeSet<String>,
    pub(super) vfs: BTreeMap<PciAddr, Vf>,
    /// Settings that no PF has.
    pub(super) refused: Vec<Kind>,
    calls: usize,
    /// At which call what goes wrong.
    fault: Option<(usize, Fault)>,
}

/// A VF.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Vf {
    number: u32,
    pub(super) settings: VfSettings,
    pub(super) netdev: Option<Port>,
}

/// Its netdev.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Port {
    /// `None` is the host's.
    pub(super) netns: Option<String>,
    pub(super) netdev: Netdev,
    pub(super) addressing: Addressing,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// That call fails.
    Fail,
    /// That call and all later ones: the plugin was killed.
    Die,
}

// === impl TestNode ===

impl TestNode {
    /// A PF `ens1f0` with `count` VFs of `igbvf`, and one on vfio-pci for each of `vfio`.
    pub(super) fn new(count: u32, vfio: &[u32]) -> Self {
        let dir = TempDir::new().expect("a folder");
        let node = Self { dir, kernel: Model::default() };
        for folder in [
            "sys/bus/pci/devices",
            "sys/bus/pci/drivers/igbvf",
            "sys/bus/pci/drivers/vfio-pci",
            "sys/bus/pci/drivers/igb",
        ] {
            fs::create_dir_all(node.path(folder)).expect("made");
        }
        node.device(
            PF,
            "igb",
            &[("sriov_totalvfs", "8"), ("sriov_numvfs", &count.to_string()), ("sriov_vf_device", "10ca")],
        );
        fs::create_dir_all(node.path(&format!("sys/bus/pci/devices/{PF}/net/ens1f0"))).expect("made");
        for number in 0..count {
            node.vf(number, vfio.contains(&number));
        }
        fs::write(node.path("boot"), "boot-1\n").expect("written");
        node.pools("[pool.blue]\npf = \"ens1f0\"\n[pool.vms]\npf = \"ens1f0\"\ndriver = \"vfio-pci\"\n");
        for netns in ["/run/netns/a", "/run/netns/b"] {
            node.kernel.world().netns.insert(netns.to_owned());
        }
        node
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn pools(&self, text: &str) {
        fs::write(self.path("sriov.toml"), text).expect("written");
    }

    pub(super) fn reboot(&self) {
        let before = fs::read_to_string(self.path("boot")).expect("read");
        fs::write(self.path("boot"), format!("again-{before}")).expect("written");
    }

    /// Gives a VF another driver.
    pub(super) fn bind(&self, number: u32, driver: &str) {
        let link = self.path(&format!("sys/bus/pci/devices/{}/driver", vf(number)));
        fs::remove_file(&link).expect("removed");
        symlink(format!("../../drivers/{driver}"), link).expect("linked");
    }

    fn device(&self, addr: &str, driver: &str, files: &[(&str, &str)]) {
        let folder = self.path(&format!("sys/bus/pci/devices/{addr}"));
        fs::create_dir(&folder).expect("made");
        symlink(format!("../../drivers/{driver}"), folder.join("driver")).expect("linked");
        for (file, text) in files.iter().chain(&[("vendor", "0x8086"), ("device", "0x1521")]) {
            fs::write(folder.join(file), format!("{text}\n")).expect("written");
        }
    }

    fn vf(&self, number: u32, vfio: bool) {
        let addr = vf(number);
        self.device(&addr.to_string(), if vfio { "vfio-pci" } else { "igbvf" }, &[]);
        let devices = self.path("sys/bus/pci/devices");
        symlink(format!("../{PF}"), devices.join(addr.to_string()).join("physfn")).expect("linked");
        symlink(format!("../{addr}"), devices.join(PF).join(format!("virtfn{number}"))).expect("linked");
        let netdev = Netdev {
            name: format!("ens1f0v{number}"),
            index: 100 + number,
            mac: own_mac(number),
            mtu: 1500,
            up: false,
            extra: None,
        };
        let port = Port { netns: None, netdev, addressing: Addressing::default() };
        let settings = VfSettings {
            vlan: Some(Vlan { id: 77, ..Vlan::default() }),
            mac: Some(Mac([0; 6])),
            rate: Some(Rate::default()),
            spoofchk: Some(true),
            trust: Some(true),
            link_state: Some(LinkState::Auto),
        };
        self.kernel.world().vfs.insert(addr, Vf { number, settings, netdev: (!vfio).then_some(port) });
    }

    pub(super) fn plugin(&self) -> Sriov<impl Fn() -> Result<Model, Failure> + use<>> {
        let kernel = self.kernel.clone();
        let places = Places {
            pools: self.path("sriov.toml"),
            state: self.path("state"),
            sysfs: Sysfs::new(&self.path("sys"), &self.path("dev")),
            boot_id: self.path("boot"),
            patience: Duration::from_secs(30),
            ipam_deadline: Duration::from_secs(30),
        };
        Sriov { places, node: move || Ok(kernel.clone()) }
    }

    /// A command for `net1` of the container `name`, whose namespace is `/run/netns/NAME`. `conf` is added to the
    /// configuration.
    pub(super) fn args(&self, name: &str, conf: &Value) -> Args {
        self.args_with(name, conf, "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart")
    }

    pub(super) fn args_with(&self, name: &str, conf: &Value, args: &str) -> Args {
        let mut all = json!({"cniVersion": "1.1.0", "name": "fast", "type": "virtlet-sriov"});
        let keys = conf.as_object().expect("an object").clone();
        all.as_object_mut().expect("an object").extend(keys);
        let builder = ArgsBuilder::new().container_id(name).expect("an id").ifname("net1").expect("a name");
        let builder =
            builder.netns(&format!("/run/netns/{name}")).args(args).path(&self.path("bin").display().to_string());
        builder.config(&all.to_string()).expect("a configuration").build().expect("arguments")
    }

    /// Names of the allocations.
    pub(super) fn allocations(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("state")) else { return Vec::new() };
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| !name.ends_with(".lock")).collect();
        names.sort();
        names
    }
}

// === impl Model ===

impl Model {
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panicked with it")
    }

    pub(super) fn vf(&self, number: u32) -> Vf {
        self.world().vfs[&vf(number)].clone()
    }

    pub(super) fn vfs(&self) -> BTreeMap<PciAddr, Vf> {
        self.world().vfs.clone()
    }

    /// From now on the call after `calls` others goes wrong.
    pub(super) fn break_after(&self, calls: usize, fault: Fault) {
        let mut world = self.world();
        (world.calls, world.fault) = (0, Some((calls, fault)));
    }

    /// Nothing goes wrong any more. Returns whether something did.
    pub(super) fn mend(&self) -> bool {
        let mut world = self.world();
        let fault = world.fault.take();
        fault.is_some_and(|(at, _)| world.calls > at)
    }

    /// A container's namespace goes: the kernel moves real netdevs into the host's.
    pub(super) fn end_netns(&self, netns: &str) {
        let mut world = self.world();
        world.netns.remove(netns);
        for port in world.vfs.values_mut().filter_map(|vf| vf.netdev.as_mut()) {
            if port.netns.as_deref() == Some(netns) {
                (port.netns, port.addressing) = (None, Addressing::default());
                (port.netdev.up, port.netdev.index) = (false, port.netdev.index - 1000);
            }
        }
    }

    fn call<T>(&self, work: impl FnOnce(&mut World) -> Result<T, Cause>) -> Result<T, Cause> {
        let mut world = self.world();
        let at = world.calls;
        world.calls += 1;
        match world.fault {
            Some((fault, Fault::Fail)) if at == fault => Err("it broke".into()),
            Some((fault, Fault::Die)) if at >= fault => Err("it is dead".into()),
            _ => work(&mut world),
        }
    }

    fn port<T>(&self, netns: Option<&str>, index: u32, work: impl FnOnce(&mut Port) -> T) -> Result<T, Cause> {
        self.call(|world| {
            if netns.is_some_and(|netns| !world.netns.contains(netns)) {
                return Err("no such namespace".into());
            }
            let mut ports = world.vfs.values_mut().filter_map(|vf| vf.netdev.as_mut());
            let found = ports.find(|port| port.netns.as_deref() == netns && port.netdev.index == index);
            found.map(work).ok_or_else(|| "no such netdev".into())
        })
    }
}

impl PfControl for Model {
    fn read(&mut self, pf: PciAddr, number: u32) -> Result<VfSettings, ControlError> {
        assert_eq!(pf.to_string(), PF);
        Ok(self.call(|world| Ok(world.vfs[&vf(number)].settings.clone()))?)
    }

    fn write(&mut self, pf: PciAddr, number: u32, attribute: Attribute) -> Result<(), ControlError> {
        assert_eq!(pf.to_string(), PF);
        if self.world().refused.contains(&attribute.kind()) {
            return Err(ControlError::Unsupported);
        }
        let written = self.call(|world| {
            world.vfs.get_mut(&vf(number)).expect("a VF").settings.set(attribute);
            Ok(())
        });
        Ok(written?)
    }
}

impl Links for Model {
    fn netns_exists(&mut self, netns: &str) -> Result<bool, Cause> {
        self.call(|world| Ok(world.netns.contains(netns)))
    }

    fn find(&mut self, vf: PciAddr, place: Place<'_>) -> Result<Option<Netdev>, Cause> {
        let netns = netns_of(place);
        self.call(|world| {
            let port = world.vfs[&vf].netdev.as_ref().filter(|port| port.netns.as_deref() == netns);
            Ok(port.map(|port| port.netdev.clone()))
        })
    }

    fn await_netdev(&mut self, _: PciAddr, _: Duration) -> Result<Option<Netdev>, Cause> {
        unreachable!("no driver is bound here")
    }

    fn shape(&mut self, place: Place<'_>, index: u32, mac: Mac, mtu: u32) -> Result<(), Cause> {
        self.port(netns_of(place), index, |port| (port.netdev.mac, port.netdev.mtu) = (mac, mtu))
    }

    fn move_into(&mut self, index: u32, netns: &str, name: &str) -> Result<(), Cause> {
        self.port(None, index, |port| {
            port.netns = Some(netns.to_owned());
            // The kernel may have to choose another index, and takes it down.
            (port.netdev.index, port.netdev.up, port.netdev.name) = (index + 1000, false, name.to_owned());
        })
    }

    fn dress(&mut self, _: &str, _: u32, _: &Netdev) -> Result<(), Cause> {
        unreachable!("that is for guests")
    }
}

impl Wiring for Model {
    fn take_out(&mut self, netns: &str, index: u32, name: &str) -> Result<(), Cause> {
        self.port(Some(netns), index, |port| {
            (port.netns, port.addressing) = (None, Addressing::default());
            (port.netdev.index, port.netdev.up, port.netdev.name) = (index - 1000, false, name.to_owned());
        })
    }

    fn settle(&mut self, index: u32, name: &str, up: bool) -> Result<(), Cause> {
        self.port(None, index, |port| (port.netdev.name, port.netdev.up) = (name.to_owned(), up))
    }

    fn bring_up(&mut self, netns: &str, index: u32) -> Result<(), Cause> {
        self.port(Some(netns), index, |port| port.netdev.up = true)
    }

    fn address(&mut self, netns: &str, index: u32, addressing: &Addressing) -> Result<(), Cause> {
        self.port(Some(netns), index, |port| port.addressing = addressing.clone())
    }

    fn lacks(&mut self, netns: &str, index: u32, addressing: &Addressing) -> Result<Vec<String>, Cause> {
        self.port(Some(netns), index, |port| {
            let lacking = addressing.addresses.iter().filter(|address| !port.addressing.addresses.contains(address));
            lacking.map(|address| format!("the address `{address}`")).collect()
        })
    }
}

fn netns_of<'a>(place: Place<'a>) -> Option<&'a str> {
    match place {
        Place::Host => None,
        Place::Netns(netns) => Some(netns),
    }
}

/// Address of VF `number`.
pub(super) fn vf(number: u32) -> PciAddr {
    format!("0000:3b:02.{number}").parse().expect("an address")
}

/// What a VF's own driver gave it.
pub(super) fn own_mac(number: u32) -> Mac {
    Mac([2, 0, 0, 0, 1, u8::try_from(number).expect("few VFs")])
}
