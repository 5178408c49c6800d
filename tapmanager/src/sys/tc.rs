//! Traffic control: how two links are joined, and what must not cross.
//!
//! Called by [`crate::net`] inside the pod's namespace. At a hook of a link a guard (`cls_bpf` in direct-action mode:
//! its program drops a frame or lets it go on) stands before a redirect (`cls_bpf` that matches all, with a `mirred`
//! action that takes the frame to another link). The daemon finds both again by the handle that it gave them, and
//! leaves filters of others alone.
//!
//! Only classic BPF and mirred are used: kernels in the field lack matchall, flower and act_gact. Attributes that
//! netlink-packet-route has no types for are of `linux/pkt_cls.h`.

use std::collections::BTreeMap;

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Nla, NlaBuffer, NlasIterator, Parseable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption, TcActionType, TcAttribute,
    TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption, TcStats2,
};
use nix::errno::Errno;

use super::bpf::Program;
use super::netlink::{Netlink, NetlinkError};

/// A guard's verdict: drop the frame (`TC_ACT_SHOT`).
pub(crate) const DROP: u32 = 2;
/// A guard's verdict: ask the next filter (`TC_ACT_UNSPEC`).
pub(crate) const GO_ON: u32 = u32::MAX;

/// The kind of the queueing discipline that filters of ours hang on.
pub(crate) const CLSACT: &str = "clsact";
const CLSACT_HANDLE: TcHandle = TcHandle { major: 0xffff, minor: 0 };
/// Handle of every filter of ours: `vrlt` in ASCII.
const OURS: TcHandle = TcHandle { major: 0x7672, minor: 0x6c74 };
const GUARD_PRIORITY: u16 = 1;
const REDIRECT_PRIORITY: u16 = 10;
/// A class is demanded of a filter that is not direct-action; nothing reads it.
const CLASS: TcHandle = TcHandle { major: 1, minor: 1 };

/// `TCA_STATS_PKT64`: packets, where they are more than the basic counters hold.
const STATS_PACKETS: u16 = 8;
/// Size of an Ethernet header, which is not counted of what comes in.
const ETHERNET_HEADER: u64 = 14;

// `TCA_BPF_*`
const BPF_ACTION: u16 = 1;
const BPF_OPS_LEN: u16 = 4;
const BPF_OPS: u16 = 5;

/// Where on a link a filter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// What comes in on it.
    Ingress,
    /// What goes out of it.
    Egress,
}

/// Which way a redirect puts a frame into another link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// Out of it, as if this machine sent the frame.
    Egress,
    /// Into it, as if the frame came from its wire: a macvtap gives such frames to its descriptors.
    Ingress,
}

/// A program in short, by which two are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

/// What of ours stands at a hook of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OurFilters {
    /// The guard, if there is one.
    pub(crate) guard: Option<Fingerprint>,
    /// Index of the link that the redirect, if it is there, goes to; 0 when that link is gone.
    pub(crate) redirect_to: Option<u32>,
    /// Priority of a filter there that is not ours, and stands where one of ours goes.
    pub(crate) foreign: Option<u16>,
}

impl Hook {
    const fn parent(self) -> TcHandle {
        let minor = match self {
            Self::Ingress => TcHandle::MIN_INGRESS,
            Self::Egress => TcHandle::MIN_EGRESS,
        };
        TcHandle { major: 0xffff, minor }
    }
}

impl Fingerprint {
    /// Of a program.
    pub(crate) fn of(program: &Program) -> Self {
        Self::of_code(&code(program))
    }

    /// FNV-1a: it tells releases of ours apart, not friend from foe.
    fn of_code(code: &[u8]) -> Self {
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self(code.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }
}

impl OurFilters {
    /// Whether there is anything.
    pub(crate) fn any(self) -> bool {
        self.guard.is_some() || self.redirect_to.is_some()
    }
}

/// Gives a link the queueing discipline that filters hang on. `EEXIST` if it has one on its ingress side.
pub(crate) fn add_clsact(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    netlink.request(RouteNetlinkMessage::NewQueueDiscipline(clsact(link)), NLM_F_CREATE | NLM_F_EXCL)
}

/// Removes it with all its filters; fine if it, or the link, is gone.
pub(crate) fn delete_clsact(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    match netlink.request(RouteNetlinkMessage::DelQueueDiscipline(clsact(link)), 0) {
        // EINVAL: the kernel's word for a handle that no discipline has.
        Err(error) if error.is_absent() || error.errno() == Some(Errno::EINVAL) => Ok(()),
        done => done,
    }
}

/// Leaves a link without a queue of its own, so that a tap of many queues does not have one for each. Before it is up.
pub(crate) fn set_noqueue(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.parent = TcHandle::ROOT;
    message.attributes.push(TcAttribute::Kind("noqueue".to_owned()));
    netlink.request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Puts `program` before all else at a hook of a link, in one step in place of a guard that stands there. It gives [`DROP`]
/// or [`GO_ON`].
pub(crate) fn replace_guard(
    netlink: &mut Netlink,
    link: u32,
    hook: Hook,
    program: &Program,
) -> Result<(), NetlinkError> {
    let mut options = ops(program);
    options.push(TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)));
    replace_filter(netlink, link, hook, GUARD_PRIORITY, options)
}

