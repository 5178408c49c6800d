//! A pod's network as cloud-init tells it to a guest, by each of its renderers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ipnetwork::IpNetwork;
use proto::tap::{DataPath, Dns, MacAddr, Nic, NicKind, PodNet, Route, Tap};
use tests::case::{Bed, Case};
use tests::command::run;
use vmspec::seed::Sources;

use super::rendered::{self, RENDERERS, Rendered, Renderer};
use super::{CloudInit, Pod, SUITES};

const DEADLINE: Duration = Duration::from_secs(480);
const SERVER: &str = "10.96.0.10";
const SERVER6: &str = "fd00:96::10";
const SEARCHES: [&str; 2] = ["default.svc.cluster.local", "cluster.local"];
const NETPLAN: &str = "netplan";

pub(super) const CASES: &[Case] = &[Case {
    name: "seed::cloud_init_tells_a_guest_the_network_of_its_pod_by_each_renderer",
    deadline: DEADLINE,
    run: networks,
}];

/// A NIC as CNI plugins leave it.
#[derive(Debug, Clone, Copy)]
struct Link {
    data_path: DataPath,
    addresses: &'static [&'static str],
    /// The empty gateway is a route on the link.
    routes: &'static [(&'static str, &'static str)],
    /// Whether its guest is to ask for its addresses.
    asks: bool,
}

/// A pod's network, and who of cloud-init can tell its guest what it has.
#[derive(Debug, Clone, Copy)]
struct Network {
    name: &'static str,
    links: &'static [Link],
    /// `virtlet.cloud/network-config`.
    wish: &'static str,
    servers: &'static [&'static str],
    /// Renderers that end at it and write nothing.
    ends: &'static [&'static str],
}

const BRIDGE4: [(&str, &str); 3] = [("10.77.0.0/24", ""), ("0.0.0.0/0", "10.77.0.1"), ("10.1.0.0/16", "10.77.0.9")];
const BRIDGE6: [(&str, &str); 3] = [("fd00::/64", ""), ("::/0", "fd00::1"), ("fd01::/64", "fd00::9")];
const BOTH: [(&str, &str); 6] = [BRIDGE4[0], BRIDGE4[1], BRIDGE4[2], BRIDGE6[0], BRIDGE6[1], BRIDGE6[2]];
const PTP: [(&str, &str); 3] = [("10.77.0.1/32", ""), ("10.77.0.0/24", "10.77.0.1"), ("0.0.0.0/0", "10.77.0.1")];
const CALICO: [(&str, &str); 3] =
    [("169.254.1.1/32", ""), ("0.0.0.0/0", "169.254.1.1"), ("::/0", "fe80::ecee:eeff:feee:eeee")];

/// As Calico's, with routes on the link which its gateways take as well.
const LINKS: [(&str, &str); 5] = [CALICO[0], CALICO[1], CALICO[2], ("169.254.0.0/16", ""), ("fd01::/64", "")];
const BARE: [(&str, &str); 3] = [BRIDGE4[0], BRIDGE4[1], ("169.254.0.0/16", "")];

const fn asks(addresses: &'static [&'static str], routes: &'static [(&'static str, &'static str)]) -> Link {
    Link { data_path: DataPath::Tc, addresses, routes, asks: true }
}

const fn told(addresses: &'static [&'static str], routes: &'static [(&'static str, &'static str)]) -> Link {
    Link { data_path: DataPath::Tc, addresses, routes, asks: false }
}

/// Which cannot be answered, and so is told whatever the pod says.
const fn deaf(addresses: &'static [&'static str], routes: &'static [(&'static str, &'static str)]) -> Link {
    Link { data_path: DataPath::Macvtap, ..told(addresses, routes) }
}

const fn network(name: &'static str, wish: &'static str, links: &'static [Link]) -> Network {
    Network { name, links, wish, servers: &[SERVER], ends: &[] }
}

fn narrow(all: IpNetwork) -> IpNetwork {
    let prefix = if all.is_ipv6() { 64 } else { 0 };
    IpNetwork::new(all.ip(), prefix).unwrap_or(all)
}

