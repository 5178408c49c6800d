//! Sysfs trees for tests, and a kernel that acts on what is written into them.
//!
//! Devices lie below `devices` and are linked from the bus, their drivers and groups, as the kernel has it. What sysfs
//! would do while a file is written, [`Kernel`] does: it unbinds, probes as `pci_device_can_probe` allows, and keeps
//! overrides.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::sysfs::Store;
use crate::{PciAddr, Sysfs};

pub(crate) const PF: &str = "0000:3b:00.0";
pub(crate) const VF: &str = "0000:3b:02.1";

pub(crate) struct Fixture {
    dir: TempDir,
    pub(crate) kernel: Arc<Kernel>,
}

/// Acts on writes.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    root: PathBuf,
    /// Every write: the file's path below the bus, and the text.
    pub(crate) writes: Mutex<Vec<(String, String)>>,
    /// Drivers that take no device.
    pub(crate) unwilling: Mutex<BTreeSet<String>>,
    /// What each file that acts answers instead, by its name.
    pub(crate) errors: Mutex<Vec<(&'static str, i32)>>,
    /// Whether writes are taken and nothing is done.
    pub(crate) deaf: Mutex<bool>,
}

impl Fixture {
    /// Nothing but the bus, `vfio-pci` and a `/dev` with iommufd.
    pub(crate) fn empty() -> Self {
        let dir = TempDir::new().expect("a folder");
        let kernel = Kernel { root: dir.path().join("sys"), ..Kernel::default() };
        let fixture = Self { dir, kernel: Arc::new(kernel) };
        for folder in ["sys/bus/pci/devices", "sys/kernel/iommu_groups", "sys/devices", "dev/vfio/devices"] {
            fs::create_dir_all(fixture.dir.path().join(folder)).expect("made");
        }
        fixture.file("sys/bus/pci/drivers_probe", "");
        fixture.file("dev/iommu", "");
        fixture.load("vfio-pci");
        fixture
    }

    /// A PF of `igb` with VFs 8 and 9 of `igbvf`, each in a group of its own.
    pub(crate) fn usual() -> Self {
        let fixture = Self::empty();
        fixture.pf(PF, "igb", 10);
        fixture.vf(PF, 8, "0000:3b:02.0");
        fixture.vf(PF, 9, VF);
        for (number, member) in [(5, PF), (6, VF), (7, "0000:3b:02.0")] {
            fixture.group(number, &[member]);
        }
        fixture
    }

    pub(crate) fn sysfs(&self) -> Sysfs {
        Sysfs::with_store(&self.root(), &self.dir.path().join("dev"), Arc::clone(&self.kernel) as _)
    }

    /// Its sysfs.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("sys")
    }

    /// A file below its `/dev`.
    pub(crate) fn dev(&self, name: &str) -> PathBuf {
        self.dir.path().join("dev").join(name)
    }

    /// Folder of a device.
    pub(crate) fn device(&self, addr: &str) -> PathBuf {
        self.root().join("bus/pci/devices").join(addr)
    }

    /// Gives a device an attribute.
    pub(crate) fn set(&self, addr: &str, file: &str, text: &str) {
        fs::write(self.device(addr).join(file), format!("{text}\n")).expect("written");
    }

    /// Takes an attribute from a device.
    pub(crate) fn unset(&self, addr: &str, file: &str) {
        fs::remove_file(self.device(addr).join(file)).expect("removed");
    }

    /// Loads a driver.
    pub(crate) fn load(&self, driver: &str) {
        fs::create_dir_all(self.root().join("bus/pci/drivers").join(driver)).expect("made");
    }

    /// A device with no attribute.
    fn bare(&self, addr: &str) {
        fs::create_dir(self.root().join("devices").join(addr)).expect("made");
        symlink(format!("../../../devices/{addr}"), self.device(addr)).expect("linked");
    }

    /// A device of a class without a driver.
    pub(crate) fn plain(&self, addr: &str, class: &str) {
        self.bare(addr);
        let files = [("class", class), ("vendor", "0x8086"), ("device", "0x10ca"), ("driver_override", "(null)")];
        for (file, text) in files.into_iter().chain([("reset", ""), ("reset_method", "flr bus"), ("numa_node", "-1")]) {
            self.set(addr, file, text);
        }
    }

    pub(crate) fn pf(&self, addr: &str, driver: &str, enabled: u32) {
        self.plain(addr, "0x020000");
        self.bind(addr, driver);
        for (file, value) in [("sriov_totalvfs", 256), ("sriov_numvfs", enabled), ("sriov_drivers_autoprobe", 1)] {
            self.set(addr, file, &value.to_string());
        }
        self.set(addr, "sriov_vf_device", "10ca");
    }

    pub(crate) fn vf(&self, pf: &str, number: u32, addr: &str) {
        self.plain(addr, "0x020000");
        self.adopt(pf, number, addr);
        self.bind(addr, "igbvf");
    }

    /// A VF with no attribute and no driver, of which many are made soon.
    pub(crate) fn bare_vf(&self, pf: &str, number: u32, addr: &str) {
        self.bare(addr);
        self.adopt(pf, number, addr);
    }

    fn adopt(&self, pf: &str, number: u32, addr: &str) {
        symlink(format!("../{pf}"), self.device(addr).join("physfn")).expect("linked");
        symlink(format!("../{addr}"), self.device(pf).join(format!("virtfn{number}"))).expect("linked");
    }

    /// Gives a device a driver, and loads that.
    pub(crate) fn bind(&self, addr: &str, driver: &str) {
        self.load(driver);
        self.kernel.bind(addr, driver);
    }

    pub(crate) fn group(&self, number: u32, members: &[&str]) {
        let group = self.root().join(format!("kernel/iommu_groups/{number}"));
        fs::create_dir_all(group.join("devices")).expect("made");
        for member in members {
            let target = format!("../../../kernel/iommu_groups/{number}");
            symlink(target, self.device(member).join("iommu_group")).expect("linked");
            symlink(format!("../../../../devices/{member}"), group.join("devices").join(member)).expect("linked");
        }
    }

    pub(crate) fn writes(&self) -> Vec<(String, String)> {
        self.kernel.writes.lock().expect("no test panicked with it").clone()
    }

    fn file(&self, path: &str, text: &str) {
        fs::write(self.dir.path().join(path), text).expect("written");
    }
}

