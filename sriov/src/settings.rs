//! What a PF lays down for one of its VFs: address, VLAN, rates, and what the guest may do.
//!
//! Called by `claim`, which saves, sets and restores them, and by `tapmanager`, which implements [`PfControl`]
//! with netlink. [`input`] makes them from what a user asks for, [`apply()`] and [`restore`] bring them to a PF.
//!
//! Kernel ABI: `IFLA_VFINFO_LIST` of `include/uapi/linux/if_link.h`; one attribute for each kind here.

mod apply;
pub mod input;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use apply::{ControlError, PfControl, SettingsError, Unsupported, apply, apply_to, restore};

use crate::mac::Mac;

/// Settings of a VF. `None`: the driver does not report it, or nobody asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfSettings {
    /// The VLAN that the PF tags with.
    pub vlan: Option<Vlan>,
    /// The address that the VF has of its PF; all zeroes if none.
    pub mac: Option<Mac>,
    /// How much it may send.
    pub rate: Option<Rate>,
    /// Whether frames from other addresses than its own are dropped.
    pub spoofchk: Option<bool>,
    /// Whether it may change its address and hear everything.
    pub trust: Option<bool>,
    /// What it is told of the link.
    pub link_state: Option<LinkState>,
}

/// A VLAN as a PF tags with it. Id 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// Its id, 0 to 4094.
    pub id: u16,
    /// The priority that frames get, 0 to 7.
    pub qos: u8,
    /// The kind of tag.
    pub proto: VlanProto,
}

/// Kinds of VLAN tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VlanProto {
    /// The usual one, `0x8100`.
    #[default]
    #[serde(rename = "802.1q")]
    Q,
    /// The outer one of two, `0x88a8`.
    #[serde(rename = "802.1ad")]
    Ad,
}

/// Rates in Mbit/s. 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// What the VF can rely on.
    pub min: u32,
    /// What it gets at most.
    pub max: u32,
}

/// What a VF is told of the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// What the PF's link is.
    #[default]
    Auto,
    /// Up, whatever the PF's link is.
    Enable,
    /// Down.
    Disable,
}

/// One setting with its value: what is written at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// See [`VfSettings::vlan`].
    Vlan(Vlan),
    /// See [`VfSettings::mac`].
    Mac(Mac),
    /// See [`VfSettings::rate`].
    Rate(Rate),
    /// See [`VfSettings::spoofchk`].
    Spoofchk(bool),
    /// See [`VfSettings::trust`].
    Trust(bool),
    /// See [`VfSettings::link_state`].
    LinkState(LinkState),
}

/// Which setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// See [`VfSettings::vlan`].
    Vlan,
    /// See [`VfSettings::mac`].
    Mac,
    /// See [`VfSettings::rate`].
    Rate,
    /// See [`VfSettings::spoofchk`].
    Spoofchk,
    /// See [`VfSettings::trust`].
    Trust,
    /// See [`VfSettings::link_state`].
    LinkState,
}

/// What a VF shall have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What was asked for: all of it, or an error.
    pub asked: VfSettings,
    /// What it shall have where nothing was asked for, as far as the driver can.
    pub otherwise: VfSettings,
}

// === impl VfSettings ===

impl VfSettings {
    /// Those that are set, in the order in which they are written: the VLAN before the address, as a driver may refuse
    /// an address in the wrong VLAN, and what the guest may do last.
    pub fn attributes(&self) -> impl Iterator<Item = Attribute> {
        let all = [
            self.vlan.map(Attribute::Vlan),
            self.mac.map(Attribute::Mac),
            self.rate.map(Attribute::Rate),
            self.spoofchk.map(Attribute::Spoofchk),
            self.trust.map(Attribute::Trust),
            self.link_state.map(Attribute::LinkState),
        ];
        all.into_iter().flatten()
    }

    /// The value of a setting.
    #[must_use]
    pub fn get(&self, kind: Kind) -> Option<Attribute> {
        self.attributes().find(|attribute| attribute.kind() == kind)
    }

    /// Gives a setting a value.
    pub fn set(&mut self, attribute: Attribute) {
        match attribute {
            Attribute::Vlan(vlan) => self.vlan = Some(vlan),
            Attribute::Mac(mac) => self.mac = Some(mac),
            Attribute::Rate(rate) => self.rate = Some(rate),
            Attribute::Spoofchk(on) => self.spoofchk = Some(on),
            Attribute::Trust(on) => self.trust = Some(on),
            Attribute::LinkState(state) => self.link_state = Some(state),
        }
    }
}

// === impl Wanted ===

impl Wanted {
    /// Everything that the VF shall have, in the order of writing, and whether it was asked for.
    pub(crate) fn attributes(&self) -> Vec<(Attribute, bool)> {
        let mut all = self.otherwise.clone();
        self.asked.attributes().for_each(|attribute| all.set(attribute));
        all.attributes().map(|attribute| (attribute, self.asked.get(attribute.kind()).is_some())).collect()
    }
}

// === impl Attribute ===

impl Attribute {
    /// Which setting it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Vlan(_) => Kind::Vlan,
            Self::Mac(_) => Kind::Mac,
            Self::Rate(_) => Kind::Rate,
            Self::Spoofchk(_) => Kind::Spoofchk,
            Self::Trust(_) => Kind::Trust,
            Self::LinkState(_) => Kind::LinkState,
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: bool| if on { "on" } else { "off" };
        match self {
            Self::Vlan(Vlan { id, qos, proto }) => {
                let proto = if *proto == VlanProto::Q { "802.1q" } else { "802.1ad" };
                write!(f, "{id} qos {qos} proto {proto}")
            }
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Rate(Rate { min, max }) => write!(f, "{min} to {max} Mbit/s"),
            Self::Spoofchk(on) | Self::Trust(on) => f.write_str(switch(*on)),
            Self::LinkState(LinkState::Auto) => f.write_str("auto"),
            Self::LinkState(LinkState::Enable) => f.write_str("enable"),
            Self::LinkState(LinkState::Disable) => f.write_str("disable"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vlan => "VLAN",
            Self::Mac => "address",
            Self::Rate => "rate",
            Self::Spoofchk => "spoof check",
            Self::Trust => "trust",
            Self::LinkState => "link state",
        })
    }
}

#[cfg(test)]
mod tests;
