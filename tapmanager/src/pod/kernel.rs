//! The verbs of [`World`] on the real kernel and with the real plugins. Decides nothing.
//!
//! A namespace is opened by its path for each verb and closed again: what stays open keeps it alive.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::Chain;
use ipnetwork::IpNetwork;
use proto::tap::{Attach, Dns, IfName, Nic, NicStats, PciAddress, PodId, PodNet, Route};
use sriov::PciAddr;
use sriov::policy::Arrival;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, info};

use super::names::{NetnsNames, NetnsOwner};
use super::world::{Checked, NetnsState, Network, OfNetwork, Serving, World, WorldError};
use super::{request, sysctl};
use crate::addressing::{self, Servers, Sockets};
use crate::blocking::off_reactor;
use crate::cni::{
    Added, CapabilityArgs, Cni, CniError, Gate, Leftover, NetworkList, Places, Ready, ResultView, Said, Target,
};
use crate::config::{Config, Vhost};
use crate::faults::Faults;
use crate::instance::InstanceId;
use crate::journal::{Attachment, Record};
use crate::net::lent::{self, Renamed};
use crate::net::{self, Choices, Finding, Joined, Opened, PassedThrough, Port, Reported, RouteSize};
use crate::spawner::Spawner;
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::netns_pool::NetnsPool;
use crate::sys::packet::PacketSocket;
use crate::vf::{self, Claims, Devices, Grant, Wanted};

/// The real world.
#[derive(Debug)]
pub(crate) struct Kernel {
    cni: Arc<Cni>,
    spares: Arc<NetnsPool>,
    /// Where Multus keeps the results of its delegates.
    multus_dir: PathBuf,
    /// Of DHCP.
    lease: Duration,
    /// Whether machines are given vhost-net if the node has it.
    vhost: bool,
    claims: Claims,
}

impl Kernel {
    /// As `config` says, for the daemon `instance`, with plugins started by `spawner`. Must be made in the context of the
    /// runtime.
    pub(crate) fn new(config: &Config, instance: &InstanceId, spawner: Spawner, claims: Claims) -> Self {
        let places = Places {
            conf_dir: config.cni_conf_dir.clone(),
            plugin_dirs: config.cni_plugin_dirs.clone(),
            cache_dir: config.cni_cache_dir.clone(),
            instance: instance.to_string(),
        };
        Self {
            cni: Arc::new(Cni::new(places, config.cni_deadline, config.plugins_at_once, spawner)),
            spares: NetnsPool::start(config.netns_pool),
            multus_dir: config.multus_dir.clone(),
            lease: config.dhcp_lease,
            vhost: config.vhost == Vhost::Auto,
            claims,
        }
    }
}

impl Kernel {
    /// What the networks of a pod said of the size of packets on its routes. What can be read no more is left out: it was when
    /// the pod was attached.
    async fn sizes(&self, record: &Record) -> Vec<Reported> {
        let mut all = Vec::new();
        for attachment in &record.attachments {
            let view = attachment.result.as_ref().and_then(|result| ResultView::of(result).ok());
            let target = target(record, attachment, &record.netns);
            let delegated =
                self.cni.delegated(&attachment.network, &target, &self.multus_dir).await.unwrap_or_default();
            let delegated = delegated.into_iter().map(|of| (of.ifname, of.view));
            for (ifname, view) in view.map(|view| (attachment.ifname.clone(), view)).into_iter().chain(delegated) {
                let (links, sizes) = (view.pod_links(&ifname), sizes(&view));
                all.push(Reported { links, sizes, ..Reported::default() });
            }
        }
        all
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
    let capabilities = CapabilityArgs::of(request, &attachment.ask, request::is_first(request, &attachment.ifname));
    Target { container_id: &request.pod, netns, ifname: &attachment.ifname, args, capabilities }
}

impl World for Kernel {
    async fn networks(&self, request: &Attach) -> Result<Vec<NetworkList>, WorldError> {
        let (cni, request) = (Arc::clone(&self.cni), request.clone());
        off_reactor(move || {
            let mut networks = Vec::new();
            for (place, ask) in request::asks(&request).iter().enumerate() {
                let network = ask.network.as_ref().map_or_else(|| cni.default_network(), |name| cni.network(name))?;
                CapabilityArgs::of(&request, ask, place == 0).fit(&network)?;
                networks.push(network);
            }
            Ok(networks)
        })
        .await
    }

