//! Results of ADD: the typed view that the daemon reads, and the change of form between versions of the specification.
//!
//! The result itself stays the JSON that the plugin wrote: it goes back to plugins as `prevResult`, and fields that this
//! program does not know must not be lost on the way. A [`ResultView`] holds well-formed values only, of bounded number;
//! unknown fields are ignored.

use std::net::IpAddr;

use common::Reason;
use ipnetwork::IpNetwork;
use proto::tap::{IfName, MacAddr};
use serde::Deserialize;
use serde_json::Value;

use super::version::SpecVersion;

/// Most entries of each list of a result. Far above what plugins report, far below what could hurt.
pub(super) const MAX_ENTRIES: usize = 256;
/// Longest text of a DNS setting.
const MAX_TEXT: usize = 255;

/// What a result says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResultView {
    /// Links that plugins made or took over, in the result's order, the host's ones included.
    pub(crate) interfaces: Vec<Interface>,
    /// Addresses in the result's order.
    pub(crate) ips: Vec<Ip>,
    /// Routes in the result's order.
    pub(crate) routes: Vec<Route>,
    /// Resolver settings.
    pub(crate) dns: Dns,
}

/// A link of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: IfName,
    /// Its address; links without an Ethernet address have none.
    pub(crate) mac: Option<MacAddr>,
    /// File of its namespace; `None` is the host's.
    pub(crate) sandbox: Option<String>,
    /// The PCI device that it is, or that stands for it, as the plugin names it (CNI 1.1.0).
    pub(crate) pci: Option<String>,
    /// Its MTU, if the plugin says it (CNI 1.1.0).
    pub(crate) mtu: Option<u32>,
}

/// An address of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ip {
    /// With the prefix length that the plugin tells; the kernel may have another.
    pub(crate) address: IpNetwork,
    /// Next hop.
    pub(crate) gateway: Option<IpAddr>,
    /// Index of its link in [`ResultView::interfaces`].
    pub(crate) interface: Option<usize>,
}

/// A route of a result. All but the first two are CNI 1.1.0's; plugins enter some of them into the kernel and some not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// Destination.
    pub(crate) dst: IpNetwork,
    /// Next hop; `None` means the gateway of the address.
    pub(crate) gateway: Option<IpAddr>,
    /// The most that may be sent this way in one packet.
    pub(crate) mtu: Option<u32>,
    /// The most of TCP's data that the other side may send in one packet.
    pub(crate) advmss: Option<u32>,
    /// Of two routes to one destination the lower is taken.
    pub(crate) priority: Option<u32>,
    /// The routing table that it is for.
    pub(crate) table: Option<u32>,
    /// How far its destinations are, by the kernel's numbers.
    pub(crate) scope: Option<u32>,
}

/// Resolver settings of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dns {
    /// Name servers.
    pub(crate) servers: Vec<IpAddr>,
    /// The domain, then the search list.
    pub(crate) searches: Vec<String>,
    /// Resolver options.
    pub(crate) options: Vec<String>,
}

// === wire ===

#[derive(Deserialize)]
struct WireResult {
    #[serde(default, deserialize_with = "nullable")]
    interfaces: Vec<WireInterface>,
    #[serde(default, deserialize_with = "nullable")]
    ips: Vec<WireIp>,
    #[serde(default, deserialize_with = "nullable")]
    routes: Vec<WireRoute>,
    #[serde(default, deserialize_with = "nullable")]
    dns: WireDns,
}

#[derive(Deserialize)]
struct WireInterface {
    name: String,
    mac: Option<String>,
    sandbox: Option<String>,
    #[serde(rename = "pciID")]
    pci_id: Option<String>,
    mtu: Option<i64>,
}

#[derive(Deserialize)]
struct WireIp {
    address: String,
    gateway: Option<String>,
    interface: Option<i64>,
}

#[derive(Deserialize)]
struct WireRoute {
    dst: String,
    gw: Option<String>,
    mtu: Option<i64>,
    advmss: Option<i64>,
    priority: Option<i64>,
    table: Option<i64>,
    scope: Option<i64>,
}

#[derive(Default, Deserialize)]
struct WireDns {
    #[serde(default, deserialize_with = "nullable")]
    nameservers: Vec<String>,
    domain: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    search: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    options: Vec<String>,
}

/// Plugins in Go write `null` for an empty list.
fn nullable<'de, T: Default + Deserialize<'de>, D: serde::Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

// === impl ResultView ===

impl ResultView {
    /// Reads a result of any version that has interfaces and addresses.
    pub(crate) fn of(raw: &Value) -> Result<Self, Reason> {
        let wire = WireResult::deserialize(raw).map_err(Reason::because("it has not the form of a CNI result"))?;
        bound("interfaces", &wire.interfaces)?;
        bound("addresses", &wire.ips)?;
        bound("routes", &wire.routes)?;
        bound("name servers", &wire.dns.nameservers)?;
        bound("search domains", &wire.dns.search)?;
        bound("resolver options", &wire.dns.options)?;
        let count = wire.interfaces.len();
        Ok(Self {
            interfaces: wire.interfaces.into_iter().map(interface).collect::<Result<_, _>>()?,
            ips: wire.ips.into_iter().map(|entry| ip(&entry, count)).collect::<Result<_, _>>()?,
            routes: wire.routes.into_iter().map(|entry| route(&entry)).collect::<Result<_, _>>()?,
            dns: dns(wire.dns)?,
        })
    }

