//! Traffic control: how two links are joined, and what must not cross.
//!
//! Called by [`crate::net`] inside the pod's namespace. On the ingress side of each link a guard (`cls_bpf` in
//! direct-action mode: its program drops a frame or lets it go on) stands before a redirect (`cls_bpf` that matches all,
//! with a `mirred` action that takes the frame to the other link's egress). Both carry a handle of ours, by which
//! they are found again; what others may have put there is left alone.
//!
//! Only classic BPF and mirred are used: kernels in the field lack matchall, flower and act_gact. Attributes that
//! netlink-packet-route has no types for are of `linux/pkt_cls.h`.

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_CREATE, NLM_F_EXCL, Nla, NlaBuffer, NlasIterator, Parseable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption, TcActionType, TcAttribute,
    TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption,
};
use nix::errno::Errno;

use super::bpf::Program;
use super::netlink::{Netlink, NetlinkError};

/// A guard's verdict: drop the frame (`TC_ACT_SHOT`).
pub(crate) const DROP: u32 = 2;
/// A guard's verdict: ask the next filter (`TC_ACT_UNSPEC`).
pub(crate) const GO_ON: u32 = u32::MAX;

const CLSACT_HANDLE: TcHandle = TcHandle { major: 0xffff, minor: 0 };
const INGRESS: TcHandle = TcHandle { major: 0xffff, minor: TcHandle::MIN_INGRESS };
/// Handle of every filter of ours: `vrlt` in ASCII.
const OURS: TcHandle = TcHandle { major: 0x7672, minor: 0x6c74 };
const GUARD_PRIORITY: u16 = 1;
const REDIRECT_PRIORITY: u16 = 10;
/// A class is demanded of a filter that is not direct-action; nothing reads it.
const CLASS: TcHandle = TcHandle { major: 1, minor: 1 };

// `TCA_BPF_*`
const BPF_ACTION: u16 = 1;
const BPF_OPS_LEN: u16 = 4;
const BPF_OPS: u16 = 5;

/// What of ours stands on the ingress side of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ours {
    /// The guard is there.
    pub(crate) guard: bool,
    /// Index of the link that the redirect, if it is there, goes to.
    pub(crate) redirect_to: Option<u32>,
}

impl Ours {
    /// Whether there is anything.
    pub(crate) fn any(self) -> bool {
        self.guard || self.redirect_to.is_some()
    }
}

/// Gives a link the queueing discipline that filters hang on. `EEXIST` if it has one on its ingress side.
pub(crate) fn add_clsact(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    netlink.change(RouteNetlinkMessage::NewQueueDiscipline(clsact(link)), NLM_F_CREATE | NLM_F_EXCL)
}

/// Removes it with all its filters; fine if it, or the link, is gone.
pub(crate) fn remove_clsact(netlink: &mut Netlink, link: u32) -> Result<(), NetlinkError> {
    match netlink.change(RouteNetlinkMessage::DelQueueDiscipline(clsact(link)), 0) {
        // EINVAL: the kernel's word for a handle that no discipline has.
        Err(error) if error.is_absent() || error.errno() == Some(Errno::EINVAL) => Ok(()),
        done => done,
    }
}

/// Puts `program` before all else that comes in on a link. It gives [`DROP`] or [`GO_ON`].
pub(crate) fn add_guard(netlink: &mut Netlink, link: u32, program: &Program) -> Result<(), NetlinkError> {
    let mut options = ops(program);
    options.push(TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)));
    add_filter(netlink, link, GUARD_PRIORITY, options)
}

/// Takes all that comes in on a link, and passes its guard, out of the link `to`.
pub(crate) fn add_redirect(netlink: &mut Netlink, link: u32, to: u32) -> Result<(), NetlinkError> {
    let mut parms = TcMirror::default();
    parms.generic.action = TcActionType::Stolen;
    parms.eaction = TcMirrorActionType::EgressRedir;
    parms.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(parms))]),
    ];
    let mut options = ops(&Program::always(u32::MAX));
    options.push(TcOption::Bpf(TcFilterBpfOption::ClassId(CLASS)));
    options.push(raw(BPF_ACTION, emitted(&[action].as_slice())));
    add_filter(netlink, link, REDIRECT_PRIORITY, options)
}

/// What of ours stands on the ingress side of a link; nothing if the link is gone.
pub(crate) fn ours(netlink: &mut Netlink, link: u32) -> Result<Ours, NetlinkError> {
    let mut request = TcMessage::default();
    request.header.index = link.cast_signed();
    request.header.parent = INGRESS;
    let filters = match netlink.list(&RouteNetlinkMessage::GetTrafficFilter(request)) {
        Err(error) if error.is_absent() => return Ok(Ours::default()),
        filters => filters?,
    };
    let mut found = Ours::default();
    for filter in filters {
        // The kernel also lists a line without a handle per priority.
        let RouteNetlinkMessage::NewTrafficFilter(filter) = filter else { continue };
        if filter.header.handle != OURS {
            continue;
        }
        match redirect_target(&filter) {
            Some(to) => found.redirect_to = Some(to),
            None => found.guard = true,
        }
    }
    Ok(found)
}

fn clsact(link: u32) -> TcMessage {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.handle = CLSACT_HANDLE;
    message.header.parent = TcHandle::CLSACT;
    message.attributes.push(TcAttribute::Kind("clsact".to_owned()));
    message
}

fn add_filter(netlink: &mut Netlink, link: u32, priority: u16, options: Vec<TcOption>) -> Result<(), NetlinkError> {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.handle = OURS;
    message.header.parent = INGRESS;
    // Priority and protocol share a word; the protocol, any, is in network order.
    message.header.info = u32::from(priority) << 16 | u32::from(ETH_P_ALL.to_be());
    message.attributes.push(TcAttribute::Kind(TcFilterBpf::KIND.to_owned()));
    message.attributes.push(TcAttribute::Options(options));
    netlink.change(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// `ETH_P_ALL` of `linux/if_ether.h`.
const ETH_P_ALL: u16 = 3;

fn ops(program: &Program) -> Vec<TcOption> {
    let code = program.instructions();
    // The assembler reaches 255 instructions with a jump; a program of 65536 cannot be meant.
    let len = u16::try_from(code.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(code.len() * 8);
    for instruction in code {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    vec![raw(BPF_OPS_LEN, len.to_ne_bytes().to_vec()), raw(BPF_OPS, bytes)]
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
    let options = filter.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    let actions = options.flatten().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::Other(nla)) if nla.kind() == BPF_ACTION => Some(nla),
        _ => None,
    })?;
    let mut bytes = vec![0; actions.value_len()];
    actions.emit_value(&mut bytes);
    let actions = NlasIterator::new(bytes.as_slice()).flatten();
    actions.filter_map(|action| mirror_target(&action)).next()
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
