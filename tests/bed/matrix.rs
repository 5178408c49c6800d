//! The plugin matrix: every shape of network ([`shapes`]) x address families x data paths x sets of plugins.
//!
//! A row shows that a guest has the network that a process in the namespace would have had: the same list of plugins is
//! first run by hand on an empty namespace, what a process sees there is written down, and then a pod's guest must see
//! the same, exchange traffic of every size both ways with the far end, and leave nothing. Rows whose shape cannot carry
//! a machine show the refusal. Rows of tier `net` need nothing of the kernel that the bed's machine lacks; the others
//! are of tier `node`.

mod shapes;
mod wires;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::tap::{DataPath, Nic};
use tests::case::{Bed, Case};
use tests::cni::{self, Caller};
use tests::guest::Guest;
use tests::net_node::{NetNode, attach, pod_id};
use tests::netns;
use tests::traffic::{Place, bulk, pings, small_pings};
use tests::view::{Bound, View, addresses};
use tests::wait::wait_until;
use tests::world::World;

use shapes::{Family, Kernel, SHAPES, Shape, Verdict};
use wires::{Wires, Wiring};

/// A case of the node tier takes 5 to 10 times as long.
const DEADLINE: Duration = Duration::from_secs(480);
/// How long an address may be one that is looked for.
const SETTLED: Duration = Duration::from_secs(30);
/// The shape that is tried in every combination of the rest.
const WHOLE: &str = "bridge";

struct Row {
    name: String,
    shape: &'static Shape,
    family: Family,
    path: DataPath,
    new_plugins: bool,
}

impl Row {
    /// Who can be reached through the gateway.
    fn beyond(&self) -> Vec<IpAddr> {
        let lost = self.shape.debian_loses_routes && !self.new_plugins;
        if lost { Vec::new() } else { self.family.beyond() }
    }
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let mut rows = Vec::new();
    for shape in SHAPES {
        for family in shape.families.iter().copied() {
            for path in DataPath::ALL {
                for new_plugins in [false, true] {
                    let set = if new_plugins { "new" } else { "debian" };
                    let tier = if shape.kernel == Kernel::Own { "net::" } else { crate::node::TIER };
                    let name = format!("{tier}matrix_{}_{}_{}_{set}", shape.name, family.word(), path.name());
                    if counts(shape, family, path, new_plugins) {
                        rows.push(Row { name, shape, family, path, new_plugins });
                    }
                }
            }
        }
    }
    rows
});

/// Which combinations are rows. Every shape is in one with each family, each data path and each set of plugins, and
/// what goes with the default data path in all; one shape is in all with all.
fn counts(shape: &Shape, family: Family, path: DataPath, new_plugins: bool) -> bool {
    // One family shows what a set, or a data path, does differently.
    let telling = family == Family::Dual || shape.families.len() == 1;
    match (path, new_plugins) {
        (DataPath::Tc, true) => true,
        (DataPath::Tc, false) => shape.in_debian && telling,
        (_, true) => telling || shape.name == WHOLE,
        (_, false) => shape.name == WHOLE && telling,
    }
}

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    ROWS.iter().map(|row| Case { name: &row.name, deadline: DEADLINE, run })
}

fn run(bed: &Bed) -> Result<()> {
    let row = ROWS.iter().find(|row| row.name == bed.case).context("no such row")?;
    let plugins = if row.new_plugins { bed.config.peer("cni")? } else { cni::debian_plugins() };
    let plugins = match row.shape.wiring {
        Wiring::Routed => cni::with_plugin(bed, &plugins, cni::ROUTED)?,
        _ => plugins,
    };
    let wires = Wires::lay(bed, row.shape.wiring, &plugins)?;
    let list = row.shape.list(row.family);
    let node = NetNode::start(bed, &list.to_string(), &plugins)?;
    let mut ask = attach(&pod_id(1)?);
    ask.data_path = Some(row.path);
    (row.shape.ask)(&mut ask);
    if row.shape.keeps {
        // The first pod makes what the plugin keeps for the next.
        node.attach_as(ask.clone())?;
        node.detach(&ask.pod)?;
    }
    let before = World::settled()?;
    let caller = Caller { plugins: &plugins, list: &list, id: "process", netns: &netns::create("process")? };
    let expected = as_a_process(caller, row, &wires).context("a process in the namespace")?;
    before.assert_same().context("after the process")?;

    let verdict = (row.shape.verdict)(row.path);
    let net = match (verdict, node.attach_as(ask.clone())) {
        (Verdict::Refused(why), Err(refused)) => {
            ensure!(format!("{refused:#}").contains(why), "no `{why}` in the refusal: {refused:#}");
            return before.assert_same();
        }
        (Verdict::Refused(_), Ok(net)) => bail!("given to a machine: {net:?}"),
        (_, attached) => attached?,
    };
    let [nic] = net.nics.as_slice() else { bail!("not one NIC: {:?}", net.nics) };
    let guest = Guest::start(bed, &node, &ask.pod, nic, "guest")?;
    addressed(&guest, nic, row)?;
    let seen = View::of(guest.netns(), "eth0", &row.family.destinations(), Bound::Free)?;
    seen.assert_is(&expected)?;
    as_promised(&guest, nic, row.family)?;
    if verdict == Verdict::Works {
        traffic(Some(guest.netns()), nic, &wires, row)?;
    }
    (row.shape.also)(&guest, nic)?;

    guest.kill()?;
    node.detach(&ask.pod)?;
    before.assert_same()
}

