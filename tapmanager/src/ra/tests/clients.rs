//! Both servers of IPv6 as real clients see them: the kernel, ISC's `dhclient`, `dhcpcd`.

use std::fs;

use super::bed::{FAR, Guest, with_guest, with_lease};
use super::*;
use crate::sys::testbed::{self, Client};

const GLOBAL_GATEWAY: &[&str] = &["addr add fd00:77::1/64 dev gw0 nodad"];
const LOCAL_GATEWAY: &[&str] = &["addr add fe80::1/64 dev gw0 nodad", "route add fd00:77::2/128 dev gw0"];

fn local() -> Nic {
    nic(&["fd00:77::2/128"], &[("::/0", "fe80::1")])
}

async fn address(guest: &Guest) {
    guest.run("ip -6 addr add fd00:77::2/128 dev eth0 nodad").await;
}

#[test]
fn the_kernel_reaches_a_global_gateway_by_its_stand_in_and_follows_it() {
    with_guest(&bridged(), GLOBAL_GATEWAY, async |guest| {
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
        testbed::ip("-n gateway link set gw0 address 02:00:00:00:00:fd");
        guest.until(&neighbours, at("02:00:00:00:00:fd")).await;
        guest.reaches_far_from("fd00:77::2").await;
        // In silence, when it is looked for again.
        testbed::ip("netns exec gateway sysctl -qw net.ipv6.conf.gw0.ndisc_notify=0");
        testbed::ip("-n gateway link set gw0 address 02:00:00:00:00:fc");
        guest.run("sysctl -qw net.ipv6.neigh.eth0.base_reachable_time_ms=100 net.ipv6.neigh.eth0.delay_first_probe_time=1").await;
        let talk = Client::start(guest.command(&format!("busybox ping6 -q -I fd00:77::2 {FAR}")));
        guest.until(&neighbours, at("02:00:00:00:00:fc")).await;
        drop(talk);
        guest.reaches_far_from("fd00:77::2").await;
    });
}

#[test]
fn the_kernel_reaches_a_link_local_gateway_itself() {
    with_guest(&local(), LOCAL_GATEWAY, async |guest| {
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
    with_guest(&nic, gateways, async |guest| {
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
    with_guest(&nic, GLOBAL_GATEWAY, async |guest| {
        guest.until("route show fd00:77::/64", |said| !said.is_empty()).await;
        assert_eq!(guest.routes().await, ["fd00:77::/64 proto kernel"]);
        address(&guest).await;
        guest.run("busybox ping6 -q -c 1 -w 30 fd00:77::1").await;
    });
}

#[test]
fn the_kernel_reaches_its_neighbours_as_the_pod_does() {
    let gateway = &[
        "addr add fd00:77::1/128 dev gw0 nodad",
        "route add fd00:77::2/128 dev gw0",
        "addr add fd00:77::9/128 dev lo",
    ];
    with_guest(&alone(), gateway, async |guest| {
        guest.until("route show default", |said| !said.is_empty()).await;
        address(&guest).await;
        let default = format!("default via {STAND_IN} proto ra");
        assert_eq!(guest.routes().await, [&default, "fd00:77::1 proto kernel", "fd00:77::2 proto kernel"]);
        guest.run("busybox ping6 -q -c 1 -w 30 fd00:77::1").await;
        guest.run("busybox ping6 -q -c 1 -w 30 fd00:77::9").await;
        guest.reaches_far_from("fd00:77::2").await;
    });
}

/// In the foreground, and all of its files in the test's directory.
async fn dhclient(guest: &Guest) -> Client {
    // It does not wait for its own address, as whoever starts it does.
    guest.until("addr show dev eth0 scope link", |said| !said.is_empty() && !said.contains("tentative")).await;
    let (leases, pid) = (guest.path("leases"), guest.path("pid"));
    Client::start(guest.command(&format!("dhclient -6 -d -lf {leases} -pf {pid} eth0")))
}

fn two() -> Nic {
    nic(&["fd00:77::2/64", "fd00:78::2/128"], &[("::/0", "fd00:77::1")])
}

#[test]
fn dhclient_takes_all_addresses_and_resolvers() {
    with_guest(&two(), GLOBAL_GATEWAY, async |guest| {
        let _client = dhclient(&guest).await;
        guest.has(&["fd00:77::2/128", "fd00:78::2/128"]).await;
        let routes = guest.routes().await;
        assert!(routes.contains(&format!("default via {STAND_IN} proto ra")), "{routes:?}");
        guest.reaches_far_from("fd00:77::2").await;
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        assert_eq!(resolv, "search default.svc.cluster.local. cluster.local.\nnameserver fd00:96::a\n");
    });
}

#[test]
fn dhclient_renews_its_lease() {
    with_lease(&local(), Duration::from_secs(4), LOCAL_GATEWAY, async |guest| {
        let _client = dhclient(&guest).await;
        let leases = guest.path("leases");
        // The first on binding, one more on each renewal.
        guest.until_file(&leases, |said| said.matches("lease6 {").count() >= 3).await;
        guest.has(&["fd00:77::2/128"]).await;
        guest.reaches_far_from("fd00:77::2").await;
    });
}

#[test]
fn dhclient_with_the_lease_of_another_pod_is_told_so_and_takes_its_own() {
    with_guest(&local(), LOCAL_GATEWAY, async |guest| {
        let client = dhclient(&guest).await;
        guest.has(&["fd00:77::2/128"]).await;
        drop(client);
        guest.run("ip -6 addr del fd00:77::2/128 dev eth0").await;
        let leases = guest.path("leases");
        // As on a copied disk.
        let copied = fs::read_to_string(&leases).unwrap().replace("fd00:77::2", "fd00:77::3");
        assert!(copied.contains("fd00:77::3"), "{copied}");
        fs::write(&leases, copied).unwrap();
        let _client = dhclient(&guest).await;
        guest.has(&["fd00:77::2/128"]).await;
    });
}

#[test]
fn dhcpcd_takes_all_addresses_and_resolvers_and_since_10_routes() {
    let routed = Nic { routes: [two().routes, routes(&[("fd00:a::/64", "fd00:77::1")])].concat(), ..two() };
    with_guest(&routed, GLOBAL_GATEWAY, async |guest| {
        let _client = Client::start(guest.command("dhcpcd -6 -B eth0"));
        guest.has(&["fd00:77::2/128", "fd00:78::2/128"]).await;
        guest.until("route show default", |said| said.contains(STAND_IN)).await;
        guest.reaches_far_from("fd00:77::2").await;
        let resolv = guest.until_file("/etc/resolv.conf", |said| said.contains("nameserver")).await;
        let told: Vec<_> = resolv.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(told, ["search default.svc.cluster.local cluster.local", "nameserver fd00:96::a"]);
        // Before 10 it takes no route information: what is for there goes by the default route.
        let version = guest.run("dhcpcd --version").await;
        let far = (!version.starts_with("dhcpcd 9.")).then(|| format!("fd00:a::/64 via {STAND_IN}"));
        let expected = [format!("default via {STAND_IN} proto ra"), "fd00:77::/64 proto ra".to_owned()];
        let expected: Vec<_> = expected.into_iter().chain(far).collect();
        assert_eq!(guest.routes().await, expected);
    });
}
