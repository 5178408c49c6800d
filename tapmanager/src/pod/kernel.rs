//! The verbs of [`World`] on the real kernel and with the real plugins. Decides nothing.
//!
//! A namespace is opened by its path for each verb and closed again: what stays open keeps it alive.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::tap::{Dns, IfName, Nic, PodNet};
use tracing::{Instrument as _, debug};

use super::world::{Network, Seen, Serving, World, WorldError};
use crate::addressing::{self, Servers};
use crate::blocking::off_reactor;
use crate::cni::{Added, Cni, NetworkList, Target};
use crate::faults::Faults;
use crate::journal::Record;
use crate::net::{self, Joined, Reported, Wish};
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::packet::PacketSocket;

/// The real world.
#[derive(Debug)]
pub(crate) struct Kernel {
    cni: Arc<Cni>,
    /// Name that plugins are asked to give the first link.
    ifname: IfName,
    dhcp_lease: Duration,
}

impl Kernel {
    /// With the plugins of `cni`, and DHCP leases of `dhcp_lease`.
    pub(crate) fn new(cni: Cni, dhcp_lease: Duration) -> Self {
        let ifname = "eth0".parse().expect("four letters and digits are a name");
        Self { cni: Arc::new(cni), ifname, dhcp_lease }
    }

    fn target<'a>(&'a self, record: &'a Record) -> Target<'a> {
        let request = &record.request;
        let args = vec![
            ("K8S_POD_NAMESPACE", request.namespace.clone()),
            ("K8S_POD_NAME", request.name.clone()),
            ("K8S_POD_INFRA_CONTAINER_ID", request.pod.as_str().to_owned()),
            ("K8S_POD_UID", request.uid.clone()),
        ];
        Target { container_id: &request.pod, netns: &record.netns, ifname: &self.ifname, args }
    }
}

impl World for Kernel {
    async fn default_network(&self) -> Result<NetworkList, WorldError> {
        let cni = Arc::clone(&self.cni);
        Ok(off_reactor(move || cni.default_network()).await?)
    }

    async fn look(&self, netns: &Path) -> Result<Seen, WorldError> {
        let path = netns.to_owned();
        off_reactor(move || match Netns::open(&path) {
            Ok(Some(_)) => Ok(Seen::Netns),
            Ok(None) => Ok(Seen::Nothing),
            Err(NetnsError::NotNetns { .. }) => Ok(Seen::OtherFile),
            Err(error) => Err(error.into()),
        })
        .await
    }

    async fn create_netns(&self, netns: &Path) -> Result<(), WorldError> {
        let path = netns.to_owned();
        off_reactor(move || Netns::create(&path)).await?;
        Ok(())
    }

    async fn remove_netns(&self, netns: &Path) -> Result<(), WorldError> {
        let path = netns.to_owned();
        Ok(off_reactor(move || Netns::remove(&path)).await?)
    }

    async fn add(&self, record: &Record) -> Result<Network, WorldError> {
        let Added { raw, view } = self.cni.add(&record.network, &self.target(record)).await?;
        let links = view.pod_links(&self.ifname);
        let addresses = view.ips.iter().map(|ip| ip.address).collect();
        let dns = Dns { servers: view.dns.servers, searches: view.dns.searches, options: view.dns.options };
        let network = record.network.name().to_owned();
        Ok(Network { raw, reported: Reported { network, links, addresses }, dns })
    }

    async fn del(&self, record: &Record) -> Result<(), WorldError> {
        Ok(self.cni.del(&record.network, &self.target(record), record.result.as_ref()).await?)
    }

    async fn join(
        &self,
        netns: &Path,
        reported: &[Reported],
        wish: &Wish,
        faults: &Arc<Faults>,
    ) -> Result<Joined, WorldError> {
        Ok(net::join(&open(netns).await?, reported, wish, faults).await?)
    }

    async fn rejoin(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<PacketSocket>, WorldError> {
        Ok(net::rejoin(&open(netns).await?, nics).await?)
    }

    async fn unjoin(&self, netns: &Path) -> Result<(), WorldError> {
        Ok(net::unjoin(&open(netns).await?).await?)
    }

    fn serve(&self, net: &Arc<PodNet>, hostname: &str, sockets: Vec<PacketSocket>) -> Serving {
        Serving::start(|servers, cancel| {
            for (nic, socket) in net.nics.iter().zip(sockets) {
                if let Some(of_nic) = Servers::of(nic, &net.dns, hostname, self.dhcp_lease) {
                    let serve = addressing::serve(socket, of_nic, cancel.clone());
                    let span = tracing::info_span!("addressing", nic = nic.name.as_str());
                    servers.spawn(serve.instrument(span));
                } else {
                    debug!(nic = nic.name.as_str(), "no address, so nothing to serve");
                    socket.close_off_reactor();
                }
            }
        })
    }

    async fn open_taps(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<OwnedFd>, WorldError> {
        Ok(net::open_taps(&open(netns).await?, nics.len()).await?)
    }

    async fn ready(&self) -> Result<(), WorldError> {
        let cni = Arc::clone(&self.cni);
        off_reactor(move || {
            let network = cni.default_network()?;
            Ok(cni.installed(&network)?)
        })
        .await
    }

    fn plugin_micros(&self) -> u64 {
        self.cni.plugin_micros()
    }
}

async fn open(netns: &Path) -> Result<Netns, WorldError> {
    let path = netns.to_owned();
    off_reactor(move || Netns::open(&path)).await?.ok_or(WorldError::NoNetns)
}
