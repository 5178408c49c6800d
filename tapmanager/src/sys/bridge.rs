//! A bridge inside a pod's namespace: the verbs of the `bridge` data path.
//!
//! Called by [`crate::net`] inside the pod's namespace. The bridge learns and floods and does nothing else: no spanning
//! tree, no snooping (both would speak for themselves), and it forwards the link-local groups that bridges keep back
//! (LLDP, 802.1X), as the pod's network is the guest's neighbour and not this bridge.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use proto::tap::{IfName, MacAddr};

use super::link;
use super::netlink::{Netlink, NetlinkError};

/// All of 01:80:c2:00:00:03 to :0f; the kernel lets nobody forward the first three (`BR_GROUPFWD_RESTRICTED`).
const FORWARDED_GROUPS: u16 = 0xfff8;

/// Makes a bridge; `EEXIST` if a link of that name is there. Its MAC address is fixed, as a bridge without one takes its
/// ports', of which one is the guest's.
pub(crate) fn create(netlink: &mut Netlink, name: &IfName, mac: MacAddr) -> Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    let options = vec![
        InfoBridge::StpState(BridgeStpState::Disabled),
        InfoBridge::MulticastSnooping(false),
        InfoBridge::GroupFwdMask(FORWARDED_GROUPS),
    ];
    message.attributes = vec![
        LinkAttribute::Address(mac.octets().to_vec()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(InfoData::Bridge(options))]),
    ];
    link::create_silent(netlink, name, message)
}

/// Has the bridge of `port` send what is for `mac` there. It replaces the entry that says "this is my own port's
/// address", with which a bridge takes such frames for itself: the guest has the MAC address of the CNI's link.
pub(crate) fn replace_fdb_entry(netlink: &mut Netlink, port: u32, mac: MacAddr) -> Result<(), NetlinkError> {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = port;
    message.header.state = NeighbourState::Noarp;
    message.header.flags = NeighbourFlags::Controller;
    message.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.octets().to_vec())];
    netlink.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}
