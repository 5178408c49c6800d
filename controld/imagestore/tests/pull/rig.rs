//! A server that says exactly what a test wants, byte by byte, and a store that asks it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::Chain;
use imagestore::{Config, Store};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256, Sha512};

/// The way to the client, encrypted or not.
pub(crate) trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// One request and the way back.
pub(crate) struct Call<'a> {
    /// Request line and headers.
    pub(crate) head: String,
    pub(crate) stream: &'a mut dyn Stream,
    pub(crate) tcp: TcpStream,
    closed: bool,
}

impl Call<'_> {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Sends bytes. The client may be gone, which is its right.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.closed |= self.stream.write_all(bytes.as_ref()).and_then(|()| self.stream.flush()).is_err();
    }

    /// A plain good answer.
    pub(crate) fn ok(&mut self, body: &[u8]) {
        self.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        self.send(body);
    }

    pub(crate) fn redirect(&mut self, location: &str) {
        self.send(format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"));
    }

    /// Whether the client hung up, seen at the last [`Call::send`].
    pub(crate) fn tcp_is_closed(&self) -> bool {
        self.closed
    }

    /// Says nothing more until the client hangs up.
    pub(crate) fn hold(&mut self) {
        while matches!(self.stream.read(&mut [0; 64]), Ok(1..)) {}
    }

    /// Sends a byte now and then until the client hangs up.
    pub(crate) fn drip(&mut self) {
        self.tcp.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        loop {
            match self.stream.read(&mut [0; 64]) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.stream.write_all(b"x").is_err() {
                        return;
                    }
                }
                Ok(1..) => {}
                _ => return,
            }
        }
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    /// Connections that the script is done with.
    pub(crate) done: Arc<AtomicUsize>,
    /// PEM of the certificate to trust.
    pub(crate) certificate: Option<String>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn plain(script: impl Fn(&mut Call<'_>) + Send + Sync + 'static) -> Self {
        Self::start(script, None, None)
    }

    pub(crate) fn encrypted(script: impl Fn(&mut Call<'_>) + Send + Sync + 'static) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a server");
        Self::with_tls(Arc::new(config), made.cert.pem(), script)
    }

    /// A server that speaks TLS in its own way; `certificate` is the PEM to trust.
    pub(crate) fn with_tls(
        config: Arc<rustls::ServerConfig>,
        certificate: String,
        script: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::start(script, Some(config), Some(certificate))
    }

    fn start(
        script: impl Fn(&mut Call<'_>) + Send + Sync + 'static,
        tls: Option<Arc<rustls::ServerConfig>>,
        certificate: Option<String>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let (requests, done, stop) = (Arc::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let server = Self { address, requests, done, certificate, stop };
        let (script, requests, done, stop) =
            (Arc::new(script), server.requests.clone(), server.done.clone(), server.stop.clone());
        std::thread::spawn(move || {
            for tcp in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(tcp) = tcp else { continue };
                let (script, tls, requests, done) = (script.clone(), tls.clone(), requests.clone(), done.clone());
                std::thread::spawn(move || {
                    talk(tcp, tls, &requests, &*script);
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    pub(crate) fn hits(&self) -> usize {
        self.requests.lock().expect("sound").len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn talk(
    tcp: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    requests: &Mutex<Vec<String>>,
    script: &dyn Fn(&mut Call<'_>),
) {
    let other = tcp.try_clone().expect("cloned");
    let mut stream: Box<dyn Stream> = match tls {
        Some(config) => {
            let connection = rustls::ServerConnection::new(config).expect("a connection");
            Box::new(rustls::StreamOwned::new(connection, tcp))
        }
        None => Box::new(tcp),
    };
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    requests.lock().expect("sound").push(head.clone());
    script(&mut Call { head, stream: &mut *stream, tcp: other.try_clone().expect("cloned"), closed: false });
    // Sends what the kernel still has, then closes; unread input would make it a reset.
    let _ = other.shutdown(Shutdown::Write);
}

/// A store in a directory that others may pass, with one translation: `img`.
pub(crate) struct Bed {
    pub(crate) store: Store,
    pub(crate) config: Config,
    // Last, so that it goes last.
    pub(crate) dir: tempfile::TempDir,
}

impl Bed {
    pub(crate) fn new(url: &str) -> Self {
        Self::with(url, |_| {})
    }

    pub(crate) fn with(url: &str, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self::within(dir, url, change)
    }

    pub(crate) fn within(dir: tempfile::TempDir, url: &str, change: impl FnOnce(&mut Config)) -> Self {
        let rules = dir.path().join("rules");
        std::fs::create_dir(&rules).expect("made");
        std::fs::write(rules.join("a.yaml"), format!("translations: [{{name: img, url: '{url}'}}]")).expect("written");
        let mut config = Config::new(dir.path().join("images"));
        config.translations_dir = Some(rules);
        config.net.policy.allow_loopback = true;
        config.net.retries.count = 0;
        // No test waits for these to pass, but for stalls, which set their own.
        config.net.timeouts.stall = Duration::from_secs(20);
        config.net.timeouts.stall_bytes = 1000;
        change(&mut config);
        Self { store: Store::open(config.clone()).expect("opened"), config, dir }
    }

    /// The same store after a restart.
    pub(crate) fn reopened(self) -> Self {
        self.reopened_with(|_| {})
    }

    /// The same store after a restart with other settings.
    pub(crate) fn reopened_with(self, change: impl FnOnce(&mut Config)) -> Self {
        let Self { store, mut config, dir } = self;
        drop(store);
        change(&mut config);
        Self { store: Store::open(config.clone()).expect("opened"), config, dir }
    }

    /// Lets another URL stand behind `img`.
    pub(crate) fn translate(&self, url: &str) {
        let file = self.dir.path().join("rules/a.yaml");
        std::fs::write(file, format!("translations: [{{name: img, url: '{url}'}}]")).expect("written");
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    /// Pulls `img`. The error comes as one line, as a log would have it.
    pub(crate) async fn pull(&self) -> Result<imagestore::Image, (vmimage::error::ErrorKind, String)> {
        self.store.pull("img").await.map_err(|error| (error.kind(), chain(&*error)))
    }

    /// Nothing is in the store, not even a part, once what runs in the background is done.
    pub(crate) async fn assert_empty(&self) {
        assert!(self.store.list("").expect("listed").is_empty());
        for dir in ["links", "meta", "refs/_default"] {
            assert_eq!(names(&self.images().join(dir)), [""; 0], "{dir}");
        }
        eventually("the part file goes", || names(&self.images().join("data")).is_empty()).await;
    }
}

pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    Chain(error).to_string()
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("listed");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Waits, with a deadline, for what other threads are about to do.
pub(crate) async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("{what}: not within 20 s"));
}

/// A sound image of `length` bytes at least, with data that depend on `seed`.
pub(crate) fn disk(seed: u8, length: usize) -> Vec<u8> {
    let mut image = vec![0; length.max(4 * 512)];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb\0\0\0\x03");
    put(20, &9_u32.to_be_bytes());
    put(24, &(1_u64 << 20).to_be_bytes());
    put(36, &32_u32.to_be_bytes());
    put(40, &1024_u64.to_be_bytes());
    put(48, &512_u64.to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    for (at, byte) in image.iter_mut().enumerate().skip(1536) {
        *byte = (at / 3) as u8 ^ seed | 1;
    }
    image
}

/// SHA-256.
pub(crate) fn hex(bytes: &[u8]) -> String {
    hex_of::<Sha256>(bytes)
}

pub(crate) fn sha512(bytes: &[u8]) -> String {
    hex_of::<Sha512>(bytes)
}

fn hex_of<D: Digest>(bytes: &[u8]) -> String {
    D::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
