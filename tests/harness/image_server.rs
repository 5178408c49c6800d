//! A small HTTP server of images on the cell's loopback, which can be told to misbehave.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};

/// Where it listens: the cell has its ports to itself.
pub const HOST: &str = "127.0.0.1:8081";
const CHUNK: usize = 1 << 18;

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Says nothing more after this many bytes, and keeps the connection.
    StallAfter(u64),
    /// Hangs up after this many bytes.
    HangUpAfter(u64),
    /// Announces this many bytes more than there are.
    AnnounceMore(u64),
    /// Announces this many bytes fewer than it sends.
    AnnounceFewer(u64),
    /// Answers with this status and no image.
    Status(u16),
    /// Waits this many milliseconds before each 256 KiB.
    Slow(u16),
}

#[derive(Debug, Clone)]
struct Offer {
    path: PathBuf,
    fault: Fault,
    downloads: usize,
}

type Files = BTreeMap<String, Offer>;

/// The server; it ends with the case.
#[derive(Debug, Clone)]
pub struct ImageServer {
    files: Arc<Mutex<Files>>,
}

impl ImageServer {
    /// Starts it, with nothing to offer.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start() -> Result<Self> {
        let server = Self { files: Arc::default() };
        let listener = TcpListener::bind(HOST).with_context(|| format!("failed to listen on {HOST}"))?;
        let files = Arc::clone(&server.files);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let files = Arc::clone(&files);
                // What becomes of a connection is the client's affair: cases look at what the client says.
                std::thread::spawn(move || answer(&stream, &files));
            }
        });
        Ok(server)
    }

    /// Offers `path` as `name`; returns the image name to pull.
    pub fn offer(&self, name: &str, path: &Path, fault: Fault) -> String {
        let offer = Offer { path: path.to_owned(), fault, downloads: 0 };
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("/{name}"), offer);
        format!("{HOST}/{name}")
    }

    /// How many times `name` was asked for.
    #[must_use]
    pub fn downloads(&self, name: &str) -> usize {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&format!("/{name}")).map_or(0, |offer| offer.downloads)
    }
}

fn answer(mut stream: &TcpStream, files: &Mutex<Files>) -> Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().context("no request")??;
    while lines.next().context("request without end")??.len() > 1 {}
    let mut words = request.split(' ');
    let (method, target) = (words.next().context("no method")?, words.next().context("no target")?);
    let Some(Offer { path, fault, .. }) = counted(files, method, target) else { return refuse(stream, 404) };
    if let Fault::Status(code) = fault {
        return refuse(stream, code);
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let announced = match fault {
        Fault::AnnounceMore(more) => length + more,
        Fault::AnnounceFewer(fewer) => length.saturating_sub(fewer),
        _ => length,
    };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {announced}\r\nConnection: close\r\n\r\n")?;
    if method == "HEAD" {
        return Ok(());
    }
    let limit = match fault {
        Fault::StallAfter(bytes) | Fault::HangUpAfter(bytes) => bytes,
        _ => u64::MAX,
    };
    let mut body = (&mut file).take(limit);
    let mut chunk = vec![0; CHUNK];
    loop {
        if let Fault::Slow(millis) = fault {
            std::thread::park_timeout(std::time::Duration::from_millis(millis.into()));
        }
        match body.read(&mut chunk)? {
            0 => break,
            len => stream.write_all(chunk.get(..len).unwrap_or_default())?,
        }
    }
    if matches!(fault, Fault::StallAfter(_)) {
        // Until the client has had enough.
        let _end = stream.read(&mut chunk)?;
    }
    Ok(())
}

fn counted(files: &Mutex<Files>, method: &str, target: &str) -> Option<Offer> {
    let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
    let offer = files.get_mut(target)?;
    offer.downloads += usize::from(method == "GET");
    Some(offer.clone())
}

fn refuse(mut stream: &TcpStream, code: u16) -> Result<()> {
    Ok(write!(stream, "HTTP/1.1 {code} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?)
}
