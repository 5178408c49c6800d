//! What the agent in a guest is told.

use proto::agent::{Frame, Message, encode};

use super::disks;
use crate::agent::{link, planned, setup_of};
use crate::annotations::PodAnnotations;
use crate::error::{Error, Kind, Result};
use crate::plan::{Disk, Guest, GuestCommand, Share};
use crate::settings::{Handler, MachineDefaults};
use crate::{ContainerConfig, SandboxConfig};

/// What the agent in a container's guest is told.
///
/// # Errors
/// When the machine is for the container's command and the pod has none, or one that is too long.
pub(super) fn of(
    sandbox: &SandboxConfig,
    container: &ContainerConfig,
    annotations: &PodAnnotations,
    handler: &Handler,
    share: Option<&Share>,
    (disks, files): (&[disks::Wanted], &[Disk]),
) -> Result<Guest> {
    let runs = annotations.run_command.unwrap_or(handler.defaults.run_command);
    if runs && container.command.argv.is_empty() {
        let what = format!(
            "the machine of container `{}` is to run its command, and it has none: an image of a disk names no command, \
             so the pod has to",
            container.name
        );
        return Err(Error::new(Kind::Invalid, what));
    }
    let command = runs.then(|| GuestCommand {
        argv: container.command.argv.clone(),
        read_only_root: container.command.read_only_root,
    });
    let has_agent = handler.defaults.has_agent(annotations);
    let mut guest = Guest { has_agent, command, ..Guest::default() };
    if has_agent {
        guest.sysctls.clone_from(&sandbox.sysctls);
        guest.resolver = sandbox.dns.as_ref().map(|dns| dns.options.clone()).unwrap_or_default();
    }
    let disks = disks.iter().map(|disk| link(disk.serial.as_str(), &disk.path, disk.read_only));
    let disks = disks.chain(files.iter().map(planned)).collect();
    if let Some(setup) = setup_of(&guest, share, disks, container) {
        // Nobody would hear of it later.
        encode(&Frame { epoch: 0, session: 0, message: Message::Setup(setup) }).map_err(|cause| {
            let what = "the guest's agent cannot be told the container's command, its variables, the pod's sysctls and volumes";
            Error::because(Kind::Invalid, what, cause)
        })?;
    }
    Ok(guest)
}

/// Whether a pod's sysctls can be set: those of the guest's kernel are for the agent there.
///
/// # Errors
/// When there is one, and no guest is known to have it.
pub fn check_sysctls(sandbox: &SandboxConfig, annotations: &PodAnnotations, defaults: &MachineDefaults) -> Result<()> {
    let of_the_guest = sandbox.sysctls.keys().find(|name| !is_of_the_network(name));
    match of_the_guest.filter(|_| !defaults.has_agent(annotations)) {
        None => Ok(()),
        Some(name) => Err(Error::new(
            Kind::Invalid,
            format!(
                "sysctl `{name}` is the guest's own, and only those of `net.` belong to its pod's network: it takes \
                 `virtlet-agent` in the guest, which annotation `virtlet.cloud/guest-agent: \"true\"` installs and setting \
                 `guest_agent` of the runtime handler promises; or set it by cloud-init"
            ),
        )),
    }
}

/// Whether a sysctl is one of a network namespace.
pub fn is_of_the_network(name: &str) -> bool {
    name.starts_with("net.") || name.starts_with("net/")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::CommandConfig;

    fn handler(guest_agent: bool, run_command: bool) -> Handler {
        Handler { name: "lab".into(), defaults: MachineDefaults { guest_agent, run_command, ..Default::default() } }
    }

    fn sandbox() -> SandboxConfig {
        let sysctls = [("kernel.shm_rmid_forced", "1"), ("net.ipv4.ip_forward", "1")];
        let sysctls = sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        SandboxConfig { sysctls, ..SandboxConfig::default() }
    }

    fn container(argv: &[&str]) -> ContainerConfig {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let command = CommandConfig { argv, read_only_root: true };
        ContainerConfig { name: "vm".into(), command, ..ContainerConfig::default() }
    }

    fn annotated(key: &str, value: &str) -> PodAnnotations {
        PodAnnotations::parse(&BTreeMap::from([(key.to_owned(), value.to_owned())])).expect("fine")
    }

    #[test]
    fn a_guest_without_our_agent_is_told_nothing() {
        let none = PodAnnotations::default();
        assert!(
            of(&sandbox(), &container(&["sh"]), &none, &handler(false, false), None, (&[], &[]))
                .expect("plans")
                .is_empty()
        );
        let error = check_sysctls(&sandbox(), &none, &MachineDefaults::default()).expect_err("refused");
        assert!(error.to_string().contains("kernel.shm_rmid_forced"), "{error}");
    }

    #[test]
    fn a_guest_with_our_agent_has_the_sysctls_of_its_pod() {
        let installed = annotated("virtlet.cloud/guest-agent", "true");
        for (annotations, handler) in
            [(PodAnnotations::default(), handler(true, false)), (installed, handler(false, false))]
        {
            check_sysctls(&sandbox(), &annotations, &handler.defaults).expect("can be set");
            let guest = of(&sandbox(), &container(&["sh"]), &annotations, &handler, None, (&[], &[])).expect("plans");
            assert_eq!((guest.sysctls, guest.command), (sandbox().sysctls, None));
        }
    }

    #[test]
    fn a_machine_is_for_its_command_if_handler_or_pod_say_so() {
        let none = PodAnnotations::default();
        let guest = of(&sandbox(), &container(&["sh"]), &none, &handler(false, true), None, (&[], &[])).expect("plans");
        assert_eq!(guest.command, Some(GuestCommand { argv: vec!["sh".into()], read_only_root: true }));
        let not = annotated("virtlet.cloud/run-command", "false");
        assert_eq!(
            of(&sandbox(), &container(&["sh"]), &not, &handler(false, true), None, (&[], &[])).expect("plans").command,
            None
        );
        let error =
            of(&sandbox(), &container(&[]), &none, &handler(false, true), None, (&[], &[])).expect_err("no command");
        assert!(error.to_string().contains("has none"), "{error}");
        let long = "x".repeat(1 << 20);
        let error =
            of(&sandbox(), &container(&[&long]), &none, &handler(false, true), None, (&[], &[])).expect_err("too long");
        assert!(error.to_string().contains("cannot be told"), "{error}");
    }
}
