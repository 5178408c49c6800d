//! Whether a security policy stands in the way of machines: what came of the last starts and probes, for `Status`. A person who sees
//! that no pod starts has one line that says who forbids what, and what to do.
//!
//! What was forbidden is so until something shows that it is not: a start or a probe that works, or one that fails by the word of
//! whoever would not have been started, or would have had nothing to say. Who forbids it is not in any error; it is judged by
//! what there is: modes of files first, then the policy that is in force.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::Chain;
use vmspec::error::Result;

use super::{WrapperError, meaning};

const APPARMOR: &str = "sys/module/apparmor/parameters/enabled";
const SELINUX: &str = "sys/fs/selinux/enforce";
/// What libvirt includes in the profile of each machine: the package's file, and where administrators put theirs.
const INCLUDED: [&str; 2] =
    ["etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet", "etc/apparmor.d/local/abstractions/libvirt-qemu"];
/// Code of vmwrapper (`EX_UNAVAILABLE`) when it was not given what it asked tapmanager for.
const UNAVAILABLE: i32 = 69;
/// Code of vmwrapper (`EX_PROTOCOL`) when it was given what it cannot use.
const PROTOCOL: i32 = 76;
const DENIED: &str = "Permission denied";

/// What was forbidden last, of each kind.
#[derive(Debug, Default)]
pub(super) struct Policy(Mutex<Forbidden>);

/// What a policy forbids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Forbidden {
    /// libvirt may not start vmwrapper to ask what the emulator has.
    probe: bool,
    /// libvirt's child, already confined as the machine, may not start it.
    start: bool,
    /// vmwrapper may not connect to tapmanager, or have what that hands out.
    handoff: bool,
}

impl Policy {
    /// Takes in what came of a start.
    pub(super) fn hear_start<T>(&self, outcome: &Result<T>) {
        let mut forbidden = self.forbidden();
        match outcome {
            Ok(_) => *forbidden = Forbidden::default(),
            Err(error) => forbidden.hear_start(&Chain(error).to_string()),
        }
    }

    /// Takes in what came of libvirt's look at the emulator. One that worked shows that libvirt may start vmwrapper, and not that a
    /// machine may.
    pub(super) fn hear_probe<T>(&self, outcome: &Result<T>) {
        let mut forbidden = self.forbidden();
        match outcome {
            Ok(_) => forbidden.probe = false,
            Err(error) => forbidden.hear_probe(&Chain(error).to_string()),
        }
    }

    /// What stands in the way, in one line, if something does. `root` is where the kernel shows which policies are in force, and
    /// where files are.
    pub(super) fn trouble(&self, root: &Path, vmwrapper: &Path) -> Option<String> {
        let forbidden = *self.forbidden();
        let (what, who, mend) = match forbidden {
            Forbidden { start: true, .. } => {
                let (who, mend) = forbids_start(root, vmwrapper, !has_rule(root), PUT_BACK);
                ("a VM to start as vmwrapper", who, mend)
            }
            Forbidden { probe: true, .. } => {
                let (who, mend) = forbids_start(root, vmwrapper, true, IN_SBIN);
                ("libvirt to start vmwrapper", who, mend)
            }
            Forbidden { handoff: true, .. } => {
                let (who, mend) = forbids_handoff(root);
                ("vmwrapper to fetch its pod's network from tapmanager", who, mend)
            }
            Forbidden { .. } => return None,
        };
        Some(format!("{who} forbids {what}: {mend}, and `virtletctl doctor` looks at both"))
    }

