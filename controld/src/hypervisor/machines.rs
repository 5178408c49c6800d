//! What is done to machines that libvirt knows: each call is repeatable, and one about a machine that is gone says so or is done.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::pause::Pause;
use uuid::Uuid;
use vmspec::error::Result;

use super::calls::{DEFINE_DEADLINE, QUICK_DEADLINE};
use super::ffi::{Connection, Domain, LibvirtError, NO_DOMAIN, OPERATION_INVALID};
use super::link::Lane;
use super::press::Press;
use super::process::STATUS_DIR;
use super::{DomainPhase, DomainState, Hypervisor, Marked, cut_start, meaning};
use crate::model::domain::METADATA_NAMESPACE;

const DESTROY_DEADLINE: Duration = Duration::from_secs(30);

impl Hypervisor {
    /// Defines a machine, or defines it anew.
    ///
    /// # Errors
    /// When libvirt refuses the description, or does not answer.
    pub async fn define(&self, xml: String) -> Result<()> {
        let define = move |connection: &Connection| {
            let domain = connection.define(&xml)?;
            let name = domain.name()?;
            let state = meaning::state_of(domain.state()?);
            if is_cut_off(&domain, state)? {
                let message = format!(
                    "libvirt waits for ever for an earlier start of `{name}`, which its own death has cut off; make another container, \
                     or restart libvirtd (machines run on)"
                );
                return Err(LibvirtError { code: OPERATION_INVALID, message });
            }
            if !state.coming_up {
                forget_cut(&name);
            }
            Ok(())
        };
        self.call("define the machine", DEFINE_DEADLINE, define).await
    }

    /// Presses the power button (ACPI). Nothing is done while libvirt has not answered the last time: it waits for a QEMU that
    /// hangs without a deadline, and there are few turns.
    ///
    /// # Errors
    /// When the machine is not on, or libvirt does not answer.
    pub async fn shutdown(&self, id: Uuid) -> Result<()> {
        let Some(one) = Press::begin(&self.shared.presses, id) else { return Ok(()) };
        let press = move |connection: &Connection| {
            let _one = one;
            existing(connection, id)?.press_power_button()
        };
        self.call_in(Lane::Presses, "press the power button", QUICK_DEADLINE, press).await
    }

    /// Ends a machine; fine if it is off or there is none.
    ///
    /// # Errors
    /// When it would not end, or libvirt does not answer.
    pub async fn destroy(&self, id: Uuid) -> Result<()> {
        let destroy = move |connection: &Connection| match look_up(connection, id)? {
            Some(domain) => destroyed(&domain),
            None => Ok(()),
        };
        self.call_in(Lane::Ends, "destroy the machine", DESTROY_DEADLINE, destroy).await
    }

    /// Ends a machine and makes libvirt forget it; fine if it is off or there is none. Nothing can start it afterwards.
    ///
    /// # Errors
    /// When it would not end, or libvirt does not answer.
    pub async fn clear(&self, id: Uuid) -> Result<()> {
        let clear = move |connection: &Connection| {
            let Some(domain) = look_up(connection, id)? else { return Ok(()) };
            let name = domain.name()?;
            destroyed(&domain)?;
            match domain.undefine(connection.features) {
                Err(error) if error.code != NO_DOMAIN => return Err(error),
                _ => forget_cut(&name),
            }
            Ok(())
        };
        self.call_in(Lane::Ends, "destroy and undefine the machine", DESTROY_DEADLINE, clear).await
    }

    /// Lets a machine go on that its full disk has paused; fine if nothing or somebody else has paused it, or there is none.
    ///
    /// # Errors
    /// When libvirt does not do it.
    pub async fn go_on(&self, id: Uuid) -> Result<()> {
        let go_on = move |connection: &Connection| {
            let Some(domain) = look_up(connection, id)? else { return Ok(()) };
            match meaning::state_of(domain.state()?).pause {
                Some(Pause::DiskFull) => domain.resume(),
                Some(Pause::ByHand) | None => Ok(()),
            }
        };
        self.call_in(Lane::Presses, "let the machine go on", QUICK_DEADLINE, go_on).await
    }

    /// Pauses a machine that runs; fine if it is paused.
    ///
    /// # Errors
    /// When it does not run, libvirt does not do it, or does not answer.
    pub async fn pause(&self, id: Uuid) -> Result<()> {
        let pause = move |connection: &Connection| existing(connection, id)?.suspend();
        self.call_in(Lane::Presses, "pause the machine", QUICK_DEADLINE, pause).await
    }

