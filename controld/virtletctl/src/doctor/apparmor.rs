//! AppArmor: does a profile keep vmwrapper from being started, or from reaching the hand-off socket?
//!
//! Two profiles matter. libvirt's daemon starts vmwrapper to learn what its emulator can do, under its own profile; each machine's
//! vmwrapper runs under a profile that libvirt makes of `abstractions/libvirt-qemu`. What the profiles' files allow is
//! judged as the kernel would, except for rules with variables, which name other files than ours.

mod glob;
mod rules;

use self::rules::Rules;
use super::facts::{Facts, NO_SETTINGS};
use super::finding::Finding;
use super::host::{Host, HostError};

const CHECK: &str = "apparmor";
const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// Of libvirt's daemons: names of their profiles, and the files that they are in.
const DAEMONS: [(&str, &str); 3] = [
    ("libvirtd", "usr.sbin.libvirtd"),
    ("/usr/sbin/libvirtd", "usr.sbin.libvirtd"),
    ("virtqemud", "usr.sbin.virtqemud"),
];
/// What the profile of each machine is made of.
const OF_MACHINES: &str = "abstractions/libvirt-qemu";
const MEND: &str = "install the AppArmor files of virtlet-rs's package, then systemctl reload apparmor";

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    vec![judged(host, facts).unwrap_or_else(|error| Finding::unknown(CHECK, error))]
}

fn judged(host: &Host, facts: &Facts) -> Result<Finding, HostError> {
    if host.word(ENABLED)? != "Y" {
        return Ok(Finding::ok(CHECK, "not enabled in this kernel"));
    }
    let Some(loaded) = host.read(LOADED)? else {
        return Ok(Finding::unknown(CHECK, format!("`{LOADED}` is not there; is securityfs mounted?")));
    };
    let enforced = |name: &str| loaded.lines().any(|line| line == format!("{name} (enforce)"));
    let Some((daemon, file)) = DAEMONS.into_iter().find(|(name, _)| enforced(name)) else {
        return Ok(Finding::ok(CHECK, "enabled; no profile of libvirt is enforced"));
    };
    let Ok(settings) = &facts.controld else { return Ok(Finding::unknown(CHECK, NO_SETTINGS)) };
    // A package has a link at that place.
    let vmwrapper = host.resolved(&settings.vmwrapper);
    let (vmwrapper, socket) = (vmwrapper.display().to_string(), settings.handoff_socket.display().to_string());
    let of_daemon = Rules::of_profile(host, file)?;
    let of_machines = Rules::of_abstraction(host, OF_MACHINES)?;
    let (Some(of_daemon), Some(of_machines)) = (of_daemon, of_machines) else {
        let why =
            format!("profile `{daemon}` is enforced, but `/etc/apparmor.d/{file}` or `{OF_MACHINES}` is not there");
        return Ok(Finding::unknown(CHECK, why));
    };
    let mut wrong = Vec::new();
    if !of_daemon.allow(&vmwrapper, 'x') {
        wrong.push(format!("profile `{daemon}` does not start `{vmwrapper}`"));
    }
    if !of_machines.allow(&vmwrapper, 'x') {
        wrong.push(format!("profiles of machines do not start `{vmwrapper}`"));
    }
    if !wrong.is_empty() {
        return Ok(Finding::failure(CHECK, format!("enforced, and stands in the way: {}", wrong.join("; ")), MEND));
    }
    if !of_machines.allow(&socket, 'w') {
        let seen = format!(
            "enforced; profiles of machines do not reach `{socket}`, on kernels that judge sockets by their path"
        );
        return Ok(Finding::warning(CHECK, seen, MEND));
    }
    Ok(Finding::ok(CHECK, format!("profile `{daemon}` is enforced; the files let `{vmwrapper}` start")))
}

#[cfg(test)]
mod tests;
