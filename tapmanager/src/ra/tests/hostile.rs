//! Nothing that a guest or the network sends, and nothing that a plugin makes, can upset the server.

use proptest::prelude::*;
use proto::tap::Route;

use super::*;

fn any_nic() -> impl Strategy<Value = Nic> {
    let address = prop_oneof![Just("fd00:77::1".parse().unwrap()), any::<u128>().prop_map(Ipv6Addr::from)];
    let net = (address.clone(), 0_u8..=128).prop_map(|(ip, prefix)| {
        let net = ipnetwork::Ipv6Network::new(ip, prefix).unwrap();
        ipnetwork::IpNetwork::V6(net)
    });
    let route =
        (net.clone(), prop::option::of(address)).prop_map(|(dst, hop)| Route { dst, gateway: hop.map(IpAddr::V6) });
    (prop::collection::vec(net, 0..5), prop::collection::vec(route, 0..120), any::<u32>())
        .prop_map(|(addresses, routes, mtu)| Nic { addresses, routes, mtu, ..bridged() })
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let target = prop_oneof![Just(ip(STAND_IN)), Just(ip("fd00:77::1")), any::<u128>().prop_map(Ipv6Addr::from)];
    let option = (0_u8..4, 0_u8..3, prop::collection::vec(any::<u8>(), 0..20))
        .prop_map(|(kind, len, data)| [&[kind, len][..], &data].concat());
    (130_u8..140, any::<[u8; 4]>(), target, prop::collection::vec(option, 0..3)).prop_map(
        |(kind, flags, target, options)| [&[kind, 0, 0, 0][..], &flags, &target.octets(), &options.concat()].concat(),
    )
}

proptest! {
    #[test]
    fn any_bytes_are_survived_in_silence(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(server(&bridged()).handle_frame(&bytes), Answers::default());
        prop_assert_eq!(server(&bridged()).handle_link_frame(&bytes), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn any_message_gets_few_answers_and_whole_ones(message in any_message(), from_nobody: bool, cut in 0_usize..120) {
        let from = if from_nobody { NONE } else { GUEST };
        let mut server = server(&bridged());
        for mac in [VM, GATEWAY_MAC] {
            let mut frame = frame(mac, from, VM, "ff02::1", 255, &message);
            frame.truncate(54 + cut);
            let Answers { to_guest, to_link } = server.handle_frame(&frame);
            let heard = server.handle_link_frame(&frame);
            prop_assert!(to_guest.len() + to_link.len() <= 1 && heard.len() <= 1);
            for frame in to_guest.iter().chain(&heard) {
                told(frame);
                prop_assert_ne!(parse(frame).unwrap().from_mac, VM);
            }
            for frame in &to_link {
                told(frame);
                let packet = parse(frame).unwrap();
                prop_assert_eq!((packet.from_mac, packet.from), (VM, ip("fd00:77::2")));
            }
        }
    }

    #[test]
    fn whatever_the_pod_has_is_told_in_whole_packets(nic in any_nic()) {
        let Some(server) = Server::new(&nic, &dns(&["fd00:96::a"], &["cluster.local"])) else { return Ok(()) };
        let told = all_told(&server.unsolicited());
        prop_assert!((1..=32).contains(&told.len()));
        prop_assert!(told[0].contains("dns") || nic.routes.len() + nic.addresses.len() > 20, "{:?}", told);
        // A default route is never made up.
        let default = nic.routes.iter().any(|route| route.dst.prefix() == 0 && route.gateway.is_some());
        prop_assert!(default || !told.iter().any(|told| told.contains("for 65535")), "{:?}", told);
    }
}
