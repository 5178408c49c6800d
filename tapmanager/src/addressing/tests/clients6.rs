//! The servers of IPv6 as real clients see them: the kernel of Linux, which takes router advertisements, with ISC's
//! `dhclient`; `dhcpcd` and systemd's networkd, which take the advertisements themselves.
//!
//! Each takes all of it: the address, the router, what is on the link, resolvers, search domains (networkd if it is told
//! to), and the MTU, which stands at the routes, or with networkd since 257 at the link.

use std::fs;

use tokio::time::timeout;

use super::bed::{Link, ROUTER_MAC, with_servers};
use super::clients::{networkd, recorded};
use super::*;
use crate::sys::testbed::{Client, needs};

const DHCLIENT_SCRIPT: &str = r#"
/sbin/dhclient-script "$@"
case $reason in
BOUND6)
    echo "$reason $new_ip6_address/$new_ip6_prefixlen; dns $new_dhcp6_name_servers; search $new_dhcp6_domain_search; \
life $new_max_life" > $said
esac"#;

async fn dhclient(link: &Link) -> Client {
    needs("dhclient", "isc-dhcp-client");
    let script = link.script(DHCLIENT_SCRIPT).await;
    let (leases, pid) = (link.guest.path("leases"), link.guest.path("pid"));
    Client::start(link.guest.command("dhclient", &["-d", "-6", "-sf", &script, "-lf", &leases, "-pf", &pid, "eth0"]))
}

const ROUTES: &str = "default via fe80::fd00:0:0:1 dev eth0\nfd00::/64 dev eth0\nfe80::/64 dev eth0";
const ROUTES_ALONE: &str = "default via fe80::1 dev eth0\nfe80::/64 dev eth0";

#[test]
fn dhclient_takes_a_lease() {
    with_servers(bridged6(), |mut link| async move {
        advertised(&link).await;
        let _client = dhclient(&link).await;
        let search = "default.svc.cluster.local. svc.cluster.local. cluster.local.";
        let expected = format!("BOUND6 fd00::2/128; dns fd00:10::10; search {search}; life 86400");
        assert_eq!(link.said().await, expected);
        let own = "fd00::2 dev eth0";
        assert_eq!(link.ip("-6 route").await.replace(&format!("{own}\n"), ""), ROUTES);
        assert!(link.guest.run("ip", &["-6", "route", "show", "default"]).await.contains(" mtu 1450 "));
        let address = link.ip("-6 addr show eth0").await;
        assert!(address.contains("inet6 fd00::2/128 scope global"), "{address}");
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        assert_eq!(resolv, format!("search {search}\nnameserver fd00:10::10\n"));
    });
}

#[test]
fn dhclient_alone_on_its_link_has_nothing_but_the_router() {
    with_servers(alone6(), |mut link| async move {
        advertised(&link).await;
        let _client = dhclient(&link).await;
        let said = link.said().await;
        assert!(said.starts_with("BOUND6 fd00::2/128; "), "{said}");
        assert_eq!(link.ip("-6 route").await.replace("fd00::2 dev eth0\n", ""), ROUTES_ALONE);
    });
}

const DHCPCD_SCRIPT: &str = r#"
/lib/dhcpcd/dhcpcd-run-hooks
case $reason in
BOUND6)
    echo "$reason $new_dhcp6_ia_na1_ia_addr1; dns $new_dhcp6_name_servers; search $new_dhcp6_domain_search; \
life $new_dhcp6_ia_na1_ia_addr1_vltime" > $said
esac"#;

#[test]
fn dhcpcd_takes_a_lease() {
    with_servers(bridged6(), |mut link| async move {
        needs("dhcpcd", "dhcpcd-base");
        let script = link.script(DHCPCD_SCRIPT).await;
        let args = ["--nobackground", "--ipv6only", "--script", &script, "eth0"];
        // It solicits routers itself, and asks for a lease as they say.
        let _client = Client::start(link.guest.command_without_udev("dhcpcd", &args));
        let search = "default.svc.cluster.local svc.cluster.local cluster.local";
        let expected = format!("BOUND6 fd00::2; dns fd00:10::10; search {search}; life 86400");
        assert_eq!(link.said().await, expected);
        assert_eq!(link.ip("-6 route").await, ROUTES);
        assert!(link.guest.run("ip", &["-6", "route", "show", "default"]).await.contains(" mtu 1450 "));
        let address = link.ip("-6 addr show eth0").await;
        assert!(address.contains("inet6 fd00::2/128 scope global"), "{address}");
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        let resolv: Vec<_> = resolv.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(resolv, [&format!("search {search}"), "nameserver fd00:10::10"]);
    });
}

