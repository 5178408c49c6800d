//! What there is in the cell, to be compared: before a pod and after it.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use crate::command::{TOOL_DEADLINE, command, finish, run, sh};
use crate::wait::wait_for;

/// The kernel removes links of a dropped namespace, and libvirt ends QEMU, when they get to it.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);

/// Directories whose contents count. Logs that libvirt keeps of machines that are gone do not.
const DIRS: [&str; 7] = [
    "/var/lib/virtlet",
    "/run/virtlet",
    "/var/lib/cni",
    "/etc/libvirt/qemu",
    "/run/libvirt/qemu",
    "/var/lib/libvirt/qemu",
    "/var/lib/kubelet/pods",
];

/// Outlive pods by design: what host-local keeps beside its addresses.
const LASTING: [&str; 6] = [
    // Ours, as other runtimes have it; what is in it must go.
    "/var/lib/cni/results",
    "/var/lib/cni/networks",
    "/var/lib/cni/networks/vtnet",
    "/var/lib/cni/networks/vtnet/lock",
    "/var/lib/cni/networks/vtnet/last_reserved_ip.0",
    "/var/lib/cni/networks/vtnet/last_reserved_ip.1",
];

/// How lines begin that only a pod's network makes.
const POD_SIGNS: [&str; 2] = ["netns virtlet-", "file /var/lib/virtlet/net/pods/"];

/// All things of the cell that a pod could leave behind, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World(BTreeSet<String>);

impl World {
    /// Looks at everything; at processes that are there all the while.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn look() -> Result<Self> {
        let mut things = BTreeSet::new();
        let early = processes()?;
        for line in sh("ip -o link")?.lines() {
            let name = line.split(": ").nth(1).context("a link without a name")?;
            things.insert(format!("link {}", name.split('@').next().unwrap_or(name)));
        }
        for namespace in names(Path::new("/run/netns"))? {
            things.insert(format!("netns {namespace}"));
        }
        things.extend(domains()?);
        things.extend(firewall()?);
        for dir in DIRS {
            files(Path::new(dir), &mut things)?;
        }
        for controller in names(Path::new("/sys/fs/cgroup"))? {
            cgroups(&Path::new("/sys/fs/cgroup").join(controller).join("machine"), &mut things)?;
        }
        // A daemon's helper that ends meanwhile, or has not its own name yet, would be missed later.
        things.extend(processes()?.into_iter().filter(|process| early.contains(process)));
        Ok(Self(things))
    }

    /// Looks once no pod is left and nothing changes any more: Detach answers before the pod's namespace and notes go.
    ///
    /// # Errors
    /// When a tool fails, a pod stays, or things come and go without end.
    pub fn settled() -> Result<Self> {
        let mut last = Self::look()?;
        wait_for("world without pods that stays as it is", SETTLE_DEADLINE, || {
            let earlier = std::mem::replace(&mut last, Self::look()?);
            Ok((earlier == last && !last.has_pods()).then_some(()))
        })?;
        Ok(last)
    }

    fn has_pods(&self) -> bool {
        self.0.iter().any(|thing| POD_SIGNS.iter().any(|sign| thing.starts_with(sign)))
    }

    /// Waits until the world is as it was at `self`, but for things of which `expected` is true.
    ///
    /// # Errors
    /// Lists what is left, and what is gone.
    pub fn assert_same_but(&self, expected: impl Fn(&str) -> bool) -> Result<()> {
        self.assert_within(SETTLE_DEADLINE, expected)
    }

    /// Compares at once, with nothing expected.
    ///
    /// # Errors
    /// Lists what is left, and what is gone.
    pub fn assert_same_now(&self) -> Result<()> {
        self.assert_within(Duration::ZERO, |_| false)
    }

    fn assert_within(&self, deadline: Duration, expected: impl Fn(&str) -> bool) -> Result<()> {
        let mut differences = Vec::new();
        let settled = wait_for("end of changes", deadline, || {
            let now = Self::look()?;
            let left = now.0.difference(&self.0).filter(|thing| !expected(thing)).map(|thing| format!("left: {thing}"));
            let gone = self.0.difference(&now.0).filter(|thing| !expected(thing)).map(|thing| format!("gone: {thing}"));
            differences = left.chain(gone).collect();
            Ok(differences.is_empty().then_some(()))
        });
        settled.map_err(|_| anyhow!("the world is not as it was:\n{}", differences.join("\n")))
    }

    /// [`World::assert_same_but`] with nothing expected but the bridge that its plugin leaves for the next pod.
    ///
    /// # Errors
    /// Lists what is left, and what is gone.
    pub fn assert_same(&self) -> Result<()> {
        self.assert_same_but(|thing| thing == "link cni0")
    }
}

