//! The data paths beside one another: time per small frame, and per MiB of TCP, at the tap.
//!
//! One pod for each path on the node's bridge, all there at once and measured in turn. The bench has their taps in its
//! hands, as QEMU without vhost has, and a peer in a namespace of its own on the bridge.
//! What joins tap and link by default is to cost no more than a bridge; the other rows are there to choose it by.
//!
//! - Small frames: written to the tap one by one and counted by the peer's link; or sent by the peer and read off the
//!   tap. Every path carries them at the same cost but for what joins tap and link.
//! - TCP: the guest's stack is a namespace whose own tap the bench copies to and from the pod's, with virtio headers
//!   and offloads as QEMU and a guest agree on them, in place of QEMU's copying to and from the guest's memory. This
//!   dilutes the difference as QEMU would.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};
use proto::tap::{Attach, DataPath, MacAddr, PodId};
use tests::case::Bed;
use tests::command::sh;
use tests::net_node::{attach, pod_id};
use tests::netns::{self, inside, run_in};
use tests::node::Node;
use tests::raw::{create_tap_with_header, packet_socket, take_offloads};
use tests::taken::TakenTap;
use tests::wait::wait_for;

use super::report::{Pair, Row};
use super::timed;

const ROUNDS: usize = 9;
const PATHS: [DataPath; 3] = [DataPath::Bridge, DataPath::Tc, DataPath::Macvtap];
/// Samples of a round, of which the least counts: whatever else runs on the machine only adds to it.
const SAMPLES: usize = 21;
const TCP_SAMPLES: usize = 9;
/// Fewer than any tap has room for, and soon sent, so that most samples are taken without a break.
const FRAMES: u32 = 250;
/// As short as Ethernet has them.
const FRAME_LEN: usize = 60;
const MIB: usize = 16;
const PEER: &str = "vt-peer";
const PEER_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 250);
/// Nobody's: frames for it reach the peer's link, whose stack drops them without a word.
const SINK_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 251);
const PORT: u16 = 5001;
const ARRIVAL: Duration = Duration::from_secs(20);
/// How long a pump waits before it looks whether it is to end.
const LOOK_MS: u16 = 20;

/// What is measured, in the order of the rows.
#[derive(Debug, Clone, Copy)]
struct Costs {
    frame_out: f64,
    frame_in: f64,
    tcp_out: f64,
    tcp_in: f64,
}

/// A pod, and the namespace that stands for its guest's stack.
struct Subject {
    pod: PodId,
    tap: TakenTap,
    mac: MacAddr,
    ip: Ipv4Addr,
    guest: PathBuf,
    guest_tap: OwnedFd,
}

