//! The tap protocol: how `controld` and `vmwrapper` speak to `tapmanager`.
//!
//! # Wire
//!
//! Unix sockets of type `SOCK_SEQPACKET`: a message is one packet, so there is no framing to get wrong. A peer may
//! send several requests over one connection, one after the other; each gets exactly one reply.
//!
//! | socket | mode | who | requests |
//! |---|---|---|---|
//! | `control.sock` | 0600 root | `controld`, `tapmanager` command line | [`Request`] |
//! | `handoff.sock` | 0660 root:QEMU's gid | `vmwrapper` | [`HandoffRequest`] |
//!
//! A packet is one JSON document, at most [`MAX_MESSAGE`] bytes (the kernel's default limit of a packet):
//!
//! ```json
//! {"v":3,"body":{"arm":{"pod":"0f1e..."}}}
//! {"v":3,"fds":0,"body":{"ok":{"armed":{"token":"5c..."}}}}
//! {"v":3,"fds":0,"body":{"err":{"code":"not_found","message":"no pod `0f1e...`; ..."}}}
//! ```
//!
//! `v` is the first version in which the message could be said, from [`OLDEST`] to [`VERSION`]; a peer whose message is of
//! another gets [`ErrorCode::Version`]. So daemons of two releases understand each other over an upgrade, as long as
//! they speak of what both know. `fds` is the number of descriptors that
//! travel beside the packet by `SCM_RIGHTS` (at most [`MAX_FDS`], the kernel's `SCM_MAX_FD`); the receiver owns every
//! descriptor, close-on-exec, before it looks at anything else, and refuses a packet whose count differs.
//! A request never carries descriptors. Unknown fields of a body are an error.
//!
//! # Trust
//!
//! `tapmanager` reads the peer's uid and pid from the socket (`SO_PEERCRED`). The [`Token`] is worth little by design:
//! libvirt shows a domain's environment to read-only clients. It is minted per start, lapses after a deadline, is
//! consumed by the first [`HandoffRequest::Get`], and that also demands QEMU's uid and the peer's executable.

mod address;
mod client;
mod codec;
mod ident;
mod message;
mod wire;

pub use address::unfit_for_pod;
pub use client::{Client, ClientError};
pub use codec::{CodecError, decode_reply, decode_request, encode_reply, encode_request};
pub use ident::{IdentError, IfName, MacAddr, NetnsName, OwnerId, PciAddress, PodId, Token};
pub use message::{
    Arm, Attach, Bandwidth, CheckReport, CollectReport, DataPath, DataPathError, DhcpOptions, Dns, ErrorBody,
    ErrorCode, Forget, Handoff, HandoffNic, HandoffReply, HandoffRequest, HandoffTap, HandoffVfio, Hello, HostPort,
    List, NetworkAsk, Nic, NicKind, NicStats, PfSummary, PodDetail, PodNet, PodPage, PodPhase, PodStats, PodSummary,
    PortProtocol, ProcessId, QemuUser, Reply, Request, Route, ServerStatus, StatsPage, Tap, Versioned, VfClaim,
    VfDetail, VfHolder, VfPage, VfRequest, VfStep, VfSummary, Vfio,
};
pub use wire::{Packet, WireError, recv, send, try_recv_short};

/// Newest version of the protocol. Any change of meaning raises it.
pub const VERSION: u16 = 5;
/// Oldest version that is still spoken. In it a pod's NICs are taps.
pub const OLDEST: u16 = 3;
/// Largest packet, in bytes: the kernel's default socket buffer (`net.core.wmem_default`).
pub const MAX_MESSAGE: usize = 212_992;
/// Most descriptors beside one packet (`SCM_MAX_FD` of the kernel).
pub const MAX_FDS: usize = 253;
/// Most pods of one page of [`Request::List`], so that a page always fits into a packet.
pub const MAX_PAGE: u16 = 192;
/// Most pods of one page of [`Request::Stats`].
pub const MAX_STATS_PAGE: u16 = 32;
/// Most PFs of [`VfRequest::List`].
pub const MAX_PFS: usize = 64;
/// Most VFs of one page of [`VfRequest::List`].
pub const MAX_VF_PAGE: usize = 128;
/// Longest trouble in a [`PodSummary`], in bytes of JSON.
pub const MAX_TROUBLE: usize = 128;
