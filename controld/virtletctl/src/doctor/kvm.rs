//! Whether `/dev/kvm` makes a VM. By making one, which is gone again at once: a device that is there says little.
//!
//! A VM without memory and processors runs nothing. Whether guests run under KVM is what controld's probe finds out; its
//! answer is the condition `KvmUsable`.

mod ioctl;

use super::facts::Facts;
use super::finding::Finding;
use super::host::Host;

const CHECK: &str = "kvm";
const DEVICE: &str = "/dev/kvm";

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    let accel = facts.controld.as_ref().map_or("auto", |settings| settings.accel.as_str());
    vec![judged(ioctl::make_vm(&host.at(DEVICE)), accel)]
}

fn judged(made: Result<(), ioctl::KvmError>, accel: &str) -> Finding {
    let emulated = accel == "qemu";
    match made {
        Ok(()) if emulated => {
            let seen = format!("`{DEVICE}` makes a VM, but `machine.accel` is qemu: machines are emulated");
            Finding::warning(CHECK, seen, "set `machine.accel` to auto in controld.toml, if guests run under KVM here")
        }
        Ok(()) => Finding::ok(CHECK, format!("`{DEVICE}` makes a VM; whether guests run in it was not tried here")),
        Err(error) if emulated => Finding::ok(CHECK, format!("`machine.accel` is qemu, and {error}")),
        Err(error) => {
            let mend = "turn on virtualization in the firmware, or nesting in the host of this VM; modprobe kvm_intel or kvm_amd";
            if accel == "kvm" {
                Finding::failure(CHECK, format!("{error}, but `machine.accel` is kvm: no machine starts"), mend)
            } else {
                Finding::warning(CHECK, format!("{error}: machines are emulated, which is slow"), mend)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_kvm_it_depends_on_the_settings() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::create_dir(dir.path().join("dev")).expect("directory");
        std::fs::write(dir.path().join("dev/kvm"), "").expect("a file that is no device");
        let host = Host::new(dir.path());
        let told: Vec<_> = ["auto", "kvm", "qemu"]
            .map(|accel| judged(ioctl::make_vm(&host.at(DEVICE)), accel))
            .iter()
            .map(|finding| format!("{}: {}", finding.state, finding.seen))
            .collect();
        insta::assert_snapshot!(told.join("\n").replace(&*dir.path().to_string_lossy(), ""), @r"
        warning: `/dev/kvm` is not KVM's (ENOTTY: Not a typewriter): machines are emulated, which is slow
        failure: `/dev/kvm` is not KVM's (ENOTTY: Not a typewriter), but `machine.accel` is kvm: no machine starts
        ok: `machine.accel` is qemu, and `/dev/kvm` is not KVM's (ENOTTY: Not a typewriter)
        ");
    }

    #[test]
    fn a_vm_that_was_made_says_no_more_than_that() {
        assert!(judged(Ok(()), "auto").seen.contains("was not tried"));
        assert_eq!(judged(Ok(()), "qemu").state, super::super::finding::State::Warning);
    }
}
