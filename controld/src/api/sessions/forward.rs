//! Connections of port-forward: to the pod's address, from the node's network namespace, as kubelet's probes connect.
//!
//! The address is the guest's, behind the pod's taps; the pod's network namespace has no socket of its own and no address to
//! dial from. So a network that the node has no route to is not reached, and neither is what listens on the guest's
//! loopback only. Addresses of other networks than the default one are not dialled, nor any of the node's own: a pod could
//! have asked for them, and its owner would reach what listens on the node.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proto::tap::PodId;
use streaming::{Input, Output, SessionError};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::model::{Sandbox, SandboxState};
use crate::node_addresses::NodeAddresses;
use crate::store::Store;

/// For one address. The streaming server has a deadline for all of them.
const DIAL_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("no pod `{0}`")]
    NoPod(String),
    #[error("pod `{0}` is not ready, so it has no network")]
    NotReady(String),
    #[error("pod `{0}` has no address on its default network, the only one that ports are forwarded on")]
    NoAddress(String),
    #[error("pod `{pod}` has the address `{address}`, which is the node's own; take it out of the network's ranges")]
    Nodes { pod: String, address: IpAddr },
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
    for address in addresses(&sandbox, port, &NodeAddresses::look().await?)? {
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

/// Where the port may be: the pod's addresses, unless one of them is the node's own.
fn addresses(sandbox: &Sandbox, port: u16, own: &NodeAddresses) -> Result<Vec<SocketAddr>, DialError> {
    let pod = || sandbox.id.to_string();
    if sandbox.state != SandboxState::Ready {
        return Err(DialError::NotReady(pod()));
    }
    let known = sandbox.addresses();
    if let Some(address) = known.iter().copied().find(|address| own.has(*address)) {
        return Err(DialError::Nodes { pod: pod(), address });
    }
    Ok(known.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cri::convert::tests::sandbox;

    fn dialled(nics: &[&[&str]], own: &[&str]) -> Result<Vec<String>, String> {
        let mut sandbox = sandbox();
        let net = sandbox.net.as_mut().expect("a network");
        let nic = |addresses: &&[&str]| {
            let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
            proto::tap::Nic { addresses, ..net.nics[0].clone() }
        };
        net.nics = nics.iter().map(nic).collect();
        let own = own.iter().map(|address| address.parse::<IpAddr>().expect("an address")).collect();
        let found = addresses(&sandbox, 80, &own).map_err(|error| error.to_string())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ports_are_those_of_the_default_network() {
        let both = dialled(&[&["10.1.0.2/24", "10.1.0.3/24", "fd00::2/64"], &["192.0.2.1/24"]], &[]);
        assert_eq!(both, Ok(["10.1.0.2:80", "[fd00::2]:80"].map(str::to_owned).to_vec()));
        assert_eq!(dialled(&[&[], &["10.1.0.2/24"]], &[]), Ok(Vec::new()));
    }

    #[test]
    fn the_node_itself_is_never_dialled() {
        let loopback =
            ["127.0.0.1/8", "::1/128", "::ffff:127.0.0.1/128", "0.0.0.0/8", "169.254.169.254/16", "fe80::1/64"];
        assert_eq!(dialled(&[&loopback], &[]), Ok(Vec::new()));
        let text = "pod `0123456789abcdef` has the address `fd00::1`, which is the node's own; take it out of the network's \
                    ranges";
        assert_eq!(dialled(&[&["10.1.0.2/24", "fd00::1/64"]], &["192.0.2.1", "fd00::1"]), Err(text.to_owned()));
    }
}
