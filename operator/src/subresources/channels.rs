//! The pod's side: a WebSocket by way of the API server and kubelet, of which the first byte of each message says which of several streams
//! the rest belongs to.

use hyper::body::Bytes;
use serde::Deserialize;
use streaming::websocket::{CLOSE, Piece};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use super::socket::{Line, Lost, Reader, Role, Writer, split};

/// What kubelet's clients and it agree on.
pub(super) const PROTOCOL: &str = "v4.channel.k8s.io";

/// Streams of a command and of a terminal.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Streams of a port, each of which begins with the port's number in two bytes.
const DATA: u8 = 0;
const REASON: u8 = 1;
const PORT_LEN: usize = 2;

/// Longest text and longest status that is kept of a session.
const MAX_TEXT: usize = 16 << 10;
/// To end in order.
const NORMAL: u16 = 1000;

/// What is on the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command, or the console.
    Command,
    /// A port.
    Port,
}

/// A connection to a pod.
#[derive(Debug)]
pub(super) struct Channels<S> {
    from: FromPod<ReadHalf<S>>,
    to: ToPod<WriteHalf<S>>,
    line: Line,
}

/// What comes of the pod.
#[derive(Debug)]
pub(super) struct FromPod<R> {
    reader: Reader<R>,
    kind: Kind,
    /// The stream of the message that has begun.
    at: Option<u8>,
    /// Bytes of a port's number that are to come yet, on each of its streams.
    head: [usize; 2],
    text: Vec<u8>,
    status: Vec<u8>,
}

/// What goes to the pod.
#[derive(Debug)]
pub(super) struct ToPod<W>(Writer<W>);

/// What comes of it.
#[derive(Debug)]
pub(super) enum Part {
    /// For the client.
    Data(Bytes),
    /// Nothing more comes.
    End(Result<(), Failure>),
}

/// Why a session failed, in a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// Of a command that ended with another exit code than 0.
    pub(super) exit: Option<u8>,
    pub(super) text: String,
}

/// How a command ended, as kubelet says it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    status: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

impl<S: AsyncRead + AsyncWrite> Channels<S> {
    /// Those of a connection that has become a WebSocket.
    pub(super) fn new(io: S, kind: Kind) -> Self {
        let (reader, writer) = split(io, Role::Client);
        let head = if kind == Kind::Port { [PORT_LEN; 2] } else { [0; 2] };
        let from = FromPod { reader, kind, at: None, head, text: Vec::new(), status: Vec::new() };
        Self { from, to: ToPod(writer), line: Line::new() }
    }

    /// What comes next.
    pub(super) async fn next(&mut self) -> Result<Part, Lost> {
        self.from.next(&self.line).await
    }

    /// Both directions.
    pub(super) fn halves(&mut self) -> (&mut FromPod<ReadHalf<S>>, &mut ToPod<WriteHalf<S>>, &Line) {
        (&mut self.from, &mut self.to, &self.line)
    }

    /// Says that we leave.
    pub(super) async fn leave(&mut self) {
        let _ = self.to.0.put(&self.line, CLOSE, &[&NORMAL.to_be_bytes()]).await;
        let _ = self.to.0.shut().await;
    }
}

impl<R: AsyncRead + Unpin> FromPod<R> {
    /// What comes next. Nothing is lost if this is dropped before it is done.
    pub(super) async fn next(&mut self, line: &Line) -> Result<Part, Lost> {
        loop {
            let Some(piece) = self.reader.next(line).await? else { return Ok(Part::End(self.end())) };
            let Piece::Message { first, last, mut bytes, .. } = piece else { continue };
            if first {
                self.at = (!bytes.is_empty()).then(|| bytes.split_to(1)).and_then(|channel| channel.first().copied());
            }
            let Some(channel) = self.at else { continue };
            if let Some(head) = self.head.get_mut(usize::from(channel)) {
                let of_head = bytes.split_to((*head).min(bytes.len()));
                *head -= of_head.len();
            }
            if bytes.is_empty() {
                continue;
            }
            match (self.kind, channel) {
                (Kind::Command, STDOUT) | (Kind::Port, DATA) => return Ok(Part::Data(bytes)),
                (Kind::Command, STDERR) => keep(&mut self.text, &bytes),
                (Kind::Command, STATUS) => {
                    keep(&mut self.status, &bytes);
                    // It is the last that there is, and may be in pieces.
                    if let Some(end) = read(&self.status, &self.text) {
                        return Ok(Part::End(end));
                    }
                }
                // One that is said once, and ends it.
                (Kind::Port, REASON) => {
                    keep(&mut self.text, &bytes);
                    if last {
                        return Ok(Part::End(Err(Failure { exit: None, text: first_line(&self.text) })));
                    }
                }
                _ => {}
            }
        }
    }

