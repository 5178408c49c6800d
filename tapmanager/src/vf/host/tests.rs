//! With veths in the place of VFs: one whose other end has an index of [`PEERS`] stands for the VF of that number.

use std::process::Command;
use std::thread;
use std::time::Duration;

use sriov::Mac;
use sriov::claim::{Links as _, Netdev, Place};
use sriov::settings::{Attribute, ControlError, PfControl as _, Vlan};

use super::*;
use crate::confinement;
use crate::sys::testbed::{PATIENCE, apart, ip};

const PEERS: u32 = 700;
const POD: &str = "/run/netns/pod";
const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
const MOMENT: Duration = Duration::from_millis(20);

#[test]
fn a_netdev_is_found_where_it_is() {
    apart(async || {
        let (mut net, _pod) = world();
        assert_eq!(net.find(vf(1), Place::Host).expect("looked"), None);
        make_vf(1, "ens1v0");
        let found = net.find(vf(1), Place::Host).expect("looked").expect("found");
        assert_eq!((found.name.as_str(), found.up, found.extra), ("ens1v0", false, None));
        assert_eq!(net.find(vf(1), Place::Netns(POD)).expect("looked"), None);
        assert_eq!(net.find(vf(2), Place::Host).expect("looked"), None);
        assert!(net.netns_exists(POD).expect("told"));
        std::fs::write("/run/netns/stale", "").expect("a file");
        assert!(!net.netns_exists("/run/netns/stale").expect("told"));
        assert!(!net.netns_exists("/run/netns/none").expect("told"));
        let gone = net.find(vf(1), Place::Netns("/run/netns/none")).expect_err("gone");
        assert_eq!(gone.to_string(), "namespace `/run/netns/none` is gone");
    });
}

#[test]
fn a_netdev_goes_into_its_pod_under_a_name_that_the_host_has_taken() {
    apart(async || {
        let (mut net, _pod) = world();
        make_vf(1, "ens1v0");
        ip("link add eth0 type veth peer name other");
        let index = net.find(vf(1), Place::Host).expect("looked").expect("found").index;
        net.shape(Place::Host, index, MAC, 1400).expect("shaped");
        net.move_into(index, POD, "eth0").expect("moved");
        assert_eq!(net.find(vf(1), Place::Host).expect("looked"), None);
        let found = net.find(vf(1), Place::Netns(POD)).expect("looked").expect("moved");
        assert_eq!((found.name.as_str(), found.mac, found.mtu), ("eth0", MAC, 1400));
        let error = net.move_into(index, POD, "eth0").expect_err("not here any more");
        assert!(error.to_string().starts_with("failed to move the netdev with index"), "{error}");
    });
}

#[test]
fn a_netdev_in_use_is_shaped_and_stays_up() {
    apart(async || {
        let (mut net, _pod) = world();
        make_vf(1, "ens1v0");
        ip("link set ens1v0 up");
        let index = net.find(vf(1), Place::Host).expect("looked").expect("found").index;
        net.shape(Place::Host, index, MAC, 1400).expect("shaped");
        net.shape(Place::Host, index, MAC, 1400).expect("shaped again");
        let found = net.find(vf(1), Place::Host).expect("looked").expect("found");
        assert_eq!((found.mac, found.mtu, found.up), (MAC, 1400, true));
        let error = net.shape(Place::Host, index, MAC, 20).expect_err("too small");
        assert_eq!(error.to_string(), "failed to give `ens1v0` the MTU 20");
    });
}

