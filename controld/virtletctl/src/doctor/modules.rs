//! Which modules a kernel has: built in, loaded, or in a file that it loads when somebody asks for what is in it.
//!
//! The lists beside the modules' files say it. A kernel without modules has no such lists; its own configuration says it then.

use std::collections::BTreeSet;
use std::io::Read as _;

use flate2::read::GzDecoder;

use super::host::{Host, HostError, MAX_FILE};

/// Where the files of a kernel's modules are.
const DIRS: [&str; 2] = ["/lib/modules", "/usr/lib/modules"];
/// The kernel's configuration, if it was built to tell it.
const CONFIG: &str = "/proc/config.gz";
/// What modules are called there.
const OPTIONS: [(&str, &str); 5] = [
    ("sch_ingress", "CONFIG_NET_SCH_INGRESS"),
    ("cls_bpf", "CONFIG_NET_CLS_BPF"),
    ("act_mirred", "CONFIG_NET_ACT_MIRRED"),
    ("bridge", "CONFIG_BRIDGE"),
    ("macvtap", "CONFIG_MACVTAP"),
];

/// Of the kernel that runs.
#[derive(Debug)]
pub(super) struct Modules {
    pub(super) kernel: String,
    loaded: BTreeSet<String>,
    /// Without it, what is not loaded may be built in all the same.
    listed: Option<Listed>,
    /// Asked without the lists.
    config: String,
    /// Whether it still loads any.
    closed: bool,
}

#[derive(Debug)]
struct Listed {
    built_in: BTreeSet<String>,
    in_files: BTreeSet<String>,
}

/// Whether the kernel has a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    BuiltIn,
    Loaded,
    /// In a file, loaded when it is needed.
    InFile,
    /// In a file, and the kernel loads none any more.
    Closed,
    No,
    /// There is no list of what the kernel has.
    Unknown,
}

impl Modules {
    pub(super) fn read(host: &Host) -> Result<Self, HostError> {
        let kernel = host.word("/proc/sys/kernel/osrelease")?;
        let first_words = |text: String| text.lines().filter_map(|line| line.split(' ').next().map(plain)).collect();
        let mut loaded: BTreeSet<String> = first_words(host.read("/proc/modules")?.unwrap_or_default());
        loaded.extend(host.names("/sys/module")?);
        let mut listed = None;
        for dir in DIRS {
            // A name that leads elsewhere is none of a kernel.
            if kernel.is_empty() || kernel.contains('/') || listed.is_some() {
                break;
            }
            let dir = format!("{dir}/{kernel}");
            let names = |text: String| text.lines().filter_map(name_of).collect();
            if let Some(in_files) = host.read(format!("{dir}/modules.dep"))? {
                let built_in = names(host.read(format!("{dir}/modules.builtin"))?.unwrap_or_default());
                listed = Some(Listed { built_in, in_files: names(in_files) });
            }
        }
        let config = if listed.is_none() { config(host)? } else { String::new() };
        let closed = host.word("/proc/sys/kernel/modules_disabled")? == "1";
        Ok(Self { kernel, loaded, listed, config, closed })
    }

    pub(super) fn has(&self, module: &str) -> Has {
        let module = plain(module);
        match &self.listed {
            Some(listed) if listed.built_in.contains(&module) => Has::BuiltIn,
            _ if self.loaded.contains(&module) => Has::Loaded,
            Some(listed) if listed.in_files.contains(&module) => {
                if self.closed {
                    Has::Closed
                } else {
                    Has::InFile
                }
            }
            Some(_) => Has::No,
            None => self.configured(&module),
        }
    }

    fn configured(&self, module: &str) -> Has {
        let Some((_, option)) = OPTIONS.iter().find(|(name, _)| *name == module) else { return Has::Unknown };
        if self.config.is_empty() {
            return Has::Unknown;
        }
        let set = self.config.lines().find_map(|line| line.strip_prefix(option)?.strip_prefix('='));
        match set {
            Some("y") => Has::BuiltIn,
            // Its file may be there or not.
            Some(_) => Has::Unknown,
            None => Has::No,
        }
    }
}

/// The kernel's configuration; empty if it does not tell.
fn config(host: &Host) -> Result<String, HostError> {
    let Some(packed) = host.bytes(CONFIG)? else { return Ok(String::new()) };
    let mut text = String::new();
    // One that is cut or broken tells nothing.
    match GzDecoder::new(&*packed).take(MAX_FILE).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(_) => Ok(String::new()),
    }
}

/// The module of a line as `kernel/net/sched/cls_bpf.ko.xz: kernel/...`.
fn name_of(line: &str) -> Option<String> {
    let path = line.split(':').next()?;
    let file = path.rsplit('/').next()?;
    Some(plain(file.split(".ko").next()?))
}

/// The kernel takes both for the same.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}
