//! What the two ends of a connection say to each other.

use std::fmt;

use bytes::Bytes;

use super::Headers;

/// One frame. A data frame may come out of the decoder in several pieces; `fin` is on the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// The stream: odd if a client opens it, even if a server does, and each higher than the last.
        id: u32,
        /// A stream that this one belongs to, 0 for none.
        associated: u32,
        /// 0, the most urgent, to 7.
        priority: u8,
        /// The opener sends nothing on it.
        fin: bool,
        /// The other end sends nothing on it.
        unidirectional: bool,
        /// What the stream is for.
        headers: Headers,
    },
    /// Accepts a stream. Go's implementation drops data that comes before it.
    SynReply {
        /// The stream.
        id: u32,
        /// The accepter sends nothing on it.
        fin: bool,
        /// Usually none.
        headers: Headers,
    },
    /// Ends a stream in both directions at once.
    RstStream {
        /// The stream.
        id: u32,
        /// Why.
        status: Status,
    },
    /// Settings of the sender; all may be ignored.
    Settings(Vec<Setting>),
    /// Asks for the same frame back, or is that answer.
    Ping {
        /// Odd if a client asks, even if a server does.
        id: u32,
    },
    /// The sender takes no more streams; the connection ends soon.
    Goaway {
        /// The last stream that was taken.
        last_good: u32,
        /// 0: all is well, 1: protocol error, 2: internal error.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// The stream.
        id: u32,
        /// The sender sends nothing more.
        fin: bool,
        headers: Headers,
    },
    /// Flow control, which Go's implementation neither sends nor heeds.
    WindowUpdate {
        /// The stream.
        id: u32,
        /// How many bytes more may be sent.
        delta: u32,
    },
    /// Bytes of a stream.
    Data {
        /// The stream.
        id: u32,
        /// The sender sends nothing more.
        fin: bool,
        payload: Bytes,
    },
}

/// One entry of a SETTINGS frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Persistence flags.
    pub flags: u8,
    /// Which setting, 24 bits.
    pub id: u32,
    pub value: u32,
}

/// Why a stream was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The peer broke a rule.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// There is no such stream.
    pub const INVALID_STREAM: Self = Self(2);
    /// The stream was not taken; nothing was done for it.
    pub const REFUSED_STREAM: Self = Self(3);
    /// The frame is of another version of SPDY.
    pub const UNSUPPORTED_VERSION: Self = Self(4);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(5);
    /// The sender failed.
    pub const INTERNAL_ERROR: Self = Self(6);
    /// The peer sent more than it may.
    pub const FLOW_CONTROL_ERROR: Self = Self(7);
    /// The stream was accepted twice.
    pub const STREAM_IN_USE: Self = Self(8);
    /// The peer sent data after its end.
    pub const STREAM_ALREADY_CLOSED: Self = Self(9);
    /// The frame is too large for the sender.
    pub const FRAME_TOO_LARGE: Self = Self(11);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::PROTOCOL_ERROR => "protocol error",
            Self::INVALID_STREAM => "invalid stream",
            Self::REFUSED_STREAM => "refused",
            Self::UNSUPPORTED_VERSION => "unsupported version",
            Self::CANCEL => "cancelled",
            Self::INTERNAL_ERROR => "internal error",
            Self::FLOW_CONTROL_ERROR => "flow control error",
            Self::STREAM_IN_USE => "stream in use",
            Self::STREAM_ALREADY_CLOSED => "stream already closed",
            Self::FRAME_TOO_LARGE => "frame too large",
            Self(other) => return write!(f, "status {other}"),
        };
        f.write_str(name)
    }
}
