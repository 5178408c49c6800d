//! The node and the pod of a test, and what can be sent and heard at both ends.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkMessage, State};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use nix::unistd::{read, write};
use proto::tap::{DataPath, Nic, NicKind, Tap};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::faults::Faults;
use crate::net::filter::tests::ethernet;
use crate::net::{Choices, JoinError, Joined, Opened, Reported, join, tap_name};
use crate::sys::bpf::Program;
use crate::sys::link::{self, Link};
use crate::sys::netlink::Netlink;
use crate::sys::netns::Netns;
use crate::sys::packet::PacketSocket;
use crate::sys::tap::TapError;
use crate::sys::tc::{self, Hook};
use crate::sys::testbed::{PATIENCE, ip, within};
use common::Ready;

/// Size of the header that a tap puts before each frame.
const VNET_HEADER: usize = 12;

/// Opens taps as a hand-off does, as soon as they are free.
pub(super) async fn open_taps(netns: &Netns, nics: &[Nic], vhost: bool) -> Result<Vec<Opened>, JoinError> {
    let nics = nics.to_vec();
    netns.visit(move || once_free(|| crate::net::open_taps(&nics, vhost))).await?
}

/// The same, of taps that a machine has.
pub(super) async fn refused_taps(netns: &Netns, nics: &[Nic]) -> JoinError {
    let nics = nics.to_vec();
    netns.visit(move || crate::net::open_taps(&nics, false)).await.expect("entered").expect_err("in use")
}

