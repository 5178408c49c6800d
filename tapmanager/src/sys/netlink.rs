//! Route netlink of the calling thread's namespace: one request, one answer, on the short thread.
//!
//! Messages are netlink-packet-route's and the socket is the one that rtnetlink is built on. rtnetlink's connection
//! itself is not used: the kernel handles a request inside `send`, under a lock of the whole machine (RTNL) that a link
//! being deleted elsewhere holds for 16 to 36 ms, and `send` waits for that lock even on a non-blocking socket. On the
//! runtime this would stall a worker, and all pods' DHCP with it; the thread that has entered the namespace anyway may
//! wait. It also saves a walk through the reactor per message, of which joining a pod needs a dozen.
//!
//! Invariant: a request is answered before the next is sent, so an answer with another sequence number is stale.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use netlink_packet_core::{
    DoneMessage, ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use rtnetlink::sys::{Socket, protocols::NETLINK_ROUTE};

/// Longest wait for the kernel's answer. It is there before `send` returns, so this is for a broken kernel only.
const ANSWER_DEADLINE_S: i64 = 10;
/// The kernel answers in pieces of at most 32 KiB (`netlink_dump`).
const ANSWER_CAPACITY: usize = 64 * 1024;
/// How often a listing is started again because the kernel says that it changed in between.
const DUMP_ATTEMPTS: usize = 5;
/// Attribute with the kernel's words about an error (`NLMSGERR_ATTR_MSG`), behind the header of the request.
const ERROR_TEXT: u16 = 1;
const REQUEST_HEADER_LEN: usize = 16;
/// Type of an error message.
const NLMSG_ERROR: u16 = 2;

/// A netlink socket in the namespace of the thread that opened it.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    answer: Vec<u8>,
}

