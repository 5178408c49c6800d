//! A veth with the servers on one end and a real client on the other, in a namespace of its own ([`GuestNetns`]).
//!
//! Beside the servers is the CNI's link, a second veth, with a router on its other end.

use std::future::Future;
use std::path::PathBuf;

use nix::net::if_::if_nametoindex;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::{OpenOptions, Receiver};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::*;
use crate::net::filter::guest_requests;
use crate::sys::bpf::Program;
use crate::sys::testbed::{CLIENT_DEADLINE, GuestNetns, apart, host, ip};

pub(super) const ROUTER_MAC: &str = "02:00:00:00:00:fd";

/// What [`supervise`] is told: the servers from now on, and where it says that they serve.
type Order = (Servers, oneshot::Sender<()>);

/// The servers on one end of a veth, and the client's end.
pub(super) struct Link {
    /// Where the client's end is.
    pub(super) guest: GuestNetns,
    /// What the client's script says.
    said: BufReader<Receiver>,
    service: mpsc::Sender<Order>,
}

impl Link {
    /// Serves from now on, in place of the servers that do so now: as a restart of the daemon does.
    pub(super) async fn serve(&self, servers: Servers) {
        let (ready, served) = oneshot::channel();
        assert!(self.service.send((servers, ready)).await.is_ok(), "the service is there as long as the link");
        served.await.unwrap();
    }

    /// A socket on the client's end that hears and says any frames.
    pub(super) async fn socket(&self) -> PacketSocket {
        let open = || PacketSocket::open(if_nametoindex("eth0").unwrap(), &Program::always(u32::MAX)).unwrap();
        self.guest.netns.visit(open).await.unwrap()
    }

    pub(super) async fn ip(&self, args: &str) -> String {
        let args: Vec<_> = args.split(' ').collect();
        let said = self.guest.run("ip", &args).await;
        let mut lines: Vec<_> = said.lines().map(without_details).collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// A script for a client to run, which may tell the test something by writing to `$said`.
    pub(super) async fn script(&self, text: &str) -> String {
        let path = self.guest.path("script");
        let text = format!("#!/bin/sh\nsaid={}\n{text}\n", self.guest.path("said"));
        // Written by a process of its own: were it open for writing here, a child that another test starts at that moment
        // would hold it open too, and running it would end in ETXTBSY.
        host("/bin/sh", &["-c", r#"printf %s "$1" > "$0" && chmod 755 "$0""#, &path, &text]).await;
        path
    }

    /// The next line that the client's script says, as soon as it does.
    pub(super) async fn said(&mut self) -> String {
        let mut line = String::new();
        let read = self.said.read_line(&mut line);
        timeout(CLIENT_DEADLINE, read).await.expect("the client's script is run").unwrap();
        line.trim_end().to_owned()
    }
}

/// Serves on a veth, apart from the machine, while `client` runs.
pub(super) fn with_servers<F: Future<Output = ()>>(servers: Servers, client: impl FnOnce(Link) -> F + Send) {
    apart(async || {
        let (guest, (service, orders)) = (GuestNetns::new(), mpsc::channel(1));
        let said = guest.path("said");
        mkfifo(said.as_str(), Mode::S_IRWXU).unwrap();
        // With an end to write to that stays open, no end of file is read between two lines.
        let said = OpenOptions::new().read_write(true).open_receiver(said).unwrap();
        let link = Link { guest, said: BufReader::new(said), service };
        set_up(&link).await;
        let netns = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
        let supervisor = tokio::spawn(supervise(netns.into(), orders));
        link.serve(servers).await;
        client(link).await;
        timeout(CLIENT_DEADLINE, supervisor).await.expect("the service ends when it is told to").unwrap();
    });
}

/// Serves with the servers that came last, until the link is gone.
async fn supervise(netns: PathBuf, mut orders: mpsc::Receiver<Order>) {
    let mut order = orders.recv().await;
    while let Some((servers, ready)) = order {
        let tap = PacketSocket::open(if_nametoindex("server").unwrap(), &guest_requests(&[])).unwrap();
        let cancel = CancellationToken::new();
        let link = servers.open_link(&netns).await.unwrap();
        let service = tokio::spawn(serve(Sockets { tap, link }, servers, cancel.clone()));
        ready.send(()).unwrap();
        order = orders.recv().await;
        cancel.cancel();
        service.await.unwrap();
    }
}

async fn set_up(link: &Link) {
    host("hostname", &["localhost"]).await;
    ip(&format!("link add server type veth peer name eth0 address {MAC} netns guest"));
    ip("link set server up");
    ip(&format!("link add eth0 type veth peer name router address {ROUTER_MAC}"));
    ip("addr add fd00::1/64 dev router nodad");
    std::fs::write("/proc/sys/net/ipv6/conf/router/forwarding", "1").unwrap();
    for name in ["eth0", "router"] {
        ip(&format!("link set {name} up"));
    }
    // Addresses are of use at once.
    link.guest.run("sh", &["-c", "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad"]).await;
    link.ip("link set eth0 up").await;
    // The kernel makes a link ready in its own time, and drops what is sent before.
    let ready = async {
        for name in ["server", "eth0", "router"] {
            while !is_up(&host("ip", &["link", "show", name]).await) {}
        }
        while !is_up(&link.ip("link show eth0").await) {}
        // The router hears who asks for it a while after it was given its address, too.
        while !host("ip", &["-6", "maddr", "show", "dev", "router"]).await.contains("ff02::1:ff00:1") {}
    };
    timeout(CLIENT_DEADLINE, ready).await.expect("links and router are ready");
}

/// A line of `ip` without what a route's text does not need: who made it and more, and the number that its next hop has since networkd 257.
fn without_details(line: &str) -> String {
    let line = line.split(" proto ").next().unwrap_or(line).trim();
    let Some((to, rest)) = line.split_once(" nhid ") else { return line.to_owned() };
    let (_number, way) = rest.split_once(' ').expect("a way behind the number");
    format!("{to} {way}")
}

fn is_up(shown: &str) -> bool {
    shown.contains("qdisc noqueue state UP")
}
