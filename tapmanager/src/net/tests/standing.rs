//! Checks, repairs, counters and queues on the real kernel, by each data path.

use proto::tap::DataPath;

use super::*;

const PATHS: [DataPath; 3] = DataPath::ALL;

fn by(data_path: DataPath) -> Choices {
    Choices { data_path, queues: 2, anti_spoof: true }
}

async fn joined(bed: &Bed, choices: Choices) -> Joined {
    join(&bed.pod, &[bed.reported()], choices, &Arc::new(Faults::none())).await.expect("joined")
}

#[test]
fn by_each_data_path_what_is_lost_is_found_and_made_again() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            let before = bed.state();
            let choices = by(path);
            let nics = joined(&bed, choices).await.nics;
            let check = async || {
                let found = check(&bed.pod, &nics, choices, vec![]).await.expect("looked");
                found.into_iter().map(|found| found.line).collect::<Vec<_>>()
            };
            assert_eq!(check().await, [""; 0], "{path:?}");
            let in_pod = |line: &'static str| bed.pod.inside(move || ip(line)).expect("entered");
            let clear =
                || drop(std::process::Command::new("tc").args(["qdisc", "del", "dev", "eth0", "clsact"]).status());
            let filters = || {
                for hook in ["ingress", "egress"] {
                    drop(std::process::Command::new("tc").args(["filter", "del", "dev", "eth0", hook]).status());
                }
            };
            let losses: [(&str, &dyn Fn()); 4] = [
                ("tap", &|| in_pod("link del tap0")),
                ("tap down", &|| in_pod("link set tap0 down")),
                ("filters", &|| bed.pod.inside(clear).expect("entered")),
                ("filters alone", &|| bed.pod.inside(filters).expect("entered")),
            ];
            for (what, lose) in losses {
                lose();
                assert!(!check().await.is_empty(), "{what} {path:?}");
                rejoin(&bed.pod, &nics).await.expect_err("not as joined");
                let made = repair(&bed.pod, &nics, choices, &Arc::new(Faults::none())).await.expect("repaired");
                assert!(!made.is_empty(), "{what} {path:?}");
                assert_eq!(check().await, [""; 0], "{what} {path:?}: {made:?}");
                let sockets = rejoin(&bed.pod, &nics).await.expect("joined again");
                assert_eq!(sockets.iter().flatten().count(), usize::from(path != DataPath::Macvtap));
            }
            in_pod("addr del 10.77.0.2/24 dev eth0");
            assert!(!check().await.is_empty(), "address {path:?}");
            in_pod("link set eth0 address 8e:00:00:00:00:99");
            repair(&bed.pod, &nics, choices, &Arc::new(Faults::none())).await.expect_err("not ours to repair");
            in_pod("link set eth0 address 8e:01:02:03:04:05");
            unjoin(&bed.pod).await.expect("unjoined");
            let eth0 = |seen: &Seen| seen.0.iter().find(|link| link.name.as_str() == "eth0").cloned();
            assert_eq!(eth0(&bed.state()), eth0(&before), "{path:?}");
            assert_eq!(bed.ours("eth0"), tc::OurFilters::default(), "{path:?}");
        });
    }
}

/// The kernel runs no IPv6 on such a link, nor on a tap of its MTU.
#[test]
fn by_each_data_path_a_link_too_narrow_for_ipv6_is_joined_and_repaired() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            ip("link set host0 mtu 1000");
            let in_pod = |line: &'static str| bed.pod.inside(move || ip(line)).expect("entered");
            in_pod("link set eth0 mtu 1000");
            let reported = Reported { addresses: vec!["10.77.0.2/24".parse().expect("an address")], ..bed.reported() };
            let joined = join(&bed.pod, &[reported], by(path), &Arc::new(Faults::none())).await.expect("joined");
            assert_eq!(joined.nics[0].mtu, 1000, "{path:?}");
            assert_eq!(check(&bed.pod, &joined.nics, by(path), vec![]).await.expect("looked"), [], "{path:?}");
            in_pod("link del tap0");
            repair(&bed.pod, &joined.nics, by(path), &Arc::new(Faults::none())).await.expect("repaired");
            assert_eq!(check(&bed.pod, &joined.nics, by(path), vec![]).await.expect("looked"), [], "{path:?}");
        });
    }
}

