//! Kubernetes' port-forward protocol: a connection is a pair of streams, which these headers name. Pure; used by both ends.

/// The version over SPDY.
pub const PROTOCOL: &str = "portforward.k8s.io";
/// Header: what a stream is for.
pub const STREAM_TYPE: &str = "streamtype";
/// Header: the pod's port.
pub const PORT: &str = "port";
/// Header: the same for both streams of a connection, and for no other.
pub const REQUEST_ID: &str = "requestid";

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamType {
    /// The connection's bytes, both ways.
    Data,
    /// Text to the client: why there is no connection. One that fails later ends without a word.
    Error,
}

impl StreamType {
    /// The value of [`STREAM_TYPE`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Error => "error",
        }
    }

    /// What a stream is for, if it is one of port-forward.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Data, Self::Error].into_iter().find(|kind| kind.as_str() == text)
    }
}
