//! A command in a guest whose streams are in this process: a session without a program of its own between.

use anyhow::{Context as _, Result, ensure};
use proto::cri::ExecRequest;
use streaming::client::{self, End, Options};
use streaming::{Input, Output};
use tests::cri::Cri;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::runtime::{Builder, Runtime};

/// A command that runs. It is killed when it is dropped.
pub(super) struct Talk {
    /// One thread, as a client of a socket has it.
    runtime: Runtime,
    to: Output,
    from: BufReader<Input>,
    _end: End,
}

impl Talk {
    /// Starts `words` in a container, with input and output.
    ///
    /// # Errors
    /// When there is no session.
    pub(super) fn start(cri: &Cri, container: &str, words: &[&str]) -> Result<Self> {
        let request = ExecRequest {
            container_id: container.to_owned(),
            cmd: words.iter().map(|word| (*word).to_owned()).collect(),
            stdin: true,
            stdout: true,
            ..Default::default()
        };
        let url = cri.call(|mut client| async move { client.exec(request).await })?.url;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let wanted = Options { stdin: true, stdout: true, stderr: false, tty: false };
        let session = runtime.block_on(client::attach(&url, wanted))?;
        let to = session.stdin.context("a session without input")?;
        let from = BufReader::new(session.stdout.context("a session without output")?);
        Ok(Self { runtime, to, from, _end: session.end })
    }

    /// Sends a line and waits for it to come back.
    ///
    /// # Errors
    /// When another one comes back, or none.
    pub(super) fn there_and_back(&mut self, line: &str) -> Result<()> {
        let Self { runtime, to, from, .. } = self;
        let mut back = String::new();
        runtime.block_on(async {
            to.write_all(line.as_bytes()).await?;
            from.read_line(&mut back).await
        })?;
        ensure!(back == line, "came back: {back:?}");
        Ok(())
    }
}
