//! Nothing that a guest sends can upset the server.

use proptest::prelude::*;

use super::*;

/// A client's message of any options, of any lengths and contents, nested or not.
fn any_message() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..80);
    let address = prop_oneof![Just(ip(OURS)), Just(ip(SECOND)), any::<u128>().prop_map(Ipv6Addr::from)];
    let ia_addr = address.prop_map(|address| tlv(5, &[&address.octets()[..], &[0; 8]].concat()));
    let inner = prop::collection::vec(prop_oneof![4 => ia_addr, 1 => bytes()], 0..30);
    let ia = (prop_oneof![4 => Just(3_u16), 1 => Just(4), 1 => Just(25)], any::<u32>(), inner)
        .prop_map(|(code, id, inner)| tlv(code, &[&id.to_be_bytes()[..], &[0; 8], &inner.concat()].concat()));
    let other = (prop_oneof![Just(6_u16), Just(14), Just(39), 0_u16..100, any::<u16>()], bytes())
        .prop_map(|(code, data)| tlv(code, &data));
    let ids = prop_oneof![
        8 => Just([tlv(1, &CLIENT_DUID), tlv(2, &server_duid())].concat()),
        8 => Just(tlv(1, &CLIENT_DUID)),
        1 => bytes(),
    ];
    let options = prop::collection::vec(prop_oneof![3 => ia, 2 => other, 1 => bytes()], 0..8);
    (0_u8..16, ids, options).prop_map(|(kind, ids, options)| {
        let mut message = [&[kind, 1, 2, 3][..], &ids, &options.concat()].concat();
        message.truncate(1452);
        (kind, message)
    })
}

fn tlv(code: u16, data: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &u16::try_from(data.len()).unwrap().to_be_bytes(), data].concat()
}

proptest! {
    #[test]
    fn any_bytes_are_survived_in_silence(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        prop_assert_eq!(server().handle_frame(&bytes), None);
        // Behind headers that are right they may be a message, but hardly ever one of a client with a name.
        let frame = frame_of(&Say::new(MessageType::Solicit), &bytes);
        if let Some(reply) = server().handle_frame(&frame) {
            hear(&reply);
        }
    }

    #[test]
    fn a_damaged_request_is_survived(at in 0_usize..200, byte: u8, cut in 0_usize..300) {
        let say = Say::new(MessageType::Request).chosen().ia(7, &[OURS, SECOND]).asking_for(&[23, 24]).opt(fqdn(1));
        let mut frame = say.frame();
        if let Some(place) = frame.get_mut(at) {
            *place = byte;
        }
        frame.truncate(cut);
        if let Some(reply) = server().handle_frame(&frame) {
            hear(&reply);
        }
    }

    #[test]
    fn every_answer_is_whole_and_gives_no_more_than_the_nic_has((kind, message) in any_message()) {
        let frame = frame_of(&Say::new(MessageType::Solicit), &message);
        if let Some(reply) = server().handle_frame(&frame) {
            let heard = hear(&reply);
            let mut given = Vec::new();
            for option in heard.opts().iter() {
                let DhcpOption::IANA(ia) = option else { continue };
                prop_assert!(matches!(kind, 1 | 3 | 5 | 6 | 8 | 9));
                prop_assert!(ia.t1 <= ia.t2);
                for option in ia.opts.iter() {
                    match option {
                        DhcpOption::IAAddr(ia) if ia.valid_life > 0 => given.push(ia.addr),
                        DhcpOption::StatusCode(status) => prop_assert_ne!(status.status, Status::Success),
                        _ => {}
                    }
                }
            }
            // Each of the NIC's once at most.
            let all = given.len();
            given.sort_unstable();
            given.dedup();
            prop_assert_eq!(given.len(), all);
            prop_assert!(given.iter().all(|address| [ip(OURS), ip(SECOND)].contains(address)), "{:?}", given);
        }
    }
}
