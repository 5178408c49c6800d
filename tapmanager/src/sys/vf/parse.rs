//! The kernel's description of a link, as far as it is about VFs.
//!
//! Called by [`super::list`]. The bytes are the body of an `RTM_NEWLINK`: a header, then attributes.
//!
//! The list of VFs is one attribute with an attribute for each VF in it. The kernel adds VFs beyond what the 16 bits of
//! the list's length can tell (from some 200 VFs on with their counters, 277 without), and writes the low 16 bits. So the list ends here where its
//! attributes end, whatever its length says: none that comes after it has the type of a VF's.

use std::collections::BTreeMap;

use netlink_packet_core::DecodeError;
use sriov::Mac;
use sriov::settings::{Attribute, LinkState, Rate, VfSettings, Vlan, VlanProto};

use super::VfList;

/// Length of `struct ifinfomsg`.
const HEADER_LEN: usize = 16;
/// Place of the link's index in it, in numbers of 32 bits.
const INDEX: usize = 1;
/// Length of `struct nlattr`.
const ATTRIBUTE_LEN: usize = 4;
/// The bits of a type that are its number (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

// Of a link.
const IFLA_IFNAME: u16 = 3;
const IFLA_NUM_VF: u16 = 21;
const IFLA_VFINFO_LIST: u16 = 22;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
// Of the list.
const IFLA_VF_INFO: u16 = 1;
// Of a VF. Each begins with its number.
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_VLAN: u16 = 2;
const IFLA_VF_SPOOFCHK: u16 = 4;
const IFLA_VF_LINK_STATE: u16 = 5;
const IFLA_VF_RATE: u16 = 6;
const IFLA_VF_TRUST: u16 = 9;
const IFLA_VF_VLAN_LIST: u16 = 12;
// Of a VF's list of VLANs.
const IFLA_VF_VLAN_INFO: u16 = 1;

const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
/// What the kernel says of a switch that the driver has not (-1).
const NO_SWITCH: u32 = u32::MAX;

/// An attribute: its type, its value, and what comes behind it.
type Split<'a> = (u16, &'a [u8], &'a [u8]);

/// Reads the body of an `RTM_NEWLINK`.
pub(super) fn link(body: &[u8]) -> Result<VfList, DecodeError> {
    let mut rest = body.get(HEADER_LEN..).ok_or_else(|| broken("a link", "too short"))?;
    let mut list = VfList { index: number(body, INDEX)?, ..VfList::default() };
    let mut bus = None;
    while !rest.is_empty() {
        if kind(rest) == Some(IFLA_VFINFO_LIST) {
            (list.vfs, rest) = vfs(rest.get(ATTRIBUTE_LEN..).unwrap_or_default())?;
            continue;
        }
        let (kind, value, next) = split(rest)?;
        match kind {
            IFLA_IFNAME => list.name = text(value),
            IFLA_NUM_VF => list.enabled = number(value, 0)?,
            IFLA_PARENT_DEV_NAME => list.pci = Some(text(value)),
            IFLA_PARENT_DEV_BUS_NAME => bus = Some(text(value)),
            _ => {}
        }
        rest = next;
    }
    list.pci = list.pci.filter(|_| bus.as_deref() == Some("pci"));
    Ok(list)
}

/// Reads VFs as long as there are some, and returns what comes behind them.
fn vfs(mut rest: &[u8]) -> Result<(BTreeMap<u32, VfSettings>, &[u8]), DecodeError> {
    let mut vfs = BTreeMap::new();
    while kind(rest) == Some(IFLA_VF_INFO) {
        let (_, value, next) = split(rest)?;
        vfs.extend(vf(value)?);
        rest = next;
    }
    Ok((vfs, rest))
}