    async fn configured(&self) -> Vec<NetworkList> {
        let cni = Arc::clone(&self.cni);
        // Why there is none, its status tells.
        off_reactor(move || cni.networks().map_or_else(|_| Vec::new(), |networks| networks.lists.clone())).await
    }

    async fn look(&self, netns: &Path) -> Result<NetnsState, WorldError> {
        let path = netns.to_owned();
        off_reactor(move || match Netns::open(&path) {
            Ok(Some(_)) => Ok(NetnsState::Present),
            Ok(None) => Ok(NetnsState::Absent),
            Err(NetnsError::NotNetns { .. }) => Ok(NetnsState::OtherFile),
            Err(error) => Err(error.into()),
        })
        .await
    }

    async fn create_netns(&self, netns: &Path) -> Result<(), WorldError> {
        let (path, spare) = (netns.to_owned(), self.spares.take());
        off_reactor(move || match spare {
            Some(spare) => Netns::place(&path, spare),
            None => Netns::create(&path),
        })
        .await?;
        Ok(())
    }

    async fn remove_netns(&self, netns: &Path) -> Result<(), WorldError> {
        let path = netns.to_owned();
        Ok(off_reactor(move || Netns::remove(&path)).await?)
    }

    async fn namespaces(&self, names: &NetnsNames) -> Result<Vec<(PathBuf, NetnsOwner)>, WorldError> {
        let names = names.clone();
        off_reactor(move || match std::fs::read_dir(names.dir()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(cause) => Err(WorldError::List { dir: names.dir().to_owned(), cause }),
            Ok(entries) => {
                let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
                let named = paths.filter_map(|path| names.owner(&path).map(|owner| (path, owner)));
                let mut named: Vec<_> = named.filter(|(path, _)| matches!(Netns::open(path), Ok(Some(_)))).collect();
                named.sort_unstable();
                Ok(named)
            }
        })
        .await
    }

    async fn sysctls(&self, netns: &Path, sysctls: &BTreeMap<String, String>) -> Result<(), WorldError> {
        Ok(sysctl::set(&open(netns).await?, sysctls).await?)
    }

    async fn add(
        &self,
        record: &Record,
        attachment: &Attachment,
        gate: Option<Gate<'_>>,
    ) -> Result<Network, WorldError> {
        let target = target(record, attachment, &record.netns);
        let Added { raw, view } = self.cni.add(&attachment.network, &target, gate).await?;
        let delegated = self.cni.delegated(&attachment.network, &target, &self.multus_dir).await?;
        let said = Said::of(&attachment.network, attachment.ask.device_id.as_deref()).map_err(CniError::Device)?;
        let mut all = vec![reported(attachment.network.name(), &attachment.ifname, &view, &said)?];
        for of in &delegated {
            all.push(reported(&of.network, &of.ifname, &of.view, &of.said)?);
        }
        let dns = Dns { servers: view.dns.servers, searches: view.dns.searches, options: view.dns.options };
        Ok(Network { raw, reported: all, dns })
    }

    async fn del(&self, record: &Record, attachment: &Attachment, seen: NetnsState) -> Result<(), WorldError> {
        let netns = if seen == NetnsState::Present { &record.netns } else { Path::new("") };
        let target = target(record, attachment, netns);
        Ok(self.cni.del(&attachment.network, &target, attachment.result.as_ref()).await?)
    }

    async fn make_way(&self, record: &Record, attachment: &Attachment) -> Result<Option<Renamed>, WorldError> {
        let Some(netns) = with_link_of_node(record, attachment).await? else { return Ok(None) };
        Ok(net::make_way(&netns, &attachment.ifname, &off_reactor(Netns::of_process).await?).await?)
    }

