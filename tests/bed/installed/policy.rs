//! That AppArmor is in force, and that what the package tells it is needed.

use std::time::Duration;

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};
use tests::installed::{Debian, Machine, Packages};

use super::node::{DENIALS, TOOL_DEADLINE, configure, install};

/// Warm, on two processors that nobody else uses, a minute.
const DEADLINE: Duration = Duration::from_secs(720);

pub(super) const CASES: &[Case] = &[Case {
    name: "installed::without_our_rules_apparmor_starts_no_vm_and_doctor_says_so",
    deadline: DEADLINE,
    run: bites,
}];

fn bites(bed: &Bed) -> Result<()> {
    let packages = Packages::build(bed, "1.0")?;
    let mut machine = Machine::boot(bed, Debian::Twelve)?;
    install(&mut machine, &packages)?;
    configure(&mut machine, bed)?;
    machine.run("rm /etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet", TOOL_DEADLINE)?;
    let (code, said) = machine.attempt("virtletctl doctor", TOOL_DEADLINE)?;
    ensure!(code != Some(0) && said.contains("profiles of machines do not start `/usr/sbin/vmwrapper`"), "{said}");
    let (code, said) = machine.attempt("virtletctl run tiny --name bite --memory 160Mi", TOOL_DEADLINE)?;
    ensure!(code != Some(0), "a VM starts without the rules: {said}");
    ensure!(
        said.contains("AppArmor, SELinux or a file's mode forbids to start vmwrapper; `virtletctl doctor`"),
        "{said}"
    );
    ensure!(said.contains("cannot execute binary /usr/lib/virtlet/vmwrapper: Permission denied"), "{said}");
    let denied = machine.wait("denial in the kernel's log", DENIALS, TOOL_DEADLINE)?;
    ensure!(denied.contains("name=\"/usr/sbin/vmwrapper\""), "{denied}");
    Ok(())
}
