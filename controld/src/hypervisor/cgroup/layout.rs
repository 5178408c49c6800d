//! Where cgroups are mounted: one hierarchy with all controllers (version 2), or one for each few of them (version 1).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::files::Version;

/// Controllers of version 1 that a machine is moved in. Devices stay libvirt's: its list of what QEMU may open lies there.
const V1: [&str; 7] = ["cpu", "cpuacct", "cpuset", "memory", "pids", "blkio", "hugetlb"];
/// Controllers of version 2 that are wanted in a machine's cgroup.
const V2: [&str; 6] = ["cpu", "cpuset", "memory", "pids", "io", "hugetlb"];
/// A new cpuset of version 1 has none, and takes no process.
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

#[derive(Debug, Clone)]
pub(super) struct Layout {
    version: Version,
    hierarchies: Vec<Hierarchy>,
    all: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
pub(super) struct Hierarchy {
    version: Version,
    at: PathBuf,
    controllers: Vec<String>,
}

impl Layout {
    /// The layout of a list of mounts.
    pub(super) fn of(mounts: &str) -> Option<Self> {
        let mut ones = Vec::new();
        let mut two = None;
        let mut all = Vec::new();
        for line in mounts.lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(at), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else { continue };
            let at = PathBuf::from(at);
            match kind {
                "cgroup2" => {
                    let controllers = fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
                    let controllers = controllers.split_whitespace().map(str::to_owned).collect();
                    all.push(at.clone());
                    // Others mount it again elsewhere, and take that away.
                    two.get_or_insert(Hierarchy { version: Version::Two, at, controllers });
                }
                "cgroup" => {
                    let controllers = options.split(',').filter(|word| V1.contains(word)).map(str::to_owned);
                    let controllers: Vec<_> = controllers.collect();
                    all.push(at.clone());
                    if !controllers.is_empty() {
                        ones.push(Hierarchy { version: Version::One, at, controllers });
                    }
                }
                _ => {}
            }
        }
        // On a node with both, version 2 has what version 1 has not.
        let version = if ones.iter().any(|one| one.has("memory")) { Version::One } else { Version::Two };
        let hierarchies = match version {
            Version::One => ones,
            Version::Two => two.into_iter().collect(),
        };
        let has = |controller| hierarchies.iter().any(|hierarchy: &Hierarchy| hierarchy.has(controller));
        (has("cpu") && has("memory")).then_some(Self { version, hierarchies, all })
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }

    pub(super) fn all_mounts(&self) -> &[PathBuf] {
        &self.all
    }

    /// The directory of a cgroup where a controller has its files.
    pub(super) fn dir_of(&self, controller: &str, path: &str) -> Option<PathBuf> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.has(controller)).map(|hierarchy| hierarchy.dir(path))
    }
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|has| has == controller)
    }

    pub(super) fn dir(&self, path: &str) -> PathBuf {
        self.at.join(path.trim_start_matches('/'))
    }

    /// Makes a cgroup and those above it, so that it has all controllers. Those above that `is_ours` denies have to be there.
    pub(super) fn make(&self, path: &str, is_ours: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut dir = self.at.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if self.version == Version::Two {
                self.pass_down(&dir)?;
            }
            let parent = dir.clone();
            dir.push(name);
            if is_ours(name) {
                create(&dir)?;
            }
            if self.version == Version::One && self.has("cpuset") {
                fill_cpuset(&parent, &dir)?;
            }
        }
        Ok(())
    }

    /// Gives the cgroups below `dir` the controllers that it has itself.
    fn pass_down(&self, dir: &Path) -> io::Result<()> {
        let words = |name: &str| -> io::Result<Vec<String>> {
            Ok(fs::read_to_string(dir.join(name))?.split_whitespace().map(str::to_owned).collect())
        };
        let (has, passes) = (words("cgroup.controllers")?, words("cgroup.subtree_control")?);
        for controller in has.iter().filter(|one| V2.contains(&one.as_str()) && !passes.contains(one)) {
            fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
        Ok(())
    }
}

/// Makes one cgroup; fine if it is there.
pub(super) fn create(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn fill_cpuset(parent: &Path, dir: &Path) -> io::Result<()> {
    for file in CPUSET {
        if fs::read_to_string(dir.join(file))?.trim().is_empty() {
            fs::write(dir.join(file), fs::read_to_string(parent.join(file))?.trim())?;
        }
    }
    Ok(())
}