#[test]
fn what_a_network_said_of_its_routes_is_no_difference_later() {
    apart(async || {
        let bed = Bed::new();
        let size = RouteSize { dst: "0.0.0.0/0".parse().expect("all"), priority: None, mtu: Some(1300), advmss: None };
        let reported = vec![Reported { sizes: vec![size], ..bed.reported() }];
        let joined = join(&bed.pod, &reported, by(DataPath::Tc), &Arc::new(Faults::none())).await.expect("joined");
        assert_eq!(joined.nics[0].mtu, 1300);
        assert_eq!(check(&bed.pod, &joined.nics, by(DataPath::Tc), reported).await.expect("looked"), []);
    });
}

#[test]
fn by_each_data_path_what_is_in_the_way_of_a_repair_is_named_and_left_alone() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            let choices = by(path);
            let nics = joined(&bed, choices).await.nics;
            let tc = |line: &'static str| {
                let run = move || std::process::Command::new("tc").args(line.split(' ')).status().expect("tc");
                assert!(bed.pod.inside(run).expect("entered").success(), "tc {line}");
            };
            tc("filter add dev eth0 egress prio 7 protocol all u32 match u32 0 0");
            assert_eq!(check(&bed.pod, &nics, choices, vec![]).await.expect("looked"), [], "{path:?}");
            tc("filter del dev eth0 ingress");
            repair(&bed.pod, &nics, choices, &Arc::new(Faults::none())).await.expect("repaired beside it");
            assert_eq!(check(&bed.pod, &nics, choices, vec![]).await.expect("looked"), [], "{path:?}");
            tc("filter del dev eth0 egress prio 7");
            tc("filter del dev eth0 ingress");
            tc("filter add dev eth0 ingress prio 1 protocol all u32 match u32 0 0");
            let refused = repair(&bed.pod, &nics, choices, &Arc::new(Faults::none())).await.expect_err("in the way");
            let JoinError::Changed { found } = &refused else { panic!("{refused}") };
            assert!(matches!(&found[..], [Drift::InTheWay { .. }]), "{refused}");
            assert!(refused.to_string().contains("`eth0`") && refused.to_string().contains("priority 1"), "{refused}");
            tc("filter del dev eth0 ingress prio 1");
            repair(&bed.pod, &nics, choices, &Arc::new(Faults::none())).await.expect("repaired");
            bed.pod.inside(|| ip("link del tap0")).expect("entered");
            bed.pod.inside(|| ip("link add tap0 type veth peer name other")).expect("entered");
            let refused = repair(&bed.pod, &nics, choices, &Arc::new(Faults::none())).await.expect_err("taken");
            let JoinError::Changed { found } = &refused else { panic!("{refused}") };
            assert!(matches!(&found[..], [Drift::NameTaken { .. }]), "{refused}");
        });
    }
}

#[test]
fn by_each_data_path_a_failed_join_leaves_the_namespace_as_it_was() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            let before = bed.state();
            for failed in 1.. {
                let faults = Arc::new(Faults::after_step(failed));
                let events = bed.pod.inside(Events::here).expect("entered");
                match join(&bed.pod, &[bed.reported()], by(path), &faults).await {
                    Ok(_) => break,
                    Err(JoinError::Apply(error)) => {
                        assert!(matches!(error.cause, apply::StepError::Fault(_)), "{error}: {}", error.cause);
                        assert!(error.left_behind.0.is_empty(), "{error}");
                    }
                    Err(error) => panic!("{path:?}: {error}"),
                }
                events.until_gone("tap0");
                assert_eq!(bed.state(), before, "{path:?} after step {failed}");
                assert_eq!(bed.ours("eth0"), tc::OurFilters::default(), "{path:?} after step {failed}");
            }
        });
    }
}

#[test]
fn a_guest_has_as_many_queues_as_it_was_given_and_counts_from_its_side() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            let nics = joined(&bed, by(path)).await.nics;
            assert_eq!(nics[0].tap().map(|tap| tap.queues), Some(2));
            let events = bed.pod.inside(Events::here).expect("entered");
            let opened = open_taps(&bed.pod, &nics, false).await.expect("opened");
            assert_eq!(opened.iter().map(|nic| (nic.queues.len(), nic.vhost.len())).collect::<Vec<_>>(), [(2, 0)]);
            if path != DataPath::Macvtap {
                events.until_up(&["tap0".to_owned()]);
            }
            let mut queues = opened.into_iter().flat_map(|nic| nic.queues).map(Wire::of_tap);
            let guest = queues.next().expect("a queue");
            // Its own address and none other: the guest is held to it.
            let mut frame = ethernet([0x8e, 1, 2, 3, 4, 5], 0x0806, &[0; 46]);
            frame[14..42].copy_from_slice(&own_arp());
            let before = stats(&bed.pod, &nics).await.expect("counted").remove(0);
            guest.send(&frame).await;
            let mut foreign = frame.clone();
            foreign[6..12].copy_from_slice(&FAR);
            guest.send(&foreign).await;
            let after = stats(&bed.pod, &nics).await.expect("counted").remove(0);
            assert_eq!(after.name.as_str(), "eth0");
            assert!(after.tx_packets > before.tx_packets, "{path:?}: {before:?} {after:?}");
            assert!(after.tx_dropped > before.tx_dropped, "{path:?}: {before:?} {after:?}");
        });
    }
}