/// Takes all that comes in on a link, and passes its guard, to the link `to`; in one step from then on, if it went to another.
pub(crate) fn replace_redirect(
    netlink: &mut Netlink,
    link: u32,
    to: u32,
    redirect: Redirect,
) -> Result<(), NetlinkError> {
    let mut parms = TcMirror::default();
    parms.generic.action = TcActionType::Stolen;
    parms.eaction = match redirect {
        Redirect::Egress => TcMirrorActionType::EgressRedir,
        Redirect::Ingress => TcMirrorActionType::IngressRedir,
    };
    parms.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(parms))]),
    ];
    let mut options = ops(&Program::always(u32::MAX));
    options.push(TcOption::Bpf(TcFilterBpfOption::ClassId(CLASS)));
    options.push(raw(BPF_ACTION, emitted(&[action].as_slice())));
    replace_filter(netlink, link, Hook::Ingress, REDIRECT_PRIORITY, options)
}

/// What of ours stands at a hook of a link; nothing if the link is gone.
pub(crate) fn our_filters(netlink: &mut Netlink, link: u32, hook: Hook) -> Result<OurFilters, NetlinkError> {
    let mut found = OurFilters::default();
    for filter in filters(netlink, link, hook)? {
        if filter.header.handle != OURS {
            // The kernel also lists a line without a handle per priority.
            if filter.header.handle != TcHandle::default() {
                let priority = u16::try_from(filter.header.info >> 16).ok();
                let ours = priority.filter(|priority| [GUARD_PRIORITY, REDIRECT_PRIORITY].contains(priority));
                found.foreign = found.foreign.or(ours);
            }
            continue;
        }
        if let Some(to) = redirect_target(&filter) {
            found.redirect_to = Some(to);
        } else {
            // The eBPF program of an earlier release has no classic code, and is a guard of ours all the same.
            found.guard = Some(Fingerprint::of_code(&attribute(&filter, BPF_OPS).unwrap_or_default()));
        }
    }
    Ok(found)
}

/// What filters of incoming frames hang on, by the link's index: `clsact` as ours, or the older `ingress`.
pub(crate) fn filter_qdiscs(netlink: &mut Netlink) -> Result<BTreeMap<u32, String>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
    let kind = |message: &TcMessage| {
        message.attributes.iter().find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.clone()),
            _ => None,
        })
    };
    let hung = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewQueueDiscipline(message) if message.header.handle == CLSACT_HANDLE => {
            Some((message.header.index.cast_unsigned(), kind(&message)?))
        }
        _ => None,
    });
    Ok(hung.collect())
}

/// How many frames the filters of each link dropped, by the link's index.
pub(crate) fn drops(netlink: &mut Netlink) -> Result<BTreeMap<u32, u64>, NetlinkError> {
    let all = netlink.dump(&RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
    let drops = all.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewQueueDiscipline(message) if message.header.handle == CLSACT_HANDLE => {
            Some((message.header.index.cast_unsigned(), dropped(&message)))
        }
        _ => None,
    });
    Ok(drops.collect())
}

/// What the redirect of what comes in on a link took away so far, in packets and bytes; nothing if there is none.
pub(crate) fn redirected(netlink: &mut Netlink, link: u32) -> Result<(u64, u64), NetlinkError> {
    let filters = filters(netlink, link, Hook::Ingress)?;
    let ours = filters.iter().filter(|filter| filter.header.handle == OURS);
    let actions = ours.filter_map(|filter| attribute(filter, BPF_ACTION));
    let counted = actions.filter_map(|bytes| NlasIterator::new(bytes.as_slice()).flatten().find_map(|nla| taken(&nla)));
    Ok(counted.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1)))
}

