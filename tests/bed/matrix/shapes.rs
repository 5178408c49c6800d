//! The rows' left column: configurations of plugins, what each needs, and what is expected of it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use proto::tap::{Attach, Bandwidth, DataPath, HostPort, Nic, PortProtocol};
use serde_json::{Value, json};
use tests::command::sh;
use tests::guest::Guest;
use tests::traffic::forwarded;
use tests::view::Bound;

use super::wires::{BEYOND4, BEYOND6, FAR4, FAR6, Wiring};

const ALL: &[Family] = &[Family::V4, Family::V6, Family::Dual];
const DUAL: &[Family] = &[Family::Dual];
const V4: &[Family] = &[Family::V4];
const KIB: usize = 1 << 10;

/// Address families of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
    Dual,
}

/// Whose kernel a shape needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// The bed's machine's will do.
    Own,
    /// That of the emulated node.
    Debian,
}

/// What is expected of a shape on a data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A guest has all that a process has.
    Works,
    /// The same, and a process reaches nobody either.
    Lonely,
    /// Attach fails, and says this.
    Refused(&'static str),
}

/// A configuration of plugins.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) kernel: Kernel,
    pub(super) wiring: Wiring,
    pub(super) families: &'static [Family],
    /// The list's plugins.
    pub(super) plugins: fn(Family) -> Value,
    /// Whether Debian has these plugins; theirs are years older.
    pub(super) in_debian: bool,
    /// Whether Debian's release of them takes the routes through a gateway away, so that a process has none either.
    pub(super) debian_loses_routes: bool,
    /// Whether the plugins keep something of their own for the next pod, as chains of the firewall.
    pub(super) keeps: bool,
    /// How a process must bind itself to get anywhere. A guest has one table of routes.
    pub(super) bound: Bound,
    /// What the pod asks for besides.
    pub(super) ask: fn(&mut Attach),
    pub(super) verdict: fn(DataPath) -> Verdict,
    /// What else must hold while the guest runs.
    pub(super) also: fn(&Guest, &Nic) -> Result<()>,
    /// Bytes of a TCP connection, which come back.
    pub(super) bulk: usize,
}

/// A veth to the node on the bed's own kernel, all of which works.
const PLAIN: Shape = Shape {
    name: "",
    kernel: Kernel::Own,
    wiring: Wiring::None,
    families: ALL,
    plugins: |_| Value::Null,
    in_debian: true,
    debian_loses_routes: false,
    keeps: false,
    bound: Bound::Free,
    ask: |_| {},
    verdict: |_| Verdict::Works,
    also: |_, _| Ok(()),
    bulk: 4096 * KIB,
};

/// On the emulated kernel, where a byte costs more.
const EMULATED: Shape = Shape { kernel: Kernel::Debian, bulk: 256 * KIB, ..PLAIN };

/// As clouds have it: addresses of one, and a gateway that answers nobody.
const ROUTED: Shape = Shape {
    wiring: Wiring::Routed,
    in_debian: false,
    verdict: |path| match path {
        DataPath::Macvtap => Verdict::Refused("is a permanent neighbour, which the guest of a macvtap cannot be told"),
        _ => Verdict::Works,
    },
    ..PLAIN
};