#[test]
fn networkd_takes_a_lease_and_what_it_is_told_to() {
    with_servers(bridged6(), |link| async move {
        let domains = "[IPv6AcceptRA]\nUseDomains=yes\n[DHCPv6]\nUseDomains=yes";
        let _client = networkd(&link, &format!("DHCP=ipv6\nIPv6AcceptRA=yes\n{domains}")).await;
        // By DHCP and by advertisement, and not in order.
        let recorded = recorded(&link).await;
        let mut domains: Vec<_> = recorded.iter().filter_map(|line| line.strip_prefix("DOMAINS=")).collect();
        domains = domains.iter().flat_map(|all| all.split(' ')).collect();
        domains.sort_unstable();
        domains.dedup();
        assert_eq!(domains, ["cluster.local", "default.svc.cluster.local", "svc.cluster.local"]);
        assert!(recorded.iter().any(|line| line == "DNS=fd00:10::10 fd00:10::10"), "{recorded:?}");
        assert_eq!(link.ip("-6 route").await.replacen("fd00::/64 dev eth0\n", "", 1), ROUTES);
        let address = link.ip("-6 addr show eth0").await;
        assert!(address.contains("inet6 fd00::2/128 scope global"), "{address}");
    });
}

#[test]
fn networkd_alone_on_its_link_has_nothing_but_the_router() {
    with_servers(alone6(), |link| async move {
        let _client = networkd(&link, "DHCP=ipv6\nIPv6AcceptRA=yes\n").await;
        assert_eq!(recorded(&link).await, ["DNS=fd00:10::10 fd00:10::10", "DOMAINS="]);
        assert_eq!(link.ip("-6 route").await, ROUTES_ALONE);
        // The MTU is the route's, or since 257 the link's.
        let route = link.guest.run("ip", &["-6", "route", "show", "default"]).await;
        let of_link = link.guest.run("cat", &["/proc/sys/net/ipv6/conf/eth0/mtu"]).await;
        assert!(route.contains(" mtu 1450 ") || of_link == "1450\n", "{route}{of_link}");
    });
}

/// Has the kernel of the client's end take an advertisement.
async fn advertised(link: &Link) {
    let guest = link.socket().await;
    guest.send(&router_solicitation()).await.unwrap();
    heard(&guest, 134).await;
}

/// The next frame of this type of ICMPv6.
async fn heard(guest: &PacketSocket, kind: u8) -> Vec<u8> {
    let mut buffer = [0; 1600];
    loop {
        let len = timeout(Duration::from_secs(20), guest.recv(&mut buffer)).await.expect("an answer").unwrap();
        let frame = buffer.get(..len).unwrap();
        if frame.get(ETHERTYPE) == Some(&IPV6) && frame.get(NEXT_HEADER) == Some(&58) && frame.get(54) == Some(&kind) {
            return frame.to_vec();
        }
    }
}

#[test]
fn a_router_is_found_on_the_network() {
    with_servers(bridged6(), |link| async move {
        let guest = link.socket().await;
        guest.send(&router_solicitation()).await.unwrap();
        let advertisement = heard(&guest, 134).await;
        let router = advertisement.get(22..38).unwrap();

        let mac: MacAddr = MAC.parse().unwrap();
        let to = crate::ipv6::solicited_node(Ipv6Addr::from(<[u8; 16]>::try_from(router).unwrap()));
        let ethernet = [&crate::ipv6::group_mac(to)[..], &mac.octets(), &IPV6].concat();
        let header = [&[0x60, 0, 0, 0, 0, 32, 58, 255][..], &link_local(mac).octets(), &to.octets()].concat();
        let option = [&[1, 1][..], &mac.octets()].concat();
        let solicitation = [&ethernet[..], &header, &[135, 0, 0, 0, 0, 0, 0, 0], router, &option].concat();
        // Again until it is answered, as hosts ask (RFC 4861 section 7.2.2).
        let ask = async {
            loop {
                guest.send(&solicitation).await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let advertisement = tokio::select! {
            frame = heard(&guest, 136) => frame,
            () = ask => unreachable!("it goes on"),
        };
        assert_eq!(advertisement.get(62..78), Some(router), "{advertisement:x?}");
        let router_mac: MacAddr = ROUTER_MAC.parse().unwrap();
        let option = [&[2, 1][..], &router_mac.octets()].concat();
        assert_eq!(advertisement.get(78..86), Some(&option[..]), "{advertisement:x?}");
    });
}
