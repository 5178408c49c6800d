//! The SR-IOV card of an emulated node: sets it up, looks at all of it that a claim of a function may change.
//!
//! A case of tier `sriov` or `iommufd` has the card to itself, and finds it without functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::command::sh;
use crate::libvirt;
use crate::wait::{wait_for, wait_until};

const DEVICES: &str = "/sys/bus/pci/devices";
/// The only card of the node (see [`crate::emulated::Kind`]).
const PF: &str = "0000:01:00.0";
/// Stands for what is not there.
const NOTHING: &str = "-";
/// Drivers do their work while sysfs is written; their links and files appear soon after.
const SETTLED: Duration = Duration::from_secs(30);

/// How many functions the card has.
pub const VFS: usize = 7;

/// The card with its functions; without them, and down, once dropped.
#[derive(Debug)]
pub struct Card {
    pf: String,
}

/// What a claim may change: of each function and of the card, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, String>);

impl Card {
    /// Loads the drivers, brings the card up and makes all functions, each with its link.
    ///
    /// # Errors
    /// When the node has no such card, or a driver does not take its device.
    pub fn set_up() -> Result<Self> {
        sh("modprobe -a igb igbvf vfio-pci")?;
        let device = Path::new(DEVICES).join(PF);
        let pf = wait_for("link of the card", SETTLED, || Ok(link_of(&device)))?;
        // A function's driver asks the card, which answers when it is up.
        sh(&format!("ip link set {pf} up"))?;
        let card = Self { pf };
        card.make(0)?;
        card.make(VFS)?;
        for vf in 0..VFS {
            wait_for("link of a function", SETTLED, || Ok(card.link(vf).ok()))?;
        }
        // Functions that are made take it down for a while, and without it the card takes no rate (igb, `igb_ndo_set_vf_bw`).
        let carrier = card.folder().join("net").join(card.pf()).join("carrier");
        wait_until("carrier of the card", SETTLED, || {
            fs::read_to_string(&carrier).is_ok_and(|text| text.trim() == "1")
        })?;
        Ok(card)
    }

    /// The name of the card's own link.
    #[must_use]
    pub fn pf(&self) -> &str {
        &self.pf
    }

