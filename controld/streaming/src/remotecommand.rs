//! Kubernetes' remote command protocol: which streams a session has, and what is said on two of them.
//!
//! Pure; used by both ends. Every stream names its kind in the header [`STREAM_TYPE`]. The error stream carries one JSON
//! object at the end (k8s.io/apimachinery `metav1.Status`), before version 4 the text of a failure; the resize stream
//! carries JSON objects without anything between them (k8s.io/client-go `remotecommand.TerminalSize`).

use serde::{Deserialize, Serialize};

use crate::backend::TermSize;

/// The version that our client speaks. Version 5 differs over WebSocket only.
pub const PROTOCOL: &str = "v4.channel.k8s.io";
/// HTTP header that offers and answers versions.
pub const PROTOCOL_HEADER: &str = "X-Stream-Protocol-Version";
/// HTTP header that tells a client with none of our versions what they are.
pub const ACCEPTED_HEADER: &str = "X-Accepted-Stream-Protocol-Versions";
/// Value of the HTTP header `Upgrade`.
pub const UPGRADE: &str = "SPDY/3.1";
/// Header of every stream, as it is on the wire.
pub const STREAM_TYPE: &str = "streamtype";

/// Reason of the status of a command that failed.
const NON_ZERO: &str = "NonZeroExitCode";
/// Reason of the cause, in it, that holds the exit code.
const EXIT_CODE: &str = "ExitCode";
/// Longest JSON object on a resize stream.
const MAX_RESIZE_LEN: usize = 1024;

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamType {
    /// The session's end.
    Error,
    /// To the process.
    Stdin,
    /// From the process.
    Stdout,
    /// From the process.
    Stderr,
    /// Sizes of the client's terminal.
    Resize,
}

/// How a session ended, as it stands on the error stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(default, skip_serializing_if = "is_zero")]
    code: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// What a [`Status`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All went well; a command ended with exit code 0.
    Success,
    /// The command ended with this exit code.
    Exited(u8),
    /// The session failed, and why.
    Failed(String),
}

/// Reads a resize stream that arrives in pieces.
#[derive(Debug, Default)]
pub struct ResizeParser {
    pending: Vec<u8>,
    broken: bool,
}

/// One object of a resize stream.
#[derive(Debug, Serialize, Deserialize)]
struct WireSize {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

// === impl StreamType ===

impl StreamType {
    /// The value of [`STREAM_TYPE`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Stdin => "stdin",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Resize => "resize",
        }
    }

    /// What a stream is for, if it is one of a session.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Error, Self::Stdin, Self::Stdout, Self::Stderr, Self::Resize]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

// === impl Status ===

impl Status {
    /// All went well.
    #[must_use]
    pub fn success() -> Self {
        Self { status: "Success".into(), message: String::new(), reason: String::new(), details: None, code: 0 }
    }

    /// The command ended with this exit code.
    #[must_use]
    pub fn exited(code: u8) -> Self {
        if code == 0 {
            return Self::success();
        }
        Self {
            status: "Failure".into(),
            message: format!("command terminated with non-zero exit code: {code}"),
            reason: NON_ZERO.into(),
            details: Some(Details { causes: vec![Cause { reason: EXIT_CODE.into(), message: code.to_string() }] }),
            code: 0,
        }
    }

    /// The session failed for a reason that is not in the container.
    #[must_use]
    pub fn internal_error(cause: &str) -> Self {
        Self {
            status: "Failure".into(),
            message: format!("Internal error occurred: {cause}"),
            reason: "InternalError".into(),
            details: None,
            code: 500,
        }
    }

