//! The client side of HTTP, as far as asking a guest goes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::pace::{Deadline, stretched};

const DEADLINE: Duration = Duration::from_secs(5);

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
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(ip, port), stretched(DEADLINE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {ip}\r\n\r\n")?;
    // A CGI program may end its lines as it likes.
    let answer = String::from_utf8(all_of(&mut stream)?)?.replace("\r\n", "\n");
    let (head, body) = answer.split_once("\n\n").with_context(|| format!("answer without a body: {answer}"))?;
    ensure!(head.split(' ').nth(1) == Some("200"), "not 200: {head}");
    Ok(body.to_owned())
}

/// What comes until the other end hangs up.
fn all_of(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let deadline = Deadline::within(DEADLINE);
    let mut all = Vec::new();
    loop {
        let look = deadline.next_look();
        stream.set_read_timeout(Some(look.with_context(|| format!("no answer within {} s", DEADLINE.as_secs()))?))?;
        match stream.read_to_end(&mut all) {
            // What came before this is in there.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            ended => return ended.map(|_| all).context("the answer breaks off"),
        }
    }
}