    /// Lets a machine go on, whoever has paused it; fine if nobody has.
    ///
    /// # Errors
    /// When it does not run, libvirt does not do it, or does not answer.
    pub async fn resume(&self, id: Uuid) -> Result<()> {
        let resume = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            match meaning::state_of(domain.state()?).pause {
                Some(Pause::DiskFull | Pause::ByHand) => domain.resume(),
                None => Ok(()),
            }
        };
        self.call_in(Lane::Presses, "let the machine go on", QUICK_DEADLINE, resume).await
    }

    /// Resets a machine that is on, without a word to its guest; a paused one stays paused.
    ///
    /// # Errors
    /// When it is not on, libvirt does not do it, or does not answer.
    pub async fn reset(&self, id: Uuid) -> Result<()> {
        let reset = move |connection: &Connection| existing(connection, id)?.reset();
        self.call_in(Lane::Presses, "reset the machine", QUICK_DEADLINE, reset).await
    }

    /// Asks a guest to reboot by its power button (ACPI), as [`Self::shutdown`] asks it to power off.
    ///
    /// # Errors
    /// When the machine is not on, or libvirt does not answer.
    pub async fn reboot(&self, id: Uuid) -> Result<()> {
        let Some(one) = Press::begin(&self.shared.presses, id) else { return Ok(()) };
        let press = move |connection: &Connection| {
            let _one = one;
            existing(connection, id)?.reboot()
        };
        self.call_in(Lane::Presses, "press the power button for a reboot", QUICK_DEADLINE, press).await
    }

    /// Where a machine stands; `None` if there is none.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn state(&self, id: Uuid) -> Result<Option<DomainState>> {
        let state = move |connection: &Connection| {
            let Some(domain) = connection.look_up(id)? else { return Ok(None) };
            let state = meaning::state_of(domain.state()?);
            Ok((!is_cut_off(&domain, state)?).then_some(state))
        };
        self.call("tell the machine's state", QUICK_DEADLINE, state).await
    }

    /// Machines that this instance of controld made, by their metadata. Others are none of our business.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn list_ours(&self, instance: Uuid) -> Result<Vec<Marked>> {
        let mark = instance.to_string();
        let list = move |connection: &Connection| {
            let mut ours = Vec::new();
            for domain in connection.domains()? {
                match marked(&domain) {
                    Ok(Some((instance, state, marked))) if instance == mark => {
                        ours.extend((!is_cut_off(&domain, state)?).then_some(marked));
                    }
                    // Gone since it was listed.
                    Err(error) if error.code != NO_DOMAIN => return Err(error),
                    _ => {}
                }
            }
            Ok(ours)
        };
        self.call("list the machines", QUICK_DEADLINE, list).await
    }

    /// Files of a machine's disks, not what they stand on; `None` if there is no such machine.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn disks(&self, id: Uuid) -> Result<Option<Vec<PathBuf>>> {
        let xml = move |connection: &Connection| match look_up(connection, id)?.map(|domain| domain.xml()).transpose() {
            // Gone since it was looked up.
            Err(error) if error.code == NO_DOMAIN => Ok(None),
            xml => xml,
        };
        let xml = self.call("tell the machine's disks", QUICK_DEADLINE, xml).await?;
        Ok(xml.map(|xml| meaning::disks_of(&xml)))
    }
}

fn destroyed(domain: &Domain) -> Result<(), LibvirtError> {
    match domain.destroy() {
        Err(error) if !matches!(error.code, OPERATION_INVALID | NO_DOMAIN) => Err(error),
        _ => Ok(()),
    }
}

/// A machine, if there is one.
pub(super) fn look_up(connection: &Connection, id: Uuid) -> Result<Option<Domain>, LibvirtError> {
    let Some(domain) = connection.look_up(id)? else { return Ok(None) };
    // Of one that has gone meanwhile the call that is made of it tells.
    let Ok(state) = domain.state().map(meaning::state_of) else { return Ok(Some(domain)) };
    Ok((!is_cut_off(&domain, state)?).then_some(domain))
}

/// Whether libvirt waits for a start that its own death has cut off: then it lists what is no machine any more.
fn is_cut_off(domain: &Domain, state: DomainState) -> Result<bool, LibvirtError> {
    if !state.coming_up {
        return Ok(false);
    }
    let name = domain.name()?;
    Ok(cut_start::is_cut(Path::new(STATUS_DIR), &name, domain.id()?).unwrap_or_else(|error| {
        tracing::warn!(machine = name, %error, "status that libvirt keeps of a machine not looked at");
        false
    }))
}

/// Forgets that a start of a machine was cut off, now that libvirt has forgotten it.
fn forget_cut(name: &str) {
    if let Err(error) = cut_start::forget(Path::new(STATUS_DIR), name) {
        tracing::warn!(machine = name, %error, "status of a start that was cut off not removed");
    }
}

/// The instance that a machine's mark names, if it has one, where the machine stands, and the rest of the mark.
fn marked(domain: &Domain) -> Result<Option<(String, DomainState, Marked)>, LibvirtError> {
    let Some(mark) = domain.metadata(METADATA_NAMESPACE)?.and_then(|element| meaning::mark_of(&element)) else {
        return Ok(None);
    };
    let meaning::Mark { instance, sandbox, pod_uid } = mark;
    let (name, state) = (domain.name()?, meaning::state_of(domain.state()?));
    let runs = state.phase == DomainPhase::On;
    let was_cut_off = !runs && cut_start::was_cut(Path::new(STATUS_DIR), &name);
    let marked = Marked { id: domain.id()?, name, sandbox, pod_uid, runs, was_cut_off, disks: Vec::new() };
    Ok(Some((instance, state, marked)))
}

pub(super) fn existing(connection: &Connection, id: Uuid) -> Result<Domain, LibvirtError> {
    let absent = || LibvirtError { code: NO_DOMAIN, message: format!("no machine `{id}`") };
    look_up(connection, id)?.ok_or_else(absent)
}