/// Reads one VF; `None` if nothing says which.
fn vf(mut rest: &[u8]) -> Result<Option<(u32, VfSettings)>, DecodeError> {
    let (mut which, mut settings, mut tagged) = (None, VfSettings::default(), false);
    while !rest.is_empty() {
        let (kind, value, next) = split(rest)?;
        let setting = match kind {
            IFLA_VF_MAC => {
                which = Some(number(value, 0)?);
                mac(value)?
            }
            // Kernels from 4.9 on tell of it a second time, with its kind.
            IFLA_VF_VLAN if tagged => None,
            IFLA_VF_VLAN => vlan(value, Some(VlanProto::Q))?,
            IFLA_VF_VLAN_LIST => {
                (tagged, settings.vlan) = (true, None);
                vlan_of_list(value)?
            }
            IFLA_VF_RATE => Some(Attribute::Rate(Rate { min: number(value, 1)?, max: number(value, 2)? })),
            IFLA_VF_SPOOFCHK => switch(value)?.map(Attribute::Spoofchk),
            IFLA_VF_TRUST => switch(value)?.map(Attribute::Trust),
            IFLA_VF_LINK_STATE => match number(value, 1)? {
                0 => Some(Attribute::LinkState(LinkState::Auto)),
                1 => Some(Attribute::LinkState(LinkState::Enable)),
                2 => Some(Attribute::LinkState(LinkState::Disable)),
                _ => None,
            },
            _ => None,
        };
        if let Some(setting) = setting {
            settings.set(setting);
        }
        rest = next;
    }
    Ok(which.map(|which| (which, settings)))
}

fn mac(value: &[u8]) -> Result<Option<Attribute>, DecodeError> {
    let bytes = value.get(4..).and_then(<[u8]>::first_chunk).ok_or_else(|| broken("a VF's address", "too short"))?;
    Ok(Some(Attribute::Mac(Mac(*bytes))))
}

/// The outermost tag.
fn vlan_of_list(list: &[u8]) -> Result<Option<Attribute>, DecodeError> {
    if list.is_empty() {
        return Ok(None);
    }
    let (kind, value, _) = split(list)?;
    if kind != IFLA_VF_VLAN_INFO {
        return Ok(None);
    }
    let proto = value.get(12..).and_then(<[u8]>::first_chunk).ok_or_else(|| broken("a VF's VLAN", "too short"))?;
    let proto = match u16::from_be_bytes(*proto) {
        ETH_P_8021Q => Some(VlanProto::Q),
        ETH_P_8021AD => Some(VlanProto::Ad),
        _ => None,
    };
    vlan(value, proto)
}

/// A VLAN as we know it; `None` if it is something else, which we could not put back.
fn vlan(value: &[u8], proto: Option<VlanProto>) -> Result<Option<Attribute>, DecodeError> {
    let (id, qos) = (number(value, 1)?.try_into().ok(), number(value, 2)?.try_into().ok());
    let known = id.zip(qos).zip(proto).map(|((id, qos), proto)| Attribute::Vlan(Vlan { id, qos, proto }));
    Ok(known)
}

fn switch(value: &[u8]) -> Result<Option<bool>, DecodeError> {
    let setting = number(value, 1)?;
    Ok((setting != NO_SWITCH).then_some(setting != 0))
}

/// The number at this place of a row of numbers.
fn number(value: &[u8], place: usize) -> Result<u32, DecodeError> {
    let bytes = value.get(4 * place..).and_then(<[u8]>::first_chunk);
    bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or_else(|| broken("an attribute", "too short"))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}

/// Type of the attribute that `rest` begins with.
fn kind(rest: &[u8]) -> Option<u16> {
    let bytes = rest.get(2..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes) & TYPE_MASK)
}

/// Takes the attribute that `rest` begins with off it.
fn split(rest: &[u8]) -> Result<Split<'_>, DecodeError> {
    let parts = || {
        let kind = kind(rest)?;
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let value = rest.get(ATTRIBUTE_LEN..len)?;
        // The last one may lack its padding.
        Some((kind, value, rest.get(len.next_multiple_of(4)..).unwrap_or_default()))
    };
    parts().ok_or_else(|| broken("an attribute", "longer than what there is, or shorter than its head"))
}

fn broken(what: &str, how: &str) -> DecodeError {
    DecodeError::from(format!("{what} is {how}"))
}
