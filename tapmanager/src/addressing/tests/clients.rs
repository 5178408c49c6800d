//! The servers as real clients see them: busybox' `udhcpc`, ISC's `dhclient` and `dhcpcd` with Debian's own scripts, and
//! systemd's networkd.
//!
//! What a client leaves out of what it is told is asserted beside the rest:
//!
//! | client | leaves out |
//! |---|---|
//! | udhcpc, Debian's script | search list, host name, routes other than the default |
//! | dhclient | nothing |
//! | dhcpcd | nothing; the MTU stands at the routes, not at the link |
//! | networkd | MTU and domains, unless its configuration says otherwise; the host name, without a bus |

use std::fs;

use nix::sys::signal::{Signal, kill};

use tokio::time::{sleep, timeout};

use super::bed::{Link, with_servers};
use super::*;
use crate::sys::testbed::{CLIENT_DEADLINE, Client, host, needs};

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
fn udhcpc_takes_a_lease_and_renews_it_with_a_restarted_server() {
    needs("busybox", "busybox-static");
    with_servers(bridged(), |mut link| async move {
        let script = link.script(UDHCPC_SCRIPT).await;
        let args = ["udhcpc", "-f", "-i", "eth0", "-O", "search", "-O", "mtu", "-O", "staticroutes", "-s", &script];
        let client = Client::start(link.guest.command("busybox", &args));
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
        // By unicast to the gateway's address, with a checksum that the veth leaves undone; and of a server that has never
        // heard of this client.
        link.serve(bridged()).await;
        kill(client.pid(), Signal::SIGUSR1).unwrap();
        assert_eq!(link.said().await, format!("renew {expected}"));
    });
}

#[test]
fn udhcpc_with_debians_script_reaches_the_gateway_of_an_address_alone_on_its_link() {
    with_servers(alone(DAY), |mut link| async move {
        // That script knows no routes, and the client does not ask for them.
        let script = link.script(UDHCPC_SCRIPT).await;
        let _client = Client::start(link.guest.command("busybox", &["udhcpc", "-f", "-i", "eth0", "-s", &script]));
        let said = link.said().await;
        assert!(said.starts_with("bound 10.77.0.2/32 by 10.77.0.1; router 10.77.0.1; "), "{said}");
        assert_eq!(link.ip("route").await, "default via 10.77.0.1 dev eth0 onlink");
        assert!(link.ip("route get 10.77.0.9").await.starts_with("10.77.0.9 via 10.77.0.1 dev eth0"));
    });
}

#[test]
fn udhcpc_gets_the_routes_that_it_asks_for() {
    with_servers(alone(DAY), |mut link| async move {
        let script = link.script(UDHCPC_SCRIPT).await;
        let args = ["udhcpc", "-f", "-i", "eth0", "-O", "staticroutes", "-s", &script];
        let _client = Client::start(link.guest.command("busybox", &args));
        let said = link.said().await;
        let expected =
            "router ; routes 10.77.0.1/32 0.0.0.0 0.0.0.0/0 10.77.0.1 10.77.0.0/24 10.77.0.1 172.16.0.0/12 10.77.0.1; ";
        assert!(said.contains(expected), "{said}");
    });
}

/// In the foreground, and all of its files in the test's directory.
async fn dhclient(link: &Link) -> Client {
    needs("dhclient", "isc-dhcp-client");
    let script = link.script(DHCLIENT_SCRIPT).await;
    let (leases, pid) = (link.guest.path("leases"), link.guest.path("pid"));
    Client::start(link.guest.command("dhclient", &["-d", "-4", "-sf", &script, "-lf", &leases, "-pf", &pid, "eth0"]))
}

