//! The verbs of [`World`] on the real kernel and with the real plugins. Decides nothing.
//!
//! A namespace is opened by its path for each verb and closed again: what stays open keeps it alive.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::tap::{Attach, Dns, Nic, NicStats, PodId, PodNet};
use tracing::{Instrument as _, debug, info};

use super::world::{Checked, Network, OfNetwork, Seen, Serving, World, WorldError};
use super::{pod_of_netns, sysctl};
use crate::addressing::{self, Servers};
use crate::blocking::off_reactor;
use crate::chain::Chain;
use crate::cni::{Added, Cni, CniError, NetworkList, Target};
use crate::faults::Faults;
use crate::journal::{Attachment, Choices, Record};
use crate::net::{self, Joined, Opened, Reported, Wish};
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::packet::PacketSocket;

/// The real world.
#[derive(Debug)]
pub(crate) struct Kernel {
    cni: Arc<Cni>,
    dhcp_lease: Duration,
    vhost: bool,
}

impl Kernel {
    /// With the plugins of `cni`, DHCP leases of `dhcp_lease`, and vhost-net for machines if `vhost` and the node has it.
    pub(crate) fn new(cni: Cni, dhcp_lease: Duration, vhost: bool) -> Self {
        Self { cni: Arc::new(cni), dhcp_lease, vhost }
    }
}

/// What plugins are told of an attachment. Without a namespace they are told none, as the CNI specification 1.1.0 has
/// it for DEL: a path that leads nowhere is an error to some.
fn target<'a>(record: &'a Record, attachment: &'a Attachment, netns: &'a Path) -> Target<'a> {
    let request = &record.request;
    let args = vec![
        ("K8S_POD_NAMESPACE", request.namespace.clone()),
        ("K8S_POD_NAME", request.name.clone()),
        ("K8S_POD_INFRA_CONTAINER_ID", request.pod.as_str().to_owned()),
        ("K8S_POD_UID", request.uid.clone()),
    ];
    Target { container_id: &request.pod, netns, ifname: &attachment.ifname, args }
}

const fn wish(choices: Choices) -> Wish {
    Wish { data_path: choices.data_path, queues: choices.queues, anti_spoof: choices.anti_spoof }
}

impl World for Kernel {
    async fn networks(&self, request: &Attach) -> Result<Vec<NetworkList>, WorldError> {
        let cni = Arc::clone(&self.cni);
        let names: Vec<_> = request.networks.iter().map(|ask| ask.network.clone()).collect();
        let names = if names.is_empty() { vec![None] } else { names };
        let networks = off_reactor(move || names.iter().map(|_| cni.default_network()).collect::<Result<Vec<_>, _>>());
        Ok(networks.await?)
    }

    async fn configured(&self) -> Vec<NetworkList> {
        let cni = Arc::clone(&self.cni);
        off_reactor(move || cni.default_network()).await.into_iter().collect()
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

    async fn namespaces(&self, dir: &Path) -> Result<Vec<PodId>, WorldError> {
        let dir = dir.to_owned();
        off_reactor(move || match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(cause) => Err(WorldError::List { dir, cause }),
            Ok(entries) => {
                let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
                let ours = paths.filter_map(|path| Some((pod_of_netns(&path)?, path)));
                Ok(ours.filter(|(_, path)| matches!(Netns::open(path), Ok(Some(_)))).map(|(pod, _)| pod).collect())
            }
        })
        .await
    }

    async fn sysctls(&self, netns: &Path, sysctls: &BTreeMap<String, String>) -> Result<(), WorldError> {
        Ok(sysctl::set(&open(netns).await?, sysctls).await?)
    }

    async fn add(&self, record: &Record, attachment: &Attachment) -> Result<Network, WorldError> {
        let target = target(record, attachment, &record.netns);
        let Added { raw, view } = self.cni.add(&attachment.network, &target).await?;
        let links = view.pod_links(&attachment.ifname);
        let addresses = view.ips.iter().map(|ip| ip.address).collect();
        let dns = Dns { servers: view.dns.servers, searches: view.dns.searches, options: view.dns.options };
        let network = attachment.network.name().to_owned();
        Ok(Network { raw, reported: vec![Reported { network, links, addresses }], dns })
    }

    async fn del(&self, record: &Record, attachment: &Attachment, seen: Seen) -> Result<(), WorldError> {
        let netns = if seen == Seen::Netns { &record.netns } else { Path::new("") };
        let target = target(record, attachment, netns);
        Ok(self.cni.del(&attachment.network, &target, attachment.result.as_ref()).await?)
    }

    async fn check_network(&self, record: &Record, attachment: &Attachment) -> Result<Checked, WorldError> {
        let Some(result) = &attachment.result else {
            return Ok(Checked::NotAsked("it has no result".to_owned()));
        };
        match self.cni.check(&attachment.network, &target(record, attachment, &record.netns), result).await {
            Ok(()) => Ok(Checked::Well),
            Err(error @ CniError::NoCheck { .. }) => Ok(Checked::NotAsked(Chain(&error).to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn join(
        &self,
        netns: &Path,
        reported: &[Reported],
        choices: Choices,
        faults: &Arc<Faults>,
    ) -> Result<Joined, WorldError> {
        Ok(net::join(&open(netns).await?, reported, &wish(choices), faults).await?)
    }

    async fn check_join(&self, netns: &Path, nics: &[Nic], choices: Choices) -> Result<Vec<String>, WorldError> {
        Ok(net::check(&open(netns).await?, nics, &wish(choices)).await?)
    }

    async fn repair(
        &self,
        netns: &Path,
        nics: &[Nic],
        choices: Choices,
        faults: &Arc<Faults>,
    ) -> Result<(), WorldError> {
        let made = net::repair(&open(netns).await?, nics, &wish(choices), faults).await?;
        info!(made = made.join("; "), "made again what the pod had lost");
        Ok(())
    }

    async fn stats(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<NicStats>, WorldError> {
        Ok(net::stats(&open(netns).await?, nics).await?)
    }

    async fn gc(&self, _: &OfNetwork) -> Result<Checked, WorldError> {
        Ok(Checked::Well)
    }

    async fn rejoin(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<Option<PacketSocket>>, WorldError> {
        Ok(net::rejoin(&open(netns).await?, nics).await?)
    }

    async fn unjoin(&self, netns: &Path) -> Result<(), WorldError> {
        Ok(net::unjoin(&open(netns).await?).await?)
    }

    fn serve(&self, net: &Arc<PodNet>, hostname: &str, sockets: Vec<Option<PacketSocket>>) -> Serving {
        Serving::start(|servers| {
            for (nic, socket) in net.nics.iter().zip(sockets) {
                // Nothing can be said to a guest on a macvtap.
                let Some(socket) = socket else { continue };
                if let Some(of_nic) = Servers::of(nic, &net.dns, hostname, self.dhcp_lease) {
                    let span = tracing::info_span!("addressing", nic = nic.name.as_str());
                    servers.spawn(|cancel| addressing::serve(socket, of_nic, cancel).instrument(span));
                } else {
                    debug!(nic = nic.name.as_str(), "no address, so nothing to serve");
                    socket.close_off_reactor();
                }
            }
        })
    }

    async fn open_taps(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<Opened>, WorldError> {
        Ok(net::open_taps(&open(netns).await?, nics, self.vhost).await?)
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

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

async fn open(netns: &Path) -> Result<Netns, WorldError> {
    let path = netns.to_owned();
    off_reactor(move || Netns::open(&path)).await?.ok_or(WorldError::NoNetns)
}
