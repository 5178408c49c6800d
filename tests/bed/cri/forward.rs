//! Clients that forward ports to a guest.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tests::case::Bed;
use tests::command::command;
use tests::forwarded::through;
use tests::http;
use tests::node::CRI_SOCKET;
use tests::pace::at_worst;
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
        stream.set_read_timeout(Some(at_worst(SOON)))?;
        ensure!(stream.read(&mut [0]).unwrap_or(0) == 0, "bytes from a closed port");
        wait_for("why the port cannot be reached", SOON, || {
            let said = said()?;
            Ok((said.contains("error forwarding port 81 to pod") && said.contains("refused")).then_some(()))
        })
    })
}
