//! Joining on the real kernel, apart from the machine: a veth pair between a "node" and a pod, as a plugin leaves it.

use std::error::Error as _;
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use nix::errno::Errno;

use super::filter::tests::{GUEST, ethernet, ipv4, table, udp};
use super::*;
use crate::sys::testbed::{apart, ip, within};

mod bed;
mod lent;
mod neighbours;
mod stack;
mod standing;
mod traffic;
mod ways;

use bed::{Bed, Events, Seen, Wire, choices, hear, marker, open_taps, refused_taps, tagged, untagged};

const FAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;

#[test]
fn frames_cross_or_not_as_the_table_says_on_the_real_kernel() {
    apart(async || {
        let bed = Bed::new();
        let _joined = bed.join().await.expect("joined");
        let guest = bed.guest().await;
        for (name, frame, from_guest, to_guest) in table() {
            // Taps and packet sockets take no less than an Ethernet header, and the redirect nothing without a payload.
            if frame.len() <= 14 {
                continue;
            }
            for sent in [frame.clone(), tagged(&frame)] {
                guest.send(&sent).await;
                guest.send(&marker()).await;
                assert_eq!(bed.far.hears(&frame).await, from_guest, "{name}, from the guest");
                bed.far.send(&sent).await;
                bed.far.send(&marker()).await;
                assert_eq!(guest.hears(&frame).await, to_guest, "{name}, to the guest");
            }
        }
        let hidden = tagged(&tagged(&ethernet(FAR, 0x0806, &[0; 28])));
        guest.send(&hidden).await;
        guest.send(&marker()).await;
        assert!(!bed.far.hears(&untagged(&hidden)).await, "two VLAN tags, from the guest");
        bed.far.send(&hidden).await;
        bed.far.send(&marker()).await;
        assert!(!guest.hears(&untagged(&hidden)).await, "two VLAN tags, to the guest");
    });
}

#[test]
fn the_namespaces_own_stack_hears_nothing_while_joined() {
    apart(async || {
        let bed = Bed::new();
        let stack = bed.pod.inside(|| UdpSocket::bind("10.77.0.2:5000")).expect("entered").expect("bound");
        stack.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let datagram = datagram_to_pod(5000);

        bed.far.send(&datagram).await;
        stack.recv(&mut [0; 64]).expect("heard before");

        let _joined = bed.join().await.expect("joined");
        let guest = bed.guest().await;
        let who_has = ethernet(FAR, 0x0806, &arp_request());
        for frame in [&datagram, &who_has, &marker()] {
            bed.far.send(frame).await;
        }
        assert!(guest.hears(&datagram).await, "the guest is told");
        stack.set_nonblocking(true).unwrap();
        assert_eq!(stack.recv(&mut [0; 64]).expect_err("silence").kind(), io::ErrorKind::WouldBlock);
        guest.send(&marker()).await;
        let answers = bed.far.until_marker().await;
        assert!(!answers.iter().any(|frame| frame[12..14] == [8, 6]), "the stack answered ARP: {answers:02x?}");

        unjoin(&bed.pod).await.expect("unjoined");
        stack.set_nonblocking(false).unwrap();
        bed.far.send(&datagram).await;
        stack.recv(&mut [0; 64]).expect("heard after");
    });
}

#[test]
fn dhcp_is_spoken_between_the_guest_and_its_own_server_alone() {
    apart(async || {
        let bed = Bed::new();
        let joined = bed.join().await.expect("joined");
        let guest = bed.guest().await;
        let [Some(server)] = &joined.ports[..] else { panic!("one NIC, one socket") };
        let discover = |source| ethernet(source, 0x0800, &ipv4(17, &[], 0, &udp(DHCP_SERVER)));
        let offer = ethernet(FAR, 0x0800, &ipv4(17, &[], 0, &udp(DHCP_CLIENT)));

        // Another pod's DISCOVER crosses to the guest, as every broadcast, but not to the guest's server.
        bed.far.send(&discover(FAR)).await;
        bed.far.send(&marker()).await;
        assert!(guest.hears(&discover(FAR)).await);
        guest.send(&discover(GUEST)).await;
        assert_eq!(hear(&server.socket).await, discover(GUEST));

        within("send", server.socket.send(&offer)).await.expect("sent");
        bed.far.send(&marker()).await;
        assert!(guest.hears(&offer).await);
        guest.send(&marker()).await;
        let outside = bed.far.until_marker().await;
        assert!(!outside.contains(&offer) && !outside.contains(&discover(GUEST)), "{outside:02x?}");
    });
}

