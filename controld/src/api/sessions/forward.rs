//! Connections of port-forward: to the pod's address, from the node's network namespace, as kubelet's probes connect.
//!
//! The address is the guest's, behind the pod's taps; the pod's network namespace has no socket of its own and no address to
//! dial from. So a network that the node has no route to is not reached, and neither is what listens on the guest's
//! loopback only.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use proto::tap::PodId;
use streaming::{Input, Output, SessionError};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::model::{Sandbox, SandboxState};
use crate::store::Store;

/// For one address. The streaming server has a deadline for all of them.
const DIAL_DEADLINE: Duration = Duration::from_secs(5);
/// Addresses that are tried: CRI shows one of each family.
const MAX_ADDRESSES: usize = 2;

#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("no pod `{0}`")]
    NoPod(String),
    #[error("pod `{0}` is not ready, so it has no network")]
    NotReady(String),
    #[error("pod `{0}` has no address")]
    NoAddress(String),
    #[error(
        "failed to connect to `{0}`, the guest's address; what listens on the guest's loopback only is not reached"
    )]
    Connect(SocketAddr, #[source] io::Error),
}

/// Connects to a port of a pod. The pod is looked up for each connection: its address may be another pod's by now.
pub(super) async fn dial(store: &Store, pod_id: &str, port: u16) -> Result<(Input, Output), SessionError> {
    let sandbox = pod_id.parse::<PodId>().ok().and_then(|id| store.sandbox(&id));
    let sandbox = sandbox.ok_or_else(|| DialError::NoPod(pod_id.to_owned()))?;
    let mut failed = DialError::NoAddress(pod_id.to_owned());
    for address in addresses(&sandbox, port)? {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {} s", DIAL_DEADLINE.as_secs()));
        match timeout(DIAL_DEADLINE, TcpStream::connect(address)).await.map_err(late).flatten() {
            Ok(stream) => {
                // Typed characters are to travel at once. A socket that refuses this is about to fail anyway.
                let _ = stream.set_nodelay(true);
                let (read, write) = stream.into_split();
                return Ok((Box::new(read), Box::new(write)));
            }
            // The first address is the one that the pod is known by.
            Err(error) if matches!(failed, DialError::NoAddress(_)) => failed = DialError::Connect(address, error),
            Err(error) => tracing::debug!(%address, %error, "pod not reached at its other address"),
        }
    }
    Err(failed.into())
}

/// The pod's first address of each family.
fn addresses(sandbox: &Sandbox, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    if sandbox.state != SandboxState::Ready {
        return Err(DialError::NotReady(sandbox.id.to_string()));
    }
    let mut found: Vec<SocketAddr> = Vec::new();
    for address in sandbox.net.iter().flat_map(|net| &net.nics).flat_map(|nic| &nic.addresses) {
        let address = SocketAddr::new(address.ip(), port);
        if found.len() < MAX_ADDRESSES && found.iter().all(|other| other.is_ipv4() != address.is_ipv4()) {
            found.push(address);
        }
    }
    Ok(found)
}