    /// The object's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The text that versions before 4 have instead of the object; `None` for success, of which they say nothing.
    #[must_use]
    pub fn to_text(&self) -> Option<&str> {
        (self.status != "Success").then_some(self.message.as_str())
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When the text is no such object.
    pub fn read(text: &[u8]) -> Result<Outcome, serde_json::Error> {
        let status: Self = serde_json::from_slice(text)?;
        if status.status == "Success" {
            return Ok(Outcome::Success);
        }
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        let code = causes.iter().find(|cause| cause.reason == EXIT_CODE).and_then(|cause| cause.message.parse().ok());
        Ok(match code.filter(|_| status.reason == NON_ZERO) {
            Some(code) => Outcome::Exited(code),
            None => Outcome::Failed(status.message),
        })
    }
}

fn is_zero(code: &u32) -> bool {
    *code == 0
}

// === impl ResizeParser ===

impl ResizeParser {
    /// Takes more of the stream; returns the last whole size in it. A stream that is not of the format is ignored from then
    /// on: a wrong size is no reason to end a session.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<TermSize> {
        if self.broken {
            return None;
        }
        self.pending.extend_from_slice(bytes);
        let mut objects = serde_json::Deserializer::from_slice(&self.pending).into_iter::<WireSize>();
        let mut last = None;
        let mut used = 0;
        while let Some(object) = objects.next() {
            match object {
                // Zero is what a terminal says that does not know.
                Ok(WireSize { width, height }) if width > 0 && height > 0 => last = Some(TermSize { width, height }),
                Ok(_) => {}
                Err(error) if error.is_eof() => break,
                Err(_) => {
                    self.broken = true;
                    break;
                }
            }
            used = objects.byte_offset();
        }
        self.pending.drain(..used.min(self.pending.len()));
        self.broken |= self.pending.len() > MAX_RESIZE_LEN;
        last
    }
}

/// A size as it goes onto a resize stream.
#[must_use]
pub fn resize_json(size: TermSize) -> String {
    serde_json::to_string(&WireSize { width: size.width, height: size.height }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statuses_are_pinned() {
        assert_eq!(Status::success().to_json(), r#"{"status":"Success"}"#);
        assert_eq!(
            Status::internal_error("no console").to_json(),
            r#"{"status":"Failure","message":"Internal error occurred: no console","reason":"InternalError","code":500}"#
        );
        assert_eq!(
            Status::exited(3).to_json(),
            concat!(
                r#"{"status":"Failure","message":"command terminated with non-zero exit code: 3","#,
                r#""reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
            )
        );
        assert_eq!(Status::exited(0).to_json(), r#"{"status":"Success"}"#);
        assert_eq!(Status::success().to_text(), None);
        assert_eq!(Status::exited(3).to_text(), Some("command terminated with non-zero exit code: 3"));
    }

    #[test]
    fn statuses_of_others_are_read() {
        let read = |text: &[u8]| Status::read(text).expect("status");
        assert_eq!(read(br#"{"metadata":{},"status":"Success"}"#), Outcome::Success);
        let exited = br#"{"metadata":{},"status":"Failure","message":"exit code 3","reason":"NonZeroExitCode",
            "details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(read(exited), Outcome::Exited(3));
        assert_eq!(read(Status::exited(255).to_json().as_bytes()), Outcome::Exited(255));
        let beyond = br#"{"status":"Failure","message":"m","reason":"NonZeroExitCode","details":{"causes":[{"reason":
            "ExitCode","message":"256"}]}}"#;
        assert_eq!(read(beyond), Outcome::Failed("m".into()));
        Status::read(b"plain text").expect_err("not of this version");
    }

    #[test]
    fn sizes_are_read_in_any_pieces() {
        let text = b"{\"Width\":80,\"Height\":24}\n{\"Width\":132,\"Height\":43}\n";
        for cut in 0..text.len() {
            let mut parser = ResizeParser::default();
            let sizes = [parser.feed(&text[..cut]), parser.feed(&text[cut..])];
            let last = sizes.into_iter().flatten().last();
            assert_eq!(last, Some(TermSize { width: 132, height: 43 }), "cut at {cut}");
        }
        let size = TermSize { width: 80, height: 24 };
        assert_eq!(ResizeParser::default().feed(resize_json(size).as_bytes()), Some(size));
    }

    #[test]
    fn wrong_sizes_are_ignored() {
        for text in [
            r#"{"Width":0,"Height":24}"#,
            r#"{"Width":65536,"Height":24}"#,
            r#"{"Width":-1,"Height":24}"#,
            r#"{"Width":80}"#,
            "80x24",
        ] {
            assert_eq!(ResizeParser::default().feed(text.as_bytes()), None, "{text}");
        }
        let mut parser = ResizeParser::default();
        for _ in 0..10_000 {
            assert_eq!(parser.feed(b"{\"Width\":              "), None);
        }
        assert!(parser.pending.len() < 2 * MAX_RESIZE_LEN);
    }

    proptest! {
        #[test]
        fn anything_may_come(pieces in proptest::collection::vec("[{}\":,a-zA-Z0-9 \n]{0,30}", 0..20)) {
            let mut parser = ResizeParser::default();
            for piece in pieces {
                parser.feed(piece.as_bytes());
            }
        }
    }
}
