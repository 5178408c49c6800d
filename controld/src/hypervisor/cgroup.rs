//! The cgroups of machines: what the kernel lets a QEMU have, and what it counts.
//!
//! libvirt puts QEMU into a cgroup of its own, beside those of pods. A machine is to count as its pod, so QEMU is moved into a
//! cgroup below the pod's once libvirt has started it; `docs/adr/0024-cgroups.md` says why in this way. The layout, version 1
//! or 2, is [`layout`]'s affair, the files of either version [`files`]'s, and the unit that systemd is to know of [`scope`]'s.

mod files;
mod layout;
pub mod scope;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::Reason;
use vmspec::plan::{Cgroup, Limits, Scope};

use self::files::Version;
use self::layout::Layout;

/// Is there if systemd is the node's first process (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
/// Where the kernel lists what is mounted for us.
const MOUNTS: &str = "/proc/self/mounts";
/// Where libvirt puts its machines if no systemd does it.
const LIBVIRTS: &str = "machine";

/// The node's cgroups.
#[derive(Debug, Clone)]
pub struct Cgroups {
    layout: Layout,
    /// Whether a cgroup below a slice is made by systemd. With version 1 systemd would move QEMU out of libvirt's list of
    /// devices as well, and kubelet does not look for controllers.
    scopes: bool,
}

/// What the kernel has counted of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Periods of the CPU quota.
    pub periods: u64,
    /// Of these, in which the quota was used up.
    pub throttled_periods: u64,
    pub throttled: Duration,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Times that the memory limit was hit.
    pub limit_hits: u64,
}

impl Cgroups {
    /// The cgroups that are mounted.
    ///
    /// # Errors
    /// When there are none with controllers for CPU and memory.
    pub fn find() -> Result<Self, Reason> {
        let mounts = fs::read_to_string(MOUNTS)
            .map_err(|cause| Reason::new(format!("failed to read `{MOUNTS}`")).with(cause))?;
        Self::of(&mounts, Path::new(SYSTEMD).is_dir())
    }

    fn of(mounts: &str, systemd: bool) -> Result<Self, Reason> {
        let none = || {
            Reason::new("no cgroup hierarchy with controllers `cpu` and `memory` is mounted; mount cgroup2 or cgroup")
        };
        let layout = Layout::of(mounts).ok_or_else(none)?;
        let scopes = systemd && layout.version() == Version::Two;
        Ok(Self { layout, scopes })
    }

