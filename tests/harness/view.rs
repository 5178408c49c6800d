//! What somebody in a network namespace sees of the network, to be compared: a process there with a guest elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::command::{TOOL_DEADLINE, finish};
use crate::netns;

/// How somebody chooses their way, where there is more than one table of routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bound {
    /// As most do: not at all.
    #[default]
    Free,
    /// By the link: those in a VRF.
    ToLink,
    /// By their own address: those who are under rules of it.
    ToAddress,
}

/// The network from within, without what differs by right: the very addresses; and which router of IPv6, since a guest
/// knows one by its link-local address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Of packets to the first destination: its route may take less than the link.
    mtu: u64,
    /// How many of IPv4, and of IPv6.
    addresses: (usize, usize),
    /// Where a packet to each destination goes.
    ways: BTreeMap<IpAddr, String>,
}

impl View {
    /// Looks at `link` of the namespace mounted at `netns`, and at the ways to `destinations`.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn of(netns: &Path, link: &str, destinations: &[IpAddr], bound: Bound) -> Result<Self> {
        let own = addresses(netns, link)?;
        let shown = netns::run_in(netns, &format!("ip -j link show dev {link}"))?;
        let shown: Value = serde_json::from_str(&shown)?;
        let mut mtu = shown.pointer("/0/mtu").and_then(Value::as_u64).context("a link without MTU")?;
        let mut ways = BTreeMap::new();
        for (place, to) in destinations.iter().enumerate() {
            let (way, of_route) = way(netns, *to, &own, &bound.words(link, *to, &own))?;
            mtu = of_route.filter(|_| place == 0).unwrap_or(mtu);
            ways.insert(*to, way);
        }
        let four = own.iter().filter(|own| own.is_ipv4()).count();
        Ok(Self { mtu, addresses: (four, own.len() - four), ways })
    }

    /// Compares with what was `expected`.
    ///
    /// # Errors
    /// Lists what differs.
    pub fn assert_is(&self, expected: &Self) -> Result<()> {
        let mut differences = String::new();
        let mut differ = |what: &str, this: &str, other: &str| {
            if this != other {
                let _infallible = writeln!(differences, "{what}: {this}, a process has {other}");
            }
        };
        differ("MTU", &self.mtu.to_string(), &expected.mtu.to_string());
        differ("IPv4 addresses", &self.addresses.0.to_string(), &expected.addresses.0.to_string());
        differ("IPv6 addresses", &self.addresses.1.to_string(), &expected.addresses.1.to_string());
        for (to, way) in &self.ways {
            differ(&format!("way to {to}"), way, expected.ways.get(to).map_or("none", String::as_str));
        }
        ensure!(differences.is_empty(), "the guest's network is not that of a process:\n{differences}");
        Ok(())
    }
}

/// Addresses of `link` that reach further than it.
///
/// # Errors
/// When there is no such link.
pub fn addresses(netns: &Path, link: &str) -> Result<Vec<IpAddr>> {
    let shown = netns::run_in(netns, &format!("ip -j addr show dev {link} scope global"))?;
    let shown: Value = serde_json::from_str(&shown)?;
    // Links and addresses of another scope are empty objects.
    let infos = shown.as_array().into_iter().flatten().filter_map(|link| link["addr_info"].as_array()).flatten();
    let locals = infos.filter_map(|info| info["local"].as_str());
    let mut found = locals.map(|local| Ok(local.parse()?)).collect::<Result<Vec<IpAddr>>>()?;
    found.sort_unstable();
    Ok(found)
}

/// Where packets to somebody go, and the MTU that the route to there has of its own.
fn way(netns: &Path, to: IpAddr, own: &[IpAddr], bound: &str) -> Result<(String, Option<u64>)> {
    let ended = finish(&mut netns::command_in(netns, &format!("ip -j route get {to} {bound}")), TOOL_DEADLINE)?;
    if ended.code != Some(0) {
        ensure!(ended.stderr.contains("unreachable"), "`ip route get {to} {bound}`: {}", ended.stderr);
        return Ok(("unreachable".to_owned(), None));
    }
    let answer: Value = serde_json::from_str(&ended.stdout)?;
    let route = answer.get(0).context("no route")?;
    let by = match route["gateway"].as_str().map(str::parse).transpose()? {
        None => "on the link".to_owned(),
        Some(IpAddr::V4(gateway)) => format!("by {gateway}"),
        Some(IpAddr::V6(_)) => "by a router".to_owned(),
    };
    // Whoever gave a source is not told of one.
    let from = route["prefsrc"].as_str().or(route["from"].as_str()).context("a route without a source")?;
    let mtu = route.pointer("/metrics/0/mtu").and_then(Value::as_u64);
    Ok((format!("{by}{}", if own.contains(&from.parse()?) { "" } else { ", from another link" }), mtu))
}

impl Bound {
    /// As words of `ip route get`.
    fn words(self, link: &str, to: IpAddr, own: &[IpAddr]) -> String {
        match self {
            Self::Free => String::new(),
            Self::ToLink => format!("oif {link}"),
            Self::ToAddress => own
                .iter()
                .find(|own| own.is_ipv4() == to.is_ipv4())
                .map(|own| format!("from {own}"))
                .unwrap_or_default(),
        }
    }
}
