//! What a command printed, as `ExecSync` answers it.

use proto::agent::Stream;
use vmspec::error::{Error, Kind, Result};

use super::events::Event;
use super::process::Process;

/// Bytes that are kept of both streams together; the rest is thrown away, as other runtimes do. It has to go into one answer,
/// of which a gRPC client takes 16 MiB.
pub(super) const MAX_OUTPUT: usize = (16 << 20) - (64 << 10);

/// What a command printed, and its exit code.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// There was more of it.
    pub cut: bool,
    pub code: u8,
}

/// Collects output until the process ends.
pub(super) async fn collect(mut process: Process) -> Result<Output> {
    let mut output = Output::default();
    loop {
        let room = MAX_OUTPUT.saturating_sub(output.stdout.len() + output.stderr.len());
        let (stream, kept, data) = match process.next().await {
            Some(Event::Stdout(data)) => (Stream::Stdout, &mut output.stdout, data),
            Some(Event::Stderr(data)) => (Stream::Stderr, &mut output.stderr, data),
            Some(Event::Exited(code)) => return Ok(Output { code, ..output }),
            Some(Event::Started | Event::Refused(_)) => continue,
            None => {
                let what = "the command's end was not seen: the guest or its agent was restarted";
                return Err(Error::new(Kind::Unavailable, what));
            }
        };
        kept.extend_from_slice(data.get(..room).unwrap_or(&data));
        output.cut |= data.len() > room;
        process.taken(stream, data.len()).await;
    }
}
