//! The private world of one case: made by the parent, entered by the child, gone with its last process.
//!
//! The parent makes a directory and one cgroup in every hierarchy. The child joins the cgroups, unshares everything, and
//! lays the case's directory over the machine's paths, so that `/etc/libvirt`, `/run/libvirt`, `/var/lib/virtlet`,
//! `/sys/fs/cgroup` and the rest are its own. A shell is process 1 of the case: it reaps orphans, and killing it kills
//! all. Two overlays (`/etc`, `/var/lib`) only make room for mount points that the machine may lack; nobody's data is on
//! them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::case::log_dir;
use crate::command::sh;
use crate::config::Config;
use crate::cost::{self, Cost};
use crate::sweep;
use crate::wait::wait_until;

const CGROUPS: &str = "/sys/fs/cgroup";
/// The kernel takes its time to let go of a cgroup whose processes are dead.
const CGROUP_DEADLINE: Duration = Duration::from_secs(10);

/// `bed ENTER DIR WORDS...` goes into a cell.
pub const ENTER: &str = "enter";
/// And this into one that has the machine's links.
pub const ENTER_WITH_LINKS: &str = "enter-with-links";

/// Directory in a case's own directory, and the path of the machine that it stands for.
const BINDS: [(&str, &str); 7] = [
    ("run", "/run"),
    ("libvirt", "/var/lib/libvirt"),
    ("libvirt-cache", "/var/cache/libvirt"),
    ("var-log", "/var/log"),
    ("state", "/var/lib/virtlet"),
    ("cni", "/var/lib/cni"),
    ("kubelet", "/var/lib/kubelet"),
];

/// Whose links, addresses and firewall a cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Its own, which end with it.
    Own,
    /// Those of the machine, an emulated node: what the case leaves there is swept away.
    Machine,
}

/// What a cell has of processors that others want, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// As much as each other cell.
    Even,
    /// Four times as much: its programs have deadlines that are not ours to set.
    Fourfold,
}

impl Share {
    fn set(self, group: &Path) -> Result<()> {
        if self == Self::Even {
            return Ok(());
        }
        // Of the first and the second version of cgroups. Only one hierarchy has one of them.
        for (file, share) in [("cpu.shares", "4096"), ("cpu.weight", "400")] {
            let file = group.join(file);
            if file.exists() {
                fs::write(&file, share).with_context(|| format!("failed to set {}", file.display()))?;
            }
        }
        Ok(())
    }
}

/// A cell that the parent holds.
#[derive(Debug)]
pub struct Cell {
    dir: PathBuf,
    cgroup: String,
    links: Links,
    /// The links before the case, if they are the machine's.
    known: Vec<String>,
}