/// Why a netlink request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetlinkError {
    /// No socket.
    #[error("failed to open a netlink socket")]
    Open(#[source] io::Error),
    /// The request did not get out.
    #[error("failed to send a netlink request")]
    Send(#[source] io::Error),
    /// No answer.
    #[error("failed to receive the kernel's answer within {ANSWER_DEADLINE_S} s")]
    Receive(#[source] io::Error),
    /// A notification could not be received.
    #[error("failed to receive the kernel's notifications about links")]
    Hear(#[source] io::Error),
    /// The answer makes no sense.
    #[error("kernel's netlink answer not understood")]
    Malformed(#[source] netlink_packet_core::DecodeError),
    /// The kernel says no.
    #[error("kernel refused: {}{text}", errno.desc())]
    Refused {
        /// Its error number.
        errno: Errno,
        /// Its words, if it has any.
        text: KernelText,
    },
    /// Listings kept changing.
    #[error("kernel's list changed during each of {DUMP_ATTEMPTS} readings")]
    Unsteady,
}

/// What the kernel says beside an error number; displays with a separator before it, or as nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelText(Option<String>);

// === impl Netlink ===

impl Netlink {
    /// Opens a socket in this thread's namespace.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let socket = Socket::new(NETLINK_ROUTE).map_err(NetlinkError::Open)?;
        // Errors come with the kernel's text and without a copy of the request.
        socket.set_ext_ack(true).map_err(NetlinkError::Open)?;
        socket.set_cap_ack(true).map_err(NetlinkError::Open)?;
        setsockopt(&socket.as_fd(), sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_DEADLINE_S, 0))
            .map_err(|errno| NetlinkError::Open(errno.into()))?;
        Ok(Self { socket, sequence: 0, answer: Vec::with_capacity(ANSWER_CAPACITY) })
    }

    /// Has the kernel do something, with `flags` such as `NLM_F_CREATE`, and waits until it is done.
    pub(crate) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
        self.send(message, NLM_F_ACK | flags)?;
        loop {
            for answer in self.receive()? {
                if let NetlinkPayload::Error(error) = answer.payload {
                    return refusal(&error);
                }
            }
        }
    }

    /// Asks for one object, and returns the body of the kernel's answer as it stands. However long that is: one object may
    /// have more to tell than a piece of a listing.
    pub(super) fn ask(&mut self, message: RouteNetlinkMessage) -> Result<Vec<u8>, NetlinkError> {
        self.send(message, 0)?;
        loop {
            let len = self.next_len()?;
            self.answer.reserve(len);
            self.fill()?;
            let header = NetlinkBuffer::new_checked(self.answer.as_slice()).map_err(NetlinkError::Malformed)?;
            if header.sequence_number() != self.sequence {
                continue;
            }
            if header.message_type() != NLMSG_ERROR {
                return Ok(header.payload().to_vec());
            }
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&self.answer);
            if let NetlinkPayload::Error(error) = answer.map_err(NetlinkError::Malformed)?.payload {
                refusal(&error)?;
            }
        }
    }

    /// Lists what `message` asks for.
    pub(crate) fn dump(&mut self, message: &RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(list) = self.dump_once(message.clone())? {
                return Ok(list);
            }
        }
        Err(NetlinkError::Unsteady)
    }

    /// One reading; `None` when the list changed in the middle of it.
    fn dump_once(&mut self, message: RouteNetlinkMessage) -> Result<Option<Vec<RouteNetlinkMessage>>, NetlinkError> {
        self.send(message, NLM_F_DUMP)?;
        let mut list = Vec::new();
        let mut steady = true;
        loop {
            for answer in self.receive()? {
                steady &= answer.header.flags & NLM_F_DUMP_INTR == 0;
                match answer.payload {
                    NetlinkPayload::InnerMessage(item) => list.push(item),
                    NetlinkPayload::Error(error) => {
                        refusal(&error)?;
                    }
                    NetlinkPayload::Done(done) => {
                        completed(&done)?;
                        return Ok(steady.then_some(list));
                    }
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(NetlinkError::Send)?;
        Ok(())
    }

    /// The answers in the next datagram that belong to the latest request.
    fn receive(&mut self) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, NetlinkError> {
        self.fill()?;
        let mut answers = Vec::new();
        let mut rest = self.answer.as_slice();
        while !rest.is_empty() {
            let header = NetlinkBuffer::new_checked(rest).map_err(NetlinkError::Malformed)?;
            let (len, sequence) = (header.length() as usize, header.sequence_number());
            let (this, next) = rest.split_at(len);
            rest = next.get(len.next_multiple_of(4) - len..).unwrap_or_default();
            if sequence == self.sequence {
                answers.push(NetlinkMessage::deserialize(this).map_err(NetlinkError::Malformed)?);
            }
        }
        Ok(answers)
    }

    /// Takes the next datagram, as far as there is room for it.
    fn fill(&mut self) -> Result<(), NetlinkError> {
        self.answer.clear();
        uninterrupted(|| self.socket.recv(&mut self.answer, 0)).map(|_| ())
    }

    /// Length of the next datagram, which stays where it is.
    fn next_len(&mut self) -> Result<usize, NetlinkError> {
        // The first bytes are received again afterwards.
        self.answer.clear();
        uninterrupted(|| self.socket.recv(&mut self.answer, libc::MSG_PEEK | libc::MSG_TRUNC))
    }
}

fn uninterrupted(mut receive: impl FnMut() -> io::Result<usize>) -> Result<usize, NetlinkError> {
    loop {
        match receive() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map_err(NetlinkError::Receive),
        }
    }
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink").field("socket", &self.socket).field("sequence", &self.sequence).finish()
    }
}

// === impl NetlinkError ===

impl NetlinkError {
    /// The kernel's error number, if it was the kernel that said no.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::Open(_) | Self::Send(_) | Self::Receive(_) | Self::Hear(_) | Self::Malformed(_) | Self::Unsteady => {
                None
            }
        }
    }

    /// Whether it failed because the link or the queueing discipline is not there.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.errno(), Some(Errno::ENODEV | Errno::ENOENT))
    }
}

impl fmt::Display for KernelText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}

/// An error message with code 0 is the kernel's "done".
fn refusal(error: &ErrorMessage) -> Result<(), NetlinkError> {
    let code = error.raw_code();
    if code == 0 {
        return Ok(());
    }
    Err(refused(code, error.header.get(REQUEST_HEADER_LEN..).unwrap_or_default()))
}

/// A listing may fail when it is under way; the end of it says so.
fn completed(done: &DoneMessage) -> Result<(), NetlinkError> {
    if done.code < 0 { Err(refused(done.code, &done.extended_ack)) } else { Ok(()) }
}

fn refused(code: i32, attributes: &[u8]) -> NetlinkError {
    let text = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == ERROR_TEXT);
    let text = text.map(|text| String::from_utf8_lossy(text.value()).trim_end_matches('\0').to_owned());
    NetlinkError::Refused { errno: Errno::from_raw(code.wrapping_neg()), text: KernelText(text) }
}

#[cfg(test)]
mod tests;