/// What an action counted.
fn taken(action: &NlaBuffer<&[u8]>) -> Option<(u64, u64)> {
    let action = TcAction::parse(action).ok()?;
    let stats = action.attributes.into_iter().filter_map(|attribute| match attribute {
        TcActionAttribute::Stats(stats) => Some(stats),
        _ => None,
    });
    let (mut packets, mut bytes) = (0, 0);
    for stat in stats.flatten() {
        match stat {
            TcStats2::Basic(basic) => (packets, bytes) = (u64::from(basic.packets).max(packets), basic.bytes),
            TcStats2::Other(nla) if nla.kind() == STATS_PACKETS && nla.value_len() == 8 => {
                let mut value = [0; 8];
                nla.emit_value(&mut value);
                packets = u64::from_ne_bytes(value);
            }
            _ => {}
        }
    }
    Some((packets, bytes + packets * ETHERNET_HEADER))
}

/// The filters at a hook of a link; none if the link is gone.
fn filters(netlink: &mut Netlink, link: u32, hook: Hook) -> Result<Vec<TcMessage>, NetlinkError> {
    let mut request = TcMessage::default();
    request.header.index = link.cast_signed();
    request.header.parent = hook.parent();
    let filters = match netlink.dump(&RouteNetlinkMessage::GetTrafficFilter(request)) {
        Err(error) if error.is_absent() => return Ok(vec![]),
        filters => filters?,
    };
    let filters = filters.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewTrafficFilter(filter) => Some(filter),
        _ => None,
    });
    Ok(filters.collect())
}

/// A program as the kernel takes and lists it.
fn code(program: &Program) -> Vec<u8> {
    let code = program.instructions();
    let mut bytes = Vec::with_capacity(code.len() * 8);
    for instruction in code {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}

fn dropped(message: &TcMessage) -> u64 {
    let stats = message.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Stats2(stats) => Some(stats),
        _ => None,
    });
    let drops = stats.flatten().filter_map(|stat| match stat {
        TcStats2::Queue(queue) => Some(u64::from(queue.drops)),
        _ => None,
    });
    drops.sum()
}

fn clsact(link: u32) -> TcMessage {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.handle = CLSACT_HANDLE;
    message.header.parent = TcHandle::CLSACT;
    message.attributes.push(TcAttribute::Kind(CLSACT.to_owned()));
    message
}

/// Adds a filter, or puts it in the place of the one with its priority and handle: no frame comes between the two.
fn replace_filter(
    netlink: &mut Netlink,
    link: u32,
    hook: Hook,
    priority: u16,
    options: Vec<TcOption>,
) -> Result<(), NetlinkError> {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.handle = OURS;
    message.header.parent = hook.parent();
    // Priority and protocol share a word; the protocol, any, is in network order.
    message.header.info = u32::from(priority) << 16 | u32::from(ETH_P_ALL.to_be());
    message.attributes.push(TcAttribute::Kind(TcFilterBpf::KIND.to_owned()));
    message.attributes.push(TcAttribute::Options(options));
    netlink.request(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// `ETH_P_ALL` of `linux/if_ether.h`.
const ETH_P_ALL: u16 = 3;

fn ops(program: &Program) -> Vec<TcOption> {
    // The assembler reaches 255 instructions with a jump; a program of 65536 cannot be meant.
    let len = u16::try_from(program.instructions().len()).unwrap_or(u16::MAX);
    vec![raw(BPF_OPS_LEN, len.to_ne_bytes().to_vec()), raw(BPF_OPS, code(program))]
}

fn raw(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Bpf(TcFilterBpfOption::Other(DefaultNla::new(kind, value)))
}

fn emitted(value: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; value.buffer_len()];
    value.emit(&mut bytes);
    bytes
}

/// Where a filter of ours redirects to, if it does.
fn redirect_target(filter: &TcMessage) -> Option<u32> {
    let bytes = attribute(filter, BPF_ACTION)?;
    let actions = NlasIterator::new(bytes.as_slice()).flatten();
    actions.filter_map(|action| mirror_target(&action)).next()
}

fn options_of(filter: &TcMessage) -> impl Iterator<Item = &TcOption> {
    let options = filter.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    options.flatten()
}

/// The bytes of an option that the library has no type for.
fn attribute(filter: &TcMessage, kind: u16) -> Option<Vec<u8>> {
    let found = options_of(filter).find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::Other(nla)) if nla.kind() == kind => Some(nla),
        _ => None,
    })?;
    let mut bytes = vec![0; found.value_len()];
    found.emit_value(&mut bytes);
    Some(bytes)
}

fn mirror_target(action: &NlaBuffer<&[u8]>) -> Option<u32> {
    let action = TcAction::parse(action).ok()?;
    let options = action.attributes.into_iter().filter_map(|attribute| match attribute {
        TcActionAttribute::Options(options) => Some(options),
        _ => None,
    });
    options.flatten().find_map(|option| match option {
        TcActionOption::Mirror(TcActionMirrorOption::Parms(parms)) => Some(parms.ifindex),
        _ => None,
    })
}