    /// Names of the links in the pod's namespace, in the result's order. None if addresses have to tell them; a plugin that
    /// reports neither made `asked`.
    pub(crate) fn pod_links(&self, asked: &IfName) -> Vec<IfName> {
        let inside = self.interfaces.iter().filter(|interface| interface.sandbox.is_some());
        let names: Vec<_> = inside.map(|interface| interface.name.clone()).collect();
        if names.is_empty() && self.ips.is_empty() { vec![asked.clone()] } else { names }
    }
}

/// Gives a result the form of the version that the plugins of its network are spoken to in. A plugin should answer in
/// that version; those that answer in another one of the same family are understood all the same.
pub(super) fn convert(mut raw: Value, to: SpecVersion) -> Result<Value, Reason> {
    if let Some(found) = raw.get("cniVersion").filter(|found| !found.is_null()) {
        let known = found.as_str().and_then(SpecVersion::parse);
        known.ok_or_else(|| {
            let found = shorten(found.as_str().unwrap_or("none"));
            Reason::new(format!("it is of version `{found}`, {to} was asked for"))
        })?;
    }
    if let Some(Value::Array(ips)) = raw.get_mut("ips") {
        for entry in ips.iter_mut().filter_map(Value::as_object_mut) {
            if to.tells_family() {
                let address = entry.get("address").and_then(Value::as_str).unwrap_or_default();
                let family = if address.contains(':') { "6" } else { "4" };
                entry.insert("version".to_owned(), family.into());
            } else {
                entry.remove("version");
            }
        }
    }
    if let Some(object) = raw.as_object_mut() {
        object.insert("cniVersion".to_owned(), to.as_str().into());
    }
    Ok(raw)
}

fn bound<T>(what: &'static str, entries: &[T]) -> Result<(), Reason> {
    if entries.len() <= MAX_ENTRIES {
        return Ok(());
    }
    Err(Reason::new(format!("it lists {} {what}, more than {MAX_ENTRIES}", entries.len())))
}

fn interface(wire: WireInterface) -> Result<Interface, Reason> {
    Ok(Interface {
        name: wire.name.parse().map_err(Reason::because("it names a link that cannot be"))?,
        // A link that is not Ethernet may have an address of another length, or none.
        mac: wire.mac.and_then(|mac| mac.parse().ok()),
        sandbox: wire.sandbox.filter(|sandbox| !sandbox.is_empty()),
        pci: wire.pci_id.filter(|pci| !pci.is_empty()),
        mtu: positive(wire.mtu),
    })
}

/// Go's zero stands for nothing.
fn positive(number: Option<i64>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

fn ip(wire: &WireIp, count: usize) -> Result<Ip, Reason> {
    let address = network("address", &wire.address)?;
    let interface = match wire.interface {
        None => None,
        Some(index) => {
            let known = usize::try_from(index).ok().filter(|index| *index < count);
            let none = || Reason::new(format!("its address {address} is on interface {index}, but it lists {count}"));
            Some(known.ok_or_else(none)?)
        }
    };
    Ok(Ip { address, gateway: optional_address("gateway", wire.gateway.as_deref())?, interface })
}

fn route(wire: &WireRoute) -> Result<Route, Reason> {
    Ok(Route {
        dst: network("route", &wire.dst)?,
        gateway: optional_address("next hop", wire.gw.as_deref())?,
        mtu: positive(wire.mtu),
        advmss: positive(wire.advmss),
        priority: positive(wire.priority),
        table: positive(wire.table),
        // Zero is the whole world, as without it.
        scope: positive(wire.scope),
    })
}

fn dns(wire: WireDns) -> Result<Dns, Reason> {
    let servers = wire.nameservers.iter().map(|server| address("name server", server)).collect::<Result<_, _>>()?;
    let mut searches: Vec<String> = wire.domain.into_iter().filter(|domain| !domain.is_empty()).collect();
    searches.extend(wire.search);
    searches.dedup();
    for (what, texts) in [("search domain", &searches), ("resolver option", &wire.options)] {
        if let Some(bad) = texts.iter().find(|text| text.len() > MAX_TEXT || text.contains(char::is_control)) {
            return Err(wrong(what, bad, "a short text"));
        }
    }
    Ok(Dns { servers, searches, options: wire.options })
}

/// With a prefix length: `IpNetwork` alone would take a bare address for a network of one.
fn wrong(what: &str, value: &str, expected: &str) -> Reason {
    Reason::new(format!("its {what} `{}` is not {expected}", shorten(value)))
}

fn network(what: &'static str, text: &str) -> Result<IpNetwork, Reason> {
    let parsed = text.contains('/').then(|| text.parse().ok()).flatten();
    parsed.ok_or_else(|| wrong(what, text, "an address with a prefix length"))
}

fn address(what: &'static str, text: &str) -> Result<IpAddr, Reason> {
    text.parse().map_err(|_| wrong(what, text, "an IP address"))
}

fn optional_address(what: &'static str, text: Option<&str>) -> Result<Option<IpAddr>, Reason> {
    text.filter(|text| !text.is_empty()).map(|text| address(what, text)).transpose()
}

/// What a stranger wrote, neither at length nor with its control characters.
fn shorten(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