/// Gives the guest its addresses as a machine gets them: by the servers on its tap; from cloud-init where there are none.
fn addressed(guest: &Guest, nic: &Nic, row: &Row) -> Result<()> {
    if row.path == DataPath::Macvtap {
        guest.configure(nic, false)?;
        return guest.configure(nic, true);
    }
    if row.family != Family::V6 {
        guest.udhcpc().context("DHCPv4")?;
    }
    if row.family != Family::V4 {
        guest.dhclient6().context("DHCPv6")?;
    }
    Ok(())
}

/// What the same plugins give a process.
fn as_a_process(caller: Caller<'_>, row: &Row, wires: &Wires) -> Result<View> {
    let result = caller.add()?;
    let seen = View::of(caller.netns, "eth0", &row.family.destinations(), row.shape.bound)?;
    if (row.shape.verdict)(row.path) == Verdict::Works {
        let own = addresses(caller.netns, "eth0")?;
        let ping = |to: IpAddr| {
            let source = match row.shape.bound {
                Bound::Free => None,
                Bound::ToLink => Some("eth0".to_owned()),
                Bound::ToAddress => own.iter().find(|own| own.is_ipv4() == to.is_ipv4()).map(ToString::to_string),
            };
            small_pings(Some(caller.netns), source.as_deref(), to).context("a process")
        };
        // The plugin's side may still look whether its address is another's, too (RFC 4862, 5.4), and does not answer until then.
        for to in row.family.far().into_iter().chain(row.beyond()) {
            let mut last = None;
            let answered =
                wait_until("answers to a process", SETTLED, || ping(to).map_err(|error| last = Some(error)).is_ok());
            answered.map_err(|late| last.take().unwrap_or(late))?;
        }
        if row.beyond().is_empty() {
            let reached = row.family.beyond().into_iter().find(|beyond| ping(*beyond).is_ok());
            ensure!(reached.is_none(), "the plugins lose no routes any more: {reached:?}");
        }
    }
    caller.del(&result)?;
    netns::remove(caller.id)?;
    ensure!(wires.stand()?, "the plugins took the wires away");
    Ok(seen)
}

/// The guest has the addresses and the MAC that the reply to Attach told.
fn as_promised(guest: &Guest, nic: &Nic, family: Family) -> Result<()> {
    let mut promised: Vec<_> = nic.addresses.iter().map(|address| address.ip()).collect();
    promised.sort_unstable();
    let own = addresses(guest.netns(), "eth0")?;
    ensure!(own == promised, "the guest has {own:?}, promised were {promised:?}");
    ensure!(own.iter().any(IpAddr::is_ipv4) == (family != Family::V6), "IPv4 or not: {own:?}");
    ensure!(own.iter().any(IpAddr::is_ipv6) == (family != Family::V4), "IPv6 or not: {own:?}");
    Ok(())
}

fn traffic(guest: Place<'_>, nic: &Nic, wires: &Wires, row: &Row) -> Result<()> {
    let far: Option<PathBuf> = wires.far();
    for beyond in row.beyond() {
        small_pings(guest, None, beyond).context("through the gateway")?;
    }
    for there in row.family.far() {
        let own = nic.addresses.iter().map(|address| address.ip()).find(|own| own.is_ipv4() == there.is_ipv4());
        let own = own.context("no address of a family")?;
        pings(guest, there, nic.mtu).context("from the guest")?;
        pings(far.as_deref(), own, nic.mtu).context("to the guest")?;
        bulk(guest, far.as_deref(), there, row.shape.bulk).context("a connection of the guest")?;
        bulk(far.as_deref(), guest, own, row.shape.bulk).context("a connection to the guest")?;
    }
    Ok(())
}
