//! An HTTP proxy. Of our own, as nginx does not know CONNECT; it remembers what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};

use super::{ADDRESS, furnish};

const PORT: u16 = 3128;

/// The proxy; it ends with the case.
#[derive(Debug, Clone)]
pub struct Proxy {
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts it.
    ///
    /// # Errors
    /// When its port is taken.
    pub fn start() -> Result<Self> {
        furnish()?;
        let proxy = Self { asked: Arc::default() };
        let listener = TcpListener::bind((ADDRESS, PORT)).context("failed to listen as a proxy")?;
        let asked = Arc::clone(&proxy.asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let asked = Arc::clone(&asked);
                // What becomes of a connection is the client's affair.
                std::thread::spawn(move || answer(&stream, &asked));
            }
        });
        Ok(proxy)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{ADDRESS}:{PORT}")
    }

    /// Heads of the requests so far.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn answer(mut client: &TcpStream, asked: &Mutex<Vec<String>>) -> Result<()> {
    let mut reader = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let early = reader.buffer().to_vec();
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    let mut words = head.split(' ');
    let (method, target) = (words.next().context("no method")?, words.next().context("no target")?);
    let mut server;
    if method == "CONNECT" {
        server = TcpStream::connect(target)?;
        write!(client, "HTTP/1.1 200 Connected\r\n\r\n")?;
    } else {
        let (host, path) = target.strip_prefix("http://").and_then(|rest| rest.split_once('/')).context("no URL")?;
        server = TcpStream::connect(if host.contains(':') { host.to_owned() } else { format!("{host}:80") })?;
        let rest = head.split_once("\r\n").context("a request of one line")?.1;
        write!(server, "{method} /{path} HTTP/1.1\r\nConnection: close\r\n{rest}")?;
    }
    server.write_all(&early)?;
    let (mut upward, mut out) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _hung_up = copy(&mut upward, &mut out);
    });
    copy(&mut server, &mut client.try_clone()?)
}

/// Copies to the end, and tells the other side that it was the end.
fn copy(from: &mut TcpStream, to: &mut TcpStream) -> Result<()> {
    let mut chunk = vec![0; 1 << 16];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(to.shutdown(Shutdown::Write)?),
            len => to.write_all(chunk.get(..len).unwrap_or_default())?,
        }
    }
}