impl Cell {
    /// Makes the directory and the cgroups.
    ///
    /// # Errors
    /// When the machine does not let us, as it lets root.
    pub fn create(links: Links, share: Share) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("vt-").tempdir_in("/tmp")?.keep();
        // QEMU is not root and has its disks and sockets below.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o711))?;
        let cgroup =
            dir.file_name().and_then(|name| name.to_str()).context("temporary directory without a name")?.to_owned();
        let known = if links == Links::Machine { sweep::links()? } else { Vec::new() };
        let cell = Self { dir, cgroup, links, known };
        for hierarchy in hierarchies()? {
            create_cgroup(&hierarchy.at, &cell.cgroup)?;
            share.set(&hierarchy.at.join(&cell.cgroup))?;
        }
        Ok(cell)
    }

    /// The case's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that runs `bed WORDS... DIR` inside. Killing it kills all that runs in the cell.
    ///
    /// # Errors
    /// When this program cannot find itself.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let enter = if self.links == Links::Own { ENTER } else { ENTER_WITH_LINKS };
        command.arg(enter).arg(&self.dir).args(words).arg(&self.dir);
        // In its own home kubectl keeps what an API server serves by that server's address, which is the same in all cells.
        command.env("KUBECACHEDIR", self.dir.join("kubectl"));
        Ok(command)
    }

    /// What all that ran inside has cost, once the case is over.
    ///
    /// # Errors
    /// When no cgroup counts it.
    pub(crate) fn cost(&self) -> Result<Cost> {
        let groups: Vec<_> = hierarchies()?.into_iter().map(|hierarchy| hierarchy.at.join(&self.cgroup)).collect();
        let processor_s =
            groups.iter().find_map(|group| cost::processor_s(group)).context("no cgroup counts processor time")?;
        let peak = groups.iter().find_map(|group| cost::peak(group)).context("no cgroup counts memory")?;
        Ok(Cost { processor_s, peak_mib: peak >> 20, waits: cost::left(&self.dir) })
    }

    /// Looks for what outlived the cell, then removes the cell.
    ///
    /// # Errors
    /// When something of the case is left on the machine: the error lists it.
    pub fn remove(self, keep: bool) -> Result<()> {
        let mut left = leftovers(&self.dir)?;
        if self.links == Links::Machine {
            sweep::but(&self.known)?;
        }
        for hierarchy in hierarchies()? {
            let group = hierarchy.at.join(&self.cgroup);
            if wait_until("empty cgroup", CGROUP_DEADLINE, || remove_cgroup(&group).is_ok()).is_err() {
                left.push(format!("processes in cgroup {}", group.display()));
            }
        }
        if !keep {
            fs::remove_dir_all(&self.dir).with_context(|| format!("failed to remove {}", self.dir.display()))?;
        }
        if left.is_empty() { Ok(()) } else { bail!("left on the machine by the case: {}", left.join(", ")) }
    }
}

/// Joins the cell's cgroups and becomes process 1's parent: `bed WORDS...` runs in new namespaces, but for the machine's
/// `links`. Returns only on error.
///
/// # Errors
/// When the machine does not let us.
pub fn enter(links: Links, dir: &Path, words: &[String]) -> Result<()> {
    let cgroup = dir.file_name().context("case directory without a name")?;
    for hierarchy in hierarchies()? {
        let procs = hierarchy.at.join(cgroup).join("cgroup.procs");
        fs::write(&procs, std::process::id().to_string())
            .with_context(|| format!("failed to join {}", procs.display()))?;
    }
    unshare(CloneFlags::CLONE_NEWCGROUP).context("failed to make the cell's cgroups its roots")?;
    for hierarchy in hierarchies()?.iter().filter(|hierarchy| hierarchy.kind == "cgroup2") {
        // A root passes controllers on only while there is no process in it.
        let own = create_dir(&hierarchy.at.join(cgroup).join("bed"))?;
        fs::write(own.join("cgroup.procs"), std::process::id().to_string())?;
    }
    let cause = Command::new("unshare")
        .args((links == Links::Own).then_some("--net"))
        .args(["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc", "--"])
        // bash reaps orphans as process 1; `exit` keeps it from replacing itself by its last command
        .args(["bash", "-c", "\"$@\"; exit $?", "bed"])
        .arg(std::env::current_exe()?)
        .args(words)
        .exec();
    Err(cause).context("failed to run `unshare`")
}

/// Lays the cell's directories over the machine's paths, and brings the loopback link up. Called once, inside.
///
/// # Errors
/// When a mount fails.
pub fn furnish(dir: &Path, config: &Config) -> Result<()> {
    let cgroups = hierarchies()?;
    overlay(dir, "etc", Path::new("/etc"))?;
    overlay(dir, "var-lib", Path::new("/var/lib"))?;
    for (name, at) in BINDS {
        bind(&create_dir(&dir.join(name))?, Path::new(at))?;
    }
    for (name, from) in [("bin", config.dist()?), ("bed", own_dir()?)] {
        bind(&from, &create_dir(&dir.join(name))?)?;
    }
    // A copy of its own: controld touches it, so that libvirt asks a new emulator again.
    let wrapper = config.dist()?.join("vmwrapper");
    fs::copy(&wrapper, dir.join("vmwrapper")).with_context(|| format!("failed to copy {}", wrapper.display()))?;
    for name in ["/run/lock", "/var/log/libvirt", "/etc/virtlet", "/etc/cni/net.d"] {
        create_dir(Path::new(name))?;
    }
    create_dir(&log_dir(dir))?;
    furnish_cgroups(&cgroups)?;
    sh("ip link set lo up")?;
    Ok(())
}

