//! Short ways to ask.

use std::time::Duration;

use imagestore::net::{
    Artifact, Ask, Client, FetchError, NetConfig, Opened, Request, Resume, Transport, TransportSpec,
};
use url::Url;

use crate::rig::chain;

/// A client that may go to loopback and asks once.
pub(crate) fn client() -> Client {
    client_with(|_| {})
}

pub(crate) fn client_with(change: impl FnOnce(&mut NetConfig)) -> Client {
    let mut config = NetConfig::default();
    config.policy.allow_loopback = true;
    config.retries.count = 0;
    // No test waits for it to pass, but those that set their own.
    config.timeouts.stall = Duration::from_secs(20);
    change(&mut config);
    Client::new(config)
}

pub(crate) fn get(url: &str) -> Request {
    Request::get(Url::parse(url).expect("a URL"))
}

pub(crate) fn with(url: &str, spec: &TransportSpec) -> Request {
    get(url).with_transport(Transport::new("test", spec).expect("a profile"))
}

pub(crate) async fn open(client: &Client, request: &Request, ask: &Ask) -> Result<Artifact, FetchError> {
    match client.open(request, ask).await? {
        Opened::Artifact(artifact) => Ok(artifact),
        Opened::Unchanged => panic!("unchanged: {request:?}"),
    }
}

pub(crate) async fn read(artifact: &mut Artifact) -> Result<Vec<u8>, FetchError> {
    let (mut all, mut room) = (Vec::new(), vec![0; 10_000]);
    loop {
        match artifact.body.read(&mut room).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&room[..count]),
        }
    }
}

/// The whole body as text, or the error with its causes.
pub(crate) async fn text(client: &Client, request: &Request) -> Result<String, String> {
    let all = async {
        let mut artifact = open(client, request, &Ask::default()).await?;
        read(&mut artifact).await
    };
    all.await.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| chain(&error))
}

pub(crate) fn resume(at: u64, etag: Option<&str>, total: Option<u64>) -> Ask {
    Ask { from: Some(Resume { at, etag: etag.map(str::to_owned), total }), ..Ask::default() }
}
