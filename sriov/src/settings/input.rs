//! Settings from what a user asks for, all of it checked.
//!
//! Called by `tapmanager` for its own CNI plugin and for pods' annotations. The words are those of `ip link set PF vf N`.

use super::{LinkState, Rate, VfSettings, Vlan, VlanProto};
use crate::mac::MacError;

/// Highest VLAN id; 4095 is reserved.
const MAX_VLAN: u32 = 4094;
/// Highest priority of a frame.
const MAX_QOS: u32 = 7;

/// What a user asks for. `None` is not asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Input<'a> {
    /// Ethernet address.
    pub mac: Option<&'a str>,
    /// VLAN id; 0 is none on purpose.
    pub vlan: Option<u32>,
    /// Priority of frames in it.
    pub qos: Option<u32>,
    /// `802.1q` or `802.1ad`, in any case.
    pub proto: Option<&'a str>,
    /// `on` or `off`.
    pub spoofchk: Option<&'a str>,
    /// `on` or `off`.
    pub trust: Option<&'a str>,
    /// `auto`, `enable` or `disable`.
    pub link_state: Option<&'a str>,
    /// Mbit/s; 0 is no limit.
    pub min_rate: Option<u32>,
    /// Mbit/s; 0 is no limit.
    pub max_rate: Option<u32>,
}

/// Why what a user asks for cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The address.
    #[error(transparent)]
    Mac(#[from] MacError),
    /// A number that is too high.
    #[error("{what} is {value}, the highest is {max}")]
    TooHigh {
        /// Which.
        what: &'static str,
        /// The number.
        value: u32,
        /// The highest.
        max: u32,
    },
    /// A word that is not known.
    #[error("{what} is `{}`, it can be {choices}", value.escape_debug())]
    Word {
        /// Which.
        what: &'static str,
        /// The word.
        value: String,
        /// The words that are known.
        choices: &'static str,
    },
    /// Something of a VLAN without one.
    #[error("{what} is set, which needs a VLAN; set its id as well (1 to {MAX_VLAN})")]
    NoVlan {
        /// Which.
        what: &'static str,
    },
    /// The rates.
    #[error("the least rate of {min} Mbit/s is more than the highest of {max}; raise that or lower the least")]
    Rates {
        /// The least.
        min: u32,
        /// The highest.
        max: u32,
    },
}

// === impl Input ===

impl Input<'_> {
    /// Checks all of it.
    ///
    /// # Errors
    /// See [`InputError`].
    pub fn settings(&self) -> Result<VfSettings, InputError> {
        let mac = self.mac.map(|mac| mac.parse().and_then(crate::Mac::of_one)).transpose()?;
        let state = |word| match word {
            "auto" => Ok(LinkState::Auto),
            "enable" => Ok(LinkState::Enable),
            "disable" => Ok(LinkState::Disable),
            _ => Err(unknown("link state", word, "`auto`, `enable` or `disable`")),
        };
        Ok(VfSettings {
            vlan: self.vlan()?,
            mac,
            rate: self.rate()?,
            spoofchk: self.spoofchk.map(|word| switch("spoof check", word)).transpose()?,
            trust: self.trust.map(|word| switch("trust", word)).transpose()?,
            link_state: self.link_state.map(state).transpose()?,
        })
    }

    fn vlan(&self) -> Result<Option<Vlan>, InputError> {
        let proto = match self.proto.map(str::to_ascii_lowercase).as_deref() {
            None | Some("802.1q") => VlanProto::Q,
            Some("802.1ad") => VlanProto::Ad,
            Some(word) => return Err(unknown("VLAN protocol", word, "`802.1q` or `802.1ad`")),
        };
        let qos = bounded("VLAN priority", self.qos.unwrap_or(0), MAX_QOS)?;
        let id = bounded("VLAN id", self.vlan.unwrap_or(0), MAX_VLAN)?;
        match (id, qos, proto) {
            (0, 1.., _) => Err(InputError::NoVlan { what: "VLAN priority" }),
            (0, 0, VlanProto::Ad) => Err(InputError::NoVlan { what: "VLAN protocol 802.1ad" }),
            (id, qos, proto) => Ok(self.vlan.map(|_| Vlan { id, qos, proto })),
        }
    }

    fn rate(&self) -> Result<Option<Rate>, InputError> {
        let (min, max) = (self.min_rate.unwrap_or(0), self.max_rate.unwrap_or(0));
        if max != 0 && min > max {
            return Err(InputError::Rates { min, max });
        }
        Ok(self.min_rate.or(self.max_rate).map(|_| Rate { min, max }))
    }
}

fn bounded<T: TryFrom<u32>>(what: &'static str, value: u32, max: u32) -> Result<T, InputError> {
    let too_high = InputError::TooHigh { what, value, max };
    if value > max { Err(too_high) } else { value.try_into().map_err(|_| too_high) }
}

fn switch(what: &'static str, word: &str) -> Result<bool, InputError> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(unknown(what, word, "`on` or `off`")),
    }
}

fn unknown(what: &'static str, word: &str, choices: &'static str) -> InputError {
    InputError::Word { what, value: word.chars().take(32).collect(), choices }
}
