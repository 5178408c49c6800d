//! Metrics for Prometheus: figures of the image store and of what runs, in OpenMetrics' text, by HTTP.
//!
//! [`start`] is called by [`crate::daemon`] if `metrics.address` is set. Each scrape reads what the image
//! store, the records and the ways to libvirt and tapmanager have in memory, off the reactor and without the disk ([`facts`]),
//! so no figure can be out of date, but those for which others are asked from time to time: tapmanager for SR-IOV cards
//! ([`functions`]) and pods' networks ([`networks`]), and [`filesystems`] for their room; how long calls took is kept at the
//! [edge](crate::api::edge), and how long parts of starts took beside the [records](crate::store::moments); checkpoints are counted [where they are made](crate::container::Tally). [`server`] answers. No figure tells the name of a pod or an image, and the labels' values are those of
//! the configuration, of the node's cards and of this crate's own states, so their number is bounded.

mod facts;
mod filesystems;
mod functions;
mod networks;
mod page;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::{Interval, MissedTickBehavior, interval};

use self::facts::Facts;
pub use self::filesystems::FileSystems;
pub use self::functions::Functions;
pub use self::networks::Networks;
use self::server::Limits;
pub use self::server::{BindError, Server};
use crate::api::edge::Calls;
use crate::container::{Reboots, Tally};
use crate::hypervisor::Hypervisor;
use crate::hypervisor::accelerator::AcceleratorChoice;
use crate::images::Images;
use crate::orphans::Known;
use crate::proxy::Proxy;
use crate::store::Store;
use crate::tap::Tap;

/// How often others are asked for figures.
const EVERY: Duration = Duration::from_secs(15);

/// Where the figures come from.
#[derive(Debug)]
pub struct Sources {
    /// What we say our version is.
    pub version: &'static str,
    pub images: Images,
    pub records: Store,
    pub accel: AcceleratorChoice,
    pub reboots: Arc<Reboots>,
    pub checkpoints: Tally,
    pub orphans: Arc<Known>,
    pub hypervisor: Hypervisor,
    pub tap: Tap,
    pub functions: Functions,
    pub networks: Networks,
    pub filesystems: FileSystems,
}

/// When others are asked: now, and then from time to time.
fn turns() -> Interval {
    let mut turns = interval(EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turns
}

/// Serves the metrics at `address` until what this returns is dropped.
///
/// # Errors
/// When the address cannot be had.
pub async fn start(
    address: SocketAddr,
    sources: Sources,
    (calls, proxy): (&Calls, Option<&Proxy>),
) -> Result<Server, BindError> {
    let functions = sources.functions.clone().keep(sources.tap.clone());
    let networks = sources.networks.clone().keep(sources.tap.clone());
    let filesystems = sources.filesystems.clone().keep();
    let (moments, checkpoints) = (sources.records.moments().clone(), sources.checkpoints.clone());
    let mut registry = registry(sources);
    moments.register(&mut registry);
    checkpoints.register(&mut registry);
    calls.register(&mut registry);
    if let Some(proxy) = proxy {
        proxy.metrics().register(&mut registry);
    }
    let mut server = Server::bind(address, Limits::default(), Box::new(move || text(&registry))).await?;
    server.beside(functions);
    server.beside(networks);
    server.beside(filesystems);
    tracing::info!(address = %server.address(), "metrics served");
    Ok(server)
}

fn registry(collector: impl Collector) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    registry
}

fn text(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

impl Collector for Sources {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        Facts::of(self).encode(encoder)
    }
}

#[cfg(test)]
mod tests;