#[test]
fn dhclient_takes_a_lease() {
    with_servers(bridged(), |mut link| async move {
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
    with_servers(alone(Duration::from_secs(4)), |mut link| async move {
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

const DHCPCD_SCRIPT: &str = r#"
/lib/dhcpcd/dhcpcd-run-hooks
case $reason in
BOUND|REBOOT|RENEW)
    echo "$reason $new_ip_address/$new_subnet_cidr by $new_dhcp_server_identifier; router $new_routers; \
routes $new_classless_static_routes; mtu $new_interface_mtu; dns $new_domain_name_servers; \
domain $new_domain_name; search $new_domain_search; host $new_host_name; lease $new_dhcp_lease_time" > $said
esac"#;

async fn dhcpcd(link: &Link) -> Client {
    needs("dhcpcd", "dhcpcd-base");
    let script = link.script(DHCPCD_SCRIPT).await;
    // Its leases, its socket and its pid file are where nothing of the machine's is.
    let args = ["--nobackground", "--ipv4only", "--noipv4ll", "--script", &script, "eth0"];
    Client::start(link.guest.command_without_udev("dhcpcd", &args))
}

#[test]
fn dhcpcd_takes_a_lease() {
    with_servers(bridged(), |mut link| async move {
        let _client = dhcpcd(&link).await;
        let expected = "BOUND 10.77.0.2/24 by 10.77.0.1; router 10.77.0.1; routes ; mtu 1450; dns 10.96.0.10; \
                        domain default.svc.cluster.local; \
                        search default.svc.cluster.local svc.cluster.local cluster.local; host web-0; lease 86400";
        assert_eq!(link.said().await, expected);
        assert_eq!(link.ip("route").await, "10.77.0.0/24 dev eth0\ndefault via 10.77.0.1 dev eth0");
        let routes = link.guest.run("ip", &["route"]).await;
        assert!(routes.lines().all(|route| route.contains(" mtu 1450")), "{routes}");
        let address = link.ip("addr show eth0").await;
        assert!(address.contains("inet 10.77.0.2/24 brd 10.77.0.255"), "{address}");
        assert_eq!(host("hostname", &[]).await, "web-0.default.svc.cluster.local\n");
        let resolv = fs::read_to_string("/etc/resolv.conf").unwrap();
        let resolv: Vec<_> = resolv.lines().filter(|line| !line.starts_with('#')).collect();
        let search = "search default.svc.cluster.local svc.cluster.local cluster.local";
        assert_eq!(resolv, ["domain default.svc.cluster.local", search, "nameserver 10.96.0.10"]);
    });
}

#[test]
fn dhcpcd_alone_on_its_link_has_all_routes() {
    with_servers(alone(DAY), |mut link| async move {
        let _client = dhcpcd(&link).await;
        let said = link.said().await;
        let expected = "BOUND 10.77.0.2/32 by 10.77.0.1; router ; routes 10.77.0.1/32 0.0.0.0 0.0.0.0/0 10.77.0.1 \
                        10.77.0.0/24 10.77.0.1 172.16.0.0/12 10.77.0.1; ";
        assert!(said.starts_with(expected), "{said}");
        let routes = "10.77.0.0/24 via 10.77.0.1 dev eth0\n10.77.0.1 dev eth0\n\
                      172.16.0.0/12 via 10.77.0.1 dev eth0\ndefault via 10.77.0.1 dev eth0";
        assert_eq!(link.ip("route").await, routes);
    });
}

/// Without a bus and without udev. Ends when networkd says that the link is configured.
pub(super) async fn networkd(link: &Link, network: &str) -> Client {
    let (daemon, online) = ("/lib/systemd/systemd-networkd", "/lib/systemd/systemd-networkd-wait-online");
    needs(daemon, "systemd");
    fs::create_dir_all("/run/systemd").unwrap();
    fs::create_dir_all("/etc/systemd/network").unwrap();
    fs::write("/etc/systemd/network/00-test.network", format!("[Match]\nName=eth0\n[Network]\n{network}\n")).unwrap();
    let client = Client::start(link.guest.command_without_udev(daemon, &[]));
    // Who waits looks for the first of these directories that there is, and is told of the next: one that is made in
    // between is never seen.
    let begun = async {
        while !fs::exists("/run/systemd/netif/links").unwrap() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(CLIENT_DEADLINE, begun).await.expect("networkd keeps its state");
    link.guest.run(online, &["--interface=eth0", "--timeout=60"]).await;
    client
}

const NETWORKD_V4: &str = "DHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n";

/// What networkd says of the link to resolved: name servers and domains; and the rest of the lease that it acts upon.
pub(super) async fn recorded(link: &Link) -> Vec<String> {
    let index = link.ip("-o link show eth0").await;
    let (index, _) = index.split_once(':').unwrap();
    // There is a lease only of DHCPv4.
    let file = |kind| fs::read_to_string(format!("/run/systemd/netif/{kind}/{index}")).unwrap_or_default();
    let wanted = ["DNS=", "DOMAINS=", "MTU=", "SERVER_ADDRESS=", "HOSTNAME=", "LIFETIME="];
    let lines = [file("links"), file("leases")].concat();
    let lines = lines.lines().filter(|line| wanted.iter().any(|key| line.starts_with(key)));
    // In seconds, and as people say it since 257.
    lines.map(|line| if line == "LIFETIME=1d" { "LIFETIME=86400" } else { line }.to_owned()).collect()
}

#[test]
fn networkd_takes_a_lease_and_what_it_is_told_to() {
    with_servers(bridged(), |link| async move {
        let _client = networkd(&link, &format!("{NETWORKD_V4}[DHCPv4]\nUseMTU=yes\nUseDomains=yes")).await;
        let domains = "DOMAINS=default.svc.cluster.local default.svc.cluster.local svc.cluster.local cluster.local";
        let lease = ["SERVER_ADDRESS=10.77.0.1", "MTU=1450", "LIFETIME=86400", "DNS=10.96.0.10", "HOSTNAME=web-0"];
        assert_eq!(recorded(&link).await, [&["DNS=10.96.0.10", domains][..], &lease].concat());
        // Of itself it adds routes to the router and to the name server.
        let routes = "10.77.0.0/24 dev eth0\n10.77.0.1 dev eth0\n\
                      10.96.0.10 via 10.77.0.1 dev eth0\ndefault via 10.77.0.1 dev eth0";
        assert_eq!(link.ip("route").await, routes);
        let address = link.ip("addr show eth0").await;
        assert!(address.contains("inet 10.77.0.2/24 metric 1024 brd 10.77.0.255"), "{address}");
        assert!(address.contains(" mtu 1450 "), "{address}");
        // Setting it is hostnamed's work, which is asked over the bus.
        assert_eq!(host("hostname", &[]).await, "localhost\n");
    });
}

#[test]
fn networkd_alone_on_its_link_has_all_routes_and_leaves_mtu_and_domains() {
    with_servers(alone(DAY), |link| async move {
        let _client = networkd(&link, NETWORKD_V4).await;
        let lease = ["SERVER_ADDRESS=10.77.0.1", "MTU=1450", "LIFETIME=86400", "DNS=10.96.0.10", "HOSTNAME=web-0"];
        assert_eq!(recorded(&link).await, [&["DNS=10.96.0.10", "DOMAINS="][..], &lease].concat());
        let routes = "10.77.0.0/24 via 10.77.0.1 dev eth0\n10.77.0.1 dev eth0\n10.96.0.10 via 10.77.0.1 dev eth0\n\
                      172.16.0.0/12 via 10.77.0.1 dev eth0\ndefault via 10.77.0.1 dev eth0";
        assert_eq!(link.ip("route").await, routes);
        assert!(link.ip("addr show eth0").await.contains(" mtu 1500 "));
    });
}

#[test]
fn networkd_has_all_routes_of_an_option_in_pieces() {
    // Of 8 bytes each, and the default route of 5: two pieces.
    let far: Vec<_> = (0..40).map(|at| format!("172.16.{at}.0/24")).collect();
    let near = [("10.77.0.0/24", ""), ("0.0.0.0/0", "10.77.0.1")];
    let routes: Vec<_> = near.into_iter().chain(far.iter().map(|dst| (dst.as_str(), "10.77.0.1"))).collect();
    with_servers(servers(&nic(&["10.77.0.2/24"], &routes), DAY), |link| async move {
        let _client = networkd(&link, NETWORKD_V4).await;
        let mut expected: Vec<_> = far.iter().map(|dst| format!("{dst} via 10.77.0.1 dev eth0")).collect();
        expected.extend(
            ["10.77.0.0/24 dev eth0", "10.77.0.1 dev eth0", "10.96.0.10 via 10.77.0.1 dev eth0"].map(str::to_owned),
        );
        expected.push("default via 10.77.0.1 dev eth0".to_owned());
        expected.sort_unstable();
        assert_eq!(link.ip("route").await, expected.join("\n"));
    });
}
