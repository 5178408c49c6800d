//! Hostile guests: whatever a guest with the tap in its hands sends, its neighbour and the node see none of it, and
//! `tapmanager` neither grows nor answers more than it grants.
//!
//! Each attack is sent on every data path. What is recorded on the node's links and behind the neighbour's tap is
//! compared frame by frame with what was sent. The same forgeries by a guest that is not held to its identity are seen,
//! so they would have been here.

mod attacks;

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use proto::tap::{Attach, DataPath, MacAddr, PodNet};
use tests::capture::Capture;
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::sh;
use tests::guest::{Guest, ping};
use tests::net_node::{NetNode, attach, pod_id};
use tests::netns::run_in;
use tests::pace::Deadline;
use tests::taken::TakenTap;
use tests::wait::wait_for;

use self::attacks::{Attack, Party};

const DEADLINE: Duration = Duration::from_secs(480);
/// For a frame that is certainly on its way.
const ARRIVAL: Duration = Duration::from_secs(10);
/// What `tapmanager` may grow by while it is flooded, in KiB: less than one page for each frame of a flood.
const GROWTH_KIB: u64 = 8 * 1024;
/// How many frames of each kind a flood has.
const FLOOD: u32 = 20_000;
/// How many requests `tapmanager` answers at once, and how often one more.
const BURST: u32 = 64;
const REFILL: Duration = Duration::from_millis(25);

pub(super) const CASES: &[Case] = &[
    Case { name: "net::hostile::nobody_sees_forgeries_on_tc", deadline: DEADLINE, run: |bed| held(bed, DataPath::Tc) },
    Case {
        name: "net::hostile::nobody_sees_forgeries_on_a_bridge",
        deadline: DEADLINE,
        run: |bed| held(bed, DataPath::Bridge),
    },
    Case {
        name: "net::hostile::nobody_sees_forgeries_on_a_macvtap",
        deadline: DEADLINE,
        run: |bed| held(bed, DataPath::Macvtap),
    },
    Case { name: "net::hostile::forgeries_cross_where_they_may", deadline: DEADLINE, run: free },
    Case { name: "net::hostile::a_flood_of_requests_is_answered_at_its_pace", deadline: DEADLINE, run: flood },
];

/// Two pods on one bridge: a good one, and one whose guest is taken over.
struct Scene {
    node: NetNode,
    victim: Guest,
    tap: TakenTap,
    hostile: Party,
    neighbour: Party,
    gateway: Party,
    /// The node's end of the hostile pod's link.
    port: String,
}

impl Scene {
    fn set(bed: &Bed, data_path: DataPath, anti_spoof: Option<bool>) -> Result<Self> {
        let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
        let (good, bad) = (pod_id(1)?, pod_id(2)?);
        let net = node.attach(&good)?;
        let victim = Guest::start(bed, &node, &good, net.nics.first().context("no NIC")?, "victim")?;
        victim.udhcpc()?;
        let before = ports()?;
        let ask = Attach { data_path: Some(data_path), anti_spoof, ..attach(&bad) };
        let bad_net = node.attach_as(ask)?;
        ensure!(stands_as(&bad_net)? == data_path, "not joined as {data_path:?}");
        let port = ports()?.into_iter().find(|port| !before.contains(port)).context("no new port")?;
        let tap = TakenTap::of(bed, &node, &bad)?;
        let gateway = Party { mac: mac_of_link("cni0")?, v4: gateway_of(&net)?, v6: "fd00:77::1".parse()? };
        let (hostile, neighbour) = (party(&bad_net)?, party(&net)?);
        let scene = Self { node, victim, tap, hostile, neighbour, gateway, port };
        scene.wait_connected()?;
        Ok(scene)
    }