struct Peer {
    netns: PathBuf,
    mac: MacAddr,
    /// On its link.
    socket: OwnedFd,
    /// Of its links, as text.
    counters: File,
}

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let subjects: Vec<Subject> =
        (900..).zip(PATHS).map(|(n, path)| Subject::set(bed, node, n, path)).collect::<Result<_>>()?;
    let peer = Peer::set()?;
    for subject in &subjects {
        subject.wait_connected(&peer)?;
    }
    let rounds: Vec<Vec<Costs>> = (0..ROUNDS).map(|_| round(&subjects, &peer)).collect::<Result<_>>()?;
    for subject in subjects {
        subject.end(node)?;
    }
    peer.end()?;
    let [bridge, tc, macvtap] = PATHS;
    let row = |name, unit, target, of: fn(&Costs) -> f64, ours, baseline| {
        let at = |path| PATHS.iter().position(|at| *at == path);
        let cost = |round: &Vec<Costs>, path| at(path).and_then(|at| round.get(at)).map_or(0.0, of);
        let pairs = rounds.iter().map(|round| Pair { ours: cost(round, ours), baseline: cost(round, baseline) });
        Row { name, unit, target, pairs: pairs.collect() }
    };
    let frame_out: fn(&Costs) -> f64 = |costs| costs.frame_out;
    let frame_in: fn(&Costs) -> f64 = |costs| costs.frame_in;
    let tcp_out: fn(&Costs) -> f64 = |costs| costs.tcp_out;
    let tcp_in: fn(&Costs) -> f64 = |costs| costs.tcp_in;
    Ok(vec![
        row("small frame from the guest: tc / bridge", "ns", Some(1.0), frame_out, tc, bridge),
        row("(small frame from the guest: macvtap / tc)", "ns", None, frame_out, macvtap, tc),
        row("small frame to the guest: tc / bridge", "ns", Some(1.0), frame_in, tc, bridge),
        row("(small frame to the guest: macvtap / tc)", "ns", None, frame_in, macvtap, tc),
        row("MiB of TCP from the guest: tc / bridge", "us", Some(1.1), tcp_out, tc, bridge),
        row("(MiB of TCP from the guest: macvtap / tc)", "us", None, tcp_out, macvtap, tc),
        row("MiB of TCP to the guest: tc / bridge", "us", Some(1.1), tcp_in, tc, bridge),
        row("(MiB of TCP to the guest: macvtap / tc)", "us", None, tcp_in, macvtap, tc),
    ])
}

/// The costs of each subject, sampled in turn.
fn round(subjects: &[Subject], peer: &Peer) -> Result<Vec<Costs>> {
    let [frame_out, frame_in] = [Subject::frames_out, Subject::frames_in]
        .map(|sample| in_turn(subjects, SAMPLES, |subject| sample(subject, peer)));
    let [tcp_out, tcp_in] =
        [false, true].map(|to_guest| in_turn(subjects, TCP_SAMPLES, |subject| subject.transfer(peer, to_guest)));
    let (frame_out, frame_in, tcp_out, tcp_in) = (frame_out?, frame_in?, tcp_out?, tcp_in?);
    let costs = frame_out.into_iter().zip(frame_in).zip(tcp_out).zip(tcp_in);
    Ok(costs.map(|(((frame_out, frame_in), tcp_out), tcp_in)| Costs { frame_out, frame_in, tcp_out, tcp_in }).collect())
}

/// The least of the samples of each subject; nobody is always first.
fn in_turn(subjects: &[Subject], samples: usize, sample: impl Fn(&Subject) -> Result<f64>) -> Result<Vec<f64>> {
    let mut sampled = vec![Vec::new(); subjects.len()];
    for turn in 0..samples {
        for place in 0..subjects.len() {
            let at = (turn + place) % subjects.len();
            let (subject, sampled) = subjects.get(at).zip(sampled.get_mut(at)).context("a subject")?;
            sampled.push(sample(subject)?);
        }
    }
    sampled.into_iter().map(|samples: Vec<f64>| samples.into_iter().reduce(f64::min).context("no sample")).collect()
}

impl Subject {
    fn set(bed: &Bed, node: &Node, n: u32, data_path: DataPath) -> Result<Self> {
        let pod = pod_id(n)?;
        let net = node.net.attach_as(Attach { data_path: Some(data_path), ..attach(&pod) })?;
        let nic = net.nics.first().context("no NIC")?;
        let ip = nic
            .addresses
            .iter()
            .find_map(|at| if let ipnetwork::IpNetwork::V4(at) = at { Some(at.ip()) } else { None });
        let ip = ip.context("no IPv4 address")?;
        let tap = TakenTap::of(bed, &node.net, &pod)?;
        let guest = netns::create(&guest_name(&pod))?;
        let guest_tap = inside(&guest, || create_tap_with_header("eth0", tap.header_len()))?;
        for tap in [tap.descriptor(), guest_tap.as_fd()] {
            take_offloads(tap)?;
        }
        run_in(&guest, &format!("ip link set eth0 address {} mtu {} up", nic.mac, nic.mtu))?;
        run_in(&guest, &format!("ip addr add {ip}/24 dev eth0"))?;
        Ok(Self { pod, tap, mac: nic.mac, ip, guest, guest_tap })
    }

