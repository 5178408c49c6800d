//! The servers of IPv6 as real clients see them: the kernel of Linux, which takes router advertisements, with ISC's
//! `dhclient` or `dhcpcd`; systemd's networkd, which does both.

use std::fs;

use tokio::time::timeout;

use super::bed::{Client, Link, ROUTER_MAC, needs, with_servers};
use super::clients::{networkd, recorded};
use super::*;

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
    let (leases, pid) = (link.path("leases"), link.path("pid"));
    Client::start(link.command("dhclient", &["-d", "-6", "-sf", &script, "-lf", &leases, "-pf", &pid, "eth0"]))
}

#[test]
fn dhclient_takes_a_lease() {
    with_servers(bridged6(), |link| async move {
        let _client = dhclient(&link).await;
        assert_eq!(link.said().await, "");
        let all = [
            link.run("ip", &["-6", "route"]).await,
            link.run("ip", &["addr", "show", "eth0"]).await,
            fs::read_to_string("/etc/resolv.conf").unwrap(),
        ];
        assert_eq!(all.join("=="), "");
    });
}
#[test]
fn dhclient_alone() {
    with_servers(alone6(), |link| async move {
        let _client = dhclient(&link).await;
        assert_eq!(link.said().await, "");
        let all = [
            link.run("ip", &["-6", "route"]).await,
            link.run("ip", &["addr", "show", "eth0"]).await,
            fs::read_to_string("/etc/resolv.conf").unwrap(),
        ];
        assert_eq!(all.join("=="), "");
    });
}

const DHCPCD_SCRIPT: &str = r#"
/lib/dhcpcd/dhcpcd-run-hooks
env >> /tmp/w/tgt/a1.dhcpcd6
case $reason in
BOUND6)
    echo "$reason $new_dhcp6_ia_na1_ia_addr1; dns $new_dhcp6_name_servers; search $new_dhcp6_domain_search" > $said
esac"#;

#[test]
fn dhcpcd_takes_a_lease() {
    with_servers(bridged6(), |link| async move {
        needs("dhcpcd", "dhcpcd-base");
        let script = link.script(DHCPCD_SCRIPT).await;
        let args = ["--nobackground", "--ipv6only", "--script", &script, "eth0"];
        let _client = Client::start(link.command_without_udev("dhcpcd", &args));
        assert_eq!(link.said().await, "");
        let all = [
            link.run("ip", &["-6", "route"]).await,
            link.run("ip", &["addr", "show", "eth0"]).await,
            fs::read_to_string("/etc/resolv.conf").unwrap(),
        ];
        assert_eq!(all.join("=="), "");
    });
}

#[test]
fn networkd_takes_a_lease() {
    with_servers(bridged6(), |link| async move {
        let _client =
            networkd(&link, "DHCP=ipv6\nIPv6AcceptRA=yes\n[IPv6AcceptRA]\nUseDomains=yes\n[DHCPv6]\nUseDomains=yes")
                .await;
        let all = [
            recorded(&link).await.join("\n"),
            link.run("ip", &["-6", "route"]).await,
            link.run("ip", &["addr", "show", "eth0"]).await,
        ];
        assert_eq!(all.join("=="), "");
    });
}
#[test]
fn networkd_alone() {
    with_servers(alone6(), |link| async move {
        let _client = networkd(&link, "DHCP=ipv6\nIPv6AcceptRA=yes\n").await;
        let all = [
            recorded(&link).await.join("\n"),
            link.run("ip", &["-6", "route"]).await,
            link.run("ip", &["addr", "show", "eth0"]).await,
        ];
        assert_eq!(all.join("=="), "");
    });
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
        guest.send(&solicitation).await.unwrap();
        let advertisement = heard(&guest, 136).await;
        assert_eq!(advertisement.get(62..78), Some(router), "{advertisement:x?}");
        let router_mac: MacAddr = ROUTER_MAC.parse().unwrap();
        let option = [&[2, 1][..], &router_mac.octets()].concat();
        assert_eq!(advertisement.get(78..86), Some(&option[..]), "{advertisement:x?}");
    });
}