    /// The kernel takes up to a second to let frames out of a tap that has just been opened.
    fn wait_connected(&self) -> Result<()> {
        wait_for("answer of the gateway", ARRIVAL, || {
            send(&self.tap, &attacks::who_has(self.hostile, self.gateway.v4))?;
            while let Some(frame) = self.tap.receive(Duration::ZERO)? {
                if attacks::is_arp_reply(&frame, self.hostile, self.gateway) {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
    }

    fn attacks(&self) -> Vec<Attack> {
        attacks::all(self.hostile, self.neighbour, self.gateway)
    }

    /// Asks the neighbour for its address as every host may, and waits for the answer: all that was sent before has
    /// arrived by then, or never will. Asks again, as hosts do: behind a flood the kernel of a busy machine may drop one. Returns the
    /// request.
    fn exchange(&self) -> Result<Vec<u8>> {
        let request = attacks::who_has(self.hostile, self.neighbour.v4);
        let deadline = Deadline::within(ARRIVAL);
        while let Some(look) = deadline.next_look() {
            send(&self.tap, &request)?;
            let answer = self.tap.receive(look)?;
            if answer.is_some_and(|frame| attacks::is_arp_reply(&frame, self.hostile, self.neighbour)) {
                return Ok(request);
            }
        }
        bail!("the neighbour does not answer")
    }

    fn end(mut self) -> Result<()> {
        drop(self.tap);
        self.victim.kill()?;
        self.node.detach(&pod_id(1)?)?;
        self.node.detach(&pod_id(2)?)?;
        self.node.tapmanager.terminate()?;
        Ok(())
    }

    fn resident_kib(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.node.tapmanager.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

/// A guest that is held to its identity, as it is if nobody says otherwise.
fn held(bed: &Bed, data_path: DataPath) -> Result<()> {
    let scene = Scene::set(bed, data_path, None)?;
    let leases = leases()?;
    let at_node: Vec<Capture> = ports()?.iter().map(|link| Capture::start(None, link)).collect::<Result<_>>()?;
    let at_neighbour = Capture::start(Some(scene.victim.netns()), "eth0")?;
    let resident = scene.resident_kib()?;

    let mut sent = Vec::new();
    for Attack { frame, honest_at, .. } in scene.attacks() {
        // Each is cut off everywhere as well.
        for len in (0..=frame.len()).filter(|len| Some(*len) != honest_at) {
            sent.push(frame.get(..len).context("a length beyond the end")?.to_vec());
        }
    }
    for n in 0..FLOOD {
        sent.push(attacks::starving_discover(n));
        sent.push(attacks::storming_arp(n));
    }
    for frame in &sent {
        send(&scene.tap, frame)?;
    }
    let control = scene.exchange()?;

    let sent: HashSet<Vec<u8>> = sent.into_iter().collect();
    let at_neighbour = at_neighbour.stop()?;
    ensure!(at_neighbour.contains(&control), "the capture behind the neighbour's tap misses what crosses");
    let mut at_node: Vec<Vec<Vec<u8>>> = at_node.into_iter().map(Capture::stop).collect::<Result<_>>()?;
    ensure!(at_node.iter().all(|frames| frames.contains(&control)), "a capture on the node misses what crosses");
    at_node.push(at_neighbour);
    if let Some(seen) = at_node.iter().flatten().find(|frame| sent.contains(*frame)) {
        bail!("{data_path:?}: seen outside the pod: {seen:02x?}");
    }

    let growth = scene.resident_kib()?.saturating_sub(resident);
    ensure!(growth <= GROWTH_KIB, "tapmanager grew by {growth} KiB");
    ensure!(self::leases()? == leases, "the pool of addresses was eaten at: {:?}", self::leases()?);
    let known = sh("ip neigh show dev cni0")?;
    ensure!(!mentions(&known, scene.neighbour.v4, scene.hostile.mac), "the node was told lies: {known}");
    ensure!(sh("ip -o addr show dev cni0")?.contains("10.77.0.1/24"), "the node lost its address");
    scene.victim.ping(scene.gateway.v4.into())?;
    ping(None, scene.neighbour.v4.into())?;
    let known = scene.victim.run("ip neigh show dev eth0")?;
    ensure!(!mentions(&known, scene.gateway.v4, scene.hostile.mac), "the neighbour was told lies: {known}");
    Ok(())
}

/// The same frames of guests that are not held: those that only lie about who sends them cross, the others do not.
fn free(bed: &Bed) -> Result<()> {
    for data_path in DataPath::ALL {
        let scene = Scene::set(bed, data_path, Some(false))?;
        let at_port = Capture::start(None, &scene.port)?;
        let attacks = scene.attacks();
        for Attack { frame, .. } in &attacks {
            send(&scene.tap, frame)?;
        }
        scene.exchange()?;
        let seen: HashSet<Vec<u8>> = at_port.stop()?.into_iter().collect();
        for Attack { name, frame, lies, .. } in attacks {
            // A macvtap's frames are judged on their way out, where a tag still hides what is behind it.
            let crosses = lies && !(data_path == DataPath::Macvtap && name == attacks::TAGGED);
            let crossed = seen.contains(&frame) || seen.contains(&attacks::without_tag(&frame));
            ensure!(crossed == crosses, "{data_path:?}: {name}: crossed is {crossed}");
        }
        scene.end()?;
    }
    Ok(())
}

/// Requests that are answered, faster than an honest guest sends them.
fn flood(bed: &Bed) -> Result<()> {
    const LAST: u32 = FLOOD;
    let scene = Scene::set(bed, DataPath::Tc, None)?;
    let resident = scene.resident_kib()?;
    let started = Instant::now();
    let mut answers = 0;
    for n in 0..FLOOD {
        send(&scene.tap, &attacks::discover(scene.hostile.mac, n))?;
        while let Some(frame) = scene.tap.receive(Duration::ZERO)? {
            answers += u32::from(attacks::transaction_of_reply(&frame).is_some());
        }
    }
    // What was dropped is asked for again, as clients do; when the last request is answered, none is left.
    wait_for("answer to the last request", ARRIVAL, || {
        send(&scene.tap, &attacks::discover(scene.hostile.mac, LAST))?;
        while let Some(frame) = scene.tap.receive(Duration::from_millis(50))? {
            let transaction = attacks::transaction_of_reply(&frame);
            answers += u32::from(transaction.is_some());
            if transaction == Some(LAST) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })?;
    let granted = BURST + u32::try_from(started.elapsed().as_millis() / REFILL.as_millis())? + 1;
    ensure!(answers > BURST / 2, "hardly an answer: {answers}");
    ensure!(answers <= granted, "{answers} answers, and {granted} are granted in this time");
    let growth = scene.resident_kib()?.saturating_sub(resident);
    ensure!(growth <= GROWTH_KIB, "tapmanager grew by {growth} KiB");
    ensure!(scene.node.status()?.ready, "the daemon is busy with one guest");
    scene.victim.udhcpc().context("the neighbour's lease, meanwhile")?;
    Ok(())
}

/// How a pod's link and tap are joined, as the kernel has it.
fn stands_as(net: &PodNet) -> Result<DataPath> {
    let links = run_in(&net.netns, "ip -d -o link")?;
    let filters = run_in(&net.netns, "tc filter show dev tap0 ingress")?;
    let signs = [
        (links.contains(" macvtap "), DataPath::Macvtap),
        (links.contains("bridge_slave"), DataPath::Bridge),
        (filters.contains("mirred"), DataPath::Tc),
    ];
    signs.into_iter().find_map(|(there, data_path)| there.then_some(data_path)).context("not joined at all")
}

/// A frame that is no frame is refused, which is as good as dropped.
fn send(tap: &TakenTap, frame: &[u8]) -> Result<()> {
    match tap.send(frame) {
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(cause) => Err(cause).with_context(|| format!("the tap does not take {} bytes", frame.len())),
    }
}

fn party(net: &PodNet) -> Result<Party> {
    attacks::party(net.nics.first().context("no NIC")?).context("an address of each family")
}

fn gateway_of(net: &PodNet) -> Result<Ipv4Addr> {
    let routes = net.nics.first().context("no NIC")?.routes.iter();
    let gateway =
        routes.filter_map(|route| route.gateway).find_map(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None });
    gateway.context("no gateway")
}

/// The bridge and the node's ends of all pods' links.
fn ports() -> Result<Vec<String>> {
    let links = sh("ip -o link")?;
    let names = links.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    Ok(names.filter(|name| *name != "lo").map(str::to_owned).collect())
}

fn mac_of_link(link: &str) -> Result<[u8; 6]> {
    let shown = sh(&format!("ip -o link show {link}"))?;
    let mac: MacAddr =
        shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).context("no MAC")?.parse()?;
    Ok(mac.octets())
}

/// What the network's pool has given out.
fn leases() -> Result<BTreeSet<OsString>> {
    let dir = Path::new("/var/lib/cni/networks").join(cni::NETWORK);
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Whether a table of neighbours says that `ip` is at `mac`.
fn mentions(table: &str, ip: Ipv4Addr, mac: [u8; 6]) -> bool {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    table.lines().any(|line| line.starts_with(&format!("{ip} ")) && line.contains(&mac))
}
