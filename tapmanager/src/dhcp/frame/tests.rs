use proptest::prelude::*;

use super::*;

/// A DISCOVER's envelope as a kernel writes it, around four bytes, padded by the link to 60.
fn frame() -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend([0xff; 6]);
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend([8, 0]);
    frame.extend([0x45, 0x10, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    frame.extend([0, 68, 0, 67, 0, 12, 0, 0]);
    frame.extend(b"dhcp");
    frame.resize(60, 0);
    frame
}

fn with(at: usize, byte: u8) -> Vec<u8> {
    let mut frame = frame();
    frame[at] = byte;
    frame
}

#[test]
fn a_datagram_is_taken_out_of_its_headers_and_padding() {
    let expected =
        Datagram { from_mac: [2, 0, 0, 0, 0, 1], to_mac: [0xff; 6], to: Ipv4Addr::BROADCAST, payload: b"dhcp" };
    assert_eq!(parse(&frame()), Some(expected));
}

#[test]
fn ip_options_are_skipped() {
    let mut frame = with(14, 0x46);
    frame[17] = 36;
    frame.splice(34..34, [1, 1, 1, 1]);
    assert_eq!(parse(&frame).map(|datagram| datagram.payload), Some(&b"dhcp"[..]));
}

#[test]
fn a_checksum_that_the_guest_leaves_to_the_device_does_not_matter() {
    assert!(parse(&with(40, 0xab)).is_some());
}

#[test]
fn what_does_not_hold_together_is_no_datagram() {
    for (what, frame) in [
        ("empty", vec![]),
        ("a tagged frame", with(12, 0x81)),
        ("ARP", with(13, 6)),
        ("IP version 6", with(14, 0x65)),
        ("a header shorter than it can be", with(14, 0x44)),
        ("a header that ends behind the packet", with(14, 0x4f)),
        ("a packet that ends behind the frame", with(17, 47)),
        ("a packet that ends in its header", with(17, 19)),
        ("a packet that ends in the UDP header", with(17, 27)),
        ("a first fragment", with(20, 0x20)),
        ("a later fragment", with(21, 1)),
        ("TCP", with(23, 6)),
        ("another port", with(37, 68)),
        ("a datagram that ends behind the packet", with(39, 13)),
        ("a datagram that ends in its header", with(39, 7)),
    ] {
        assert_eq!(parse(&frame), None, "{what}");
    }
    for len in 0..46 {
        assert_eq!(parse(frame().get(..len).unwrap()), None, "cut to {len}");
    }
}

const ENVELOPE: Envelope = Envelope {
    from_mac: [2, 0, 0, 0, 0, 9],
    to_mac: [2, 0, 0, 0, 0, 1],
    from: Ipv4Addr::new(10, 77, 0, 1),
    to: Ipv4Addr::new(10, 77, 0, 2),
};

/// Sum of all 16-bit words with carries brought in: all ones where a checksum is right (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) * 256 + word.get(1).map_or(0, |low| u64::from(*low)));
    let total = words.sum::<u64>() % 0xffff;
    if total == 0 { 0xffff } else { u16::try_from(total).unwrap() }
}

#[test]
fn a_message_longer_than_a_packet_is_not_built() {
    assert!(build(&ENVELOPE, &vec![0; 65_507]).is_some());
    assert!(build(&ENVELOPE, &vec![0; 65_508]).is_none());
}

proptest! {
    #[test]
    fn checksums_and_lengths_of_what_is_built_are_right(payload in prop::collection::vec(any::<u8>(), 0..600)) {
        let frame = build(&ENVELOPE, &payload).unwrap();
        let (ip, udp) = (&frame[14..34], &frame[34..]);
        prop_assert_eq!(sum(ip), 0xffff);
        let udp_len = u16::try_from(udp.len()).unwrap().to_be_bytes();
        let pseudo_header = [&ip[12..20], &[0, 17], &udp_len].concat();
        prop_assert_eq!(sum(&[&pseudo_header, udp].concat()), 0xffff);
        prop_assert_ne!(&udp[6..8], &[0, 0]);
        prop_assert_eq!(&ip[2..4], &u16::try_from(payload.len() + 28).unwrap().to_be_bytes());
        prop_assert_eq!(&udp[..6], &[0, 67, 0, 68, udp_len[0], udp_len[1]]);
        prop_assert_eq!(&udp[8..], &payload);
        prop_assert_eq!((&frame[..6], &frame[6..12]), (&ENVELOPE.to_mac[..], &ENVELOPE.from_mac[..]));
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..60_usize, byte: u8) {
        let _ = parse(&bytes);
        let _ = parse(&with(at, byte));
    }
}