    /// The kernel takes up to a second to let frames out of a tap that has just been opened.
    fn wait_connected(&self, peer: &Peer) -> Result<()> {
        wait_for("frame to the guest", ARRIVAL, || {
            write(&peer.socket, &frame(self.mac, peer.mac, SINK_IP, self.ip))?;
            Ok(self.tap.receive(Duration::from_millis(20))?.is_some().then_some(()))
        })
    }

    fn end(self, node: &Node) -> Result<()> {
        drop((self.tap, self.guest_tap));
        netns::remove(&guest_name(&self.pod))?;
        node.net.detach(&self.pod)
    }

    /// Nanoseconds per frame to the peer, from the first write until the last is counted.
    fn frames_out(&self, peer: &Peer) -> Result<f64> {
        let frame = frame(peer.mac, self.mac, self.ip, SINK_IP);
        let all = peer.received()? + u64::from(FRAMES);
        let deadline = Instant::now() + ARRIVAL;
        let (micros, ()) = timed(|| {
            for _ in 0..FRAMES {
                self.tap.send(&frame)?;
            }
            while peer.received()? < all {
                ensure!(Instant::now() < deadline, "frames were lost on their way to the peer");
            }
            Ok(())
        })?;
        Ok(micros * 1e3 / f64::from(FRAMES))
    }

    /// Nanoseconds per frame from the peer, until all are read off the tap.
    fn frames_in(&self, peer: &Peer) -> Result<f64> {
        let frame = frame(self.mac, peer.mac, SINK_IP, self.ip);
        // What the network says by itself.
        while self.tap.receive(Duration::ZERO)?.is_some() {}
        let (micros, ()) = timed(|| {
            for _ in 0..FRAMES {
                write(&peer.socket, &frame)?;
            }
            let mut received = 0;
            while received < FRAMES {
                let next = self.tap.receive(ARRIVAL)?.context("frames were lost on their way to the guest")?;
                received += u32::from(next == frame);
            }
            anyhow::Ok(())
        })?;
        Ok(micros * 1e3 / f64::from(FRAMES))
    }

    /// Runs `work` while frames are copied between the pod's tap and the guest's.
    fn pumped<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (pod, guest) = (self.tap.descriptor(), self.guest_tap.as_fd());
            let pumps = [(pod, guest), (guest, pod)].map(|(from, to)| {
                let done = &done;
                scope.spawn(move || pump(from, to, done))
            });
            let outcome = work();
            done.store(true, Ordering::Relaxed);
            for pump in pumps {
                joined(pump)?;
            }
            outcome
        })
    }

    /// Microseconds per MiB of a connection that the guest makes.
    fn transfer(&self, peer: &Peer, to_guest: bool) -> Result<f64> {
        self.pumped(|| self.transfer_pumped(peer, to_guest))
    }

    fn transfer_pumped(&self, peer: &Peer, to_guest: bool) -> Result<f64> {
        let listener = inside(&peer.netns, || Ok(TcpListener::bind((PEER_IP, PORT))?))?;
        let (micros, ()) = timed(|| {
            std::thread::scope(|scope| {
                let server = scope.spawn(|| {
                    let (stream, _guest) = listener.accept()?;
                    carry(stream, to_guest)
                });
                let stream = inside(&self.guest, || {
                    Ok(TcpStream::connect_timeout(&SocketAddr::from((PEER_IP, PORT)), ARRIVAL)?)
                })?;
                carry(stream, !to_guest)?;
                joined(server)
            })
        })?;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        Ok(micros / MIB as f64)
    }
}