const NETWORKS: &[Network] = &[
    network("a subnet", "static", &[told(&["10.77.0.2/24"], &BRIDGE4)]),
    network("subnets of both families", "static", &[told(&["10.77.0.2/24", "fd00::2/64"], &BOTH)]),
    Network { servers: &[SERVER6], ..network("IPv6 alone", "static", &[told(&["fd00::2/64"], &BRIDGE6)]) },
    Network {
        servers: &[SERVER6],
        ..network("a router by its link-local address", "static", &[told(&["fd00::2/64"], &[("::/0", "fe80::1")])])
    },
    Network {
        servers: &[SERVER, SERVER6],
        ..network("resolvers of both families", "static", &[told(&["10.77.0.2/24", "fd00::2/64"], &BOTH)])
    },
    network("IPv6 before the resolver's IPv4", "static", &[told(&["fd00::2/64", "10.77.0.2/24"], &BOTH)]),
    network("no route", "static", &[told(&["10.77.0.2/24"], &[("10.77.0.0/24", "")])]),
    network(
        "two subnets of a NIC",
        "auto",
        &[told(
            &["10.88.0.2/24", "10.77.0.2/24"],
            &[("0.0.0.0/0", "10.77.0.1"), ("10.9.0.0/16", "10.88.0.1"), ("10.8.0.0/16", "10.77.0.5")],
        )],
    ),
    network(
        "two NICs",
        "static",
        &[told(&["10.77.0.2/24", "fd00::2/64"], &BOTH), told(&["10.88.0.2/24"], &[("10.99.0.0/16", "10.88.0.1")])],
    ),
    network(
        "IPv6 on the first NIC, the resolver's IPv4 on the second",
        "static",
        &[told(&["fd00::2/64"], &BRIDGE6), told(&["10.77.0.2/24"], &BRIDGE4)],
    ),
    network("DHCP", "auto", &[asks(&["10.77.0.2/24"], &BRIDGE4)]),
    network("DHCP of both families", "dhcp", &[asks(&["10.77.0.2/24", "fd00::2/64"], &BOTH)]),
    // What the renderers but netplan's would get wrong is never chosen where the guest can ask.
    network("a gateway outside of the subnet", "auto", &[asks(&["10.77.0.2/32"], &PTP)]),
    network("a gateway outside of both subnets", "auto", &[asks(&["192.168.7.3/32", "fd00::3/128"], &CALICO)]),
    network(
        "one NIC asks and one is told",
        "auto",
        &[asks(&["10.77.0.2/24", "fd00::2/64"], &BOTH), deaf(&["10.88.0.2/24"], &[("10.99.0.0/16", "10.88.0.1")])],
    ),
    network("/32 by the pod's wish", "static", &[told(&["10.77.0.2/32"], &PTP)]),
    network("/32 and /128 by the pod's wish", "static", &[told(&["192.168.7.3/32", "fd00::3/128"], &CALICO)]),
    network("/32 of a NIC that is deaf", "auto", &[deaf(&["10.77.0.2/32"], &PTP)]),
    network(
        "/32 of a NIC that is deaf, and one that asks",
        "auto",
        &[deaf(&["10.77.0.2/32"], &PTP), asks(&["10.88.0.2/24"], &[("10.99.0.0/16", "10.88.0.1")])],
    ),
    network(
        "what a gateway outside of the subnet takes, and one that asks",
        "auto",
        &[deaf(&["192.168.7.3/32", "fd00::3/128"], &LINKS), asks(&["10.88.0.2/24"], &[("10.99.0.0/16", "10.88.0.1")])],
    ),
    network(
        "two NICs with gateways outside of their subnets",
        "static",
        &[told(&["192.168.7.3/32", "fd00::3/128"], &CALICO), told(&["10.88.0.2/32"], &[("10.99.0.0/16", "10.88.1.1")])],
    ),
    Network {
        ends: &["eni", "sysconfig"],
        ..network("a route on the link that no gateway takes", "static", &[told(&["10.77.0.2/24"], &BARE)])
    },
];

impl Network {
    fn net(&self) -> Result<PodNet> {
        let nics = self.links.iter().zip(0..).map(|(link, place)| link.nic(place)).collect::<Result<_>>()?;
        let dns = Dns {
            servers: self.servers.iter().map(|server| Ok(server.parse()?)).collect::<Result<_>>()?,
            searches: SEARCHES.map(str::to_owned).into(),
            options: vec!["ndots:5".into()],
        };
        Ok(PodNet { netns: "/run/netns/x".into(), nics, dns })
    }

    /// The file of a seed of this kind that has the network.
    fn file(&self, form: &Form) -> Result<Vec<u8>> {
        let annotations = [("virtlet.cloud/network-config", self.wish), ("VirtletCloudInitImageType", form.seed)];
        let pod = Pod { annotations: &annotations, net: &self.net()?, sources: &Sources::default(), env: &[] };
        let seed = pod.seed()?;
        let files = seed.files();
        let found = files.iter().find(|(name, _)| *name == form.file);
        Ok(found.with_context(|| format!("no {} in {seed:?}", form.file))?.1.to_vec())
    }