#[test]
fn the_guest_gets_what_the_kernel_has_and_the_link_keeps_it() {
    apart(async || {
        let bed = Bed::new();
        // As the ptp plugin leaves it.
        for line in [
            "route del default",
            "route del 10.77.0.0/24 dev eth0",
            "route add 10.77.0.1/32 dev eth0 scope link src 10.77.0.2",
            "route add 10.77.0.0/24 via 10.77.0.1 src 10.77.0.2",
            "route add default via 10.77.0.1",
        ] {
            bed.pod.inside(|| ip(line)).expect("entered");
        }
        let before = bed.state();
        let joined = bed.join().await.expect("joined");
        let [nic] = &joined.nics[..] else { panic!("one link, one NIC") };
        insta::assert_json_snapshot!(nic);
        let _guest = bed.guest().await;
        let after = bed.state();
        assert_eq!(
            after.0.iter().filter(|link| link.name.as_str() != "tap0").collect::<Vec<_>>(),
            before.0.iter().collect::<Vec<_>>()
        );
        assert_eq!((&after.1, &after.2), (&before.1, &before.2), "addresses and routes, none of the tap");
        let tap = after.0.iter().find(|link| link.name.as_str() == "tap0").expect("a tap");
        assert_eq!((tap.mtu, tap.up), (1450, true));

        unjoin(&bed.pod).await.expect("unjoined");
        unjoin(&bed.pod).await.expect("unjoined again");
        assert_eq!((bed.state().1, bed.state().2), (before.1, before.2));
        assert_eq!(bed.ours("eth0"), tc::OurFilters::default());
    });
}

#[test]
fn whichever_step_fails_the_namespace_is_as_before() {
    apart(async || {
        let bed = Bed::new();
        ip("link add host1 up type veth peer name net1 netns pod");
        let before = bed.state();
        let reported = [Reported { links: vec!["eth0".parse().unwrap(), "net1".parse().unwrap()], ..bed.reported() }];
        let mut failed = 0;
        let joined = loop {
            let faults = Arc::new(Faults::after_step(failed + 1));
            let events = bed.pod.inside(Events::here).expect("entered");
            match join(&bed.pod, &reported, choices(), &faults).await {
                Ok(joined) => break joined,
                Err(JoinError::Apply(error)) => {
                    assert!(matches!(error.cause, apply::StepError::Fault(_)), "{error}: {}", error.cause);
                    assert!(error.left_behind.0.is_empty(), "{error}");
                }
                Err(error) => panic!("{error}"),
            }
            failed += 1;
            events.until_all_gone(if failed > 10 { &["tap0", "tap1"] } else { &["tap0"] });
            assert_eq!(bed.state(), before, "after step {failed}");
            for link in ["eth0", "net1"] {
                assert_eq!(bed.ours(link), tc::OurFilters::default(), "{link} after step {failed}");
            }
        };
        assert_eq!(failed, 10 + 11, "the steps of two NICs, and one to bring up the second's link");
        assert_eq!(joined.ports.len(), 2);
        assert!(bed.state().0.iter().all(|link| link.up));
    });
}

#[test]
fn a_link_that_somebody_filters_is_refused_and_left_alone() {
    apart(async || {
        let bed = Bed::new();
        let index = bed.index("eth0");
        let add = move || tc::add_clsact(&mut Netlink::open().expect("a socket"), index);
        bed.pod.inside(add).expect("entered").expect("added");
        let before = bed.state();
        let error = bed.join().await.expect_err("refused");
        let chain = format!("{error}: {}", error.source().expect("a cause"));
        insta::assert_snapshot!(chain);
        assert_eq!(bed.state(), before);
        unjoin(&bed.pod).await.expect("unjoined");
        let again = bed.pod.inside(add).expect("entered").expect_err("still there");
        assert_eq!(again.errno(), Some(Errno::EEXIST));
    });
}

