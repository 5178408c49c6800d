//! Both servers of IPv6 as real clients see them: the kernel, ISC's `dhclient`, `dhcpcd`.

use std::fs;

use super::bed::{Client, FAR, Guest, with_guest};
use super::*;

const GLOBAL_GATEWAY: &[&str] = &["addr add fd00:77::1/64 dev gw0 nodad"];
const LOCAL_GATEWAY: &[&str] = &["addr add fe80::1/64 dev gw0 nodad", "route add fd00:77::2/128 dev gw0"];

fn resolvers() -> Dns {
    dns(&["10.96.0.10", "fd00:96::a"], &["default.svc.cluster.local", "cluster.local"])
}

fn local() -> Nic {
    nic(&["fd00:77::2/128"], &[("::/0", "fe80::1")])
}

async fn address(guest: &Guest) {
    guest.run("ip -6 addr add fd00:77::2/128 dev eth0 nodad").await;
}

#[test]
fn the_kernel_reaches_a_global_gateway_by_its_stand_in_and_follows_it() {
    with_guest(&bridged(), &resolvers(), GLOBAL_GATEWAY, async |guest| {
        guest.until("route show default", |said| !said.is_empty()).await;
        address(&guest).await;
        let routes =
            [&format!("default via {STAND_IN} proto ra"), "fd00:77::/64 proto kernel", "fd00:77::2 proto kernel"];
        assert_eq!(guest.routes().await, routes);
        assert_eq!(guest.run("cat /proc/sys/net/ipv6/conf/eth0/mtu").await, "1450\n");
        guest.reaches_far_from("fd00:77::2").await;
        let at = |mac: &'static str| move |said: &str| said.contains(&format!("lladdr {mac} router"));
        let neighbours = format!("neigh show {STAND_IN} dev eth0");
        guest.until(&neighbours, at("02:00:00:00:00:fe")).await;
        // Announced, it is known at once.
        crate::sys::testbed::ip("-n gateway link set gw0 address 02:00:00:00:00:fd");
        guest.until(&neighbours, at("02:00:00:00:00:fd")).await;
        guest.reaches_far_from("fd00:77::2").await;
        // In silence, when it is looked for again.
        crate::sys::testbed::ip("netns exec gateway sysctl -qw net.ipv6.conf.gw0.ndisc_notify=0");
        crate::sys::testbed::ip("-n gateway link set gw0 address 02:00:00:00:00:fc");
        guest.reaches_far_from("fd00:77::2").await;
        guest.until(&neighbours, at("02:00:00:00:00:fc")).await;
    });
}

#[test]
fn the_kernel_reaches_a_link_local_gateway_itself() {
    with_guest(&local(), &resolvers(), LOCAL_GATEWAY, async |guest| {
        guest.until("route show default", |said| !said.is_empty()).await;
        address(&guest).await;
        assert_eq!(guest.routes().await, ["default via fe80::1 proto ra", "fd00:77::2 proto kernel"]);
        guest.reaches_far_from("fd00:77::2").await;
        assert!(guest.ip("neigh show fe80::1 dev eth0").await[0].contains("lladdr 02:00:00:00:00:fe router"));
    });
}

#[test]
fn the_kernel_takes_routes_of_several_gateways_if_it_is_told_to() {
    let gateways = &[GLOBAL_GATEWAY, LOCAL_GATEWAY].concat();
    let routes = [("2001:db8:ffff::/64", "fd00:77::1"), ("::/0", "fe80::1")];
    let nic = nic(&["fd00:77::2/64"], &routes);
    with_guest(&nic, &resolvers(), gateways, async |guest| {
        guest.until("route show default", |said| !said.is_empty()).await;
        // Not by itself.
        assert_eq!(guest.routes().await, ["default via fe80::1 proto ra", "fd00:77::/64 proto kernel"]);
        guest.run("sysctl -qw net.ipv6.conf.eth0.accept_ra_rt_info_max_plen=64").await;
        guest.run("ip link set eth0 down").await;
        guest.run("ip link set eth0 up").await;
        let far = guest.until("route show 2001:db8:ffff::/64", |said| !said.is_empty()).await;
        assert!(far.starts_with(&format!("2001:db8:ffff::/64 via {STAND_IN} dev eth0 proto ra")), "{far}");
        address(&guest).await;
        guest.reaches_far_from("fd00:77::2").await;
    });
}

#[test]
fn a_guest_without_a_default_route_gets_none() {
    let nic = nic(&["fd00:77::2/64"], &[]);
    with_guest(&nic, &resolvers(), GLOBAL_GATEWAY, async |guest| {
        guest.until("route show fd00:77::/64", |said| !said.is_empty()).await;
        assert_eq!(guest.routes().await, ["fd00:77::/64 proto kernel"]);
        address(&guest).await;
        guest.run("busybox ping6 -q -c 1 -w 30 fd00:77::1").await;
    });
}

/// In the foreground, and all of its files in the test's directory.
async fn dhclient(guest: &Guest) -> Client {
    let (leases, pid) = (guest.path("leases"), guest.path("pid"));
    Client::start(guest.command(&format!("dhclient -6 -d -lf {leases} -pf {pid} eth0")))
}

#[test]
fn dhclient_takes_all_addresses_and_resolvers() {
    let nic = nic(&["fd00:77::2/64", "fd00:78::2/128"], &[("::/0", "fd00:77::1")]);
    with_guest(&nic, &resolvers(), GLOBAL_GATEWAY, async |guest| {
        let _client = dhclient(&guest).await;
        let both = |said: &str| {
            said.contains("fd00:77::2/128") && said.contains("fd00:78::2/128") && !said.contains("tentative")
        };
        guest.until("addr show dev eth0 scope global", both).await;
        let routes = guest.routes().await;
        assert!(routes.contains(&format!("default via {STAND_IN} proto ra")), "{routes:?}");
        guest.reaches_far_from("fd00:77::2").await;
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        assert_eq!(resolv, "search default.svc.cluster.local. cluster.local.\nnameserver fd00:96::a\n");
    });
}

#[test]
fn dhcpcd_takes_all_addresses_routes_and_resolvers() {
    let nic = nic(&["fd00:77::2/64", "fd00:78::2/128"], &[("::/0", "fd00:77::1")]);
    with_guest(&nic, &resolvers(), GLOBAL_GATEWAY, async |guest| {
        let _client = Client::start(guest.command("dhcpcd -6 -B eth0"));
        let both = |said: &str| {
            said.contains("fd00:77::2/128") && said.contains("fd00:78::2/128") && !said.contains("tentative")
        };
        guest.until("addr show dev eth0 scope global", both).await;
        guest.reaches_far_from("fd00:77::2").await;
        let routes = guest.routes().await;
        assert!(routes.contains(&format!("default via {STAND_IN} proto ra")), "{routes:?} {FAR}");
    });
}
