//! A small HTTP server of images on the cell's addresses, which can be told to misbehave.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::peers::ADDRESS;

/// Where it is on loopback: the cell has its ports to itself.
pub const HOST: &str = "127.0.0.1:8081";
const PORT: u16 = 8081;
const CHUNK: usize = 1 << 18;
/// Between two drops of [`Fault::Drip`].
const DROP: Duration = Duration::from_millis(100);

/// What is wrong with an answer. Only [`Fault::None`] and [`Fault::Resumes`] let a client ask for the rest of a file.
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
    /// Waits for this long before each 256 KiB.
    Slow(Duration),
    /// A byte now and then.
    Drip,
    /// Chunk after chunk.
    Endless,
    /// Header after header.
    EndlessHead,
    /// Leads here again, so many times, then to the file.
    Redirects(u32),
    /// Leads elsewhere.
    RedirectTo(&'static str),
    /// A web page, as of a portal that wants a login.
    Page,
    /// Says that the body is packed on the way.
    Encoded,
    /// As of HTTP/1.0: no length, and the end is the end of the connection.
    Undelimited,
    /// Lets in only this user with this password.
    Login(&'static str, &'static str),
    /// Hangs up half-way the first time; then this is how it takes a wish for the rest.
    Resumes(Rest),
}

/// The answer to a request for the rest of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// The rest.
    Sound,
    /// The whole file.
    Whole,
    /// Says and sends another part.
    OtherPart,
    /// Says that the file is of another size.
    OtherSize,
    /// A part, and not a word on which.
    Unsaid,
    /// The rest of another file, which it says.
    OtherFile,
    /// That there is none.
    Refused,
}

#[derive(Debug, Clone)]
struct Offer {
    path: PathBuf,
    fault: Fault,
    asked: Vec<Option<u64>>,
}

type Files = BTreeMap<String, Offer>;

/// The server; it ends with the case.
#[derive(Debug, Clone)]
pub struct ImageServer {
    files: Arc<Mutex<Files>>,
}

#[derive(Clone)]
struct Request {
    method: String,
    /// Path, and the number behind `?`.
    target: String,
    left: Option<u32>,
    /// Where the wished range begins.
    from: Option<u64>,
    /// Last byte of the wished range.
    until: Option<u64>,
    /// What the client has, by its tag.
    known: Option<String>,
    /// How it logs in.
    login: Option<String>,
}

impl ImageServer {
    /// Starts it, with nothing to offer.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start() -> Result<Self> {
        let server = Self { files: Arc::default() };
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("failed to listen with images")?;
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

    /// Offers `path` as `name`; returns the image name to pull, on loopback.
    pub fn offer(&self, name: &str, path: &Path, fault: Fault) -> String {
        let offer = Offer { path: path.to_owned(), fault, asked: Vec::new() };
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("/{name}"), offer);
        format!("{HOST}/{name}")
    }

    /// URL of an offer, on the address of peers.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("http://{ADDRESS}:{PORT}/{name}")
    }

    /// How many times `name` was asked for.
    #[must_use]
    pub fn downloads(&self, name: &str) -> usize {
        self.asked(name).len()
    }

    /// Where the wished ranges of `name` began, of each request; none where the whole was wished.
    #[must_use]
    pub fn asked(&self, name: &str) -> Vec<Option<u64>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&format!("/{name}")).map_or_else(Vec::new, |offer| offer.asked.clone())
    }
}