    /// How it ended that ended without a status.
    fn end(&self) -> Result<(), Failure> {
        if self.kind == Kind::Port || self.status.is_empty() && self.text.is_empty() {
            return Ok(());
        }
        Err(Failure { exit: None, text: first_line(&self.text) })
    }
}

impl<W: AsyncWrite + Unpin> ToPod<W> {
    /// Sends what a client says.
    pub(super) async fn send(&mut self, line: &Line, bytes: &[u8]) -> Result<(), Lost> {
        // A command's stdin and a port's data are of the same number.
        self.0.send(line, &[&[STDIN], bytes]).await
    }

    /// Sends what the line wants to have sent.
    pub(super) async fn keep(&mut self, line: &Line) -> Result<(), Lost> {
        self.0.keep(line).await
    }
}

fn keep(text: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_TEXT.saturating_sub(text.len());
    text.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
}

/// How a command ended; `None` if that is no whole status yet.
fn read(status: &[u8], text: &[u8]) -> Option<Result<(), Failure>> {
    let status: Status = serde_json::from_slice(status).ok()?;
    if status.status == "Success" {
        return Some(Ok(()));
    }
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let exit = causes.iter().find(|cause| cause.reason == "ExitCode").and_then(|cause| cause.message.parse().ok());
    let said = first_line(text);
    Some(Err(Failure { exit, text: if said.is_empty() { status.message } else { said } }))
}

/// What a command says to people is its first line.
fn first_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use streaming::websocket::{BINARY, write};
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    /// What is made of these messages of a pod, which come cut anywhere.
    async fn told(kind: Kind, messages: &[&[u8]], cut: usize) -> (Vec<u8>, Result<(), Failure>) {
        let (ours, mut pods) = duplex(1 << 20);
        let mut out = BytesMut::new();
        for message in messages {
            write(BINARY, &[message], &mut out);
        }
        for bytes in out.chunks(cut) {
            pods.write_all(bytes).await.expect("written");
        }
        drop(pods);
        let (mut channels, mut data) = (Channels::new(ours, kind), Vec::new());
        loop {
            match channels.next().await.expect("messages") {
                Part::Data(bytes) => data.extend_from_slice(&bytes),
                Part::End(end) => return (data, end),
            }
        }
    }

    fn failed(exit: Option<u8>, text: &str) -> Result<(), Failure> {
        Err(Failure { exit, text: text.to_owned() })
    }

    #[tokio::test]
    async fn a_command_ends_with_its_status() {
        let done: &[u8] = b"\x03{\"metadata\":{},\"status\":\"Success\"}";
        let exit: &[u8] = b"\x03{\"status\":\"Failure\",\"message\":\"exit code 69\",\"reason\":\"NonZeroExitCode\",\"details\":{\"causes\":[{\"reason\":\"ExitCode\",\"message\":\"69\"}]}}";
        for cut in [1, 7, 1 << 20] {
            let ended = told(Kind::Command, &[b"\x01", b"\x01abc", b"\x01def", done, b"\x01late"], cut).await;
            assert_eq!(ended, (b"abcdef".to_vec(), Ok(())));
            let ended = told(Kind::Command, &[b"\x02paused already\nmore", exit], cut).await;
            assert_eq!(ended, (Vec::new(), failed(Some(69), "paused already")));
            let ended = told(Kind::Command, &[exit], cut).await;
            assert_eq!(ended.1, failed(Some(69), "exit code 69"));
        }
        assert_eq!(told(Kind::Command, &[b"\x01x"], 1).await, (b"x".to_vec(), Ok(())));
    }

    #[tokio::test]
    async fn a_port_begins_with_its_number_and_may_fail() {
        for cut in [1, 1 << 20] {
            let opened: [&[u8]; 2] = [b"\x00\x16\x00", b"\x01\x16\x00"];
            let ended = told(Kind::Port, &[opened[0], opened[1], b"\x00SSH-2.0"], cut).await;
            assert_eq!(ended, (b"SSH-2.0".to_vec(), Ok(())));
            let ended = told(Kind::Port, &[opened[0], opened[1], b"\x01connection refused"], cut).await;
            assert_eq!(ended.1, failed(None, "connection refused"));
        }
    }

    #[tokio::test]
    async fn no_more_is_kept_of_a_text_than_there_is_room() {
        let long = [&[STDERR][..], &[b'x'; MAX_TEXT]].concat();
        let (_, end) = told(Kind::Command, &[&long, &long], 1 << 20).await;
        assert_eq!(end.expect_err("failed").text.len(), MAX_TEXT);
    }
}