/// What opens a tap gives, once nobody has that tap. The machine that had it may be gone and the tap still in use: a
/// program that another test starts holds all that this process had open when it was forked, until it executes.
pub(super) fn once_free<T, E: Into<JoinError>>(open: impl Fn() -> Result<T, E>) -> Result<T, JoinError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match open().map_err(Into::into) {
            Err(JoinError::Tap(TapError::Busy { .. })) if Instant::now() < deadline => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// A pod whose `eth0` is connected to the node's `host0`.
pub(super) struct Bed {
    /// The pod's namespace.
    pub(super) pod: Netns,
    /// The node's end of the veth.
    pub(super) far: Wire,
}

/// An end that sends and hears frames: the guest's tap, or a packet socket.
pub(super) enum Wire {
    Tap(Ready),
    Socket(PacketSocket),
}

/// Links, addresses and routes.
pub(super) type Seen = (Vec<Link>, Vec<link::Address>, Vec<link::KernelRoute>);

impl Bed {
    pub(super) fn new() -> Self {
        let pod = Netns::create(Path::new("/run/netns/pod")).expect("created");
        let events = Events::here();
        // The kernel hurries with a link whose peer has another index, and else takes up to a second.
        ip("link add host0 index 100 address 02:00:00:00:00:01 mtu 1450 type veth \
            peer name eth0 address 8e:01:02:03:04:05 mtu 1450 netns pod");
        ip("link set host0 up addrgenmode none");
        let in_pod = || {
            let events = Events::here();
            ip("link set eth0 up addrgenmode none");
            events.until_up(&["eth0".to_owned()]);
            ip("addr add 10.77.0.2/24 dev eth0");
            ip("addr add fd00:77::2/64 dev eth0 nodad");
            ip("route add default via 10.77.0.1");
        };
        pod.inside(in_pod).expect("entered");
        events.until_up(&["host0".to_owned()]);
        Self { pod, far: Wire::of_link("host0") }
    }

    pub(super) fn reported(&self) -> Reported {
        let addresses = vec!["10.77.0.2/24".parse().unwrap(), "fd00:77::2/64".parse().unwrap()];
        let links = vec!["eth0".parse().unwrap()];
        Reported { network: "pods".to_owned(), links, addresses, ..Reported::default() }
    }

    pub(super) async fn join(&self) -> Result<Joined, JoinError> {
        join(&self.pod, &[self.reported()], choices(), &Arc::new(Faults::none())).await
    }

    /// The ends of the taps that a guest would have, ready for frames.
    pub(super) async fn guests(&self, count: usize) -> Vec<Wire> {
        let events = self.pod.inside(Events::here).expect("entered");
        let taps = open_taps(&self.pod, &self.nics(count), false).await.expect("free taps");
        let names: Vec<String> = (0..count).map(|place| tap_name(place).to_string()).collect();
        events.until_up(&names);
        taps.into_iter().flat_map(|nic| nic.queues).map(Wire::of_tap).collect()
    }

    /// NICs of one queue, of which only that is of interest.
    pub(super) fn nics(&self, count: usize) -> Vec<Nic> {
        let nic = |place: usize| Nic {
            name: if place == 0 { "eth0".to_owned() } else { format!("net{place}") }.parse().expect("a name"),
            network: "pods".to_owned(),
            kind: NicKind::Tap(Tap { data_path: DataPath::Tc, queues: 1 }),
            mac: "8e:01:02:03:04:05".parse().expect("an address"),
            mtu: 1450,
            addresses: vec![],
            routes: vec![],
        };
        (0..count).map(nic).collect()
    }

    pub(super) async fn guest(&self) -> Wire {
        let [guest] = <[Wire; 1]>::try_from(self.guests(1).await).ok().expect("one");
        guest
    }

    /// The guest's machine ends. While another test of this process starts a program, that has the tap for a moment
    /// too: the link tells when the last one let it go.
    pub(super) fn leave(&self, guest: Wire) {
        let events = self.pod.inside(Events::here).expect("entered");
        drop(guest);
        events.until_state(State::Down, &[tap_name(0).to_string()]);
    }

    pub(super) fn state(&self) -> Seen {
        let look = || {
            let mut netlink = Netlink::open().expect("a socket");
            let links = link::links(&mut netlink).expect("links");
            let addresses = link::addresses(&mut netlink).expect("addresses");
            (links, addresses, link::routes(&mut netlink).expect("routes"))
        };
        self.pod.inside(look).expect("entered")
    }

    pub(super) fn index(&self, name: &str) -> u32 {
        self.state().0.iter().find(|link| link.name.as_str() == name).expect("a link").index
    }

    pub(super) fn ours(&self, name: &str) -> tc::OurFilters {
        let index = self.index(name);
        let look = || tc::our_filters(&mut Netlink::open().expect("a socket"), index, Hook::Ingress).expect("filters");
        self.pod.inside(look).expect("entered")
    }
}

impl Wire {
    /// Of a link in this thread's namespace.
    pub(super) fn of_link(name: &str) -> Self {
        let links = link::links(&mut Netlink::open().expect("a socket")).expect("links");
        let link = links.iter().find(|link| link.name.as_str() == name).expect("a link");
        Self::Socket(PacketSocket::open(link.index, &Program::always(u32::MAX)).expect("opened"))
    }

    pub(super) fn of_tap(tap: OwnedFd) -> Self {
        Self::Tap(Ready::register(nonblocking(tap)).expect("registered"))
    }

    pub(super) async fn send(&self, frame: &[u8]) {
        match self {
            Self::Socket(socket) => within("send", socket.send(frame)).await.expect("sent"),
            Self::Tap(tap) => {
                let bytes = [&[0; VNET_HEADER], frame].concat();
                let sent = tap.write(|fd| Ok(write(fd, &bytes)?));
                assert_eq!(within("send", sent).await.expect("sent"), bytes.len());
            }
        }
    }

    async fn recv(&self) -> Vec<u8> {
        match self {
            Self::Socket(socket) => hear(socket).await,
            Self::Tap(tap) => {
                let mut buf = [0; 4096];
                let len = within("frame", tap.read(|fd| Ok(read(fd, &mut buf)?))).await;
                buf[VNET_HEADER..len.expect("received")].to_vec()
            }
        }
    }

    /// What comes in before the next marker.
    pub(super) async fn until_marker(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let frame = self.recv().await;
            if frame == marker() {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// Whether `frame`, with or without a VLAN tag, comes in before the next marker, or is one.
    pub(super) async fn hears(&self, frame: &[u8]) -> bool {
        if frame == marker() {
            self.until_marker().await;
            return true;
        }
        self.until_marker().await.iter().any(|heard| heard == frame || untagged(heard) == frame)
    }
}

pub(super) fn nonblocking(tap: OwnedFd) -> OwnedFd {
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&tap, nix::fcntl::FcntlArg::F_SETFL(flags)).expect("non-blocking");
    tap
}

pub(super) async fn hear(socket: &PacketSocket) -> Vec<u8> {
    let mut buf = [0; 4096];
    let len = within("frame", socket.recv(&mut buf)).await.expect("received");
    buf[..len].to_vec()
}

/// A frame that crosses and means nothing (EtherType for local experiments, IEEE 802).
pub(super) fn marker() -> Vec<u8> {
    ethernet([2, 9, 9, 9, 9, 9], 0x88b5, &[0; 46])
}

pub(super) fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
}

pub(super) fn untagged(frame: &[u8]) -> Vec<u8> {
    if frame.get(12..14) == Some(&[0x81, 0]) { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() }
}

/// News of the links of one namespace.
pub(super) struct Events(Socket);

impl Events {
    /// Of this thread's namespace, from now on.
    pub(super) fn here() -> Self {
        let mut socket = Socket::new(NETLINK_ROUTE).expect("a socket");
        let links = 1; // RTMGRP_LINK
        socket.bind(&SocketAddr::new(0, links)).expect("bound");
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(10, 0)).expect("a deadline");
        Self(socket)
    }

    /// Until these links carry frames. The kernel gives a link its queue some time after it has a carrier, and then
    /// says that it is operationally up; what is sent before that is dropped.
    pub(super) fn until_up(&self, names: &[String]) {
        self.until_state(State::Up, names);
    }

    fn until_state(&self, state: State, names: &[String]) {
        let mut missing: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let state = LinkAttribute::OperState(state);
        self.until(|message| {
            if let RouteNetlinkMessage::NewLink(link) = message
                && link.attributes.contains(&state)
            {
                missing.retain(|name| !is(link, name));
            }
            missing.is_empty()
        });
    }

    pub(super) fn until_gone(&self, name: &str) {
        self.until_all_gone(&[name]);
    }

    /// Until these links are gone. As long as another test of this process starts a program, that has open what this one
    /// has closed already, and a tap lives as long as that.
    pub(super) fn until_all_gone(&self, names: &[&str]) {
        let mut missing: BTreeSet<&str> = names.iter().copied().collect();
        self.until(|message| {
            if let RouteNetlinkMessage::DelLink(link) = message
                // A port that leaves its bridge is told in the same words.
                && link.header.interface_family != AddressFamily::Bridge
            {
                missing.retain(|name| !is(link, name));
            }
            missing.is_empty()
        });
    }

    fn until(&self, mut wanted: impl FnMut(&RouteNetlinkMessage) -> bool) {
        loop {
            let mut bytes = Vec::with_capacity(65_536);
            self.0.recv(&mut bytes, 0).expect("news within 10 s");
            let message = NetlinkMessage::deserialize(&bytes).expect("a message");
            if let NetlinkPayload::InnerMessage(message) = message.payload
                && wanted(&message)
            {
                return;
            }
        }
    }
}

fn is(link: &LinkMessage, name: &str) -> bool {
    link.attributes.contains(&LinkAttribute::IfName(name.to_owned()))
}

pub(super) fn choices() -> Choices {
    Choices { data_path: proto::tap::DataPath::Tc, queues: 1, anti_spoof: false }
}