fn answer(stream: &TcpStream, files: &Mutex<Files>) -> Result<()> {
    let request = Request::read(stream)?;
    let Some(offer) = counted(files, &request) else { return head(stream, "404 No", &[("Content-Length", "0")]) };
    let mut file = File::open(&offer.path)?;
    let length = file.metadata()?.len();
    let (tag, first) = (tag(&offer.path), offer.asked.len() == 1);
    match offer.fault {
        Fault::None => good(stream, &request, &mut file, length, &tag),
        Fault::Resumes(rest) => resumes(stream, &request, &mut file, length, &tag, (rest, first)),
        Fault::Login(user, password) => {
            let wanted = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            if request.login.as_ref() == Some(&wanted) {
                return good(stream, &request, &mut file, length, &tag);
            }
            let realm = ("WWW-Authenticate", "Basic realm=\"images\"");
            head(stream, "401 No", &[realm, ("Content-Length", "0")])
        }
        Fault::Status(code) => head(stream, &format!("{code} No"), &[("Content-Length", "0")]),
        Fault::AnnounceMore(more) => whole(stream, &mut file, length + more, u64::MAX),
        Fault::AnnounceFewer(fewer) => whole(stream, &mut file, length.saturating_sub(fewer), u64::MAX),
        Fault::HangUpAfter(bytes) => whole(stream, &mut file, length, bytes),
        Fault::StallAfter(bytes) => {
            whole(stream, &mut file, length, bytes)?;
            until_gone(stream)
        }
        Fault::Slow(time) => {
            length_head(stream, length)?;
            copy(stream, &mut file, CHUNK, || pause(time))
        }
        Fault::Drip => {
            length_head(stream, length)?;
            copy(stream, &mut file, 1, || pause(DROP))
        }
        Fault::Endless => endless(stream, &mut file),
        Fault::EndlessHead => {
            write_to(stream, "HTTP/1.1 200 OK\r\n")?;
            (0_u64..).try_for_each(|n| write_to(stream, &format!("X-{n}: {n}\r\n")))
        }
        Fault::Redirects(most) => match request.left.unwrap_or(most) {
            0 => good(stream, &request, &mut file, length, &tag),
            left => redirect(stream, &format!("{}?{}", request.target, left - 1)),
        },
        Fault::RedirectTo(url) => redirect(stream, url),
        Fault::Page => {
            let page = "<html><body>Log in first</body></html>".repeat(30);
            head(stream, "200 OK", &[("Content-Type", "text/html"), ("Content-Length", &page.len().to_string())])?;
            write_to(stream, &page)
        }
        Fault::Encoded => {
            head(stream, "200 OK", &[("Content-Encoding", "gzip"), ("Content-Length", &length.to_string())])?;
            copy(stream, &mut file, CHUNK, || ())
        }
        Fault::Undelimited => {
            write_to(stream, "HTTP/1.0 200 OK\r\n\r\n")?;
            copy(stream, &mut file, CHUNK, || ())
        }
    }
}

/// As a good server answers: with a tag, and what is wished of the file.
fn good(stream: &TcpStream, request: &Request, file: &mut File, length: u64, tag: &str) -> Result<()> {
    if request.known.as_deref() == Some(tag) {
        return head(stream, "304 Same", &[("ETag", tag)]);
    }
    let Some(from) = request.from.filter(|from| *from < length) else {
        head(stream, "200 OK", &[("ETag", tag), ("Accept-Ranges", "bytes"), ("Content-Length", &length.to_string())])?;
        return if request.method == "HEAD" { Ok(()) } else { copy(stream, file, CHUNK, || ()) };
    };
    let until = request.until.unwrap_or(u64::MAX).min(length - 1);
    part(stream, file, tag, Some((from, until, length)), (from, until))
}

fn resumes(
    stream: &TcpStream,
    request: &Request,
    file: &mut File,
    length: u64,
    tag: &str,
    (rest, first): (Rest, bool),
) -> Result<()> {
    if first {
        head(stream, "200 OK", &[("ETag", tag), ("Accept-Ranges", "bytes"), ("Content-Length", &length.to_string())])?;
        return copy(stream, &mut file.take(length / 2), CHUNK, || ());
    }
    let Some(from) = request.from else { return good(stream, request, file, length, tag) };
    let last = length - 1;
    match rest {
        Rest::Sound => good(stream, request, file, length, tag),
        Rest::Whole => good(stream, &Request { from: None, ..request.clone() }, file, length, tag),
        Rest::OtherPart => part(stream, file, tag, Some((0, last, length)), (0, last)),
        Rest::OtherSize => part(stream, file, tag, Some((from, last, length + 1)), (from, last)),
        Rest::Unsaid => part(stream, file, tag, None, (from, last)),
        Rest::OtherFile => part(stream, file, "\"other\"", Some((from, last, length)), (0, last - from)),
        Rest::Refused => {
            head(stream, "416 No", &[("Content-Range", &format!("bytes */{length}")), ("Content-Length", "0")])
        }
    }
}

