//! Macvtaps: a guest's end that lies directly on a link, instead of a tap beside it.
//!
//! Called by [`crate::net`] inside the pod's namespace: made at a join, opened at a hand-off. Passthru mode, the only one
//! in which a macvtap may have the MAC address of the link below it (`macvlan_hash_lookup` else finds it taken).
//!
//! A macvtap is opened by a character device whose number only sysfs tells, and only the sysfs of its own namespace. The
//! `/dev/tapN` of the machine may be another pod's: they are named after indices, which repeat. So both are looked at
//! and made in file systems that are mounted nowhere ([`super::detached`]): no path leads to the node.

use std::io;
use std::os::fd::OwnedFd;

use netlink_packet_route::link::{InfoData, InfoKind, InfoMacVtap, LinkAttribute, LinkInfo, LinkMessage, MacVtapMode};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, makedev, mknodat};
use nix::unistd::read;
use proto::tap::IfName;

use super::detached::{self, Kind};
use super::link;
use super::netlink::{Netlink, NetlinkError};

/// Makes a macvtap on the link `lower`; `EEXIST` if a link of that name is there. MAC address and MTU are those of the
/// link.
pub(crate) fn create(netlink: &mut Netlink, name: &IfName, lower: u32) -> Result<(), NetlinkError> {
    let mut message = LinkMessage::default();
    let options = vec![InfoMacVtap::Mode(MacVtapMode::Passthrough)];
    message.attributes = vec![
        LinkAttribute::Link(lower),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::MacVtap), LinkInfo::Data(InfoData::MacVtap(options))]),
    ];
    link::create_silent(netlink, name, message)
}

/// Opens the device of the macvtap of this index `queues` times: each descriptor is a queue.
///
/// The kernel does not mind if another machine has it open, and does not tell: a macvtap's carrier is that of the link
/// below it, nothing says how many queues are open, and what opens it is not in `fdinfo`. Only a look at each descriptor
/// of each process would find out. What keeps machines apart here is the token of a start, which is good for one.
pub(crate) fn open(index: u32, queues: u16) -> io::Result<Vec<OwnedFd>> {
    let number = device_number(index)?;
    let nodes = detached::mount(Kind::Tmpfs)?;
    mknodat(&nodes, "tap", SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, number)?;
    let open = |_| Ok(openat(&nodes, "tap", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?);
    (0..queues).map(open).collect()
}

/// `MAJOR:MINOR` of the kernel's device `tapINDEX`, as the sysfs of this thread's namespace has it.
fn device_number(index: u32) -> io::Result<libc::dev_t> {
    let sysfs = detached::mount(Kind::Sysfs)?;
    let path = format!("class/macvtap/tap{index}/dev");
    let file = openat(&sysfs, path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut text = [0; 32];
    let len = read(&file, &mut text)?;
    let text = String::from_utf8_lossy(text.get(..len).unwrap_or_default()).into_owned();
    let unclear = || io::Error::new(io::ErrorKind::InvalidData, format!("device number `{}`", text.trim_end()));
    let (major, minor) = text.trim_end().split_once(':').ok_or_else(unclear)?;
    let (major, minor) = (major.parse().map_err(|_| unclear())?, minor.parse().map_err(|_| unclear())?);
    Ok(makedev(major, minor))
}