/// What is in a directory: nothing, if there is none, as below a file of cgroups, or it went since somebody saw it.
fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(gone) if matches!(gone.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("failed to list {}", dir.display()))?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn domains() -> Result<Vec<String>> {
    if !Path::new("/run/libvirt/libvirt-sock").exists() {
        return Ok(Vec::new());
    }
    let list = run(&mut command("virsh", ["-c", "qemu:///system", "list", "--all", "--name"]))?;
    Ok(list.split_whitespace().map(|name| format!("domain {name}")).collect())
}

fn processes() -> Result<Vec<String>> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for pid in names(Path::new("/proc"))?.into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        // Gone in between, or a zombie that process 1 is about to reap.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let value =
            |key| status.lines().find_map(|line: &str| line.strip_prefix(key)).map(str::trim).unwrap_or_default();
        if pid != own && !value("State:").starts_with('Z') {
            // tapmanager's helper gives itself its name, and has its parent's for a moment.
            let is_unnamed = value("Name:") == "tapmanager" && name_of(value("PPid:")) == "tapmanager";
            let name = if is_unnamed { "tap-spawner" } else { value("Name:") };
            found.push(format!("process {pid} {name}"));
        }
    }
    Ok(found)
}

fn name_of(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Rules, and chains and tables that have rules or are not the tools' own.
fn firewall() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for tool in ["iptables-save", "ip6tables-save"] {
        let rules = finish(&mut command(tool, [""; 0]), TOOL_DEADLINE)?;
        let ours = |line: &&str| line.starts_with("-A") || (line.starts_with(':') && line.contains(" - "));
        let uncounted = |line: &str| line.split(" [").next().unwrap_or(line).to_owned();
        found.extend(rules.stdout.lines().filter(ours).map(|line| format!("{tool} {}", uncounted(line))));
    }
    // What is not iptables': plugins may speak nftables themselves.
    let ruleset = sh("nft -j list ruleset")?;
    let ruleset: serde_json::Value = serde_json::from_str(&ruleset)?;
    for object in ruleset["nftables"].as_array().into_iter().flatten() {
        for kind in ["rule", "set", "map", "element"] {
            let table = &object[kind]["table"];
            if object.get(kind).is_some() && !["nat", "filter", "mangle", "raw"].iter().any(|builtin| table == builtin)
            {
                found.push(format!("nft {}", object[kind]));
            }
        }
    }
    Ok(found)
}

fn files(dir: &Path, things: &mut BTreeSet<String>) -> Result<()> {
    for name in names(dir)? {
        let path = dir.join(name);
        let shown = path.display().to_string();
        if path.is_dir() && !path.is_symlink() {
            files(&path, things)?;
        }
        if !LASTING.contains(&shown.as_str()) {
            things.insert(format!("file {shown}"));
        }
    }
    Ok(())
}

fn cgroups(dir: &Path, things: &mut BTreeSet<String>) -> Result<()> {
    for name in names(dir)? {
        let path = dir.join(name);
        if path.is_dir() {
            things.insert(format!("cgroup {}", path.display()));
            cgroups(&path, things)?;
        }
    }
    Ok(())
}
