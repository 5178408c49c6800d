//! The servers as real clients see them: busybox' `udhcpc` and ISC's `dhclient`, with Debian's own scripts.

use std::fs;

use nix::sys::signal::{Signal, kill};

use super::bed::{Client, Link, host, with_servers};
use super::*;

/// Debian's script, then what the test wants to know. The gateway is given the address of a station that nobody is: what
/// is sent to it is for the server alone to hear.
const UDHCPC_SCRIPT: &str = r#"
. /etc/udhcpc/default.script
case $1 in
bound|renew)
    ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:fe dev eth0 nud permanent
    echo "$1 $ip/$mask by $serverid; router $router; routes $staticroutes; mtu $mtu; dns $dns; domain $domain; \
search $search; host $hostname; lease $lease" > $said
esac"#;

const DHCLIENT_SCRIPT: &str = r#"
/sbin/dhclient-script "$@"
case $reason in
BOUND|RENEW)
    ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:fe dev eth0 nud permanent
    echo "$reason $new_ip_address/$new_subnet_mask by $new_dhcp_server_identifier; router $new_routers; \
routes $new_rfc3442_classless_static_routes; mtu $new_interface_mtu; dns $new_domain_name_servers; \
domain $new_domain_name; search $new_domain_search; host $new_host_name; lease $new_dhcp_lease_time" > $said
esac"#;

#[test]
fn udhcpc_takes_and_renews_a_lease() {
    with_servers(bridged(), |link| async move {
        let script = link.script(UDHCPC_SCRIPT).await;
        let args = ["udhcpc", "-f", "-i", "eth0", "-O", "search", "-O", "mtu", "-O", "staticroutes", "-s", &script];
        let client = Client::start(link.command("busybox", &args));
        let expected = "10.77.0.2/24 by 10.77.0.1; router 10.77.0.1; routes ; mtu 1450; dns 10.96.0.10; \
                        domain default.svc.cluster.local; \
                        search default.svc.cluster.local svc.cluster.local cluster.local; host web-0; lease 86400";
        assert_eq!(link.said().await, format!("bound {expected}"));
        assert_eq!(link.ip("route").await, "10.77.0.0/24 dev eth0\ndefault via 10.77.0.1 dev eth0");
        let address = link.ip("addr show eth0").await;
        assert!(address.contains("inet 10.77.0.2/24 brd 10.77.0.255"), "{address}");
        assert!(address.contains("mtu 1450"), "{address}");
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        assert_eq!(resolv, "domain default.svc.cluster.local\nnameserver 10.96.0.10\n");
        // By unicast to the gateway's address, with a checksum that the veth leaves undone.
        kill(client.pid(), Signal::SIGUSR1).unwrap();
        assert_eq!(link.said().await, format!("renew {expected}"));
    });
}

#[test]
fn udhcpc_with_debians_script_reaches_the_gateway_of_an_address_alone_on_its_link() {
    with_servers(alone(DAY), |link| async move {
        // That script knows no routes, and the client does not ask for them.
        let script = link.script(UDHCPC_SCRIPT).await;
        let _client = Client::start(link.command("busybox", &["udhcpc", "-f", "-i", "eth0", "-s", &script]));
        let said = link.said().await;
        assert!(said.starts_with("bound 10.77.0.2/32 by 10.77.0.1; router 10.77.0.1; "), "{said}");
        assert_eq!(link.ip("route").await, "default via 10.77.0.1 dev eth0 onlink");
        assert!(link.ip("route get 10.77.0.9").await.starts_with("10.77.0.9 via 10.77.0.1 dev eth0"));
    });
}

#[test]
fn udhcpc_gets_the_routes_that_it_asks_for() {
    with_servers(alone(DAY), |link| async move {
        let script = link.script(UDHCPC_SCRIPT).await;
        let args = ["udhcpc", "-f", "-i", "eth0", "-O", "staticroutes", "-s", &script];
        let _client = Client::start(link.command("busybox", &args));
        let said = link.said().await;
        let expected =
            "router ; routes 10.77.0.1/32 0.0.0.0 0.0.0.0/0 10.77.0.1 10.77.0.0/24 10.77.0.1 172.16.0.0/12 10.77.0.1; ";
        assert!(said.contains(expected), "{said}");
    });
}

/// In the foreground, and all of its files in the test's directory.
async fn dhclient(link: &Link) -> Client {
    let script = link.script(DHCLIENT_SCRIPT).await;
    let (leases, pid) = (link.path("leases"), link.path("pid"));
    Client::start(link.command("dhclient", &["-d", "-4", "-sf", &script, "-lf", &leases, "-pf", &pid, "eth0"]))
}

#[test]
fn dhclient_takes_a_lease() {
    with_servers(bridged(), |link| async move {
        let _client = dhclient(&link).await;
        let expected = "BOUND 10.77.0.2/255.255.255.0 by 10.77.0.1; router 10.77.0.1; routes ; mtu 1450; dns 10.96.0.10; \
                        domain default.svc.cluster.local; \
                        search default.svc.cluster.local. svc.cluster.local. cluster.local.; host web-0; lease 86400";
        assert_eq!(link.said().await, expected);
        assert_eq!(link.ip("route").await, "10.77.0.0/24 dev eth0\ndefault via 10.77.0.1 dev eth0");
        let address = link.ip("addr show eth0").await;
        assert!(address.contains("inet 10.77.0.2/24 brd 10.77.0.255"), "{address}");
        assert!(address.contains("mtu 1450"), "{address}");
        assert_eq!(host("hostname", &[]).await, "web-0\n");
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        let expected = "domain default.svc.cluster.local\n\
                        search default.svc.cluster.local. svc.cluster.local. cluster.local.\n\
                        nameserver 10.96.0.10\n";
        assert_eq!(resolv, expected);
    });
}

#[test]
fn dhclient_alone_on_its_link_has_all_routes_and_renews() {
    // So short that it renews at once.
    with_servers(alone(Duration::from_secs(4)), |link| async move {
        let _client = dhclient(&link).await;
        let said = link.said().await;
        let expected =
            "BOUND 10.77.0.2/255.255.255.255 by 10.77.0.1; router ; routes 32 10 77 0 1 0 0 0 0 0 10 77 0 1 ";
        assert!(said.starts_with(expected), "{said}");
        let routes = "10.77.0.0/24 via 10.77.0.1 dev eth0\n10.77.0.1 dev eth0 scope link\n\
                      172.16.0.0/12 via 10.77.0.1 dev eth0\ndefault via 10.77.0.1 dev eth0";
        assert_eq!(link.ip("route").await, routes);
        let said = link.said().await;
        assert!(said.starts_with("RENEW 10.77.0.2/255.255.255.255 by 10.77.0.1; "), "{said}");
    });
}