    fn forbidden(&self) -> MutexGuard<'_, Forbidden> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forbidden {
    /// Takes in how a start failed. By what vmwrapper or QEMU say they were started.
    fn hear_start(&mut self, said: &str) {
        if let Some(wrapper) = meaning::wrapper_line_of(said) {
            (self.probe, self.start) = (false, false);
            let WrapperError { code, line } = wrapper;
            if code == UNAVAILABLE && line.contains(DENIED) {
                // It opens nothing else before it is QEMU.
                self.handoff = true;
            } else if code == PROTOCOL
                || (code == UNAVAILABLE && !line.contains("failed to connect"))
                || line.contains("failed to execute")
            {
                self.handoff = false;
            }
        } else if meaning::is_qemus_word(said) {
            *self = Self::default();
        } else if meaning::is_start_forbidden(said) {
            self.start = true;
        }
    }

    /// Takes in how a look at the emulator failed.
    fn hear_probe(&mut self, said: &str) {
        if meaning::wrapper_line_of(said).is_some() || meaning::is_qemus_word(said) {
            self.probe = false;
        } else if meaning::is_start_forbidden(said)
            || (said.contains("Failed to start QEMU binary") && said.contains(DENIED))
        {
            self.probe = true;
        }
    }
}

type Blame = (&'static str, &'static str);

const BY_APPARMOR: &str = "AppArmor";
const PUT_BACK: &str =
    "put back `/etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet`; `journalctl -k -g DENIED` names what it denies";
const IN_SBIN: &str =
    "libvirt's own profile lets it start what is in `/usr/sbin`; `journalctl -k -g DENIED` names what it denies";
const BY_SELINUX: Blame = (
    "SELinux",
    "install the module of deploy/selinux and run restorecon on our files; `ausearch -m avc -ts recent` names what it denies",
);

/// Who forbids that vmwrapper is started. AppArmor, if it `lacks` a rule for it, and then `mend` says what to do.
fn forbids_start(root: &Path, vmwrapper: &Path, lacks: bool, mend: &'static str) -> Blame {
    if !may_be_started(root, vmwrapper) {
        ("a file's mode", "vmwrapper and the directories above it are to be executable for libvirt's user of machines")
    } else if is_enforcing(root) {
        BY_SELINUX
    } else if is_confining(root) && lacks {
        (BY_APPARMOR, mend)
    } else if is_confining(root) {
        (
            "AppArmor, which has our rule, or a file system that is mounted `noexec`,",
            "`journalctl -k -g DENIED` names what AppArmor denies",
        )
    } else {
        ("the file system of vmwrapper, or an access list,", "libvirt's user of machines is to be able to execute it")
    }
}

/// Who forbids the hand-off.
fn forbids_handoff(root: &Path) -> Blame {
    if is_enforcing(root) {
        BY_SELINUX
    } else if is_confining(root) && !has_rule(root) {
        (BY_APPARMOR, PUT_BACK)
    } else {
        (
            "a file's mode",
            "`handoff.sock` is to be the group's of libvirt's user of machines, and all may pass the directories above it",
        )
    }
}

/// Whether SELinux is in force.
fn is_enforcing(root: &Path) -> bool {
    says(root, SELINUX, "1")
}

/// Whether AppArmor is.
fn is_confining(root: &Path) -> bool {
    says(root, APPARMOR, "Y")
}

fn says(root: &Path, file: &str, value: &str) -> bool {
    fs::read_to_string(root.join(file)).is_ok_and(|text| text.trim() == value)
}

/// Whether all may execute vmwrapper, and reach it, by the modes of files. Below `root`.
fn may_be_started(root: &Path, vmwrapper: &Path) -> bool {
    let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    // A link's own mode says nothing; what it leads to may be elsewhere.
    let file = fs::canonicalize(below(vmwrapper)).unwrap_or_else(|_| below(vmwrapper));
    let executable = |path: &Path| fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o001 != 0);
    file.ancestors().take_while(|path| path.starts_with(root)).all(executable)
}

/// Whether machines' profiles have a rule for vmwrapper.
fn has_rule(root: &Path) -> bool {
    INCLUDED.iter().any(|file| fs::read_to_string(root.join(file)).is_ok_and(|rules| rules.contains("vmwrapper")))
}

#[cfg(test)]
mod tests;