impl Peer {
    fn set() -> Result<Self> {
        let netns = netns::create(PEER)?;
        sh(&format!("ip link add vt-peer0 mtu 1450 type veth peer name eth0 mtu 1450 netns {PEER}"))?;
        sh("ip link set vt-peer0 master cni0 up")?;
        run_in(&netns, &format!("ip addr add {PEER_IP}/24 dev eth0"))?;
        run_in(&netns, "ip link set eth0 up")?;
        let link = link(&netns)?;
        let mac = link["address"].as_str().context("no address")?.parse()?;
        let (socket, counters) = inside(&netns, || {
            // Of the thread's namespace when it is opened.
            Ok((packet_socket("eth0")?, File::open("/proc/thread-self/net/dev")?))
        })?;
        Ok(Self { netns, mac, socket, counters })
    }

    /// Its link goes with it.
    fn end(self) -> Result<()> {
        drop((self.socket, self.counters));
        netns::remove(PEER)
    }

    /// How many frames its link received.
    fn received(&self) -> Result<u64> {
        let mut text = [0; 4096];
        let len = self.counters.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(text.get(..len).unwrap_or_default())?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("eth0:")).context("no counters")?;
        Ok(line.split_whitespace().nth(1).context("no counter of packets")?.parse()?)
    }
}

fn guest_name(pod: &PodId) -> String {
    format!("vt-guest-{pod}")
}

fn link(netns: &Path) -> Result<serde_json::Value> {
    let links: serde_json::Value = serde_json::from_str(&run_in(netns, "ip -s -j link show eth0")?)?;
    links.get(0).cloned().context("no link")
}

/// One end of a connection: sends all and waits until it is taken, or takes all and says so.
fn carry(mut stream: TcpStream, sends: bool) -> Result<()> {
    let mut buffer = vec![0; 256 * 1024];
    let all = MIB << 20;
    let mut carried = 0;
    if sends {
        while carried < all {
            stream.write_all(&buffer)?;
            carried += buffer.len();
        }
        return Ok(stream.read_exact(&mut [0])?);
    }
    while carried < all {
        let len = stream.read(&mut buffer)?;
        ensure!(len > 0, "the connection ended at {carried} of {all} bytes");
        carried += len;
    }
    Ok(stream.write_all(&[1])?)
}

fn pump(from: BorrowedFd<'_>, to: BorrowedFd<'_>, done: &AtomicBool) -> Result<()> {
    let mut buffer = vec![0; 64 + (1 << 16)];
    while !done.load(Ordering::Relaxed) {
        match read(from, &mut buffer) {
            Ok(len) => match write(to, buffer.get(..len).context("longer than the buffer")?) {
                // As on any link, what does not fit is lost.
                Ok(_) | Err(Errno::EAGAIN | Errno::ENOBUFS) => {}
                Err(cause) => return Err(cause).context("a frame is not taken"),
            },
            Err(Errno::EAGAIN) => wait_readable(from)?,
            Err(cause) => return Err(cause.into()),
        }
    }
    Ok(())
}

fn wait_readable(tap: BorrowedFd<'_>) -> Result<()> {
    poll(&mut [PollFd::new(tap, PollFlags::POLLIN)], PollTimeout::from(LOOK_MS))?;
    Ok(())
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread of the bench panicked"))?
}

/// A small UDP datagram.
fn frame(to: MacAddr, from: MacAddr, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut header =
        [&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0][..], &source.octets(), &destination.octets()].concat();
    let words = header.chunks(2).map(|word| word.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)));
    let sum: u32 = words.sum();
    // Twenty bytes carry over once.
    let sum = !((sum & 0xffff) + (sum >> 16));
    header.splice(10..12, sum.to_be_bytes().into_iter().skip(2));
    let udp = [0x13, 0x88, 0x13, 0x88, 0, 26, 0, 0];
    let mut frame = [&to.octets()[..], &from.octets(), &[8, 0], &header, &udp].concat();
    frame.resize(FRAME_LEN, 0);
    frame
}
