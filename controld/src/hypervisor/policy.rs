//! Whether a security policy stands in the way of machines: what came of the last start, for `Status`. A person who sees that no
//! pod starts has one line that says who forbids what, and what to do.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use common::Chain;

use super::meaning;
use crate::model::error::{Error, Result};

const APPARMOR: &str = "sys/module/apparmor/parameters/enabled";
const SELINUX: &str = "sys/fs/selinux/enforce";

/// What was forbidden last.
#[derive(Debug, Default)]
pub(super) struct Policy(Mutex<Option<Forbidden>>);

/// What a policy forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forbidden {
    /// libvirt, or its child, may not start vmwrapper.
    Start,
    /// vmwrapper may not connect to tapmanager, or have what that hands out.
    HandOff,
}

impl Policy {
    /// Takes in what came of a start, or of libvirt's look at the emulator. What has another reason says nothing of policies.
    pub(super) fn hear<T>(&self, outcome: &Result<T>) {
        let mut forbidden = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(_) => *forbidden = None,
            Err(error) => *forbidden = forbidden_by(error).or(*forbidden),
        }
    }

    /// What stands in the way, in one line, if something does. `root` is where the kernel shows which policies are in force.
    pub(super) fn trouble(&self, root: &Path) -> Option<String> {
        let forbidden = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let is = |file: &str, value: &str| fs::read_to_string(root.join(file)).is_ok_and(|text| text.trim() == value);
        let (who, mend) = if is(SELINUX, "1") {
            (
                "SELinux",
                "install the module of deploy/selinux and run restorecon on our files; `ausearch -m avc -ts recent` names what it denies",
            )
        } else if is(APPARMOR, "Y") {
            (
                "AppArmor",
                "put back `/etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet`; `journalctl -k -g DENIED` names what it denies",
            )
        } else {
            ("a file's mode", "vmwrapper and QEMU are to be executable for libvirt's user of machines")
        };
        let what = match forbidden {
            Forbidden::Start => "libvirt to start vmwrapper",
            Forbidden::HandOff => "vmwrapper to fetch its pod's network from tapmanager",
        };
        Some(format!("{who} forbids {what}: {mend}, and `virtletctl doctor` looks at both"))
    }
}

fn forbidden_by(error: &Error) -> Option<Forbidden> {
    forbidden_in(&Chain(error).to_string())
}

fn forbidden_in(said: &str) -> Option<Forbidden> {
    if !said.contains("Permission denied") {
        return None;
    }
    if meaning::is_start_forbidden(said) || said.contains("Failed to start QEMU binary") {
        return Some(Forbidden::Start);
    }
    // It opens nothing else before it is QEMU.
    meaning::wrapper_line_of(said).filter(|error| error.code == 69).map(|_| Forbidden::HandOff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Kind;

    fn failed(said: &str) -> Result<()> {
        Err(Error::new(Kind::Internal, said.to_owned()))
    }

    fn root(file: &str, text: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().expect("parent")).expect("made");
        fs::write(path, text).expect("written");
        dir
    }

    #[test]
    fn what_a_policy_forbids_is_known_by_what_libvirt_or_vmwrapper_says() {
        let exec = "process exited while connecting to monitor: libvirt:  error : cannot execute binary \
                    /usr/lib/virtlet/vmwrapper: Permission denied";
        let probe = "Failed to start QEMU binary for probing: cannot execute: Permission denied";
        let connect = "vmwrapper[69]: failed to fetch the pod's network: failed to connect to `/run/virtlet/handoff.sock`: \
                       Permission denied (os error 13)";
        for (said, wanted) in [
            (exec, Some(Forbidden::Start)),
            (probe, Some(Forbidden::Start)),
            (connect, Some(Forbidden::HandOff)),
            ("Could not open '/dev/vda': Permission denied", None),
            ("vmwrapper[69]: failed to fetch the pod's network: token refused", None),
        ] {
            assert_eq!(forbidden_in(said), wanted, "{said}");
        }
    }

    #[test]
    fn it_is_told_until_a_machine_starts_and_names_whose_policy_it_is() {
        let policy = Policy::default();
        let nothing = tempfile::tempdir().expect("tempdir");
        assert_eq!(policy.trouble(nothing.path()), None);
        policy.hear(&failed("cannot execute binary /usr/lib/virtlet/vmwrapper: Permission denied"));
        policy.hear(&failed("libvirt is away"));
        for (file, text, who) in [
            (APPARMOR, "Y\n", "AppArmor forbids libvirt to start vmwrapper: put back `/etc/apparmor.d/"),
            (SELINUX, "1", "SELinux forbids libvirt to start vmwrapper: install the module of deploy/selinux"),
            (SELINUX, "0", "a file's mode forbids libvirt to start vmwrapper"),
        ] {
            let dir = root(file, text);
            let told = policy.trouble(dir.path()).expect("told");
            assert!(told.starts_with(who) && !told.contains('\n'), "{told}");
        }
        policy.hear(&Ok(()));
        assert_eq!(policy.trouble(nothing.path()), None);
    }
}
