//! A server in this process, and what asks it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::Chain;
use imagestore::net::{Artifact, Ask, Auth, Client, NetConfig, NetPolicy, Opened, Transport};
use imagestore::provider::{Locator, Platform, Provider, ProviderError, RemoteImage, Want};
use url::Url;
use vmimage::error::ErrorKind;

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// A value of the query, decoded.
    pub(crate) fn query(&self, key: &str) -> Option<String> {
        let url = Url::parse("http://host").and_then(|host| host.join(&self.path)).expect("a URL");
        url.query_pairs().find(|(name, _)| name == key).map(|(_, value)| value.into_owned())
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, body)
    }

    pub(crate) fn missing() -> Self {
        Self::new(404, "no")
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

pub(crate) struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn new(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let server =
            Self { address: listener.local_addr().expect("an address"), asked: Arc::default(), stop: Arc::default() };
        let (script, asked, stop) = (Arc::new(script), server.asked.clone(), server.stop.clone());
        std::thread::spawn(move || {
            for tcp in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(tcp) = tcp else { continue };
                let (script, asked) = (script.clone(), asked.clone());
                std::thread::spawn(move || talk(tcp, &asked, &*script));
            }
        });
        server
    }

    /// A server of files, which tells versions of them apart.
    pub(crate) fn of(files: &Files) -> Self {
        let files = files.clone();
        Self::new(move |asked| {
            let files = files.0.lock().expect("sound");
            let Some(body) = files.get(asked.path.trim_start_matches('/')) else { return Reply::missing() };
            let etag = format!("\"{}\"", body.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte)));
            if asked.header("if-none-match") == Some(&etag) {
                return Reply::new(304, "").with("ETag", &etag);
            }
            Reply::ok(body.clone()).with("ETag", &etag).with("Accept-Ranges", "bytes")
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("sound").clone()
    }

    /// Paths of all requests so far, which are then forgotten.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked.lock().expect("sound").drain(..).map(|asked| asked.path).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Files of a server, which may change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Files {
    pub(crate) fn put(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.0.lock().expect("sound").insert(path.into(), body.into());
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().expect("sound").remove(path);
    }
}

fn talk(mut tcp: TcpStream, asked: &Mutex<Vec<Asked>>, script: &dyn Fn(&Asked) -> Reply) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match tcp.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
    let mut body = vec![0; length];
    if tcp.read_exact(&mut body).is_err() {
        return;
    }
    let request = Asked { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() };
    asked.lock().expect("sound").push(request.clone());
    let Reply { status, headers, body } = script(&request);
    let mut reply = format!("HTTP/1.1 {status} Said\r\n");
    if !matches!(status, 204 | 304) {
        reply += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        reply += &format!("{name}: {value}\r\n");
    }
    // The client may be gone, which is its right.
    let _ = tcp.write_all(reply.as_bytes()).and_then(|()| tcp.write_all(b"\r\n")).and_then(|()| tcp.write_all(&body));
    let _ = tcp.shutdown(Shutdown::Write);
}

/// A client that may speak to this machine.
pub(crate) fn client() -> Arc<Client> {
    let policy = NetPolicy { allow_loopback: true, ..NetPolicy::default() };
    Arc::new(Client::new(NetConfig { policy, ..NetConfig::default() }))
}

pub(crate) fn want(architecture: &str) -> Want {
    Want { platform: Platform::linux(architecture), ..Want::default() }
}

/// Somebody else's login, which no catalog is to see.
pub(crate) fn want_with_login() -> Want {
    Want { auth: Some(Auth::Bearer("callers".into())), ..want("amd64") }
}

pub(crate) fn locator(url: &str) -> Locator {
    Locator::new(Url::parse(url).expect("a URL"), "a rule".into(), Transport::plain())
}

/// The image of a name, which must be there.
pub(crate) async fn found(provider: &dyn Provider, name: &str) -> RemoteImage {
    let found = provider.find(name, &want("amd64")).await;
    found.unwrap_or_else(|error| panic!("{name}: {}", chain(&error))).unwrap_or_else(|| panic!("no {name}"))
}

/// Why a name has no image, in one line.
pub(crate) async fn refused(provider: &dyn Provider, name: &str) -> String {
    match provider.find(name, &want("amd64")).await {
        Ok(found) => panic!("{name} was not refused: {found:?}"),
        Err(error) => chain(&error),
    }
}

/// Asks a provider whose address leads nowhere: that is no word on the image.
pub(crate) async fn is_absent(provider: &dyn Provider, why: &str) {
    let error = provider.find("name", &want("amd64")).await.expect_err("nothing there");
    assert!(matches!(error, ProviderError::Absent { .. }), "{error:?}");
    assert_eq!((error.kind(), error.is_unreachable()), (ErrorKind::Server, false));
    assert_eq!(error.to_string(), format!("{why}; the provider's address in the configuration may be wrong"));
}

/// All bytes of an image.
pub(crate) async fn bytes(provider: &dyn Provider, image: &RemoteImage, ask: &Ask) -> Result<Vec<u8>, ProviderError> {
    let Opened::Artifact(artifact) = provider.open(image, ask).await? else { panic!("unchanged") };
    let Artifact { mut body, .. } = artifact;
    let (mut all, mut room) = (Vec::new(), [0; 1000]);
    loop {
        match body.read(&mut room).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&room[..count]),
        }
    }
}

pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    Chain(error).to_string()
}
