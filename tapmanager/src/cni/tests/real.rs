//! The runtime with the CNI project's plugins: Debian's, and the builder's newer ones, which are where `VIRTLET_PEERS`
//! says. Each test has a corner of the kernel for itself, plugins included, of which nothing outlives it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Chain;
use ipnetwork::IpNetwork;
use proto::tap::{Bandwidth, HostPort, PodId, PortProtocol};
use serde_json::{Value, json};

use super::super::{CapabilityArgs, Cni, CniError, NetworkList, Places, Target};
use super::fakes::{LONG, Node};
use crate::spawner::Spawner;
use crate::sys::netns::Netns;
use crate::sys::testbed;

const DEBIANS: &str = "/usr/lib/cni";
const NETNS: &str = "/run/netns/x";
const STATE: &str = "/run/state";

/// Directories of plugins, and the newest version that those in it speak.
fn releases() -> [(PathBuf, &'static str); 2] {
    assert!(Path::new(DEBIANS).join("bridge").exists(), "install the package containernetworking-plugins");
    let peers = env::var_os("VIRTLET_PEERS").expect("`VIRTLET_PEERS` is not set; run these tests by `make test-root`");
    let newer = PathBuf::from(peers).join("cni");
    assert!(newer.join("bridge").exists(), "no plugins in {}; run these tests by `make test-root`", newer.display());
    [(PathBuf::from(DEBIANS), "1.0.0"), (newer, "1.1.0")]
}

fn on_a_node_of_its_own(test: impl AsyncFnOnce() + Send) {
    testbed::apart(async || {
        fs::create_dir_all("/run/netns").unwrap();
        fs::create_dir_all(STATE).unwrap();
        Netns::create(Path::new(NETNS)).unwrap();
        test().await;
    });
}

fn runtime(plugins: &Path) -> Cni {
    let places = Places {
        conf_dir: PathBuf::new(),
        plugin_dirs: vec![plugins.to_owned()],
        cache_dir: "/run/state/cache".into(),
        instance: "0123abcd".to_owned(),
    };
    let spawner = Spawner::in_process(&places.plugin_dirs, Path::new("/run/state/plugins.lock")).expect("spawner");
    Cni::new(places, LONG, None, spawner)
}

fn bridge(more: &Value, ipam: Value) -> Value {
    let mut bridge = json!({"type": "bridge", "bridge": "cni-test0", "isGateway": true, "ipam": ipam});
    for (member, value) in more.as_object().unwrap() {
        bridge[member] = value.clone();
    }
    bridge
}

fn host_local() -> Value {
    json!({
        "type": "host-local",
        "dataDir": STATE,
        "ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    })
}

fn network(version: &str, plugins: Value) -> NetworkList {
    json!({"cniVersion": version, "name": "net", "plugins": plugins}).try_into().unwrap()
}

/// What a program of the node writes, in this thread's namespace: the directory in /sys would show the machine's.
fn said(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn leases() -> Vec<String> {
    let names = fs::read_dir(Path::new(STATE).join("net")).into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("10.") || name.starts_with("fd")).collect()
}

fn why(error: &CniError) -> String {
    Chain(error).to_string()
}

#[test]
fn a_bridge_adds_checks_and_deletes_in_every_version() {
    on_a_node_of_its_own(async || {
        let node = Node::new();
        let target = Target { netns: Path::new(NETNS), ..node.target() };
        for (plugins, newest) in releases() {
            for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
                if version > newest {
                    continue;
                }
                let tuning = json!({
                    "type": "tuning", "dataDir": STATE, "sysctl": {"net.ipv4.conf.eth0.arp_notify": "1"},
                });
                let list = network(version, json!([bridge(&json!({"mtu": 1400}), host_local()), tuning]));
                one_life(&runtime(&plugins), &list, &target).await;
            }
        }
    });
}

async fn one_life(cni: &Cni, list: &NetworkList, target: &Target<'_>) {
    cni.status(list).await.unwrap();
    let added = cni.add(list, target, None).await.unwrap();
    assert_eq!(added.view.pod_links(target.ifname), std::slice::from_ref(target.ifname));
    let pod_side = added.view.interfaces.iter().position(|interface| interface.name == *target.ifname);
    assert_eq!(added.view.ips.len(), 2);
    assert!(added.view.ips.iter().all(|ip| ip.interface == pod_side && ip.gateway.is_some()), "{:?}", added.view);
    assert_eq!(added.view.ips.first().map(|ip| ip.address.prefix()), Some(24));
    assert!(said("ip -oneline link").contains("cni-test0"));

    let check = cni.check(list, target, &added.raw).await;
    if added.raw["cniVersion"].as_str() < Some("0.4.0") {
        check.expect_err("0.3 has no CHECK");
    } else {
        check.unwrap();
        // Of a result that the world does not agree with, the plugin's own words are told.
        let mut wrong = added.raw.clone();
        wrong["ips"][0]["address"] = "10.77.0.99/24".into();
        let error = cni.check(list, target, &wrong).await.expect_err("another address");
        assert!(why(&error).contains("Failed to match addr"), "{}", why(&error));
    }

    // Of the cache's result, then without any.
    cni.del(list, target, None).await.unwrap();
    cni.del(list, target, None).await.unwrap();
    assert!(!said("ip -oneline link").contains("veth"), "{}", said("ip -oneline link"));
    assert_eq!(leases(), [""; 0]);
}

#[test]
fn ports_rates_and_firewall_are_made_and_taken_away() {
    on_a_node_of_its_own(async || {
        let node = Node::new();
        let port = |host_port, protocol| HostPort { host_ip: None, host_port, container_port: 80, protocol };
        let capabilities = CapabilityArgs {
            port_mappings: vec![port(18080, PortProtocol::Tcp), port(15353, PortProtocol::Udp)],
            // Without bursts, as Kubernetes has them.
            bandwidth: Some(Bandwidth {
                ingress_rate: Some(8_000_000),
                egress_rate: Some(4_000_000),
                ..Bandwidth::default()
            }),
            ..CapabilityArgs::default()
        };
        let target = Target { netns: Path::new(NETNS), capabilities, ..node.target() };
        for (plugins, newest) in releases() {
            let cni = runtime(&plugins);
            let list = network(
                newest,
                json!([
                    bridge(&json!({"ipMasq": true}), host_local()),
                    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true, "backend": "iptables"},
                    {"type": "bandwidth", "capabilities": {"bandwidth": true}},
                    {"type": "firewall", "backend": "iptables"},
                    {"type": "tuning", "dataDir": STATE, "sysctl": {"net.ipv4.conf.eth0.arp_notify": "1"}},
                ]),
            );
            cni.status(&list).await.unwrap();
            let added = cni.add(&list, &target, None).await.unwrap();
            assert_eq!(added.view.pod_links(target.ifname), std::slice::from_ref(target.ifname));
            let address = added.view.ips.first().unwrap().address.ip();
            let nat = said("iptables -t nat -S");
            assert!(nat.contains(&format!("--dport 18080 -j DNAT --to-destination {address}:80")), "{nat}");
            assert!(nat.contains("-p udp -m udp --dport 15353"), "{nat}");
            assert!(said("ip6tables -t nat -S").contains("--dport 18080"));
            assert!(said("iptables -S").contains(&format!("-d {address}/32")), "{}", said("iptables -S"));
            let qdiscs = said("tc qdisc show");
            assert!(qdiscs.contains("rate 8Mbit") && qdiscs.contains("rate 4Mbit"), "{qdiscs}");

            let check = cni.check(&list, &target, &added.raw).await;
            if plugins == Path::new(DEBIANS) {
                // portmap of that release looks for the rules of the IPv4 address in both families' tables.
                let error = check.expect_err("a fault of portmap 1.1.1 with two families");
                assert!(why(&error).contains("could not check ipv6 dnat"), "{}", why(&error));
            } else {
                check.unwrap();
            }
            cni.del(&list, &target, Some(&added.raw)).await.unwrap();
            let nat = said("iptables -t nat -S") + &said("ip6tables -t nat -S");
            assert!(!nat.contains("18080") && !nat.contains("15353"), "{nat}");
            assert!(!said("iptables -S").contains(&format!("-d {address}/32")), "{}", said("iptables -S"));
            assert!(!said("tc qdisc show").contains("tbf"), "{}", said("tc qdisc show"));
            assert_eq!(leases(), [""; 0]);
        }
    });
}

#[test]
fn the_pod_gets_the_addresses_that_it_asks_for() {
    on_a_node_of_its_own(async || {
        let node = Node::new();
        let wish = CapabilityArgs { mac: Some("02:00:00:00:77:01".parse().unwrap()), ..CapabilityArgs::default() };
        let ips: Vec<IpNetwork> = vec!["10.78.0.9/16".parse().unwrap(), "fd78::9/64".parse().unwrap()];
        let ranges: Vec<Vec<IpNetwork>> = vec![vec!["10.79.0.0/24".parse().unwrap()]];
        let both = json!({"capabilities": {"mac": true, "ips": true, "ipRanges": true}, "isGateway": false});
        for (plugins, newest) in releases() {
            let cni = runtime(&plugins);
            let by_name = network(newest, json!([bridge(&both, json!({"type": "static"}))]));
            let by_range = network(newest, json!([bridge(&both, json!({"type": "host-local", "dataDir": STATE}))]));
            for (list, capabilities, expected) in [
                (by_name, CapabilityArgs { ips: ips.clone(), ..wish.clone() }, ips.clone()),
                (
                    by_range,
                    CapabilityArgs { ip_ranges: ranges.clone(), ..wish.clone() },
                    vec!["10.79.0.2/24".parse().unwrap()],
                ),
            ] {
                let target = Target { netns: Path::new(NETNS), capabilities, ..node.target() };
                let added = cni.add(&list, &target, None).await.unwrap();
                let given: Vec<_> = added.view.ips.iter().map(|ip| ip.address).collect();
                assert_eq!(given, expected);
                let inside = added.view.interfaces.iter().find(|interface| interface.sandbox.is_some()).unwrap();
                assert_eq!(inside.mac, wish.mac);
                cni.check(&list, &target, &added.raw).await.unwrap();
                cni.del(&list, &target, Some(&added.raw)).await.unwrap();
                fs::remove_dir_all(Path::new(STATE).join("net")).unwrap_or_default();
            }
        }
    });
}

#[test]
fn the_newest_version_that_the_release_speaks_is_found_out() {
    on_a_node_of_its_own(async || {
        let node = Node::new();
        let target = Target { netns: Path::new(NETNS), ..node.target() };
        for (plugins, newest) in releases() {
            let cni = runtime(&plugins);
            let list: NetworkList = json!({
                "cniVersion": "0.3.1", "cniVersions": ["0.4.0", "1.0.0", "1.1.0"], "name": "net",
                "plugins": [bridge(&json!({}), host_local())],
            })
            .try_into()
            .unwrap();
            let added = cni.add(&list, &target, None).await.unwrap();
            assert_eq!(added.raw["cniVersion"], newest);
            cni.check(&list, &target, &added.raw).await.unwrap();
            cni.del(&list, &target, Some(&added.raw)).await.unwrap();
        }
    });
}

#[test]
fn a_plugin_that_does_not_speak_the_version_says_so() {
    on_a_node_of_its_own(async || {
        let node = Node::new();
        let target = Target { netns: Path::new(NETNS), ..node.target() };
        let cni = runtime(Path::new(DEBIANS));
        let list = network("1.1.0", json!([bridge(&json!({}), host_local())]));
        let error = cni.add(&list, &target, None).await.expect_err("1.1.1 speaks 1.0.0");
        let expected = "change `cniVersion` of the network, or install another release of the plugin";
        assert!(why(&error).ends_with(expected), "{}", why(&error));
    });
}

#[test]
fn a_collection_gives_back_the_addresses_of_pods_that_are_no_more() {
    on_a_node_of_its_own(async || {
        let node = Node::new();
        Netns::create(Path::new("/run/netns/y")).unwrap();
        for (plugins, newest) in releases() {
            let cni = runtime(&plugins);
            let list = network(newest, json!([bridge(&json!({"ipMasq": true}), host_local())]));
            let stay: PodId = "5".repeat(32).parse().unwrap();
            let target = Target { netns: Path::new(NETNS), ..node.target() };
            let other = Target { netns: Path::new("/run/netns/y"), container_id: &stay, ..node.target() };
            cni.add(&list, &target, None).await.unwrap();
            let kept = cni.add(&list, &other, None).await.unwrap();
            assert_eq!((leases().len(), entries()), (4, 2));
            // The journal has lost the one pod. No release of these plugins finds anything itself, so what counts is the
            // cache; but those of 1.1.0 are asked, and take what they are told.
            for leftover in cni.leftovers().await.unwrap().iter().filter(|leftover| leftover.pod != stay) {
                cni.del_leftover(leftover).await.unwrap();
            }
            match cni.gc(&list, &[(stay.clone(), other.ifname.clone())]).await {
                Ok(()) => assert_eq!(newest, "1.1.0"),
                Err(error) => assert!(matches!(error, CniError::NoGc { .. }) && newest == "1.0.0", "{}", why(&error)),
            }
            assert_eq!((leases().len(), entries()), (2, 1));
            let links = said("ip -oneline link");
            assert_eq!(links.matches(": veth").count(), 1, "{links}");
            cni.check(&list, &other, &kept.raw).await.unwrap();
            cni.del(&list, &other, None).await.unwrap();
            assert_eq!((leases().len(), entries()), (0, 0));
        }
    });
}

fn entries() -> usize {
    fs::read_dir("/run/state/cache/results").unwrap().count()
}