    /// The unit that systemd makes for a machine's cgroup; `None` if it is to be made by [`Self::make`], with those above it.
    #[must_use]
    pub fn scope_of<'a>(&self, cgroup: &'a Cgroup) -> Option<Scope<'a>> {
        cgroup.scope().filter(|_| self.scopes)
    }

    /// Whether a process is in a cgroup or in one below it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn has(&self, path: &str, pid: i32) -> Result<bool, Reason> {
        let at = format!("/proc/{pid}/cgroup");
        let text =
            fs::read_to_string(&at).map_err(|cause| Reason::new(format!("failed to read `{at}`")).with(cause))?;
        Ok(files::is_in(&text, path))
    }

    /// Makes a cgroup with those above it, and gives it these limits; what they leave open stays as it is. Each change of limits
    /// makes it again: a systemd that changes the slice above takes controllers away of which it knows no use.
    ///
    /// # Errors
    /// When the kernel refuses a step; those before it are done. What was made stays for [`Self::remove`]. A scope that systemd
    /// makes is not made here, and has to be there.
    pub fn make(&self, cgroup: &Cgroup, limits: &Limits) -> Result<(), Reason> {
        let path = &cgroup.path;
        let systemds = self.scope_of(cgroup).map(|scope| scope.unit);
        for hierarchy in self.layout.hierarchies() {
            let made = hierarchy.make(path, |name| Some(name) != systemds);
            made.map_err(|cause| failed("make", path, cause))?;
        }
        self.write(path, self.layout.version().files_of(limits))
    }

    /// Lifts what a cgroup is held to and these limits leave open.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn open(&self, path: &str, limits: &Limits) -> Result<(), Reason> {
        self.write(path, self.layout.version().open_files_of(limits))
    }

    fn write(&self, path: &str, files: Vec<files::File>) -> Result<(), Reason> {
        for file in files {
            let Some(dir) = self.layout.dir_of(file.controller, path) else { continue };
            let at = dir.join(file.name);
            // A kernel that has no swap, or was told not to count it, has no such file.
            if file.name == files::SWAP && !at.exists() {
                continue;
            }
            fs::write(&at, &file.value).map_err(|cause| {
                Reason::new(format!("failed to write `{}` to `{}`", file.value, at.display())).with(cause)
            })?;
        }
        Ok(())
    }

    /// Makes a cgroup in a scope and moves the scope's process to it: a cgroup that has a process of its own passes no controllers
    /// to those below it. [`Self::make`] does the rest.
    ///
    /// # Errors
    /// When the kernel refuses a step.
    pub fn enter(&self, path: &str, pid: i32) -> Result<(), Reason> {
        for hierarchy in self.layout.hierarchies() {
            layout::create(&hierarchy.dir(path)).map_err(|cause| failed("make", path, cause))?;
        }
        self.admit(path, pid)
    }

    /// Moves a process with all its threads into a cgroup; fine if it is there.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn admit(&self, path: &str, pid: i32) -> Result<(), Reason> {
        for hierarchy in self.layout.hierarchies() {
            let procs = hierarchy.dir(path).join("cgroup.procs");
            fs::write(&procs, pid.to_string()).map_err(|cause| {
                Reason::new(format!("failed to move process {pid} to `{}`", procs.display())).with(cause)
            })?;
        }
        Ok(())
    }

    /// What was counted of a cgroup; zeros of one that is not there.
    #[must_use]
    pub fn counts(&self, path: &str) -> Counts {
        let read = |controller, name: &str| {
            let dir = self.layout.dir_of(controller, path)?;
            fs::read_to_string(dir.join(name)).ok()
        };
        self.layout.version().counts(read)
    }

    /// Bytes in memory that a cgroup cannot give back without swapping; `None` if they are not known.
    #[must_use]
    pub fn held(&self, path: &str) -> Option<u64> {
        let stat = fs::read_to_string(self.layout.dir_of("memory", path)?.join("memory.stat")).ok()?;
        files::held(&stat)
    }

    /// Removes a machine's cgroup, and what libvirt has left of its own for the machine of name `domain`; fine if there is nothing. Those
    /// above are kubelet's.
    ///
    /// # Errors
    /// When there are processes in it.
    pub fn remove(&self, cgroup: &Cgroup, domain: &str) -> Result<(), Reason> {
        // A scope that systemd has made, it removes.
        let scope = cgroup.scope().filter(|_| !self.scopes);
        let paths = [Some(cgroup.path.as_str()), scope.map(|scope| scope.path)];
        for path in paths.into_iter().flatten() {
            for hierarchy in self.layout.hierarchies() {
                gone(fs::remove_dir(hierarchy.dir(path))).map_err(|cause| failed("remove", path, cause))?;
            }
        }
        for at in self.layout.all_mounts() {
            remove_libvirts(&at.join(LIBVIRTS), domain);
        }
        Ok(())
    }
}

/// A libvirtd that is started again does not know the cgroup that QEMU has left, and leaves it behind. The name of a machine
/// is its own for ever, and what has a process in it stays.
fn remove_libvirts(dir: &Path, domain: &str) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("qemu-")?.split_once('-'));
        if id.is_some_and(|(_, rest)| rest.strip_suffix(".libvirt-qemu") == Some(domain)) {
            remove_tree(&entry.path());
        }
    }
}

/// cgroups have files that cannot be removed, so directories alone, from the bottom up.
fn remove_tree(dir: &Path) {
    let children: Vec<PathBuf> = fs::read_dir(dir).map_or_else(
        |_| Vec::new(),
        |entries| entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect(),
    );
    children.iter().for_each(|child| remove_tree(child));
    // libvirt may be at it as well, and a process may be in it.
    let _ = fs::remove_dir(dir);
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn failed(what: &str, path: &str, cause: io::Error) -> Reason {
    Reason::new(format!("failed to {what} cgroup `{path}`")).with(cause)
}