#[test]
fn what_cni_left_is_there_again_on_the_vfs_next_netdev() {
    apart(async || {
        let (mut net, pod) = world();
        make_vf(1, "net1");
        ip("link set net1 netns pod");
        // A link that stays, with routes of its own.
        ip("-n pod link add eth0 type veth peer name away");
        ip("-n pod link set eth0 up");
        ip("-n pod addr add 10.9.0.2/24 dev eth0");
        ip("-n pod route add default via 10.9.0.1 metric 10");
        for line in LEFT.lines().map(str::trim).filter(|line| !line.is_empty()) {
            ip(&format!("-n pod {line}"));
        }
        let saved = net.find(vf(1), Place::Netns(POD)).expect("looked").expect("found");
        assert_eq!(net.find(vf(1), Place::Netns(POD)).expect("looked").as_ref(), Some(&saved), "the same text");
        let seen = shown(&pod);
        assert!(saved.extra.as_ref().is_some_and(|extra| extra.contains(r#""alias":"ens1v0""#)), "{saved:?}");

        ip("-n pod link delete net1");
        make_vf(1, "ens1v0");
        let index = net.find(vf(1), Place::Host).expect("looked").expect("found").index;
        net.shape(Place::Host, index, saved.mac, saved.mtu).expect("shaped");
        net.move_into(index, POD, "net1").expect("moved");
        // The pod may have a link with its index.
        let index = net.find(vf(1), Place::Netns(POD)).expect("looked").expect("found").index;
        net.dress(POD, index, &saved).expect("dressed");
        let back = net.find(vf(1), Place::Netns(POD)).expect("looked").expect("found");
        assert_eq!(back, Netdev { index, ..saved.clone() });
        assert_eq!(shown(&pod), seen);
        net.dress(POD, index, &saved).expect("dressed again");
        assert_eq!(net.find(vf(1), Place::Netns(POD)).expect("looked"), Some(back));
        assert_eq!(shown(&pod), seen);
    });
}

#[test]
fn what_is_missing_is_put_back_and_what_others_made_is_not_replaced() {
    apart(async || {
        let (mut net, _pod) = world();
        make_vf(1, "net1");
        ip("link set net1 netns pod");
        ip("-n pod link set net1 up");
        ip("-n pod addr add 10.0.0.2/24 dev net1");
        ip("-n pod route add 10.8.0.0/16 via 10.0.0.1");
        let saved = net.find(vf(1), Place::Netns(POD)).expect("looked").expect("found");
        ip("-n pod link set net1 down");
        ip("-n pod link set net1 name else");
        net.dress(POD, saved.index, &saved).expect("dressed");
        assert_eq!(net.find(vf(1), Place::Netns(POD)).expect("looked").as_ref(), Some(&saved));

        ip("-n pod route delete 10.8.0.0/16");
        ip("-n pod route add 10.8.0.0/16 dev lo");
        let error = net.dress(POD, saved.index, &saved).expect_err("taken");
        assert_eq!(error.to_string(), "failed to put back route to `10.8.0.0/16` of table 254");
        let odd = Netdev { extra: Some("{}x".to_owned()), ..saved };
        net.dress(POD, odd.index, &odd).expect_err("not understood");
    });
}

#[test]
fn a_netdev_is_awaited_and_found_under_whatever_name_it_gets() {
    apart(async || {
        let (mut net, _pod) = world();
        make_vf(2, "other");
        let here = Netns::open(Path::new("/proc/thread-self/ns/net")).expect("opened").expect("there");
        let found = thread::scope(|scope| {
            let waiting = scope.spawn(|| net.await_netdev(vf(1), PATIENCE).expect("awaited"));
            here.inside(|| {
                ip("link set other mtu 1300");
                make_vf(1, "eth0");
                ip("link set eth0 name ens1v0");
            })
            .expect("made");
            waiting.join().expect("joined")
        });
        let found = found.expect("it came");
        assert_eq!(net.find(vf(1), Place::Host).expect("looked").map(|netdev| netdev.index), Some(found.index));
        assert_eq!(net.await_netdev(vf(3), MOMENT).expect("awaited"), None);
    });
}

#[test]
fn the_calling_thread_may_be_in_a_pod() {
    apart(async || {
        let (mut net, pod) = world();
        make_vf(1, "ens1v0");
        let found = pod.inside(|| {
            let awaited = net.await_netdev(vf(1), PATIENCE).expect("awaited");
            (net.find(vf(1), Place::Host).expect("looked"), awaited)
        });
        let (found, awaited) = found.expect("inside");
        assert!(found.is_some());
        assert_eq!(found, awaited);
    });
}

#[test]
fn a_confined_daemon_may_do_all_of_it() {
    apart(async || {
        let (mut net, _pod) = world();
        make_vf(1, "ens1v0");
        // For good, on a thread that ends with the test.
        confinement::confine(true).expect("confined");
        let found = net.await_netdev(vf(1), PATIENCE).expect("awaited").expect("found");
        assert_eq!(net.await_netdev(vf(2), MOMENT).expect("awaited"), None);
        net.shape(Place::Host, found.index, MAC, 1400).expect("shaped");
        net.move_into(found.index, POD, "net1").expect("moved");
        let found = net.find(vf(1), Place::Netns(POD)).expect("looked").expect("found");
        let extra =
            r#"{"addresses":[{"ip":"10.0.0.2","prefix":24,"label":"net1","scope":0,"flags":0,"deprecated":false}],"#;
        let extra = format!(r#"{extra}"routes":[],"neighbours":[{{"ip":"10.0.0.1","mac":"02:00:00:00:00:99"}}]}}"#);
        let name = "net1".to_owned();
        let saved = Netdev { name, index: 0, mac: MAC, mtu: 1400, up: true, extra: Some(extra) };
        net.dress(POD, found.index, &saved).expect("dressed");
        assert!(net.find(vf(1), Place::Netns(POD)).expect("looked").is_some_and(|netdev| netdev.up));
        let error = net.write(vf(1), 0, Attribute::Trust(true)).expect_err("no netdev here any more");
        assert_eq!(common::Chain(&error).to_string().split(':').next(), Some("PF `0000"), "{error}");
        HostNet::open(Sysfs::new(Path::new("/sys"), Path::new("/dev"))).expect("opened");
    });
}

#[test]
fn a_link_without_vfs_tells_of_none_and_takes_no_setting() {
    apart(async || {
        let (mut net, _pod) = world();
        make_vf(0, "ens1f0");
        let error = net.read(vf(0), 3).expect_err("no VF");
        assert_eq!(error.to_string(), "PF `0000:3b:00.0` (`ens1f0`) has 0 VFs and no VF 3; see its `sriov_numvfs`");
        for attribute in [Attribute::Trust(true), Attribute::Mac(MAC), Attribute::Vlan(Vlan::default())] {
            let error = net.write(vf(0), 3, attribute).expect_err("no VF");
            assert!(matches!(error, ControlError::Unsupported), "{error}");
        }
        let error = net.read(vf(1), 0).expect_err("no netdev");
        assert_eq!(error.to_string(), "PF `0000:3b:00.1` has no netdev that can be found");
    });
}

/// What a CNI plugin may leave on `net1`.
const LEFT: &str = "
    link set net1 address 02:00:00:00:00:08 mtu 1400 up
    link set net1 alias ens1v0
    addr add 10.0.0.2/24 broadcast 10.0.0.255 dev net1
    addr add 10.0.0.3/24 dev net1
    addr add 10.1.0.2 peer 10.1.0.1/32 dev net1
    addr add 192.0.2.7/32 scope link dev net1
    addr add fd00::2/64 dev net1 nodad
    addr add fd00:1::2/64 dev net1 nodad noprefixroute
    addr add fd00:1::1/64 dev net1 nodad
    route add 10.7.0.1 dev net1 scope link
    route add 10.8.0.0/16 via 10.0.0.1 src 10.0.0.3 mtu 1300 advmss 1200
    route add default via 10.0.0.1 metric 50
    route add default via 10.0.0.1 table 1000
    route add 10.11.0.0/16 via 10.12.0.1 dev net1 onlink table 70000
    route add 10.13.0.0/16 nexthop via 10.0.0.1 dev net1 weight 2 nexthop via 10.0.0.9 dev net1
    route add 10.14.0.0/16 via inet6 fd00::1 dev net1
    route add fd00:9::/64 via fd00::1 dev net1 src fd00::2
    route add default via fd00::1 dev net1 metric 50
    neigh add 10.0.0.1 lladdr 02:00:00:00:00:99 dev net1
    neigh add fd00::1 lladdr 02:00:00:00:00:99 dev net1
";

/// Addresses, routes and neighbours of the pod as iproute2 shows them, without what the kernel made or a carrier changes.
fn shown(pod: &Netns) -> Vec<String> {
    let lines = ["-o addr show dev net1 scope global", "route show table all", "-6 route show table all", "neigh show"];
    let shown = pod.inside(|| lines.map(output));
    let shown = shown.expect("inside").concat();
    let kept = shown.lines().filter(|line| !line.contains("proto kernel") && !line.contains("fe80:"));
    let words = kept.map(|line| {
        let words = line.split_whitespace().filter(|word| !["linkdown", "tentative", "10:", "11:"].contains(word));
        words.skip_while(|word| word.ends_with(':')).collect::<Vec<_>>().join(" ")
    });
    words.collect()
}

fn output(line: &str) -> String {
    let output = Command::new("ip").args(line.split_whitespace()).output().expect("`ip` of iproute2 is installed");
    String::from_utf8(output.stdout).expect("text")
}

/// This thread's namespace as the host's, and a pod.
fn world() -> (HostNet, Netns) {
    let here = Netns::open(Path::new("/proc/thread-self/ns/net")).expect("opened").expect("there");
    let pod = Netns::create(Path::new(POD)).expect("created");
    let none = Path::new("/nonexistent");
    (HostNet::of(here, Sysfs::new(none, none), by_peer).expect("opened"), pod)
}

fn make_vf(number: u32, name: &str) {
    ip(&format!("link add name peer{number} index {} type veth peer name {name}", PEERS + number));
}

fn by_peer(link: &Link) -> Option<PciAddr> {
    let number = link.lower?.checked_sub(PEERS)?;
    format!("0000:3b:00.{number}").parse().ok()
}

fn vf(number: u32) -> PciAddr {
    format!("0000:3b:00.{number}").parse().expect("an address")
}