struct Hierarchy {
    at: PathBuf,
    kind: String,
    options: String,
}

/// The cgroup hierarchies of the machine, as `/proc/mounts` has them.
fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let of = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
        (kind.starts_with("cgroup") && at.starts_with(CGROUPS)).then(|| Hierarchy {
            at: at.into(),
            kind: kind.to_owned(),
            options: options
                .split(',')
                .filter(|word| !["rw", "ro", "relatime", "nosuid", "nodev", "noexec"].contains(word))
                .collect::<Vec<_>>()
                .join(","),
        })
    };
    Ok(mounts.lines().filter_map(of).collect())
}

/// Shows the cell's own cgroups as if they were the machine's roots, so domains and pods land below them.
fn furnish_cgroups(hierarchies: &[Hierarchy]) -> Result<()> {
    umount2(CGROUPS, MntFlags::MNT_DETACH).context("failed to hide the machine's cgroups")?;
    let none: Option<&str> = None;
    // A superblock cannot be mounted over itself, hence the fresh directory below.
    mount(Some("cgroups"), CGROUPS, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
    for Hierarchy { at, kind, options } in hierarchies {
        create_dir(at)?;
        let options = if options.starts_with("name=") { format!("none,{options}") } else { options.clone() };
        let data = if kind == "cgroup2" { none } else { Some(options.as_str()) };
        mount(Some("cgroup"), at, Some(kind.as_str()), MsFlags::empty(), data)
            .with_context(|| format!("failed to mount {}", at.display()))?;
    }
    Ok(())
}

fn create_cgroup(hierarchy: &Path, name: &str) -> Result<()> {
    let group = hierarchy.join(name);
    fs::create_dir(&group).with_context(|| format!("failed to create cgroup {}; run as root", group.display()))?;
    // A new v1 cpuset is empty and takes no process.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        match fs::read(hierarchy.join(file)) {
            Ok(inherited) => fs::write(group.join(file), inherited)?,
            Err(cause) if cause.kind() == ErrorKind::NotFound => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    let inherit = group.join("cgroup.clone_children");
    if inherit.exists() && group.join("cpuset.cpus").exists() {
        fs::write(inherit, "1")?;
    }
    Ok(())
}

fn remove_cgroup(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// Processes and mounts of the machine that name the case's directory.
fn leftovers(dir: &Path) -> Result<Vec<String>> {
    let name = dir.to_string_lossy();
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let proc = entry?.path();
        let of_ours =
            |file: &str| fs::read(proc.join(file)).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&*name));
        if of_ours("cmdline") || of_ours("environ") {
            left.push(format!("process {}", proc.display()));
        }
    }
    if fs::read_to_string("/proc/self/mounts")?.contains(&*name) {
        left.push(format!("mounts of {name}"));
    }
    Ok(left)
}

fn overlay(dir: &Path, name: &str, at: &Path) -> Result<()> {
    let upper = create_dir(&dir.join(name))?;
    let work = create_dir(&dir.join(format!("{name}.work")))?;
    let data = format!("lowerdir={},upperdir={},workdir={}", at.display(), upper.display(), work.display());
    mount(Some("overlay"), at, Some("overlay"), MsFlags::empty(), Some(data.as_str()))
        .with_context(|| format!("failed to lay an overlay on {}", at.display()))
}

fn bind(from: &Path, at: &Path) -> Result<()> {
    let none: Option<&str> = None;
    create_dir(at)?;
    mount(Some(from), at, none, MsFlags::MS_BIND, none)
        .with_context(|| format!("failed to bind {} on {}", from.display(), at.display()))
}

fn create_dir(path: &Path) -> Result<PathBuf> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("failed to create {}", path.display()))?;
    Ok(path.to_owned())
}

fn own_dir() -> Result<PathBuf> {
    let itself = std::env::current_exe()?;
    Ok(itself.parent().context("this program is nowhere")?.to_owned())
}
