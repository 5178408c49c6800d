//! Brings settings to a PF and looks whether it has them; and back.
//!
//! Called by `claim`. The port [`PfControl`] is implemented by `tapmanager` with netlink.

use super::{Attribute, Kind, VfSettings, Wanted};
use crate::address::PciAddr;

/// Reads and writes what PFs lay down for their VFs.
pub trait PfControl {
    /// What the PF reports of VF `number`.
    ///
    /// # Errors
    /// If the PF has no such VF or no netdev, or the kernel does not answer.
    fn read(&mut self, pf: PciAddr, number: u32) -> Result<VfSettings, ControlError>;

    /// Has the PF lay down one setting for VF `number`. The whole value is written, as the kernel takes it.
    ///
    /// # Errors
    /// [`ControlError::Unsupported`] if the driver has no such setting (`EOPNOTSUPP`).
    fn write(&mut self, pf: PciAddr, number: u32, attribute: Attribute) -> Result<(), ControlError>;
}

/// Why a PF does not say or do it.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Its driver has no such setting.
    #[error("the PF's driver does not support it")]
    Unsupported,
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Settings that a VF does not have, as its PF's driver has no such thing or does not report it. None of them was asked
/// for.
pub type Unsupported = Vec<Kind>;

/// Why a VF has not the settings that it should have.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// They cannot be read.
    #[error("failed to read the settings of VF {number} of `{pf}`")]
    Read {
        /// The PF.
        pf: PciAddr,
        /// The VF's number.
        number: u32,
        /// Why.
        #[source]
        cause: ControlError,
    },
    /// One cannot be written.
    #[error("failed to set the {} of VF {number} of `{pf}` to {attribute}{}", attribute.kind(), advice(cause))]
    Write {
        /// The PF.
        pf: PciAddr,
        /// The VF's number.
        number: u32,
        /// The setting and its value.
        attribute: Attribute,
        /// Why.
        #[source]
        cause: ControlError,
    },
    /// One cannot be seen.
    #[error(
        "the driver of `{pf}` does not report the {} of VF {number}, which could not be put back either; do not ask for \
         it on this card", attribute.kind()
    )]
    Unreported {
        /// The PF.
        pf: PciAddr,
        /// The VF's number.
        number: u32,
        /// The setting and its value.
        attribute: Attribute,
    },
    /// One is not as it was written.
    #[error(
        "the {} of VF {number} of `{pf}` is {} after it was set to {wanted}; look for who else sets it, or use \
         a card whose driver can", wanted.kind(), shown(found.as_ref())
    )]
    Differs {
        /// The PF.
        pf: PciAddr,
        /// The VF's number.
        number: u32,
        /// What was written.
        wanted: Attribute,
        /// What the PF reports.
        found: Option<Attribute>,
    },
}

/// Gives VF `number` of `pf` the settings that it shall have, and returns those that its driver has not.
///
/// Writes what differs, and an address that was asked for in any case: a PF reports the address that a VF gave itself in
/// the same way, and forgets that one when the guest resets the VF. What the PF does not report is not written, as it
/// could not be put back.
///
/// # Errors
/// See [`SettingsError`]. What was written before stays; the call may be repeated.
pub fn apply<C: PfControl + ?Sized>(
    control: &mut C,
    pf: PciAddr,
    number: u32,
    wanted: &Wanted,
) -> Result<Unsupported, SettingsError> {
    let before = read(control, pf, number)?;
    apply_to(control, pf, number, &before, wanted)
}

/// The same by who knows what the PF reported just `before`. If that has changed since, it is an error, or is written again.
///
/// # Errors
/// As [`apply`].
pub fn apply_to<C: PfControl + ?Sized>(
    control: &mut C,
    pf: PciAddr,
    number: u32,
    before: &VfSettings,
    wanted: &Wanted,
) -> Result<Unsupported, SettingsError> {
    let (seen, unseen): (Vec<_>, Vec<_>) =
        wanted.attributes().into_iter().partition(|(attribute, _)| before.get(attribute.kind()).is_some());
    if let Some((attribute, _)) = unseen.iter().find(|(_, asked)| *asked) {
        return Err(SettingsError::Unreported { pf, number, attribute: *attribute });
    }
    let mut unsupported: Unsupported = unseen.iter().map(|(attribute, _)| attribute.kind()).collect();
    for (attribute, asked) in seen.iter().copied() {
        let kind = attribute.kind();
        let again = asked && kind == Kind::Mac;
        if before.get(kind) == Some(attribute) && !again {
            continue;
        }
        match control.write(pf, number, attribute) {
            Ok(()) => {}
            Err(ControlError::Unsupported) if !asked => unsupported.push(kind),
            Err(cause) => return Err(SettingsError::Write { pf, number, attribute, cause }),
        }
    }
    let after = read(control, pf, number)?;
    let due = seen.into_iter().map(|(attribute, _)| attribute).filter(|due| !unsupported.contains(&due.kind()));
    for attribute in due {
        compare(pf, number, &after, attribute)?;
    }
    Ok(unsupported)
}

/// Gives VF `number` of `pf` the settings that it had. What its driver did not report then is left alone. Whether an
/// address was laid down or the VF gave it to itself is not to be seen, and stays as it is if the address is the same.
///
/// # Errors
/// See [`SettingsError`]. What was written before stays; the call may be repeated.
pub fn restore<C: PfControl + ?Sized>(
    control: &mut C,
    pf: PciAddr,
    number: u32,
    saved: &VfSettings,
) -> Result<(), SettingsError> {
    let before = read(control, pf, number)?;
    let mut written = false;
    for attribute in saved.attributes().filter(|attribute| before.get(attribute.kind()) != Some(*attribute)) {
        let failed = |cause| SettingsError::Write { pf, number, attribute, cause };
        control.write(pf, number, attribute).map_err(failed)?;
        written = true;
    }
    if written {
        let after = read(control, pf, number)?;
        for attribute in saved.attributes() {
            compare(pf, number, &after, attribute)?;
        }
    }
    Ok(())
}

fn read<C: PfControl + ?Sized>(control: &mut C, pf: PciAddr, number: u32) -> Result<VfSettings, SettingsError> {
    control.read(pf, number).map_err(|cause| SettingsError::Read { pf, number, cause })
}

fn compare(pf: PciAddr, number: u32, after: &VfSettings, wanted: Attribute) -> Result<(), SettingsError> {
    match after.get(wanted.kind()) {
        Some(found) if found == wanted => Ok(()),
        found => Err(SettingsError::Differs { pf, number, wanted, found }),
    }
}

fn advice(cause: &ControlError) -> &'static str {
    match cause {
        ControlError::Unsupported => "; do not ask for it on this card",
        ControlError::Failed(_) => "",
    }
}

fn shown(found: Option<&Attribute>) -> String {
    found.map_or_else(|| "not reported".to_owned(), Attribute::to_string)
}