pub(super) const SHAPES: &[Shape] = &[
    Shape { name: "bridge", plugins: |family| json!([bridge(&host_local(family))]), ..PLAIN },
    Shape { name: "bridge_static", families: DUAL, plugins: |family| json!([bridge(&fixed(family))]), ..PLAIN },
    Shape { name: "ptp", plugins: |family| json!([{"type": "ptp", "mtu": 1450, "ipam": host_local(family)}]), ..PLAIN },
    Shape {
        name: "macvlan",
        wiring: Wiring::Uplink,
        plugins: |family| json!([macvlan(&host_local(family))]),
        verdict: on_macvlan,
        ..PLAIN
    },
    Shape {
        name: "macvlan_dhcp",
        wiring: Wiring::Dhcp,
        families: V4,
        plugins: |_| json!([macvlan(&json!({"type": "dhcp"}))]),
        verdict: on_macvlan,
        ..PLAIN
    },
    Shape {
        name: "host_device",
        wiring: Wiring::Uplink,
        plugins: |family| json!([{"type": "host-device", "device": "up0", "ipam": host_local(family)}]),
        ..PLAIN
    },
    Shape {
        name: "tap",
        in_debian: false,
        families: DUAL,
        plugins: |family| json!([{"type": "tap", "ipam": host_local(family)}]),
        verdict: |_| Verdict::Refused("is of kind `tun`, which cannot be given to a virtual machine"),
        ..PLAIN
    },
    Shape {
        name: "bridge_firewall",
        families: DUAL,
        plugins: |family| json!([bridge(&host_local(family)), {"type": "firewall"}]),
        keeps: true,
        also: |_, nic| {
            let rules = sh("iptables-save")? + &sh("ip6tables-save")?;
            let all = nic.addresses.iter().all(|address| rules.contains(&address.ip().to_string()));
            ensure!(all, "the firewall does not know the guest:\n{rules}");
            Ok(())
        },
        ..PLAIN
    },
    Shape {
        name: "bridge_tuning",
        families: DUAL,
        plugins: |family| {
            let tuning = json!({
                "type": "tuning", "mac": "02:00:00:77:00:13",
                "sysctl": {"net.ipv4.conf.all.log_martians": "1"},
            });
            json!([bridge(&host_local(family)), tuning])
        },
        also: |guest, nic| {
            let link = guest.run("ip -o link show dev eth0")?;
            ensure!(link.contains("02:00:00:77:00:13"), "not as tuned, {}: {link}", nic.mac);
            Ok(())
        },
        ..PLAIN
    },
    Shape {
        name: "bridge_sbr",
        families: V4,
        plugins: |family| json!([bridge(&host_local(family)), {"type": "sbr"}]),
        bound: Bound::ToAddress,
        ..PLAIN
    },
    Shape {
        name: "bridge_portmap",
        families: V4,
        plugins: |family| json!([bridge(&host_local(family)), portmap()]),
        keeps: true,
        ask: |ask| {
            let port = HostPort { host_ip: None, host_port: 18080, container_port: 80, protocol: PortProtocol::Tcp };
            ask.host_ports = vec![port];
        },
        also: |guest, nic| {
            let own = nic.addresses.first().context("no address")?.ip();
            let (listens, called) = (SocketAddr::new(own, 80), SocketAddr::new(BEYOND4.parse()?, 18080));
            forwarded(None, Some(guest.netns()), listens, called).context("by the node's port")
        },
        ..PLAIN
    },
    Shape { name: "neighbour", plugins: |family| json!([routed(family, &[])]), ..ROUTED },
    Shape {
        name: "neighbour_mtu",
        families: DUAL,
        plugins: |family| json!([routed(family, &["mtu", "1423"])]),
        also: |guest, nic| {
            let link = guest.run("ip -o link show dev eth0")?;
            ensure!(nic.mtu == 1423 && link.contains("mtu 1423"), "not the MTU of its routes, {}: {link}", nic.mtu);
            Ok(())
        },
        ..ROUTED
    },
    Shape {
        name: "blackhole",
        families: DUAL,
        plugins: |family| {
            let mut plugin = routed(family, &[]);
            let onward = plugin["onward"].as_array_mut();
            onward.into_iter().for_each(|onward| onward.push(json!("blackhole 10.98.0.0/16")));
            json!([plugin])
        },
        // Its packets would leave by the default route.
        verdict: |_| Verdict::Refused("route to `10.98.0.0/16` leads nowhere"),
        ..ROUTED
    },
    Shape {
        name: "ipvlan",
        wiring: Wiring::Uplink,
        families: DUAL,
        plugins: |family| json!([{"type": "ipvlan", "master": "up0", "ipam": host_local(family)}]),
        verdict: |_| Verdict::Refused("is of kind `ipvlan`, which cannot be given to a virtual machine"),
        ..EMULATED
    },
    Shape {
        name: "vlan",
        wiring: Wiring::Tagged,
        plugins: |family| json!([{"type": "vlan", "master": "up0", "vlanId": 7, "ipam": host_local(family)}]),
        ..EMULATED
    },
    Shape {
        name: "bridge_vrf",
        families: DUAL,
        plugins: |family| json!([bridge(&host_local(family)), {"type": "vrf", "vrfname": "blue"}]),
        // The kernel drops them when the link joins the VRF. Newer releases of the plugin put them back.
        debian_loses_routes: true,
        bound: Bound::ToLink,
        verdict: |path| match path {
            DataPath::Bridge | DataPath::Macvtap => Verdict::Refused("is a member of another link, such as a VRF"),
            _ => Verdict::Works,
        },
        ..EMULATED
    },
    Shape {
        name: "bridge_bandwidth",
        families: DUAL,
        plugins: |family| json!([bridge(&host_local(family)), bandwidth()]),
        ask: |ask| {
            let rate = Some(100_000_000);
            let burst = Some(4_000_000);
            ask.bandwidth =
                Some(Bandwidth { ingress_rate: rate, ingress_burst: burst, egress_rate: rate, egress_burst: burst });
        },
        also: |_, _| {
            let shaped = sh("tc -s qdisc show")?;
            let passed =
                |kind: &str| shaped.split("qdisc ").any(|one| one.starts_with(kind) && !one.contains("Sent 0 b"));
            ensure!(passed("tbf") || passed("htb"), "nothing went through the plugin's shaper:\n{shaped}");
            Ok(())
        },
        ..EMULATED
    },
    Shape {
        name: "dummy",
        in_debian: false,
        families: DUAL,
        plugins: |family| json!([{"type": "dummy", "ipam": host_local(family)}]),
        verdict: |_| Verdict::Lonely,
        ..EMULATED
    },
    Shape { name: "bridge", families: DUAL, plugins: |family| json!([bridge(&host_local(family))]), ..EMULATED },
    Shape {
        name: "macvlan",
        wiring: Wiring::Uplink,
        families: DUAL,
        plugins: |family| json!([macvlan(&host_local(family))]),
        verdict: on_macvlan,
        ..EMULATED
    },
];

