//! When a guest can be spoken to: an agent in it answers, or its port takes a connection. Nobody tells of either, so both are tried.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use proto::cri::{ContainerState, ExecSyncRequest};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::client::Client;
use super::error::{CtlError, not_started};
use super::wait;

/// Where guests are logged in at.
pub(super) const SSH: u16 = 22;
/// Between two tries.
const AGAIN: Duration = Duration::from_secs(1);
/// For one connection: a guest without a network drops what asks for one.
const CONNECT: Duration = Duration::from_secs(3);
/// For a guest's answer, if one is not to wait for it: one that is up gives it at once.
const AT_ONCE: Duration = Duration::from_secs(1);
/// What every guest has, and what does nothing.
const NOTHING: &str = "true";

/// Whose guest is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guest<'a> {
    pub(super) pod: &'a str,
    pub(super) container: &'a str,
    pub(super) address: Option<IpAddr>,
}

/// Waits for either sign.
pub(super) async fn wait(client: &Client, guest: Guest<'_>, deadline: Duration) -> Result<(), CtlError> {
    let what = format!(
        "waiting up to {} s for the guest of {} to answer: by an agent, or at port {SSH}",
        deadline.as_secs(),
        guest.pod
    );
    let answered = async {
        tokio::select! {
            () = agent_answers(client, guest.container) => Ok(()),
            () = opens(guest.address, SSH) => Ok(()),
            off = goes_off(client, guest) => Err(off),
        }
    };
    late(format!("an answer of the guest of `{}`", guest.pod), deadline, wait::told(&what, answered)).await
}

/// Whether it gives either sign now.
pub(super) async fn now(client: &Client, guest: Guest<'_>) -> bool {
    let connected = async {
        match guest.address {
            Some(address) => connects(address, SSH).await,
            None => false,
        }
    };
    let either = async {
        match select(pin!(has_agent(client, guest.container)), pin!(connected)).await {
            Either::Left((true, _)) | Either::Right((true, _)) => true,
            Either::Left((false, connected)) => connected.await,
            Either::Right((false, answered)) => answered.await,
        }
    };
    timeout(AT_ONCE, either).await.unwrap_or(false)
}

/// Waits for a port of a guest.
pub(super) async fn port(client: &Client, guest: Guest<'_>, port: u16, deadline: Duration) -> Result<(), CtlError> {
    let what = format!("waiting up to {} s for port {port} of {}; Ctrl-C leaves", deadline.as_secs(), guest.pod);
    let opened = async {
        tokio::select! {
            () = opens(guest.address, port) => Ok(()),
            off = goes_off(client, guest) => Err(off),
        }
    };
    late(format!("a connection to port {port} of `{}`", guest.pod), deadline, wait::told(&what, opened)).await
}

/// Does work that has a deadline.
pub(super) async fn late<T>(
    what: String,
    deadline: Duration,
    work: impl Future<Output = Result<T, CtlError>>,
) -> Result<T, CtlError> {
    timeout(deadline, work).await.unwrap_or(Err(CtlError::Late { what, deadline }))
}

async fn agent_answers(client: &Client, container: &str) {
    while !has_agent(client, container).await {
        sleep(AGAIN).await;
    }
}

/// Whether an agent answers. controld waits for a guest that boots.
async fn has_agent(client: &Client, container: &str) -> bool {
    let request = ExecSyncRequest { container_id: container.to_owned(), cmd: vec![NOTHING.into()], timeout: 0 };
    match client.exec_sync(request).await {
        Ok(_) => true,
        // An agent has said so.
        Err(CtlError::Call { cause, .. }) => not_started(cause.0.message()).is_some(),
        Err(_) => false,
    }
}

/// Never of a guest without an address.
async fn opens(address: Option<IpAddr>, port: u16) {
    let Some(address) = address else { return std::future::pending().await };
    while !connects(address, port).await {
        sleep(AGAIN).await;
    }
}

async fn connects(address: IpAddr, port: u16) -> bool {
    matches!(timeout(CONNECT, TcpStream::connect(SocketAddr::new(address, port))).await, Ok(Ok(_)))
}

/// Waits for the machine's end, and says it.
async fn goes_off(client: &Client, guest: Guest<'_>) -> CtlError {
    loop {
        sleep(AGAIN).await;
        match client.container(guest.container).await {
            Ok(status) if status.state() != ContainerState::ContainerExited => {}
            // controld restarts; the machine runs on.
            Err(error) if error.code() == Some(Code::Unavailable) => {}
            Err(error) if error.code() != Some(Code::NotFound) => return error,
            Ok(_) | Err(_) => return CtlError::NotRunning(guest.pod.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_that_opens_is_seen() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let opened = timeout(Duration::from_secs(20), opens(Some(address.ip()), address.port()));
        opened.await.expect("it listens");
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_come_is_told_with_its_deadline() {
        let never = std::future::pending::<Result<(), CtlError>>();
        let error = late("an answer".into(), Duration::from_secs(7), never).await.expect_err("it never comes");
        assert_eq!(error.to_string(), "an answer did not come within 7 s");
    }
}
