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
use super::{DomainPhase, DomainState, Hypervisor, Marked, cut_start, meaning};
use crate::model::domain::METADATA_NAMESPACE;

const DESTROY_DEADLINE: Duration = Duration::from_secs(30);

impl Hypervisor {
    /// Defines a machine, or defines it anew.
    ///
    /// # Errors
    /// When libvirt refuses the description, or does not answer.
    pub async fn define(&self, xml: String) -> Result<()> {
        self.call("define the machine", DEFINE_DEADLINE, move |connection| connection.define(&xml).map(drop)).await
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
        let destroy = move |connection: &Connection| match connection.look_up(id)? {
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
            let Some(domain) = connection.look_up(id)? else { return Ok(()) };
            destroyed(&domain)?;
            match domain.undefine(connection.features) {
                Err(error) if error.code != NO_DOMAIN => Err(error),
                _ => Ok(()),
            }
        };
        self.call_in(Lane::Ends, "destroy and undefine the machine", DESTROY_DEADLINE, clear).await
    }

    /// Lets a machine go on that its full disk has paused; fine if nothing or somebody else has paused it, or there is none.
    ///
    /// # Errors
    /// When libvirt does not do it.
    pub async fn go_on(&self, id: Uuid) -> Result<()> {
        let go_on = move |connection: &Connection| {
            let Some(domain) = connection.look_up(id)? else { return Ok(()) };
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
        let state = move |connection: &Connection| connection.look_up(id)?.map(|domain| domain.state()).transpose();
        let state = self.call("tell the machine's state", QUICK_DEADLINE, state).await?;
        Ok(state.map(meaning::state_of))
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
                    Ok(Some((instance, marked))) if instance == mark => ours.push(marked),
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
        let xml = move |connection: &Connection| match connection.look_up(id)?.map(|domain| domain.xml()).transpose() {
            // Gone since it was looked up.
            Err(error) if error.code == NO_DOMAIN => Ok(None),
            xml => xml,
        };
        let xml = self.call("tell the machine's disks", QUICK_DEADLINE, xml).await?;
        Ok(xml.map(|xml| meaning::disks_of(&xml)))
    }
}

fn destroyed(domain: &Domain) -> Result<(), LibvirtError> {
    not_cut_off(domain)?;
    match domain.destroy() {
        Err(error) if !matches!(error.code, OPERATION_INVALID | NO_DOMAIN) => Err(error),
        _ => Ok(()),
    }
}

/// That libvirt does not wait for a start that its own death has cut off.
fn not_cut_off(domain: &Domain) -> Result<(), LibvirtError> {
    if !domain.state().is_ok_and(|raw| meaning::state_of(raw).coming_up) {
        return Ok(());
    }
    let name = domain.name()?;
    let told = |message| Err(LibvirtError { code: OPERATION_INVALID, message });
    match cut_start::is_cut(Path::new(cut_start::STATUS_DIR), &name) {
        Ok(false) => Ok(()),
        Ok(true) => told(format!(
            "libvirtd died while it started `{name}`, and the one that runs now waits for ever for that start; restart \
             libvirtd (machines run on)"
        )),
        Err(error) => {
            tracing::warn!(machine = name, %error, "status that libvirt keeps of a machine not read");
            Ok(())
        }
    }
}

/// The instance that a machine's mark names, if it has one, and the rest of it.
fn marked(domain: &Domain) -> Result<Option<(String, Marked)>, LibvirtError> {
    let Some(mark) = domain.metadata(METADATA_NAMESPACE)?.and_then(|element| meaning::mark_of(&element)) else {
        return Ok(None);
    };
    let meaning::Mark { instance, sandbox, pod_uid } = mark;
    let runs = meaning::state_of(domain.state()?).phase == DomainPhase::On;
    Ok(Some((instance, Marked { id: domain.id()?, name: domain.name()?, sandbox, pod_uid, runs, disks: Vec::new() })))
}

pub(super) fn existing(connection: &Connection, id: Uuid) -> Result<Domain, LibvirtError> {
    let absent = || LibvirtError { code: NO_DOMAIN, message: format!("no machine `{id}`") };
    connection.look_up(id)?.ok_or_else(absent)
}
