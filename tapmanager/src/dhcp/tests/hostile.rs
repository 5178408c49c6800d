//! Nothing that a guest sends, and nothing that a plugin reports, can upset the server.

use dhcproto::v4::UnknownOption;
use proptest::prelude::*;

use super::*;

/// A client's message of any options, of any lengths and contents.
fn any_message() -> impl Strategy<Value = Say> {
    let kind = (0_u8..=20).prop_map(MessageType::from);
    let address =
        prop_oneof![Just(NONE), Just(OURS), Just(OTHER), Just(GATEWAY), any::<u32>().prop_map(Ipv4Addr::from)];
    let code = prop_oneof![Just(50), Just(52), Just(54), Just(55), Just(57), Just(61), Just(97), any::<u8>()];
    let size = any::<u16>().prop_map(|size| (57, size.to_be_bytes().to_vec()));
    let option = prop_oneof![3 => (code, prop::collection::vec(any::<u8>(), 0..260)), 1 => size];
    let mac = prop_oneof![4 => Just(VM), 1 => Just(STRANGER), 1 => Just(GATEWAY_MAC), 1 => Just(BROADCAST_MAC)];
    let options = prop::collection::vec(option, 0..6);
    (kind, address.clone(), address, any::<u16>(), options, mac.clone(), mac).prop_map(
        |(kind, ciaddr, wish, flags, options, from_mac, to_mac)| {
            let mut opts: DhcpOptions = options
                .into_iter()
                .map(|(code, data)| DhcpOption::Unknown(UnknownOption::new(code.into(), data)))
                .map(|option| (OptionCode::from(&option), option))
                .collect();
            opts.insert(DhcpOption::MessageType(kind));
            if !wish.is_unspecified() {
                opts.insert(wanted(wish));
            }
            Say { from_mac, to_mac, ..Say::new(kind) }
                .edit(|message| message.set_ciaddr(ciaddr).set_flags(flags.into()).set_opts(opts))
        },
    )
}

fn any_lease() -> impl Strategy<Value = Lease> {
    let address = any::<u32>().prop_map(Ipv4Addr::from);
    let route = (address.clone(), 0_u8..=32, address.clone());
    let routes = prop::collection::vec(route, 0..80);
    let label = "[a-z0-9-]{1,63}";
    let domain = prop::collection::vec(label, 1..4).prop_map(|labels| labels.join("."));
    (
        routes,
        prop::collection::vec(domain, 0..40),
        prop::collection::vec(address, 0..90),
        any::<u16>(),
        0_u8..=32,
        any::<u64>(),
    )
        .prop_map(|(routes, searches, dns, mtu, prefix, seconds)| Lease {
            address: Ipv4Network::new(OURS, prefix).unwrap(),
            routes: routes
                .into_iter()
                .map(|(dst, prefix, hop)| {
                    let dst = Ipv4Network::new(dst, prefix).unwrap();
                    (Ipv4Network::new(dst.network(), prefix).unwrap(), hop)
                })
                .collect(),
            searches,
            dns,
            mtu,
            lease: Duration::from_secs(seconds),
            ..lease()
        })
}

proptest! {
    #[test]
    fn any_bytes_are_survived_in_silence(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        prop_assert_eq!(Server::new(lease()).handle_frame(&bytes), None);
        // Behind headers that are right they may be a message, but hardly ever one of this client.
        prop_assert_eq!(Server::new(lease()).handle_frame(&frame_of(VM, BROADCAST_MAC, ALL, &bytes)), None);
    }

    #[test]
    fn a_damaged_request_is_survived(at in 0_usize..400, byte: u8, cut in 0_usize..400) {
        let say = Say::new(MessageType::Request).opt(wanted(OURS)).opt(asking_for(&[OptionCode::Router]));
        let mut frame = say.opt(DhcpOption::ClientIdentifier(vec![7; 40])).frame();
        if let Some(place) = frame.get_mut(at) {
            *place = byte;
        }
        frame.truncate(cut);
        if let Some(reply) = Server::new(lease()).handle_frame(&frame) {
            hear(&reply);
        }
    }

    #[test]
    fn every_answer_is_whole_short_enough_and_for_this_machine(say in any_message(), lease in any_lease()) {
        let max = say.message.opts().get(OptionCode::MaxMessageSize).and_then(|option| match option {
            DhcpOption::Unknown(option) => <[u8; 2]>::try_from(option.data()).ok().map(u16::from_be_bytes),
            _ => None,
        });
        let longest = usize::from(max.unwrap_or(576).max(576).min(lease.mtu.max(576)));
        if let Some(heard) = ask(lease.clone(), &say) {
            prop_assert_eq!(say.from_mac, VM);
            prop_assert!(heard.to_mac == VM || heard.to_mac == BROADCAST_MAC);
            prop_assert_eq!(heard.message.chaddr(), &VM[..]);
            prop_assert!(heard.packet_len <= longest, "{} over {}", heard.packet_len, longest);
            prop_assert!(heard.payload.len() >= 300);
            let opts = heard.message.opts();
            prop_assert_eq!(opts.get(OptionCode::ServerIdentifier), Some(&server_id(GATEWAY)));
            if heard.message.yiaddr() == OURS {
                prop_assert!(opts.contains(OptionCode::SubnetMask) && opts.contains(OptionCode::AddressLeaseTime));
                // What is left out is the end of the list, never the start.
                if let Some(DhcpOption::ClasslessStaticRoute(told)) = opts.get(OptionCode::ClasslessStaticRoute) {
                    let told: Vec<_> = told.iter().map(|(dst, hop)| (dst.addr(), dst.prefix_len(), *hop)).collect();
                    let all: Vec<_> = lease.routes.iter().map(|(dst, hop)| (dst.ip(), dst.prefix(), *hop)).collect();
                    prop_assert_eq!(Some(&told[..]), all.get(..told.len()));
                }
            } else {
                prop_assert_eq!(heard.message.yiaddr(), NONE);
                prop_assert!(!opts.contains(OptionCode::AddressLeaseTime));
            }
        }
    }
}