    async fn send_back(&self, record: &Record, attachment: &Attachment) -> Result<Option<Renamed>, WorldError> {
        let Some(netns) = with_link_of_node(record, attachment).await? else { return Ok(None) };
        Ok(net::send_back(&netns, &attachment.ifname, off_reactor(Netns::of_process).await?).await?)
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
        Ok(net::join(&open(netns).await?, reported, choices, faults).await?)
    }

    async fn check_join(&self, record: &Record, net: &PodNet) -> Result<Vec<Finding>, WorldError> {
        let reported = self.sizes(record).await;
        Ok(net::check(&open(&net.netns).await?, &net.nics, record.choices, reported).await?)
    }

    async fn repair(
        &self,
        netns: &Path,
        nics: &[Nic],
        choices: Choices,
        faults: &Arc<Faults>,
    ) -> Result<(), WorldError> {
        let made = net::repair(&open(netns).await?, nics, choices, faults).await?;
        info!(made = made.join("; "), "made again what the pod had lost");
        Ok(())
    }

    async fn stats(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<NicStats>, WorldError> {
        Ok(net::stats(&open(netns).await?, nics).await?)
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, WorldError> {
        Ok(self.cni.leftovers().await?)
    }

    async fn del_leftover(&self, leftover: &Leftover) -> Result<(), WorldError> {
        Ok(self.cni.del_leftover(leftover).await?)
    }

    async fn gc(&self, OfNetwork { network, valid }: &OfNetwork) -> Result<Checked, WorldError> {
        match self.cni.gc(network, valid).await {
            Ok(()) => Ok(Checked::Well),
            Err(error @ CniError::NoGc { .. }) => Ok(Checked::NotAsked(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn rejoin(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<Option<Port>>, WorldError> {
        Ok(net::rejoin(&open(netns).await?, nics).await?)
    }

    async fn unjoin(&self, netns: &Path) -> Result<(), WorldError> {
        Ok(net::unjoin(&open(netns).await?).await?)
    }

    fn serve(&self, net: &Arc<PodNet>, request: &Attach, ports: Vec<Option<Port>>) -> Serving {
        Serving::start(|servers| {
            for (nic, port) in net.nics.iter().zip(ports) {
                // Nothing can be said to a guest on a macvtap.
                let Some(Port { socket, neighbours }) = port else { continue };
                if let Some(of_nic) = Servers::of(nic, &net.dns, &request.hostname, self.lease, &neighbours) {
                    let of_nic = of_nic.telling(request.dhcp.get(&nic.name));
                    let span = tracing::info_span!("addressing", nic = nic.name.as_str(), mac = %nic.mac);
                    servers.spawn(|cancel| address(Arc::clone(net), socket, of_nic, cancel).instrument(span));
                } else {
                    debug!(nic = nic.name.as_str(), "no address, so nothing to serve");
                    socket.close_off_reactor();
                }
            }
        })
    }

    async fn claim(&self, record: &Record, vfs: &[PassedThrough]) -> Result<(), WorldError> {
        let wanted = vfs.iter().map(|vf| wanted(record, vf.clone())).collect();
        Ok(self.claims.take(record.pod(), wanted).await?)
    }

    async fn give_back(&self, pod: &PodId) -> Result<(), WorldError> {
        Ok(self.claims.give_back(pod).await?)
    }

    async fn hand_out(&self, pod: &PodId, net: &PodNet, by_descriptor: bool) -> Result<Vec<PciAddress>, WorldError> {
        let grant = self.claims.hand_out(pod, &vfs(net), by_descriptor).await?;
        Ok(if grant == Grant::Hostdevs { net.vfio().map(|vfio| vfio.device).collect() } else { Vec::new() })
    }

    async fn check_vfs(&self, pod: &PodId, net: &PodNet) -> Vec<Finding> {
        let vfs = vfs(net);
        let found = if vfs.is_empty() { Vec::new() } else { self.claims.look(pod, &vfs).await };
        // What it takes to have one again is not ours.
        found.into_iter().map(|found| Finding { line: found.line, breaks: found.breaks, ours: false }).collect()
    }

    fn vf_owners(&self) -> BTreeSet<PodId> {
        self.claims.owners()
    }

    fn open_devices(&self, pod: &PodId, net: &PodNet) -> Result<Option<Devices>, WorldError> {
        let vfs = vfs(net);
        if vfs.is_empty() {
            return Ok(None);
        }
        Ok(self.claims.grant(pod, &vfs)?.open()?)
    }

    fn open_taps(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<Opened>, WorldError> {
        if !Netns::stay(netns)? {
            return Err(WorldError::NoNetns);
        }
        Ok(net::open_taps(nics, self.vhost)?)
    }

    async fn ready(&self) -> Ready {
        self.cni.ready().await
    }

    fn known_ready(&self) -> Ready {
        self.cni.known()
    }

    fn plugin_micros(&self) -> u64 {
        self.cni.plugin_micros()
    }

    fn failed_adds(&self) -> Vec<String> {
        self.cni.failed_adds()
    }

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }
}

/// The pod's namespace, if it is there and the network puts a link of the node into it.
async fn with_link_of_node(record: &Record, attachment: &Attachment) -> Result<Option<Netns>, WorldError> {
    if !attachment.network.kinds().any(|kind| kind == lent::PLUGIN) {
        return Ok(None);
    }
    let path = record.netns.clone();
    match off_reactor(move || Netns::open(&path)).await {
        Err(NetnsError::NotNetns { .. }) => Ok(None),
        opened => Ok(opened?),
    }
}

/// What the join has to know of a network.
fn reported(network: &str, ifname: &IfName, view: &ResultView, said: &Said) -> Result<Reported, CniError> {
    let gateway = |dst: &IpNetwork| {
        let mut gateways = view.ips.iter().filter_map(|ip| ip.gateway);
        gateways.find(|gateway| gateway.is_ipv4() == dst.is_ipv4())
    };
    let route =
        |route: &crate::cni::Route| Route { dst: route.dst, gateway: route.gateway.or_else(|| gateway(&route.dst)) };
    Ok(Reported {
        network: network.to_owned(),
        links: view.pod_links(ifname),
        addresses: view.ips.iter().map(|ip| ip.address).collect(),
        devices: said.devices(network, view).map_err(CniError::Device)?,
        routes: view.routes.iter().map(route).collect(),
        sizes: sizes(view),
        asked: said.asked.clone(),
    })
}

fn sizes(view: &ResultView) -> Vec<RouteSize> {
    let size = |&crate::cni::Route { dst, priority, mtu, advmss, .. }: &crate::cni::Route| {
        (mtu.is_some() || advmss.is_some()).then_some(RouteSize { dst, priority, mtu, advmss })
    };
    view.routes.iter().filter_map(size).collect()
}

/// How a virtual function that a network gave to the pod is to be claimed.
fn wanted(record: &Record, PassedThrough { vf, link, mac, mut asked, .. }: PassedThrough) -> Wanted {
    let netns = || record.netns.display().to_string();
    let arrival = match link {
        Some(name) => Arrival::Netdev { netns: netns(), name: name.to_string() },
        // No netdev has its address. A PF that was told none lets a guest choose, whatever its spoof check says.
        None => {
            asked.mac.get_or_insert(sriov::Mac(mac.octets()));
            Arrival::Vfio
        }
    };
    if !record.choices.anti_spoof {
        // Whoever lets a guest be anybody means it of all of its NICs.
        asked.spoofchk.get_or_insert(false);
    }
    Wanted { vf, arrival, asked }
}

fn vfs(net: &PodNet) -> Vec<PciAddr> {
    net.vfio().map(|vfio| vf::local(vfio.device)).collect()
}

/// Serves one NIC until `cancel`.
async fn address(net: Arc<PodNet>, tap: PacketSocket, servers: Servers, cancel: CancellationToken) {
    let opened = cancel.run_until_cancelled(servers.open_link(&net.netns)).await;
    let link = opened.unwrap_or(Ok(None)).unwrap_or_else(|error| {
        error!(error = %Chain(&error), "the guest's IPv6 routers cannot be found");
        None
    });
    addressing::serve(Sockets { tap, link }, servers, cancel).await;
}

async fn open(netns: &Path) -> Result<Netns, WorldError> {
    let path = netns.to_owned();
    off_reactor(move || Netns::open(&path)).await?.ok_or(WorldError::NoNetns)
}
