//! Clients that forward ports to a guest.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use tests::case::Bed;
use tests::command::command;
use tests::http;
use tests::node::CRI_SOCKET;
use tests::wait::{wait_for, wait_until};

const SOON: Duration = Duration::from_secs(20);

/// `crictl port-forward`.
pub(super) fn by_crictl(bed: &Bed, sandbox: &str, transport: &str) -> Result<()> {
    let (endpoint, crictl) = (format!("unix://{CRI_SOCKET}"), bed.config.peer("crictl")?);
    answers(bed, |ports| {
        command(&crictl, ["--runtime-endpoint", &endpoint, "port-forward", "-r", transport, sandbox, ports])
    })
}

/// `virtletctl port-forward`.
pub(super) fn by_virtletctl(bed: &Bed, pod: &str) -> Result<()> {
    answers(bed, |ports| command(bed.program("virtletctl"), ["--socket", CRI_SOCKET, "port-forward", pod, ports]))
}

/// The guest's web server answers through a forwarded port, several times; of a port where nothing listens, the client says
/// why it cannot be reached.
fn answers(bed: &Bed, client: impl Fn(&str) -> Command) -> Result<()> {
    through(bed, &mut client("0:80"), |port, _| {
        for _ in 0..3 {
            // A guest that has just answered may be slow, not deaf.
            wait_until("HTTP answer through a forwarded port", SOON, || {
                http::get_from(Ipv4Addr::LOCALHOST.into(), port, "/cgi-bin/info")
                    .is_ok_and(|info| info.contains("cpus"))
            })?;
        }
        Ok(())
    })?;
    through(bed, &mut client("0:81"), |port, said| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(SOON))?;
        ensure!(stream.read(&mut [0]).unwrap_or(0) == 0, "bytes from a closed port");
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