#[test]
fn what_a_guest_received_and_sent_is_counted_alike_by_each_data_path() {
    const FRAME: usize = 60;
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            let nics = joined(&bed, Choices { queues: 1, ..by(path) }).await.nics;
            let events = bed.pod.inside(Events::here).expect("entered");
            let mut opened = open_taps(&bed.pod, &nics, false).await.expect("opened");
            if path != DataPath::Macvtap {
                events.until_up(&["tap0".to_owned()]);
            }
            let guest = Wire::of_tap(opened.remove(0).queues.remove(0));
            // For the guest, and for another station, which its guard refuses.
            let mut wanted = ethernet(FAR, 0x88b5, &[7; 46]);
            wanted[..6].copy_from_slice(&[0x8e, 1, 2, 3, 4, 5]);
            let mut other = wanted.clone();
            other[..6].copy_from_slice(&[2, 8, 8, 8, 8, 8]);
            let before = stats(&bed.pod, &nics).await.expect("counted").remove(0);
            for frame in [&wanted, &other, &wanted, &marker()] {
                assert_eq!(frame.len(), FRAME);
                bed.far.send(frame).await;
            }
            assert_eq!(guest.until_marker().await, [wanted.clone(), wanted], "{path:?}");
            let mut sent = ethernet([0x8e, 1, 2, 3, 4, 5], 0x0806, &[0; 46]);
            sent[14..42].copy_from_slice(&own_arp());
            guest.send(&sent).await;
            let after = stats(&bed.pod, &nics).await.expect("counted").remove(0);
            let received = (after.rx_packets - before.rx_packets, after.rx_bytes - before.rx_bytes);
            assert_eq!(received, (3, 3 * FRAME as u64), "{path:?}: {before:?} {after:?}");
            let sent = (after.tx_packets - before.tx_packets, after.tx_bytes - before.tx_bytes);
            assert_eq!(sent, (1, FRAME as u64), "{path:?}: {before:?} {after:?}");
            assert_eq!(after.tx_dropped, before.tx_dropped, "{path:?}");
        });
    }
}

/// The kernel lets a macvtap be opened again, and does not tell: see [`crate::sys::macvtap::open`]. If this fails, a
/// kernel does, and machines can be kept apart.
#[test]
fn a_second_machine_is_refused_a_tap_and_cannot_be_refused_a_macvtap() {
    for path in PATHS {
        apart(async || {
            let bed = Bed::new();
            let nics = joined(&bed, by(path)).await.nics;
            let events = bed.pod.inside(Events::here).expect("entered");
            let carrier = |seen: Seen| seen.0.iter().find(|link| link.name.as_str() == "tap0").map(|link| link.carrier);
            let free = carrier(bed.state());
            let _first = open_taps(&bed.pod, &nics, false).await.expect("opened");
            if path == DataPath::Macvtap {
                assert_eq!(carrier(bed.state()), free, "tells whether it is open");
                open_taps(&bed.pod, &nics, false).await.expect("opened by two");
            } else {
                events.until_up(&["tap0".to_owned()]);
                let refused = refused_taps(&bed.pod, &nics).await;
                assert!(matches!(refused, JoinError::Tap(TapError::Busy { .. })), "{path:?}: {refused}");
            }
        });
    }
}

/// "Who has 10.77.0.1?" of the guest.
fn own_arp() -> [u8; 28] {
    let mut arp = [0; 28];
    arp[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    arp[8..14].copy_from_slice(&[0x8e, 1, 2, 3, 4, 5]);
    arp[14..18].copy_from_slice(&[10, 77, 0, 2]);
    arp[24..28].copy_from_slice(&[10, 77, 0, 1]);
    arp
}