impl Kernel {
    fn device(&self, addr: &str) -> PathBuf {
        self.root.join("bus/pci/devices").join(addr)
    }

    fn driver(&self, addr: &str) -> Option<String> {
        let link = fs::read_link(self.device(addr).join("driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    fn bind(&self, addr: &str, driver: &str) {
        let unbind = self.root.join("bus/pci/drivers").join(driver).join("unbind");
        if !unbind.exists() {
            fs::write(unbind, "").expect("written");
        }
        symlink(format!("../../bus/pci/drivers/{driver}"), self.device(addr).join("driver")).expect("linked");
        if driver == "vfio-pci" {
            fs::create_dir_all(self.device(addr).join("vfio-dev/vfio0")).expect("made");
        }
    }

    fn probe(&self, addr: &str) {
        let chosen = fs::read_to_string(self.device(addr).join("driver_override")).expect("an override");
        let chosen = Some(chosen.trim()).filter(|chosen| *chosen != "(null)");
        let autoprobe = fs::read_to_string(self.device(addr).join("physfn/sriov_drivers_autoprobe"));
        if self.driver(addr).is_some() || (chosen.is_none() && autoprobe.is_ok_and(|flag| flag.trim() == "0")) {
            return;
        }
        let driver = chosen.unwrap_or("igbvf").to_owned();
        let willing = !self.unwilling.lock().expect("no test panicked with it").contains(&driver);
        if willing && self.root.join("bus/pci/drivers").join(&driver).is_dir() {
            self.bind(addr, &driver);
        }
    }
}

impl Store for Kernel {
    fn store(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::metadata(path)?;
        let below = path.strip_prefix(self.root.join("bus/pci")).expect("a file of the bus").to_string_lossy();
        self.writes.lock().expect("no test panicked with it").push((below.clone().into_owned(), text.to_owned()));
        let parts: Vec<&str> = below.split('/').collect();
        let errors = self.errors.lock().expect("no test panicked with it");
        if let Some((_, error)) = errors.iter().find(|(file, _)| parts.last() == Some(file)) {
            return Err(io::Error::from_raw_os_error(*error));
        }
        if *self.deaf.lock().expect("no test panicked with it") {
            return Ok(());
        }
        match parts[..] {
            ["devices", _, "driver_override"] => {
                let value = text.strip_suffix('\n').expect("a line");
                fs::write(path, format!("{}\n", if value.is_empty() { "(null)" } else { value }))
            }
            ["devices", addr, "driver", "unbind"] => {
                assert_eq!(text, addr);
                // There is none for a driver that is not vfio-pci.
                let _ = fs::remove_dir_all(self.device(addr).join("vfio-dev"));
                fs::remove_file(self.device(addr).join("driver"))
            }
            ["drivers_probe"] => {
                self.probe(text);
                Ok(())
            }
            ["devices", _, "reset"] => Ok(()),
            _ => panic!("`{below}` is never written"),
        }
    }
}

pub(crate) fn addr(text: &str) -> PciAddr {
    text.parse().expect("a PCI address")
}