fn bridge(ipam: &Value) -> Value {
    json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1450, "ipam": ipam})
}

fn portmap() -> Value {
    json!({"type": "portmap", "capabilities": {"portMappings": true}})
}

fn bandwidth() -> Value {
    json!({"type": "bandwidth", "capabilities": {"bandwidth": true}})
}

fn macvlan(ipam: &Value) -> Value {
    json!({"type": "macvlan", "master": "up0", "mode": "bridge", "mtu": 1450, "ipam": ipam})
}

/// The plugin of the bed, with a default route of each family that has more words.
fn routed(family: Family, words: &[&str]) -> Value {
    let words = words.join(" ");
    let routes = family.pick("default via 169.254.1.1 dev LINK", "default via fe80::1 dev LINK");
    json!({
        "type": "routed",
        "addresses": family.pick("10.77.0.50/32", "fd00:77::50/128"),
        "gateways": family.pick("169.254.1.1", "fe80::1"),
        "onward": routes.iter().map(|route| format!("{route} {words}")).collect::<Vec<_>>(),
    })
}

fn host_local(family: Family) -> Value {
    let gateways = family.pick("10.77.0.1", "fd00:77::1");
    let subnets = family.pick("10.77.0.0/24", "fd00:77::/64");
    let ranges = subnets.iter().zip(gateways).map(|(subnet, gateway)| json!([{"subnet": subnet, "gateway": gateway}]));
    json!({"type": "host-local", "ranges": ranges.collect::<Vec<_>>(), "routes": routes(family)})
}

fn fixed(family: Family) -> Value {
    let gateways = family.pick(FAR4, FAR6);
    let addresses = family.pick("10.77.0.50/24", "fd00:77::50/64");
    let addresses =
        addresses.iter().zip(gateways).map(|(address, gateway)| json!({"address": address, "gateway": gateway}));
    json!({"type": "static", "addresses": addresses.collect::<Vec<_>>(), "routes": routes(family)})
}

/// A default route, and one more.
fn routes(family: Family) -> Value {
    let default = family.pick("0.0.0.0/0", "::/0");
    let more = family.pick("10.99.0.0/16", "fd00:99::/48");
    default.iter().chain(&more).map(|dst| json!({"dst": dst})).collect()
}

fn on_macvlan(path: DataPath) -> Verdict {
    match path {
        DataPath::Macvtap => Verdict::Refused("it is itself a macvlan, and one cannot lie on another"),
        _ => Verdict::Works,
    }
}

impl Shape {
    pub(super) fn list(&self, family: Family) -> Value {
        json!({"cniVersion": "1.0.0", "name": "vtnet", "plugins": (self.plugins)(family)})
    }
}

impl Family {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
            Self::Dual => "dual",
        }
    }

    fn pick<T>(self, four: T, six: T) -> Vec<T> {
        match self {
            Self::V4 => vec![four],
            Self::V6 => vec![six],
            Self::Dual => vec![four, six],
        }
    }

    /// The far end behind the gateway.
    pub(super) fn beyond(self) -> Vec<IpAddr> {
        self.parsed(&[BEYOND4], &[BEYOND6])
    }

    /// The far end.
    pub(super) fn far(self) -> Vec<IpAddr> {
        self.parsed(&[FAR4], &[FAR6])
    }

    /// The far end, a neighbour that is not there, somebody in the world, and somebody behind a route of its own.
    pub(super) fn destinations(self) -> Vec<IpAddr> {
        self.parsed(&[FAR4, "10.77.0.200", "192.0.2.9", BEYOND4], &[FAR6, "fd00:77::200", "2001:db8::9", BEYOND6])
    }

    fn parsed(self, four: &[&str], six: &[&str]) -> Vec<IpAddr> {
        let texts = self.pick(four, six);
        texts.into_iter().flatten().filter_map(|text| text.parse().ok()).collect()
    }
}
