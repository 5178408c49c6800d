//! Traffic between two namespaces: pings of every size, and TCP in bulk with its bytes checked.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::command::{TOOL_DEADLINE, command, finish};
use crate::netns;
use crate::pace::{at_worst, stretched_seconds};

/// Silence of a peer that means that it will not speak any more.
const SILENCE: Duration = at_worst(Duration::from_secs(20));
const CHUNK: usize = 1 << 16;
/// After so many bytes they come again: a prime, so nothing that is lost in whole segments or pages is as long.
const PERIOD: usize = 65_521;
/// Once for all: emulated nodes take their time for each byte.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let place = |at: usize| ((at % PERIOD).wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0];
    (0..PERIOD + CHUNK).map(place).collect()
});

/// A namespace; `None` is the cell's own.
pub type Place<'a> = Option<&'a Path>;

/// Pings `to` with small packets, from `source` if that is given: an address, or a link.
///
/// # Errors
/// When two of three are not answered.
pub fn small_pings(from: Place<'_>, source: Option<&str>, to: IpAddr) -> Result<()> {
    pings_of(from, source, to, "small", 56)
}

/// Pings `to` with small packets, with packets of exactly `mtu`, and with such that need fragments.
///
/// # Errors
/// When two of three of a size are not answered.
pub fn pings(from: Place<'_>, to: IpAddr, mtu: u32) -> Result<()> {
    // IP and ICMP headers
    let headers = if to.is_ipv4() { 28 } else { 48 };
    for (what, payload) in [("small", 56), ("full", mtu - headers), ("fragmented", 2 * mtu + 1000)] {
        pings_of(from, None, to, what, payload)?;
    }
    Ok(())
}

fn pings_of(from: Place<'_>, source: Option<&str>, to: IpAddr, what: &str, payload: u32) -> Result<()> {
    let source = source.map(|source| format!("-I {source}")).unwrap_or_default();
    let seconds = stretched_seconds(5);
    let line = format!("busybox ping -c 3 -i 0.05 -W {seconds} -s {payload} {source} {to}");
    let mut ping = match from {
        Some(netns) => netns::command_in(netns, &line),
        None => command("busybox", line.split_whitespace().skip(1)),
    };
    let ended = finish(&mut ping, TOOL_DEADLINE)?;
    // IP may lose one, and does on a machine that is busy; it does not lose every other.
    let come = ["2 packets received", "3 packets received"].iter().any(|count| ended.stdout.contains(count));
    ensure!(ended.code == Some(0) && come, "no {what} pings to {to}: {}{}", ended.stdout, ended.stderr);
    Ok(())
}

/// Sends `len` bytes over TCP from `client` to `server` at `address`, which sends them back.
///
/// # Errors
/// When no connection comes about, it falls silent, or what comes back is not what was sent.
pub fn bulk(client: Place<'_>, server: Place<'_>, address: IpAddr, len: usize) -> Result<()> {
    let listener = at(server, || Ok(TcpListener::bind(SocketAddr::new(address, 0))?))?;
    dialogue(client, listener.local_addr()?, &listener, len)
}

/// [`bulk`], where `server` listens at `listens` and is called at `called`.
///
/// # Errors
/// As [`bulk`].
pub fn forwarded(client: Place<'_>, server: Place<'_>, listens: SocketAddr, called: SocketAddr) -> Result<()> {
    let listener = at(server, || Ok(TcpListener::bind(listens)?))?;
    dialogue(client, called, &listener, CHUNK)
}

fn dialogue(client: Place<'_>, called: SocketAddr, listener: &TcpListener, len: usize) -> Result<()> {
    let mut out = at(client, || Ok(TcpStream::connect_timeout(&called, SILENCE)?))
        .with_context(|| format!("no connection to {called}"))?;
    let (mut back, _) = listener.accept()?;
    for end in [&out, &back] {
        end.set_read_timeout(Some(SILENCE))?;
        end.set_write_timeout(Some(SILENCE))?;
    }
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || std::io::copy(&mut back.try_clone()?, &mut back));
        let mut sink = out.try_clone()?;
        let sender = scope.spawn(move || -> Result<()> {
            for at in (0..len).step_by(CHUNK) {
                sink.write_all(pattern(at, CHUNK.min(len - at)))?;
            }
            Ok(sink.shutdown(std::net::Shutdown::Write)?)
        });
        let mut received = vec![0; CHUNK];
        for at in (0..len).step_by(CHUNK) {
            let part = received.get_mut(..CHUNK.min(len - at)).context("a part longer than a chunk")?;
            out.read_exact(part).with_context(|| format!("silence after {at} of {len} bytes"))?;
            ensure!(*part == *pattern(at, part.len()), "other bytes came back than were sent, after {at}");
        }
        sender.join().map_err(|_| anyhow!("the sender panicked"))??;
        echo.join().map_err(|_| anyhow!("the echo panicked"))??;
        Ok(())
    })
}

/// Bytes that tell their place in the stream, so that lost, doubled and swapped ones show. At most a chunk of them.
fn pattern(at: usize, len: usize) -> &'static [u8] {
    let begin = at % PERIOD;
    PATTERN.get(begin..begin + len).unwrap_or_default()
}

fn at<T: Send>(place: Place<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    match place {
        Some(netns) => netns::inside(netns, work),
        None => work(),
    }
}