#[test]
fn a_link_in_the_result_that_is_not_there_changes_nothing() {
    apart(async || {
        let bed = Bed::new();
        let before = bed.state();
        let reported = [Reported { links: vec!["eth7".parse().unwrap()], ..bed.reported() }];
        let error = join(&bed.pod, &reported, choices(), &Arc::new(Faults::none())).await.expect_err("refused");
        assert!(matches!(error, JoinError::Plan(plan::PlanError::Missing { .. })), "{error}");
        assert_eq!(bed.state(), before);
    });
}

#[test]
fn two_links_are_two_nics_with_their_own_taps() {
    apart(async || {
        let bed = Bed::new();
        let events = Events::here();
        ip("link add host1 index 101 type veth peer name net1 address 8e:00:00:00:00:11 mtu 9000 netns pod");
        ip("link set host1 up addrgenmode none");
        bed.pod.inside(|| ip("link set net1 up")).expect("entered");
        events.until_up(&["host1".to_owned()]);
        let far = Wire::of_link("host1");
        let reported = [Reported { links: vec!["eth0".parse().unwrap(), "net1".parse().unwrap()], ..bed.reported() }];
        let joined = join(&bed.pod, &reported, choices(), &Arc::new(Faults::none())).await.expect("joined");
        assert_eq!(joined.nics.iter().map(|nic| nic.mtu).collect::<Vec<_>>(), [1450, 9000]);
        let [first, second] = <[Wire; 2]>::try_from(bed.guests(2).await).ok().expect("two");
        let frame = ethernet(GUEST, 0x88b6, &[2; 40]);
        second.send(&frame).await;
        second.send(&marker()).await;
        assert!(far.hears(&frame).await);
        first.send(&marker()).await;
        assert!(!bed.far.hears(&frame).await, "only the one NIC");
        let discover = ethernet(GUEST, 0x0800, &ipv4(17, &[], 0, &udp(DHCP_SERVER)));
        second.send(&discover).await;
        assert_eq!(hear(&joined.ports[1].as_ref().expect("a port").socket).await, discover);
    });
}

#[test]
fn a_link_that_moves_to_another_namespace_leaves_our_filters_behind() {
    apart(async || {
        let bed = Bed::new();
        let joined = bed.join().await.expect("joined");
        assert!(bed.ours("eth0").any());
        // As a plugin's DEL gives a device back to the node.
        let other = Netns::create(Path::new("/run/netns/node")).expect("created");
        bed.pod.inside(|| ip("link set eth0 netns node")).expect("entered");
        let node = Bed { pod: other, far: bed.far };
        assert!(!node.ours("eth0").any());
        joined.ports.into_iter().flatten().for_each(close);
        ip("link del host0");
        for name in ["pod", "node"] {
            Netns::remove(&Path::new("/run/netns").join(name)).expect("removed");
        }
    });
}

#[test]
fn after_a_restart_a_running_guest_is_heard_again() {
    apart(async || {
        let bed = Bed::new();
        let joined = bed.join().await.expect("joined");
        let guest = bed.guest().await;
        joined.ports.into_iter().flatten().for_each(close);
        let ports = rejoin(&bed.pod, &joined.nics).await.expect("joined again");
        let request = ethernet(GUEST, 0x0800, &ipv4(17, &[], 0, &udp(DHCP_SERVER)));
        guest.send(&request).await;
        assert_eq!(hear(&ports[0].as_ref().expect("a port").socket).await, request);
        guest.send(&marker()).await;
        assert!(bed.far.hears(&marker()).await);
    });
}