    /// What is wrong with what a renderer tells the guest, of what it is to tell it.
    fn misses(&self, rendered: &Rendered, job: &Job, suite: &str) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for (link, nic) in self.links.iter().zip(&self.net()?.nics) {
            let mut expected = link.means(nic, job);
            if self.narrows_default6(job, suite)? {
                let narrowed = |(to, via): &(IpNetwork, _)| (if to.prefix() == 0 { narrow(*to) } else { *to }, *via);
                expected.routes = expected.routes.iter().map(narrowed).collect();
            }
            let found = rendered.nics.get(nic.name.as_str());
            if found != Some(&expected) {
                wrong.push(format!("{}: {found:?}, not {expected:?}", nic.name));
            }
        }
        if !self.tells_resolvers(job, suite) {
            return Ok(wrong);
        }
        let servers = self.servers.iter().map(|server| Ok(server.parse()?)).collect::<Result<BTreeSet<IpAddr>>>()?;
        if rendered.servers != servers {
            wrong.push(format!("servers {:?}, not {servers:?}", rendered.servers));
        }
        if job.form.has_searches && rendered.searches != SEARCHES.map(str::to_owned).into() {
            wrong.push(format!("searches {:?}", rendered.searches));
        }
        Ok(wrong)
    }

    /// Whether cloud-init itself makes `::/64` of an IPv6 default route, which version 1 of the file says in another way.
    fn narrows_default6(&self, job: &Job, suite: &str) -> Result<bool> {
        let [oldest, ..] = SUITES;
        let net = self.net()?;
        let mut told = self.links.iter().zip(&net.nics).filter(|(link, _)| !link.asks);
        let is_version_2 = told.any(|(_, nic)| {
            nic.routes.iter().filter_map(|route| route.gateway).any(|gateway| !is_neighbour(nic, gateway))
        });
        Ok(is_version_2 && job.form.has_gateways_outside && suite == oldest && job.renderer.name != NETPLAN)
    }

    /// Whether the guest is to know its resolvers from the file. DHCP tells it of them where it asks: what stands at a NIC that
    /// asks is dropped, save by netplan if all do.
    fn tells_resolvers(&self, job: &Job, suite: &str) -> bool {
        if self.links.iter().all(|link| link.asks) {
            return job.renderer.name == NETPLAN && job.form.has_searches;
        }
        self.links.first().is_some_and(|link| !link.asks) && !self.loses_resolvers(job, suite)
    }

    /// What cloud-init itself loses of them, where they stand at no NIC.
    fn loses_resolvers(&self, job: &Job, suite: &str) -> bool {
        let [oldest, ..] = SUITES;
        let loses = match job.renderer.name {
            "network-manager" | "sysconfig" => suite == oldest,
            _ => false,
        };
        loses && !job.form.has_searches
    }
}

impl Link {
    fn nic(&self, place: u8) -> Result<Nic> {
        let route = |(dst, gateway): &(&str, &str)| -> Result<Route> {
            Ok(Route {
                dst: dst.parse()?,
                gateway: Some(*gateway).filter(|via| !via.is_empty()).map(str::parse).transpose()?,
            })
        };
        Ok(Nic {
            name: format!("eth{place}").parse()?,
            network: "pods".into(),
            kind: NicKind::Tap(Tap { data_path: self.data_path, queues: 1 }),
            mac: MacAddr::new([2, 0, 0, 0xab, 0, place])?,
            mtu: 1450 - u32::from(place),
            addresses: self.addresses.iter().map(|net| Ok(net.parse()?)).collect::<Result<_>>()?,
            routes: self.routes.iter().map(route).collect::<Result<_>>()?,
        })
    }

    fn means(&self, nic: &Nic, job: &Job) -> rendered::Nic {
        let mtu = Some(nic.mtu);
        if self.asks {
            let of = |is: fn(&IpNetwork) -> bool| nic.addresses.iter().any(is);
            return rendered::Nic {
                dhcp4: of(IpNetwork::is_ipv4),
                dhcp6: of(IpNetwork::is_ipv6),
                mtu,
                ..Default::default()
            };
        }
        let in_a_subnet = |via: IpAddr| nic.addresses.iter().any(|own| own.contains(via));
        let takes_all = |to: &IpNetwork| {
            let routes =
                nic.routes.iter().filter(|route| route.dst.prefix() == 0 && route.dst.is_ipv4() == to.is_ipv4());
            routes.filter_map(|route| route.gateway).any(|via| !in_a_subnet(via))
        };
        let is_own = |to: &IpNetwork| nic.addresses.iter().any(|own| own.network() == to.network());
        let is_told = |route: &&Route| match route.gateway {
            Some(via) => job.form.has_gateways_outside || is_neighbour(nic, via),
            None => job.form.has_gateways_outside && !is_own(&route.dst) && !takes_all(&route.dst),
        };
        let routes: BTreeSet<_> = nic.routes.iter().filter(is_told).map(|route| (route.dst, route.gateway)).collect();
        // The others name such a gateway, and not that it is on the link: the guest may refuse it.
        let on_link = routes.iter().filter_map(|(_, via)| *via).filter(|via| !is_neighbour(nic, *via));
        let on_link = on_link.filter(|_| job.renderer.name == NETPLAN).collect();
        rendered::Nic { addresses: nic.addresses.iter().copied().collect(), routes, on_link, mtu, ..Default::default() }
    }
}

