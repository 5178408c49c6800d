//! `crictl port-forward` to a guest.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use tests::case::Bed;
use tests::command::command;
use tests::http;
use tests::node::CRI_SOCKET;
use tests::wait::{wait_for, wait_until};

const SOON: Duration = Duration::from_secs(20);
/// Where the tiny guest listens to nobody.
const CLOSED: u16 = 81;

/// The guest's web server answers through a forwarded port, several times; a port where nothing listens is told.
pub(super) fn answers(bed: &Bed, sandbox: &str, transport: &str) -> Result<()> {
    let (endpoint, client) = (format!("unix://{CRI_SOCKET}"), bed.config.peer("crictl")?);
    let args = ["--runtime-endpoint", &endpoint, "port-forward", "-r", transport, sandbox, "0:80"];
    through(bed, &mut command(&client, args), |port, _| {
        // A guest that has just answered may be slow, not deaf.
        wait_until("HTTP answer through a forwarded port", SOON, || {
            http::get_from(Ipv4Addr::LOCALHOST.into(), port, "/cgi-bin/info").is_ok()
        })?;
        for _ in 0..3 {
            let info = http::get_from(IpAddr::V4(Ipv4Addr::LOCALHOST), port, "/cgi-bin/info")?;
            ensure!(info.contains("cpus"), "{transport}: {info}");
        }
        Ok(())
    })?;
    let closed = format!("0:{CLOSED}");
    let args = ["--runtime-endpoint", &endpoint, "port-forward", "-r", transport, sandbox, &closed];
    through(bed, &mut command(&client, args), |port, said| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(SOON))?;
        ensure!(stream.read(&mut [0]).unwrap_or(0) == 0, "{transport}: bytes from a closed port");
        wait_for("why the port cannot be reached", SOON, || {
            let said = said()?;
            Ok((said.contains("error forwarding port 81 to pod") && said.contains("refused")).then_some(()))
        })
    })
}

/// Runs a client that forwards a port, and gives its local port and what it has said so far.
fn through(
    bed: &Bed,
    client: &mut Command,
    work: impl FnOnce(u16, &dyn Fn() -> Result<String>) -> Result<()>,
) -> Result<()> {
    let said = bed.logs().join("port-forward.log");
    let file = File::create(&said)?;
    let mut running = client.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let read = || Ok(fs::read_to_string(&said)?);
    let done = wait_for("forwarded port", SOON, || {
        let port = read()?.split_once("from 127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok());
        Ok(port)
    })
    .and_then(|port| work(port, &read));
    running.kill()?;
    running.wait()?;
    done
}
