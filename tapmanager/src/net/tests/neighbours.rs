//! Gateways that nobody on the link answers for, as AWS VPC's plugin and Azure's make them: a permanent neighbour of the
//! pod's link, with an address that no station has.

use std::net::{SocketAddr, TcpListener, TcpStream};

use proto::tap::{DataPath, Dns};
use tokio_util::sync::CancellationToken;

use super::stack::Stack;
use super::*;
use crate::addressing::{Servers, Sockets, serve};

/// Addresses of the node, behind the gateway.
const BEYOND: [&str; 2] = ["10.99.0.1", "fd00:99::1"];
const LEASE: Duration = Duration::from_secs(3600);

/// A pod as those plugins leave it, and the node.
fn bed() -> Bed {
    let bed = Bed::new();
    let in_pod = || {
        for line in [
            "addr flush dev eth0 scope global",
            "addr add 10.77.0.2/32 dev eth0",
            "addr add fd00:77::2/128 dev eth0 nodad",
            "route add 169.254.1.1/32 dev eth0",
            "route add default via 169.254.1.1",
            "route add default via fe80::1 dev eth0",
            "neigh add 169.254.1.1 lladdr 02:00:00:00:00:01 nud permanent dev eth0",
            "neigh add fe80::1 lladdr 02:00:00:00:00:01 nud permanent dev eth0",
        ] {
            ip(line);
        }
    };
    bed.pod.inside(in_pod).expect("entered");
    for line in [
        "addr add 10.99.0.1/32 dev host0",
        "addr add fd00:99::1/128 dev host0 nodad",
        "route add 10.77.0.2/32 dev host0",
        "route add fd00:77::2/128 dev host0",
    ] {
        ip(line);
    }
    bed
}

fn guests_own() {
    for line in [
        "addr add 10.77.0.2/32 dev guest0",
        "addr add fd00:77::2/128 dev guest0 nodad",
        "route add 169.254.1.1/32 dev guest0",
        "route add default via 169.254.1.1",
        "route add default via fe80::1 dev guest0",
    ] {
        ip(line);
    }
}

#[test]
fn by_each_data_path_with_servers_a_guest_reaches_a_gateway_that_is_a_permanent_neighbour() {
    for path in [DataPath::Tc, DataPath::Bridge] {
        apart(async || {
            let bed = bed();
            let there = BEYOND.map(|ip| TcpListener::bind((ip, 0)).expect("bound"));
            let there: Vec<SocketAddr> = there.iter().map(|one| one.local_addr().expect("an address")).collect();
            let choices = Choices { data_path: path, queues: 1, anti_spoof: true };
            let addresses = vec!["10.77.0.2/32".parse().unwrap(), "fd00:77::2/128".parse().unwrap()];
            let reported = [Reported { addresses, ..bed.reported() }];
            let joined = join(&bed.pod, &reported, choices, &Arc::new(Faults::none())).await.expect("joined");
            assert_eq!(joined.notes.len(), 2, "{:?}", joined.notes);
            let guest = Stack::behind(&bed, &joined.nics).await;
            guest.netns.inside(guests_own).expect("entered");
            let mut ports = joined.ports;
            for life in ["first", "second"] {
                let Some(Port { socket, neighbours }) = ports.remove(0) else { panic!("a port") };
                let servers = Servers::of(&joined.nics[0], &Dns::default(), "", LEASE, &neighbours).expect("servers");
                let cancel = CancellationToken::new();
                let served = tokio::spawn(serve(Sockets { tap: socket, link: None }, servers, cancel.clone()));
                guest.netns.inside(|| ip("neigh flush dev guest0")).expect("entered");
                for to in there.clone() {
                    let call = move || TcpStream::connect_timeout(&to, Duration::from_secs(9)).map(drop);
                    let called = guest.netns.visit(call).await.expect("entered");
                    called.unwrap_or_else(|error| panic!("{path:?}, {life} life of the servers, {to}: {error}"));
                }
                cancel.cancel();
                served.await.expect("served");
                ports = rejoin(&bed.pod, &joined.nics).await.expect("joined again");
            }
        });
    }
}

#[test]
fn on_a_macvtap_such_a_gateway_is_refused() {
    apart(async || {
        let bed = bed();
        let before = bed.state();
        let choices = Choices { data_path: DataPath::Macvtap, queues: 1, anti_spoof: true };
        let reported = [Reported { addresses: vec!["10.77.0.2/32".parse().unwrap()], ..bed.reported() }];
        let error = join(&bed.pod, &reported, choices, &Arc::new(Faults::none())).await.expect_err("refused");
        let JoinError::Plan(plan::PlanError::Neighbour { gateway, .. }) = &error else { panic!("{error}") };
        assert_eq!(gateway.to_string(), "169.254.1.1");
        assert_eq!(bed.state(), before);
    });
}