fn is_neighbour(nic: &Nic, via: IpAddr) -> bool {
    match via {
        IpAddr::V6(router) if router.is_unicast_link_local() => true,
        _ => nic.addresses.iter().any(|own| own.contains(via)),
    }
}

/// A file of a seed, and what cloud-init calls its form.
struct Form {
    seed: &'static str,
    file: &'static str,
    kind: &'static str,
    has_searches: bool,
    /// And routes on the link.
    has_gateways_outside: bool,
}

const FORMS: [Form; 2] = [
    Form { seed: "nocloud", file: "network-config", kind: "yaml", has_searches: true, has_gateways_outside: true },
    Form {
        seed: "configdrive",
        file: "openstack/latest/network_data.json",
        kind: "network_data.json",
        has_searches: false,
        has_gateways_outside: false,
    },
];

fn networks(bed: &Bed) -> Result<()> {
    let all = jobs(bed)?;
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for cloud_init in CloudInit::all(bed)? {
        let failed = convert(&cloud_init, &all, &bed.dir)?;
        for (place, job) in all.iter().enumerate() {
            let Job { network, form, renderer, .. } = job;
            let ends = job.form.has_gateways_outside && network.ends.contains(&job.renderer.name);
            let misses = match failed.get(&place.to_string()) {
                Some(_) if ends => Vec::new(),
                None if ends => vec!["it writes files, which docs/annotations.md denies".to_owned()],
                Some(trace) => vec![trace.clone()],
                None => renderer
                    .read(&job.out(cloud_init.suite))
                    .and_then(|rendered| network.misses(&rendered, job, cloud_init.suite))
                    .unwrap_or_else(|error| vec![format!("{error:#}")]),
            };
            let of = format!("{}, {}, by {} of {}", network.name, form.file, renderer.name, cloud_init.version);
            wrong.extend(misses.iter().map(|miss| format!("{of}: {miss}")));
            tried += 1;
        }
    }
    ensure!(wrong.is_empty(), "{} wrong of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// One file by one renderer.
struct Job {
    network: &'static Network,
    form: &'static Form,
    renderer: Renderer,
    input: PathBuf,
    dir: PathBuf,
    macs: Vec<String>,
}

impl Job {
    fn out(&self, suite: &str) -> PathBuf {
        self.dir.join(suite)
    }

    fn words(&self, suite: &str) -> Vec<String> {
        let (input, out) = (self.input.display(), self.out(suite));
        let words = format!(
            "--network-data {input} --kind {} --directory {} --distro {} --output-kind {}",
            self.form.kind,
            out.display(),
            self.renderer.distribution,
            self.renderer.name
        );
        let macs = self.macs.iter().flat_map(|mac| ["--mac".to_owned(), mac.clone()]);
        words.split(' ').map(str::to_owned).chain(macs).collect()
    }
}

fn jobs(bed: &Bed) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for (place, network) in NETWORKS.iter().enumerate() {
        let macs: Vec<_> = network.net()?.nics.iter().map(|nic| format!("{},{}", nic.name, nic.mac)).collect();
        for form in &FORMS {
            let dir = bed.dir.join(format!("{place}-{}", form.seed));
            fs::create_dir(&dir)?;
            let input = dir.join("input");
            fs::write(&input, network.file(form)?)?;
            for renderer in RENDERERS {
                let (input, dir, macs) = (input.clone(), dir.join(renderer.name), macs.clone());
                jobs.push(Job { network, form, renderer, input, dir, macs });
            }
        }
    }
    Ok(jobs)
}

/// Runs all of them by one version; how those that failed did, by their places.
fn convert(cloud_init: &CloudInit, jobs: &[Job], dir: &Path) -> Result<BTreeMap<String, String>> {
    for job in jobs {
        fs::create_dir_all(job.out(cloud_init.suite))?;
    }
    let words: Vec<_> = jobs.iter().map(|job| job.words(cloud_init.suite)).collect();
    let list = dir.join(format!("{}.json", cloud_init.suite));
    fs::write(&list, serde_json::to_vec(&words)?)?;
    let said = run(cloud_init.python("convert.py").arg(list))?;
    serde_json::from_str(&said).with_context(|| said.clone())
}
