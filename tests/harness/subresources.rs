//! Requests for subresources of VMs through the API server, as KubeVirt's clients send them: calls, and streams of WebSocket messages that are
//! nothing but their bytes.
//!
//! A stream is read and written as a socket is. It lasts as long as who asked for it.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use streaming::websocket::{BINARY, Decoder, KEY_LEN, PONG, Piece, VERSION, accept, write_masked};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::bytes::{Buf as _, Bytes, BytesMut};

use crate::pace;

/// The group; below it are namespaces.
pub const AT: &str = "/apis/subresources.kubevirt.io/v1/namespaces";
/// What KubeVirt's clients call such a stream.
const PLAIN: &str = "plain.kubevirt.io";
/// The server itself takes no longer than a minute.
const CALL_DEADLINE: Duration = Duration::from_secs(70);
/// Something comes of a stream within this, also of a guest that boots.
const SILENCE: Duration = Duration::from_secs(240);
/// What is read at once.
const CHUNK: usize = 16 << 10;
/// Nothing between us and the API server reads masks.
const MASK: [u8; 4] = [1, 2, 3, 4];

/// Somebody who asks.
pub struct Asker {
    runtime: Runtime,
    client: Client,
}

/// What is answered.
#[derive(Debug)]
pub struct Answer {
    /// Of HTTP.
    pub code: u16,
    /// All of it.
    pub body: Vec<u8>,
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    runtime: Handle,
    io: TokioIo<Upgraded>,
    decoder: Decoder,
    buffer: BytesMut,
    /// Of the message that is being read.
    ready: Bytes,
    is_over: bool,
}

// === impl Asker ===

impl Asker {
    /// The kubeconfig's user, or the one that this names and the kubeconfig's may be.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub fn of(kubeconfig: &Path, user: Option<&str>) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let file = Kubeconfig::read_from(kubeconfig)?;
        let client = runtime.block_on(async {
            let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
            config.auth_info.impersonate = user.map(str::to_owned);
            // A stream may be silent.
            (config.read_timeout, config.write_timeout) = (None, None);
            // And an answer is shown as it is.
            config.default_retry = false;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self { runtime, client })
    }

    /// GET of a path below [`AT`].
    ///
    /// # Errors
    /// When there is no answer.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.ask(Request::get(format!("{AT}/{path}")).body(Body::empty())?)
    }

    /// PUT of a body at a path below [`AT`].
    ///
    /// # Errors
    /// When there is no answer.
    pub fn put(&self, path: &str, body: &str) -> Result<Answer> {
        let request = Request::put(format!("{AT}/{path}")).header(CONTENT_TYPE, "application/json");
        self.ask(request.body(Body::from(body.as_bytes().to_vec()))?)
    }

    /// Begins a stream at a path below [`AT`].
    ///
    /// # Errors
    /// When it does not begin: the error has the answer.
    pub fn open(&self, path: &str) -> Result<Stream> {
        match self.tried(path)? {
            Ok(stream) => Ok(stream),
            Err(answer) => bail!("no stream at {path}: {}: {}", answer.code, answer.message()),
        }
    }

    /// What is answered instead of a stream at a path below [`AT`].
    ///
    /// # Errors
    /// When there is a stream, or no answer.
    pub fn refused(&self, path: &str) -> Result<Answer> {
        self.tried(path)?.err().with_context(|| format!("a stream at {path}"))
    }

    /// A stream at a path below [`AT`], or what is answered instead.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn tried(&self, path: &str) -> Result<Result<Stream, Answer>> {
        let key = BASE64.encode([7; KEY_LEN]);
        let request = Request::get(format!("{AT}/{path}"))
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, VERSION)
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, PLAIN)
            .body(Body::empty())?;
        self.wait(async {
            let response = self.client.send(request).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Err(whole(response).await?));
            }
            let told = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            ensure!(told(SEC_WEBSOCKET_ACCEPT) == accept(&key).as_deref(), "not the answer to our key");
            ensure!(told(SEC_WEBSOCKET_PROTOCOL) == Some(PLAIN), "{:?}", response.headers());
            let io = TokioIo::new(hyper::upgrade::on(response).await?);
            let (decoder, buffer) = (Decoder::of_server(), BytesMut::new());
            let runtime = self.runtime.handle().clone();
            Ok(Ok(Stream { runtime, io, decoder, buffer, ready: Bytes::new(), is_over: false }))
        })
    }

    fn ask(&self, request: Request<Body>) -> Result<Answer> {
        self.wait(async { whole(self.client.send(request).await?).await })
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(pace::within(CALL_DEADLINE, work)).context("no answer of the API server")?
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Asker").finish_non_exhaustive()
    }
}

async fn whole(response: Response<Body>) -> Result<Answer> {
    let code = response.status().as_u16();
    Ok(Answer { code, body: response.into_body().collect_bytes().await?.to_vec() })
}

// === impl Answer ===

impl Answer {
    /// The object that it is.
    ///
    /// # Errors
    /// When it is none.
    pub fn object(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{}: {}", self.code, self.message()))
    }

    /// What it says to people: a Status's message, or all of it.
    #[must_use]
    pub fn message(&self) -> String {
        let status: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = String::from_utf8_lossy(&self.body);
        status["message"].as_str().map_or_else(|| text.into_owned(), str::to_owned)
    }
}

// === impl Stream ===

impl Stream {
    /// Reads on until a text has come; all that came.
    ///
    /// # Errors
    /// When the stream ends before, or is silent.
    pub fn until(&mut self, text: &str) -> Result<String> {
        let (mut all, mut some) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.read(&mut some);
            let said = || String::from_utf8_lossy(&all).into_owned();
            let read = read.with_context(|| format!("no `{text}` in {}", said()))?;
            ensure!(read > 0, "an end without `{text}`: {}", said());
            all.extend_from_slice(some.get(..read).unwrap_or_default());
            let said = String::from_utf8_lossy(&all);
            if said.contains(text) {
                return Ok(said.into_owned());
            }
        }
    }

    fn put(&mut self, opcode: u8, payload: &[u8]) -> io::Result<()> {
        let mut message = BytesMut::new();
        write_masked(opcode, &[payload], MASK, &mut message);
        let Self { runtime, io, .. } = self;
        let sent = pace::within(SILENCE, async {
            io.write_all(&message).await?;
            io.flush().await
        });
        runtime.block_on(sent).map_err(io::Error::other)?
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() && !self.is_over {
            match self.decoder.decode(&mut self.buffer).map_err(io::Error::other)? {
                Some(Piece::Message { bytes, .. }) => self.ready = bytes,
                Some(Piece::Ping(payload)) => self.put(PONG, &payload)?,
                Some(Piece::Close(_)) => self.is_over = true,
                None => {
                    let Self { runtime, io, buffer, .. } = self;
                    buffer.reserve(CHUNK);
                    let read =
                        runtime.block_on(pace::within(SILENCE, io.read_buf(buffer))).map_err(io::Error::other)??;
                    self.is_over = read == 0;
                }
            }
        }
        let mut ready: &[u8] = &self.ready;
        let read = io::Read::read(&mut ready, out)?;
        self.ready.advance(read);
        Ok(read)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(BINARY, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