/// A part of the file, whatever is said of it.
fn part(
    stream: &TcpStream,
    file: &mut File,
    tag: &str,
    said: Option<(u64, u64, u64)>,
    (from, until): (u64, u64),
) -> Result<()> {
    let length = (until + 1 - from).to_string();
    let said = said.map(|(from, until, of)| format!("bytes {from}-{until}/{of}"));
    let mut headers = vec![("ETag", tag), ("Content-Length", length.as_str())];
    headers.extend(said.as_deref().map(|said| ("Content-Range", said)));
    head(stream, "206 Part", &headers)?;
    file.seek(SeekFrom::Start(from))?;
    copy(stream, &mut file.take(until + 1 - from), CHUNK, || ())
}

/// The same file has the same tag.
fn tag(path: &Path) -> String {
    format!("\"{}\"", path.file_name().unwrap_or_default().display())
}

fn whole(stream: &TcpStream, file: &mut File, announced: u64, limit: u64) -> Result<()> {
    length_head(stream, announced)?;
    copy(stream, &mut file.take(limit), CHUNK, || ())
}

fn endless(mut stream: &TcpStream, file: &mut File) -> Result<()> {
    head(stream, "200 OK", &[("Transfer-Encoding", "chunked")])?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let len = file.read(&mut chunk)?;
        if len == 0 {
            file.rewind()?;
            continue;
        }
        write!(stream, "{len:x}\r\n")?;
        stream.write_all(chunk.get(..len).unwrap_or_default())?;
        write!(stream, "\r\n")?;
    }
}

fn redirect(stream: &TcpStream, to: &str) -> Result<()> {
    head(stream, "302 There", &[("Location", to), ("Content-Length", "0")])
}

fn length_head(stream: &TcpStream, length: u64) -> Result<()> {
    head(stream, "200 OK", &[("Content-Length", &length.to_string())])
}

fn head(stream: &TcpStream, status: &str, headers: &[(&str, &str)]) -> Result<()> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write_to(stream, &format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n"))
}

fn write_to(mut stream: &TcpStream, text: &str) -> Result<()> {
    Ok(stream.write_all(text.as_bytes())?)
}

/// Copies a body in pieces of so many bytes, with `before` each.
fn copy(mut stream: &TcpStream, body: &mut impl std::io::Read, piece: usize, before: impl Fn()) -> Result<()> {
    let mut chunk = vec![0; piece];
    loop {
        before();
        match body.read(&mut chunk)? {
            0 => return Ok(()),
            len => stream.write_all(chunk.get(..len).unwrap_or_default())?,
        }
    }
}

/// Until the client has had enough.
fn until_gone(mut stream: &TcpStream) -> Result<()> {
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(())
}

fn pause(time: Duration) {
    // Nobody unparks.
    std::thread::park_timeout(time);
}

fn counted(files: &Mutex<Files>, request: &Request) -> Option<Offer> {
    let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
    let offer = files.get_mut(&request.target)?;
    if request.method == "GET" {
        offer.asked.push(request.from);
    }
    Some(offer.clone())
}

impl Request {
    fn read(stream: &TcpStream) -> Result<Self> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().context("no request")??;
        let mut words = first.split(' ');
        let (method, target) = (words.next().context("no method")?, words.next().context("no target")?);
        let (target, left) = target.split_once('?').map_or((target, None), |(path, left)| (path, left.parse().ok()));
        let (method, target) = (method.to_owned(), target.to_owned());
        let mut request = Self { method, target, left, from: None, until: None, known: None, login: None };
        loop {
            let line = lines.next().context("request without end")??;
            let Some((name, value)) = line.split_once(": ") else { return Ok(request) };
            if name.eq_ignore_ascii_case("range") {
                let (from, until) = value.trim_start_matches("bytes=").split_once('-').context("no range")?;
                (request.from, request.until) = (from.parse().ok(), until.parse().ok());
            } else if name.eq_ignore_ascii_case("if-none-match") {
                request.known = Some(value.to_owned());
            } else if name.eq_ignore_ascii_case("authorization") {
                request.login = Some(value.to_owned());
            }
        }
    }
}
