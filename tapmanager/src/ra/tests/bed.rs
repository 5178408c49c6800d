//! A guest with real clients, its pod and the gateway, each in a network namespace of its own.
//!
//! The pod's end of the guest's link stands for the tap and its end of the gateway's for the CNI's link. Between them the
//! test carries frames as the data path does: all but what is answered in the pod goes over.

use std::fs;

use nix::net::if_::if_nametoindex;
use tokio::process::Command;
use tokio::time::timeout;

use super::*;
use crate::dhcp6;
use crate::sys::packet::PacketSocket;
use crate::sys::testbed::{CLIENT_DEADLINE, GuestNetns, apart, ip, output};

/// Where the gateway leads.
pub(super) const FAR: &str = "2001:db8:ffff::1";

/// The guest's side.
pub(super) struct Guest(GuestNetns);

impl Guest {
    pub(super) fn path(&self, name: &str) -> String {
        self.0.path(name)
    }

    /// A command line of the guest, for a shell.
    pub(super) fn command(&self, line: &str) -> Command {
        self.0.command_without_udev("sh", &["-c", &format!("exec {line}")])
    }

    pub(super) async fn run(&self, line: &str) -> String {
        output(line, self.command(line)).await
    }

    /// Lines of `ip -6`, in order, without what changes from run to run.
    pub(super) async fn ip(&self, line: &str) -> Vec<String> {
        let said = self.run(&format!("ip -6 -o {line}")).await;
        let plain = |line: &str| {
            let words = line.split_whitespace().filter(|word| *word != "\\");
            words.collect::<Vec<_>>().join(" ")
        };
        let mut lines: Vec<String> = said.lines().map(plain).collect();
        lines.sort_unstable();
        lines
    }

    /// The routes, without link-local ones and groups, and without lifetimes.
    pub(super) async fn routes(&self) -> Vec<String> {
        let cut = |line: String| line.split(" metric ").next().unwrap().to_owned();
        let all = self.ip("route show dev eth0").await.into_iter();
        all.filter(|line| !line.starts_with("fe80::/64") && !line.starts_with("ff00::")).map(cut).collect()
    }

    /// Waits until `look` sees what it wants in what a line of `ip -6` says.
    pub(super) async fn until(&self, line: &str, look: impl Fn(&str) -> bool) -> String {
        until(line, look, async || self.ip(line).await.join("\n")).await
    }

    /// The same, of a file.
    pub(super) async fn until_file(&self, path: &str, look: impl Fn(&str) -> bool) -> String {
        until(path, look, async || fs::read_to_string(path).unwrap_or_default()).await
    }

    /// Waits until the guest has just these global addresses, and may use them.
    pub(super) async fn has(&self, addresses: &[&str]) {
        let plain = |said: &str| {
            said.lines().count() == addresses.len()
                && addresses.iter().all(|address| said.contains(&format!("inet6 {address} ")))
                && !said.contains("tentative")
        };
        self.until("addr show dev eth0 scope global", plain).await;
    }

    /// The far side answers by way of the gateway.
    pub(super) async fn reaches_far_from(&self, from: &str) {
        self.run(&format!("busybox ping6 -q -c 1 -w 30 -I {from} {FAR}")).await;
    }
}

async fn until(what: &str, look: impl Fn(&str) -> bool, read: impl AsyncFn() -> String) -> String {
    let mut said = String::new();
    let looking = async {
        loop {
            said = read().await;
            if look(&said) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(CLIENT_DEADLINE, looking).await.is_err() {
        panic!("`{what}` goes on to say: {said}");
    }
    said
}

/// Gives `nic` to a guest whose link is up, and serves it while `test` runs. `gateway` makes the gateway, by `ip -n`.
pub(super) fn with_guest(nic: &Nic, gateway: &[&str], test: impl AsyncFnOnce(Guest) + Send) {
    with_lease(nic, Duration::from_secs(3600), gateway, test);
}

/// The same, where an address has to be asked for again so soon.
pub(super) fn with_lease(nic: &Nic, lease: Duration, gateway: &[&str], test: impl AsyncFnOnce(Guest) + Send) {
    let dns = &dns(&["10.96.0.10", "fd00:96::a"], &["default.svc.cluster.local", "cluster.local"]);
    let servers = (Server::new(nic, dns).unwrap(), dhcp6::Server::new(nic, dns, "web-0", lease).unwrap());
    apart(async || {
        let guest = Guest(GuestNetns::new());
        set_up(gateway);
        let socket =
            |name| PacketSocket::open(if_nametoindex(name).unwrap(), &crate::sys::bpf::Program::always(u32::MAX));
        let pump = tokio::spawn(carry(socket("tap0").unwrap(), socket("link0").unwrap(), servers));
        ip("-n guest link set eth0 up");
        test(guest).await;
        pump.abort();
        assert!(pump.await.unwrap_err().is_cancelled());
    });
}

fn set_up(gateway: &[&str]) {
    for line in [
        "netns add gateway",
        "link add tap0 type veth peer name eth0 address 02:00:00:00:00:01 netns guest",
        "link add link0 type veth peer name gw0 address 02:00:00:00:00:fe netns gateway",
    ] {
        ip(line);
    }
    // The pod's own stack takes no part.
    for link in ["tap0", "link0"] {
        fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "1").unwrap();
        ip(&format!("link set {link} up"));
    }
    ip("netns exec gateway sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.gw0.ndisc_notify=1");
    ip("-n gateway link set gw0 up");
    ip("-n gateway link set lo up");
    ip(&format!("-n gateway addr add {FAR}/128 dev lo"));
    for line in gateway {
        ip(&format!("-n gateway {line}"));
    }
}

/// The pod.
async fn carry(tap: PacketSocket, link: PacketSocket, (mut ra, mut dhcp6): (Server, dhcp6::Server)) {
    let (mut from_guest, mut from_link) = ([0; 65_535], [0; 65_535]);
    loop {
        tokio::select! {
            len = tap.recv(&mut from_guest) => {
                let frame = &from_guest[..len.unwrap()];
                let Answers { to_guest, to_link } = ra.handle_frame(frame);
                for answer in to_guest.into_iter().chain(dhcp6.handle_frame(frame)) {
                    tap.send(&answer).await.unwrap();
                }
                for question in to_link {
                    assert!(ra.needs_link());
                    link.send(&question).await.unwrap();
                }
                if !is_answered_in_the_pod(frame) {
                    link.send(frame).await.unwrap();
                }
            }
            len = link.recv(&mut from_link) => {
                let frame = &from_link[..len.unwrap()];
                for answer in ra.handle_link_frame(frame) {
                    tap.send(&answer).await.unwrap();
                }
                tap.send(frame).await.unwrap();
            }
        }
    }
}

fn is_answered_in_the_pod(frame: &[u8]) -> bool {
    parse(frame).is_some_and(|packet| match packet.next_header {
        58 => packet.payload.first() == Some(&133),
        17 => packet.payload.get(2..4) == Some(&547_u16.to_be_bytes()),
        _ => false,
    })
}