    /// The card's folder in sysfs.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        Path::new(DEVICES).join(PF)
    }

    /// Makes `vfs` functions, or removes them all if it is 0.
    ///
    /// # Errors
    /// When the kernel does not.
    pub fn make(&self, vfs: usize) -> Result<()> {
        fs::write(self.folder().join("sriov_numvfs"), vfs.to_string())
            .with_context(|| format!("failed to make {vfs} VFs"))
    }

    /// The PCI address of a function.
    ///
    /// # Errors
    /// When there is no such function.
    pub fn address(&self, vf: usize) -> Result<String> {
        let to = fs::read_link(self.folder().join(format!("virtfn{vf}"))).with_context(|| format!("no VF {vf}"))?;
        name(&to)
    }

    /// A function's folder in sysfs.
    ///
    /// # Errors
    /// When there is no such function.
    pub fn function(&self, vf: usize) -> Result<PathBuf> {
        Ok(Path::new(DEVICES).join(self.address(vf)?))
    }

    /// The name of a function's link.
    ///
    /// # Errors
    /// When it has none here.
    pub fn link(&self, vf: usize) -> Result<String> {
        link_of(&self.function(vf)?).with_context(|| format!("no link of VF {vf}"))
    }

    /// The driver that a function is bound to.
    ///
    /// # Errors
    /// When there is no such function.
    pub fn driver(&self, vf: usize) -> Result<Option<String>> {
        fs::read_link(self.function(vf)?.join("driver")).ok().map(|to| name(&to)).transpose()
    }

    /// The number of a function's IOMMU group.
    ///
    /// # Errors
    /// When it is in none.
    pub fn group(&self, vf: usize) -> Result<String> {
        let to = fs::read_link(self.function(vf)?.join("iommu_group"));
        name(&to.with_context(|| format!("VF {vf} is in no IOMMU group"))?)
    }

    /// The name of the file in `/dev/vfio/devices` of a function that vfio-pci has.
    ///
    /// # Errors
    /// When vfio-pci does not have it.
    pub fn vfio_device(&self, vf: usize) -> Result<String> {
        let mut names = fs::read_dir(self.function(vf)?.join("vfio-dev"))?;
        let name = names.next().with_context(|| format!("VF {vf} has no file of VFIO"))??.file_name();
        name.into_string().ok().context("a name that is no text")
    }

    /// Gives a function to `driver`, by its override; to whichever driver wants it if there is none.
    ///
    /// # Errors
    /// When the kernel does not.
    pub fn bind(&self, vf: usize, driver: Option<&str>) -> Result<()> {
        let (at, address) = (self.function(vf)?, self.address(vf)?);
        if at.join("driver").exists() {
            fs::write(at.join("driver/unbind"), &address)?;
        }
        // An empty line takes the override away.
        fs::write(at.join("driver_override"), format!("{}\n", driver.unwrap_or_default()))?;
        fs::write("/sys/bus/pci/drivers_probe", &address)?;
        let bound = self.driver(vf)?;
        let wanted = driver.unwrap_or("igbvf");
        ensure!(bound.as_deref() == Some(wanted), "VF {vf} is bound to {bound:?}, not {wanted}");
        Ok(())
    }

    /// Sets something of a function on the card, in the words of `ip link set PF vf N`.
    ///
    /// # Errors
    /// When the card refuses.
    pub fn set(&self, vf: usize, words: &str) -> Result<()> {
        sh(&format!("ip link set {} vf {vf} {words}", self.pf)).map(drop)
    }

    /// What the card says of a function: an element of `vfinfo_list`.
    ///
    /// # Errors
    /// When it says nothing.
    pub fn told(&self, vf: usize) -> Result<Value> {
        let shown: Value = serde_json::from_str(&sh(&format!("ip -j -d link show dev {}", self.pf))?)?;
        shown
            .pointer(&format!("/0/vfinfo_list/{vf}"))
            .cloned()
            .with_context(|| format!("the card tells nothing of VF {vf}"))
    }

    /// All that a claim may change.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let mut all = BTreeMap::new();
        let autoprobe = read(&self.folder().join("sriov_drivers_autoprobe"));
        all.insert("card sriov_drivers_autoprobe".to_owned(), autoprobe);
        for vf in 0..VFS {
            let at = self.function(vf)?;
            let mut add = |what: &str, is: String| all.insert(format!("VF {vf} {what}"), is);
            add("driver", self.driver(vf)?.unwrap_or_else(|| NOTHING.to_owned()));
            add("driver_override", read(&at.join("driver_override")));
            let link = link_of(&at);
            // A link in another namespace has no name here, so all that is below says where it is as well.
            let of_link = |file| {
                link.as_ref().map_or_else(|| NOTHING.to_owned(), |link| read(&at.join("net").join(link).join(file)))
            };
            add("link", link.clone().unwrap_or_else(|| NOTHING.to_owned()));
            add("link's address", of_link("address"));
            add("link's MTU", of_link("mtu"));
            add("link's flags", of_link("flags"));
            for (what, is) in self.told(vf)?.as_object().context("no object")? {
                add(&format!("on the card: {what}"), is.to_string());
            }
        }
        Ok(Snapshot(all))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // A case that fails leaves a machine with functions, for which the kernel would wait.
        for qemu in libvirt::qemus().unwrap_or_default() {
            let _gone = kill(Pid::from_raw(qemu), Signal::SIGKILL);
        }
        // The next case sets up the card anew, and fails if it cannot.
        let _refused = self.make(0);
        let _refused = sh(&format!("ip address flush dev {}", self.pf));
        let _refused = sh(&format!("ip link set {} down", self.pf));
    }
}

impl Snapshot {
    /// What is otherwise in `later`, a line each.
    #[must_use]
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let names = self.0.keys().chain(later.0.keys().filter(|name| !self.0.contains_key(*name)));
        let of = |all: &Self, name| all.0.get(name).cloned().unwrap_or_else(|| NOTHING.to_owned());
        names
            .map(|name| (name, of(self, name), of(later, name)))
            .filter(|(_, was, is)| was != is)
            .map(|(name, was, is)| format!("{name}: was {was}, is {is}"))
            .collect()
    }

    /// Compares with a `later` one.
    ///
    /// # Errors
    /// When they differ: the error lists in what.
    pub fn holds(&self, later: &Self) -> Result<()> {
        let changes = self.changes(later);
        ensure!(changes.is_empty(), "of the card is otherwise:\n{}", changes.join("\n"));
        Ok(())
    }
}

fn link_of(device: &Path) -> Option<String> {
    fs::read_dir(device.join("net")).ok()?.next()?.ok()?.file_name().into_string().ok()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).map_or_else(|_| NOTHING.to_owned(), |text| text.trim().to_owned())
}

fn name(path: &Path) -> Result<String> {
    Ok(path.file_name().and_then(|name| name.to_str()).context("a link of sysfs that leads nowhere")?.to_owned())
}