#[test]
fn what_is_no_longer_as_joined_is_not_taken_up_again() {
    apart(async || {
        let bed = Bed::new();
        let joined = bed.join().await.expect("joined");
        let in_pod = |line: &'static str| bed.pod.inside(move || ip(line)).expect("entered");
        let again = async || rejoin(&bed.pod, &joined.nics).await.map(|_| ()).expect_err("refused").to_string();
        let mut refusals = vec![];
        in_pod("link set eth0 address 8e:00:00:00:00:99");
        refusals.push(again().await);
        in_pod("link set eth0 address 8e:01:02:03:04:05");
        assert!(rejoin(&bed.pod, &joined.nics).await.is_ok(), "as it was");
        in_pod("link set tap0 down");
        refusals.push(again().await);
        in_pod("link set tap0 up");
        unjoin(&bed.pod).await.expect("unjoined");
        refusals.push(again().await);
        in_pod("link del tap0");
        refusals.push(again().await);
        in_pod("link del eth0");
        refusals.push(again().await);
        insta::assert_snapshot!(refusals.join("\n"));
        unjoin(&bed.pod).await.expect("nothing to unjoin");
    });
}

#[test]
fn one_machine_at_a_time_has_the_tap_and_none_is_kept_open() {
    apart(async || {
        let bed = Bed::new();
        assert!(matches!(open_taps(&bed.pod, &bed.nics(1), false).await, Err(JoinError::Tap(TapError::Absent { .. }))));
        assert_eq!(bed.state().0.len(), 2, "looking for a tap made none");
        let _joined = bed.join().await.expect("joined");
        let first = bed.guest().await;
        let error = refused_taps(&bed.pod, &bed.nics(1)).await;
        assert_eq!(error.to_string(), "tap `tap0` is in use; another QEMU holds it");
        bed.leave(first);
        open_taps(&bed.pod, &bed.nics(1), false).await.expect("free again");
        let create = || tap::create(&tap_name(0), 1);
        let error = bed.pod.inside(create).expect("entered").expect_err("there");
        assert!(matches!(error, TapError::Exists { .. }), "{error}");
    });
}

#[test]
fn stale_frames_do_not_reach_the_next_machine() {
    apart(async || {
        let bed = Bed::new();
        let _joined = bed.join().await.expect("joined");
        let stale = ethernet(FAR, 0x88b6, &[7; 40]);
        bed.leave(bed.guest().await);
        bed.far.send(&stale).await;
        let guest = bed.guest().await;
        bed.far.send(&marker()).await;
        assert!(!guest.hears(&stale).await);
    });
}

#[test]
fn the_namespace_goes_with_all_that_is_ours_in_it() {
    apart(async || {
        let events = Events::here();
        let bed = Bed::new();
        let joined = bed.join().await.expect("joined");
        let ports = rejoin(&bed.pod, &joined.nics).await.expect("joined again");
        drop(open_taps(&bed.pod, &bed.nics(1), false).await.expect("opened"));
        unjoin(&bed.pod).await.expect("unjoined");
        joined.ports.into_iter().chain(ports).flatten().for_each(close);
        Netns::remove(bed.pod.path()).expect("removed");
        drop(bed);
        // Any descriptor left over would keep the namespace, and with it the node's end of the veth.
        events.until_gone("host0");
    });
}

fn close(port: Port) {
    port.socket.close_off_reactor();
}

/// A datagram that the pod's stack takes, if it hears it.
fn datagram_to_pod(port: u16) -> Vec<u8> {
    let mut packet = ipv4(17, &[], 0, &udp(port));
    packet[3] = 28;
    packet[12..16].copy_from_slice(&[10, 77, 0, 1]);
    packet[16..20].copy_from_slice(&[10, 77, 0, 2]);
    let sum: u32 = packet[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!folded).to_be_bytes()[2..]);
    let mut frame = ethernet(FAR, 0x0800, &packet);
    frame[..6].copy_from_slice(&GUEST);
    frame
}

/// "Who has 10.77.0.2?" of 10.77.0.1.
fn arp_request() -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    [&head[..], &FAR, &[10, 77, 0, 1], &[0; 6], &[10, 77, 0, 2]].concat()
}
