//! The client side of HTTP, as far as asking a guest goes.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Body of `http://IP/PATH`.
///
/// # Errors
/// When there is no whole answer in time, or it is not 200.
pub fn get(ip: IpAddr, path: &str) -> Result<String> {
    get_from(ip, 80, path)
}

/// Body of `http://IP:PORT/PATH`.
///
/// # Errors
/// See [`get`].
pub fn get_from(ip: IpAddr, port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(ip, port), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {ip}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    // A CGI program may end its lines as it likes.
    let answer = answer.replace("\r\n", "\n");
    let (head, body) = answer.split_once("\n\n").with_context(|| format!("answer without a body: {answer}"))?;
    ensure!(head.split(' ').nth(1) == Some("200"), "not 200: {head}");
    Ok(body.to_owned())
}
