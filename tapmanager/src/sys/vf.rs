//! What a PF's link lays down for its VFs: read all of it, write one setting of one VF.
//!
//! Called by [`crate::vf`] with a socket in the namespace of the PF's link. Names and numbers of PFs are its business.
//!
//! Kernel ABI: `IFLA_VFINFO_LIST` of `include/uapi/linux/if_link.h`. Requests are netlink-packet-route's types. Answers are
//! read here ([`parse`]): that crate takes "the driver does not say" for "off", and a list that is longer than its
//! 16-bit length can tell for a broken one.

mod parse;

use std::collections::BTreeMap;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkMessage, LinkVfInfo, VfInfo, VfInfoLinkState, VfInfoMac, VfInfoRate,
    VfInfoSpoofCheck, VfInfoTrust, VfInfoVlan, VfLinkState, VfVlan, VfVlanInfo, VlanProtocol,
};
use sriov::settings::{Attribute, LinkState, VfSettings, VlanProto};

use super::netlink::{Netlink, NetlinkError};

/// What a link says of itself and its VFs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VfList {
    /// The link's index.
    pub(crate) index: u32,
    /// The link's name.
    pub(crate) name: String,
    /// Address of the PCI device that it is a port of.
    pub(crate) pci: Option<String>,
    /// How many VFs its device has been told to have.
    pub(crate) enabled: u32,
    /// The VFs that its driver told of, by number.
    pub(crate) vfs: BTreeMap<u32, VfSettings>,
}

/// Reads what the link tells of its VFs. A link whose driver knows none, such as a representor, tells of none.
pub(crate) fn list(netlink: &mut Netlink, link: u32) -> Result<VfList, NetlinkError> {
    let mut message = LinkMessage::default();
    message.header.index = link;
    ask(netlink, message)
}

/// The same of the link of this name.
pub(crate) fn list_of(netlink: &mut Netlink, name: &str) -> Result<VfList, NetlinkError> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    ask(netlink, message)
}

fn ask(netlink: &mut Netlink, mut message: LinkMessage) -> Result<VfList, NetlinkError> {
    // Counters of each VF would make the answer half as long again.
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats]));
    let answer = netlink.ask(RouteNetlinkMessage::GetLink(message))?;
    parse::link(&answer).map_err(NetlinkError::Malformed)
}

/// Has the link's driver lay down one setting for VF `number`; `EOPNOTSUPP` if it has no such setting.
pub(crate) fn set(netlink: &mut Netlink, link: u32, number: u32, attribute: Attribute) -> Result<(), NetlinkError> {
    netlink.request(RouteNetlinkMessage::SetLink(request(link, number, attribute)), 0)
}

fn request(link: u32, number: u32, attribute: Attribute) -> LinkMessage {
    let info = match attribute {
        Attribute::Mac(mac) => VfInfo::Mac(VfInfoMac::new(number, &mac.0)),
        Attribute::Vlan(vlan) => {
            let (id, qos) = (vlan.id.into(), vlan.qos.into());
            match vlan.proto {
                // Drivers that know no other tag know no other attribute, either.
                VlanProto::Q => VfInfo::Vlan(VfInfoVlan::new(number, id, qos)),
                VlanProto::Ad => {
                    let tag = VfVlanInfo::new(number, id, qos, VlanProtocol::Ieee8021Ad);
                    VfInfo::VlanList(vec![VfVlan::Info(tag)])
                }
            }
        }
        Attribute::Rate(rate) => VfInfo::Rate(VfInfoRate::new(number, rate.min, rate.max)),
        Attribute::Spoofchk(on) => VfInfo::SpoofCheck(VfInfoSpoofCheck::new(number, on)),
        Attribute::Trust(on) => VfInfo::Trust(VfInfoTrust::new(number, on)),
        Attribute::LinkState(state) => {
            let state = match state {
                LinkState::Auto => VfLinkState::Auto,
                LinkState::Enable => VfLinkState::Enable,
                LinkState::Disable => VfLinkState::Disable,
            };
            VfInfo::LinkState(VfInfoLinkState::new(number, state))
        }
    };
    let mut message = LinkMessage::default();
    message.header.index = link;
    message.attributes = vec![LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])])];
    message
}

#[cfg(test)]
mod tests;
